//! A second opinion on what the kernel writes: a list made from the manual pages, not from the table, and the sizes
//! of libc's own structures.

use us_calls::{Out, Row, TABLE};

fn row(name: &str) -> &'static Row {
    TABLE.iter().flatten().find(|row| row.name == name).unwrap_or_else(|| panic!("no row {name}"))
}

/// The pointer argument of an output that is written through one.
fn pointer(out: &Out) -> u8 {
    match *out {
        Out::Fixed { arg, .. }
        | Out::Always { arg, .. }
        | Out::Result { arg }
        | Out::ResultUpTo { arg, .. }
        | Out::ResultItems { arg, .. }
        | Out::ResultItemsUpTo { arg, .. }
        | Out::Msgbuf { arg }
        | Out::Pages { arg, .. }
        | Out::NodeMask { arg, .. }
        | Out::CapData { arg, .. }
        | Out::XattrArgs { arg }
        | Out::ArgItems { arg, .. }
        | Out::ArgBytes { arg, .. }
        | Out::SockLen { arg, .. }
        | Out::Iovec { arg, .. }
        | Out::Msghdr { arg }
        | Out::Mmsghdr { arg }
        | Out::MmsgLens { arg }
        | Out::FdSet { arg, .. }
        | Out::FileHandle { arg }
        | Out::ByCommand { arg, .. } => arg,
        Out::Ioctl | Out::Fcntl => 2,
        Out::Prctl => 1,
    }
}

/// Call, and the arguments behind which the kernel writes. Empty: nothing is written.
const MANUAL: &[(&str, &[u8])] = &[
    ("read", &[1]),
    ("pread64", &[1]),
    ("readv", &[1]),
    ("preadv", &[1]),
    ("preadv2", &[1]),
    ("write", &[]),
    ("writev", &[]),
    ("open", &[]),
    ("openat", &[]),
    ("close", &[]),
    ("stat", &[1]),
    ("fstat", &[1]),
    ("lstat", &[1]),
    ("newfstatat", &[2]),
    ("statx", &[4]),
    ("statfs", &[1]),
    ("fstatfs", &[1]),
    ("poll", &[0]),
    ("ppoll", &[0, 2]),
    ("select", &[1, 2, 3, 4]),
    ("pselect6", &[1, 2, 3, 4]),
    ("epoll_wait", &[1]),
    ("epoll_pwait", &[1]),
    ("epoll_pwait2", &[1]),
    ("epoll_ctl", &[]),
    ("lseek", &[]),
    ("ioctl", &[2]),
    ("fcntl", &[2]),
    ("prctl", &[1]),
    ("pipe", &[0]),
    ("pipe2", &[0]),
    ("socketpair", &[3]),
    ("socket", &[]),
    ("connect", &[]),
    ("accept", &[1]),
    ("accept4", &[1]),
    ("getsockname", &[1, 2]),
    ("getpeername", &[1, 2]),
    ("getsockopt", &[3]),
    ("setsockopt", &[]),
    ("sendto", &[]),
    ("recvfrom", &[1, 4]),
    ("sendmsg", &[]),
    ("recvmsg", &[1]),
    ("sendmmsg", &[1]),
    ("recvmmsg", &[1, 4]),
    ("sendfile", &[2]),
    ("copy_file_range", &[1, 3]),
    ("splice", &[1, 3]),
    ("wait4", &[1, 3]),
    ("waitid", &[2, 4]),
    ("uname", &[0]),
    ("getcwd", &[0]),
    ("readlink", &[1]),
    ("readlinkat", &[2]),
    ("getdents64", &[1]),
    ("gettimeofday", &[0, 1]),
    ("clock_gettime", &[1]),
    ("clock_getres", &[1]),
    ("clock_nanosleep", &[3]),
    ("nanosleep", &[1]),
    ("time", &[0]),
    ("times", &[0]),
    ("getrlimit", &[1]),
    ("prlimit64", &[3]),
    ("getrusage", &[1]),
    ("sysinfo", &[0]),
    ("getrandom", &[0]),
    ("getcpu", &[0, 1]),
    ("getgroups", &[1]),
    ("getresuid", &[0, 1, 2]),
    ("getresgid", &[0, 1, 2]),
    ("sched_getaffinity", &[2]),
    ("sched_getparam", &[1]),
    ("sched_getattr", &[1]),
    ("getxattr", &[2]),
    ("fgetxattr", &[2]),
    ("listxattr", &[1]),
    ("flistxattr", &[1]),
    ("timerfd_settime", &[3]),
    ("timerfd_gettime", &[1]),
    ("timer_create", &[2]),
    ("timer_settime", &[3]),
    ("timer_gettime", &[1]),
    ("getitimer", &[1]),
    ("setitimer", &[2]),
    ("rt_sigtimedwait", &[1]),
    ("rt_sigpending", &[0]),
    ("msgrcv", &[1]),
    ("mq_timedreceive", &[1, 3]),
    ("mq_getsetattr", &[2]),
    ("mincore", &[2]),
    ("name_to_handle_at", &[2, 3]),
    ("eventfd2", &[]),
    ("inotify_add_watch", &[]),
    ("fsync", &[]),
    ("ftruncate", &[]),
    ("unlink", &[]),
    ("mkdir", &[]),
    ("rename", &[]),
];

#[test]
fn the_manual_agrees() {
    for (name, args) in MANUAL {
        let mut written: Vec<u8> = row(name).outs.iter().map(pointer).collect();
        written.sort_unstable();
        assert_eq!(written, *args, "{name}");
    }
}

/// Bytes of the fixed (or always written) output at argument `arg`, or the item size of an array.
fn size(name: &str, arg: u8) -> usize {
    let found = row(name).outs.iter().find(|out| pointer(out) == arg);
    match found {
        Some(
            Out::Fixed { len: size, .. }
            | Out::Always { len: size, .. }
            | Out::ArgItems { size, .. }
            | Out::ResultItems { size, .. }
            | Out::ResultItemsUpTo { size, .. },
        ) => *size as usize,
        other => panic!("{name}: argument {arg} is {other:?}"),
    }
}

#[test]
fn sizes_are_those_of_libc() {
    macro_rules! same {
        ($($name:literal $arg:literal $ty:ty;)*) => {
            $(assert_eq!(size($name, $arg), size_of::<$ty>(), "{} {}", $name, stringify!($ty));)*
        };
    }
    same! {
        "stat" 1 libc::stat;
        "fstat" 1 libc::stat;
        "lstat" 1 libc::stat;
        "newfstatat" 2 libc::stat;
        "statx" 4 libc::statx;
        "statfs" 1 libc::statfs;
        "fstatfs" 1 libc::statfs;
        "poll" 0 libc::pollfd;
        "ppoll" 0 libc::pollfd;
        "ppoll" 2 libc::timespec;
        "select" 4 libc::timeval;
        "pselect6" 4 libc::timespec;
        "epoll_wait" 1 libc::epoll_event;
        "epoll_pwait2" 1 libc::epoll_event;
        "wait4" 1 libc::c_int;
        "wait4" 3 libc::rusage;
        "waitid" 4 libc::rusage;
        "rt_sigtimedwait" 1 libc::siginfo_t;
        "getrusage" 1 libc::rusage;
        "uname" 0 libc::utsname;
        "sysinfo" 0 libc::sysinfo;
        "times" 0 libc::tms;
        "getrlimit" 1 libc::rlimit;
        "prlimit64" 3 libc::rlimit64;
        "gettimeofday" 0 libc::timeval;
        "clock_gettime" 1 libc::timespec;
        "nanosleep" 1 libc::timespec;
        "clock_nanosleep" 3 libc::timespec;
        "getitimer" 1 libc::itimerval;
        "setitimer" 2 libc::itimerval;
        "timer_settime" 3 libc::itimerspec;
        "timerfd_settime" 3 libc::itimerspec;
        "timerfd_gettime" 1 libc::itimerspec;
        "adjtimex" 0 libc::timex;
        "clock_adjtime" 1 libc::timex;
        "mq_getsetattr" 2 libc::mq_attr;
        "sched_getparam" 1 libc::sched_param;
        "getgroups" 1 libc::gid_t;
        "getresuid" 0 libc::uid_t;
        "sendfile" 2 libc::off64_t;
        "pipe2" 0 [libc::c_int; 2];
    }
}

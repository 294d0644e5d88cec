//! Asks the kernel: how many bytes does a call really write? A buffer is filled with a pattern, the call made, and
//! again with another pattern: what kept both patterns was not written. One byte too few would be missing in the
//! standby; one too many would copy the primary's neighbouring memory over the standby's.

use us_calls::{IoctlDir, IoctlOut, Out, TABLE, command_out, ioctl_out};

const ROOM: usize = 1024;

#[repr(C, align(64))]
struct Buffer([u8; ROOM]);

/// Makes the call twice with argument `at` pointing at a buffer that starts with `head`; answers how many bytes
/// were written, or `None` when the call fails.
fn written(nr: i64, mut args: [u64; 6], at: usize, head: &[u8]) -> Option<usize> {
    let mut end = 0;
    for pattern in [0xaa_u8, 0x55] {
        let mut buffer = Buffer([pattern; ROOM]);
        buffer.0[..head.len()].copy_from_slice(head);
        args[at] = buffer.0.as_mut_ptr() as u64;
        // SAFETY: every call of this file writes at most ROOM bytes at the one pointer that it is given (a
        // mistake in the table shows as a wrong count, not as a longer write by the kernel); all other
        // arguments are numbers, null or strings that live as long as the test.
        let result = unsafe { libc::syscall(nr, args[0], args[1], args[2], args[3], args[4], args[5]) };
        if result < 0 {
            return None;
        }
        end = end.max(buffer.0.iter().rposition(|&byte| byte != pattern).map_or(0, |last| last + 1));
    }
    Some(end)
}

/// Bytes that the table promises at argument `arg`.
fn promised(nr: i64, arg: usize) -> usize {
    let row = us_calls::row(nr as u64).expect("a row");
    let len = row.outs.iter().find_map(|out| match *out {
        Out::Fixed { arg: a, len } | Out::Always { arg: a, len } if usize::from(a) == arg => Some(len),
        _ => None,
    });
    len.unwrap_or_else(|| panic!("{}: argument {arg} has no fixed size", row.name)) as usize
}

#[test]
fn fixed_outputs_are_as_long_as_the_table_says() {
    let root = c"/".as_ptr() as u64;
    let here = libc::AT_FDCWD as u64;
    let calls: &[(i64, [u64; 6], usize)] = &[
        (libc::SYS_stat, [root, 0, 0, 0, 0, 0], 1),
        (libc::SYS_lstat, [root, 0, 0, 0, 0, 0], 1),
        (libc::SYS_newfstatat, [here, root, 0, 0, 0, 0], 2),
        (libc::SYS_statx, [here, root, 0, 0x7ff, 0, 0], 4),
        (libc::SYS_statfs, [root, 0, 0, 0, 0, 0], 1),
        (libc::SYS_uname, [0; 6], 0),
        (libc::SYS_sysinfo, [0; 6], 0),
        (libc::SYS_getrusage, [0; 6], 1),
        (libc::SYS_times, [0; 6], 0),
        (libc::SYS_getrlimit, [7, 0, 0, 0, 0, 0], 1),
        (libc::SYS_prlimit64, [0, 7, 0, 0, 0, 0], 3),
        (libc::SYS_gettimeofday, [0; 6], 0),
        (libc::SYS_gettimeofday, [0; 6], 1),
        (libc::SYS_clock_gettime, [1, 0, 0, 0, 0, 0], 1),
        (libc::SYS_clock_getres, [1, 0, 0, 0, 0, 0], 1),
        (libc::SYS_time, [0; 6], 0),
        (libc::SYS_getitimer, [0; 6], 1),
        (libc::SYS_getcpu, [0; 6], 0),
        (libc::SYS_getcpu, [0; 6], 1),
        (libc::SYS_sched_getparam, [0; 6], 1),
        (libc::SYS_sched_rr_get_interval, [0; 6], 1),
    ];
    for &(nr, args, at) in calls {
        let name = us_calls::name(nr as u64);
        assert_eq!(written(nr, args, at, &[]), Some(promised(nr, at)), "{name}, argument {at}");
    }
}

#[test]
fn terminal_requests_write_what_ioctl_out_says() {
    // SAFETY: opens a device; the descriptor is closed below.
    let terminal = unsafe { libc::open(c"/dev/ptmx".as_ptr(), libc::O_RDWR | libc::O_NOCTTY) };
    assert!(terminal >= 0, "/dev/ptmx: {}", std::io::Error::last_os_error());
    // TCGETS, TCGETA, TIOCGWINSZ, FIONREAD, TIOCOUTQ, TIOCGPTN, TIOCGPKT, TCGETS2
    for request in [0x5401_u64, 0x5405, 0x5413, 0x541b, 0x5411, 0x8004_5430, 0x8004_5438, 0x802c_542a] {
        let IoctlOut::Bytes { dir: IoctlDir::Out, len } = ioctl_out(request) else {
            panic!("{request:#x}: {:?}", ioctl_out(request));
        };
        let seen = written(libc::SYS_ioctl, [terminal as u64, request, 0, 0, 0, 0], 2, &[]);
        // struct termio ends with a byte of padding that the kernel leaves alone.
        let expected = if request == 0x5405 { len - 1..=len } else { len..=len };
        assert!(seen.is_some_and(|n| expected.contains(&(n as u32))), "{request:#x}: {seen:?}, table {len}");
    }
    // SAFETY: the descriptor opened above.
    unsafe { libc::close(terminal) };
}

#[test]
fn system_v_information_is_as_long_as_said() {
    // IPC_INFO and SHM_INFO, SEM_INFO, MSG_INFO: they need no object.
    let calls = [
        (libc::SYS_shmctl, 3, 2),
        (libc::SYS_shmctl, 14, 2),
        (libc::SYS_semctl, 3, 3),
        (libc::SYS_semctl, 19, 3),
        (libc::SYS_msgctl, 3, 2),
        (libc::SYS_msgctl, 12, 2),
    ];
    for (nr, cmd, at) in calls {
        let mut args = [0; 6];
        args[at - 1] = cmd;
        let seen = written(nr, args, at, &[]).map(|n| n as u32);
        assert_eq!(seen, command_out(nr as u64, cmd), "{} {cmd}", us_calls::name(nr as u64));
    }
}

#[test]
fn requests_that_lie_about_their_size_write_an_int() {
    let dir = c"/".as_ptr();
    // SAFETY: opens a directory; the descriptor is closed below.
    let root = unsafe { libc::open(dir, libc::O_RDONLY | libc::O_DIRECTORY) };
    assert!(root >= 0);
    for request in [0x8008_6601_u64, 0x8008_7601, 0x0000_0002] {
        // A file system without flags or versions answers ENOTTY: then there is nothing to compare.
        if let Some(seen) = written(libc::SYS_ioctl, [root as u64, request, 0, 0, 0, 0], 2, &[]) {
            assert_eq!(ioctl_out(request), IoctlOut::Bytes { dir: IoctlDir::Out, len: seen as u32 });
        }
    }
    // SAFETY: the descriptor opened above.
    unsafe { libc::close(root) };
}

#[test]
fn an_interface_request_writes_a_whole_ifreq() {
    // SAFETY: makes a socket; closed below.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM, 0) };
    assert!(socket >= 0);
    // SIOCGIFFLAGS of the loopback interface.
    assert_eq!(ioctl_out(0x8913), IoctlOut::Ifreq { out: true });
    let seen = written(libc::SYS_ioctl, [socket as u64, 0x8913, 0, 0, 0, 0], 2, b"lo\0");
    assert!(seen.is_none_or(|n| n <= 40), "{seen:?}");
    // SAFETY: the descriptor opened above.
    unsafe { libc::close(socket) };
}

#[test]
fn calls_that_the_table_calls_gone_are_gone() {
    for row in TABLE.iter().flatten().filter(|row| row.why.starts_with("the kernel has no such call")) {
        // Still there on older kernels (or by configuration), and then of no use to anyone: not asked.
        if matches!(row.name, "uselib" | "_sysctl" | "lookup_dcookie") {
            continue;
        }
        // SAFETY: a number that the kernel does not implement; nothing is passed.
        let result = unsafe { libc::syscall(i64::from(row.nr), 0, 0, 0, 0, 0, 0) };
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert_eq!((result, errno), (-1, Some(libc::ENOSYS)), "{}", row.name);
    }
}

//! Commands by their names: ioctl, fcntl, prctl, socket options, clone.

use linux_raw_sys::ioctl as raw;
use us_calls::{
    ETHTOOL_GLINKSETTINGS, FcntlArg, IoctlDir, IoctlOut, Order, Prctl, Sharing, SockOpt, clone_sharing,
    command_out, ethtool_out, fcntl_shape, ioctl_out, prctl_shape, sockopt_shape,
};

/// Not among the kernel's requests that this crate knows by name.
const SIOCETHTOOL: u32 = 0x8946;

const fn out(len: u32) -> IoctlOut {
    IoctlOut::Bytes { dir: IoctlDir::Out, len }
}

const fn input(len: u32) -> IoctlOut {
    IoctlOut::Bytes { dir: IoctlDir::In, len }
}

#[test]
fn ioctls_by_name() {
    let expected = [
        (raw::TCGETS, out(36)),
        (raw::TCSETS, input(36)),
        (raw::TCSETSW, input(36)),
        (raw::TCSETSF, input(36)),
        (raw::TCFLSH, IoctlOut::Scalar),
        (raw::TIOCGWINSZ, out(8)),
        (raw::TIOCSWINSZ, input(8)),
        (raw::TIOCGPGRP, IoctlOut::Pid { out: true }),
        (raw::TIOCSPGRP, IoctlOut::Pid { out: false }),
        (raw::TIOCGSID, IoctlOut::Pid { out: true }),
        (raw::TIOCSCTTY, IoctlOut::Scalar),
        (raw::TIOCNOTTY, IoctlOut::Scalar),
        (raw::TIOCGPTN, out(4)),
        (raw::TIOCSPTLCK, input(4)),
        (raw::TIOCGPTPEER, IoctlOut::Creates),
        (raw::TIOCGRS485, out(32)),
        (raw::TIOCGICOUNT, out(80)),
        (raw::TIOCMIWAIT, IoctlOut::Scalar),
        (raw::FIONREAD, out(4)),
        (raw::TIOCOUTQ, out(4)),
        (raw::FIONBIO, input(4)),
        (raw::FIOASYNC, input(4)),
        (raw::FIOCLEX, IoctlOut::Scalar),
        (raw::FIONCLEX, IoctlOut::Scalar),
        (raw::FIOQSIZE, out(8)),
        (raw::SIOCATMARK, out(4)),
        (raw::SIOCGIFCONF, IoctlOut::Ifconf),
        (SIOCETHTOOL, IoctlOut::Ethtool),
        (raw::SIOCGIFINDEX, IoctlOut::Ifreq { out: true }),
        (raw::SIOCGIFADDR, IoctlOut::Ifreq { out: true }),
        (raw::SIOCSIFADDR, IoctlOut::Ifreq { out: false }),
        (raw::SIOCSIFMTU, IoctlOut::Ifreq { out: false }),
        (raw::SIOCADDRT, IoctlOut::Opaque),
        (raw::BLKGETSIZE, out(8)),
        (raw::BLKGETSIZE64, out(8)),
        (raw::BLKSSZGET, out(4)),
        (raw::BLKBSZGET, out(4)),
        (raw::BLKROTATIONAL, out(2)),
        (raw::FIGETBSZ, out(4)),
        (raw::FICLONE, IoctlOut::Scalar),
        (raw::FICLONERANGE, input(32)),
        (raw::FS_IOC_GETFLAGS, out(4)),
        (raw::FS_IOC_SETFLAGS, input(4)),
        (raw::FS_IOC_FSGETXATTR, out(28)),
        (raw::FITRIM, IoctlOut::Bytes { dir: IoctlDir::InOut, len: 24 }),
        (raw::TUNSETIFF, IoctlOut::Ifreq { out: true }),
        (raw::TUNGETIFF, IoctlOut::Ifreq { out: true }),
        (raw::TUNSETQUEUE, IoctlOut::Ifreq { out: false }),
        (raw::TUNSETPERSIST, IoctlOut::Scalar),
        (raw::TUNATTACHFILTER, IoctlOut::Opaque),
        (raw::RNDGETENTCNT, out(4)),
        (raw::EVIOCGVERSION, out(4)),
        (raw::NS_GET_USERNS, IoctlOut::Creates),
        (raw::NS_GET_OWNER_UID, out(4)),
    ];
    for (request, shape) in expected {
        assert_eq!(ioctl_out(request.into()), shape, "{request:#x}");
        // A sign-extended or dirty upper half is the same request.
        assert_eq!(ioctl_out(u64::from(request) | 0xffff_ffff_0000_0000), shape, "{request:#x}");
    }
}

/// The structure of one command, told by the kernel's headers; those that change something are not answered.
#[test]
fn an_interfaces_answers_are_as_long_as_said() {
    let (get_link, get_driver, set_link, get_statistics) = (0x0a, 0x03, 0x02, 0x1d);
    assert_eq!(ethtool_out(get_link), Some(8));
    assert_eq!(ethtool_out(get_driver), Some(196));
    assert_eq!(ethtool_out(ETHTOOL_GLINKSETTINGS), Some(48));
    assert_eq!((ethtool_out(set_link), ethtool_out(get_statistics)), (None, None));
}

#[test]
fn quotas_are_those_of_libc() {
    let of = |nr: i64, command: i32, kind: i32| command_out(nr as u64, (command << 8 | kind) as u32 as u64);
    for nr in [libc::SYS_quotactl, libc::SYS_quotactl_fd] {
        for kind in [libc::USRQUOTA, libc::GRPQUOTA] {
            assert_eq!(of(nr, libc::Q_GETQUOTA, kind), Some(size_of::<libc::dqblk>() as u32));
            assert_eq!(of(nr, libc::Q_SETQUOTA, kind), Some(0));
            assert_eq!(of(nr, 1, kind), None);
        }
    }
}

#[test]
fn what_is_not_flat_is_unknown() {
    let kvm_create_vm = 0xae01;
    let drm_version = 0xc040_6400;
    let nvme_admin = 0xc048_4e41;
    let vhost_set_mem_table = 0x4008_af03;
    for request in [
        kvm_create_vm,
        drm_version,
        nvme_admin,
        vhost_set_mem_table,
        raw::TIOCLINUX,
        raw::TUNSETTXFILTER,
        raw::TUNGETFILTER,
        raw::FIDEDUPERANGE,
        raw::FS_IOC_FIEMAP,
        raw::UFFDIO_API,
        raw::USBDEVFS_SUBMITURB,
        raw::RNDADDENTROPY,
        0,
        0xffff_ffff,
        0x1234,
    ] {
        assert_eq!(ioctl_out(request.into()), IoctlOut::Unknown, "{request:#x}");
    }
}

#[test]
fn a_sized_request_is_believed_to_the_byte() {
    // Every direction and size of an input device's request (EVIOCGNAME and kin are made of sizes at run time).
    for (bits, dir) in [(1u64, IoctlDir::In), (2, IoctlDir::Out), (3, IoctlDir::InOut)] {
        for len in 1..=0x3fff_u32 {
            let request = bits << 30 | u64::from(len) << 16 | 0x4506;
            assert_eq!(ioctl_out(request), IoctlOut::Bytes { dir, len });
        }
    }
}

#[test]
fn fcntl_by_name() {
    let shape = |cmd: i32| fcntl_shape(cmd as u64).unwrap_or_else(|| panic!("fcntl {cmd}"));
    for cmd in [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC] {
        assert!(shape(cmd).creates && shape(cmd).order.at_return(), "{cmd}");
    }
    for cmd in [libc::F_GETLK, libc::F_OFD_GETLK] {
        assert_eq!(shape(cmd).arg, FcntlArg::Flock { out: true });
    }
    for cmd in [libc::F_SETLK, libc::F_SETLKW, libc::F_OFD_SETLK, libc::F_OFD_SETLKW] {
        assert_eq!((shape(cmd).arg, shape(cmd).order), (FcntlArg::Flock { out: false }, Order::Both));
        assert_eq!(shape(cmd).blocks, matches!(cmd, libc::F_SETLKW | libc::F_OFD_SETLKW));
    }
    for cmd in [libc::F_GETFD, libc::F_GETFL, libc::F_GETPIPE_SZ, libc::F_GET_SEALS, libc::F_GETLEASE] {
        assert_eq!((shape(cmd).arg, shape(cmd).order), (FcntlArg::None, Order::Return), "{cmd}");
    }
    for cmd in [libc::F_SETFD, libc::F_SETFL, libc::F_SETPIPE_SZ, libc::F_ADD_SEALS, libc::F_SETLEASE] {
        assert_eq!((shape(cmd).arg, shape(cmd).order), (FcntlArg::Scalar, Order::Enter), "{cmd}");
    }
    assert_eq!(shape(libc::F_SETOWN).arg, FcntlArg::Pid);
    assert!(shape(libc::F_GETOWN).pid_result);
    assert_eq!(size_of::<libc::flock>(), 32);
    assert!(fcntl_shape(12).is_none() && fcntl_shape(9999).is_none());
}

#[test]
fn prctl_by_name() {
    let shape = |option: i32| prctl_shape(option as u64);
    for option in [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_SET_PDEATHSIG, libc::PR_SET_CHILD_SUBREAPER]
    {
        assert_eq!(shape(option), Prctl::Shadow);
    }
    for option in
        [libc::PR_SET_NO_NEW_PRIVS, libc::PR_SET_DUMPABLE, libc::PR_CAPBSET_DROP, libc::PR_CAP_AMBIENT]
    {
        assert_eq!(shape(option), Prctl::Mirror);
    }
    for option in [libc::PR_SET_TIMERSLACK, libc::PR_SET_THP_DISABLE, libc::PR_SET_VMA, libc::PR_GET_SECCOMP]
    {
        assert_eq!(shape(option), Prctl::Local);
    }
    assert_eq!(shape(libc::PR_SET_SECCOMP), Prctl::Refused);
    // PR_SET_SYSCALL_USER_DISPATCH
    assert_eq!(prctl_shape(59), Prctl::Denied(libc::EINVAL));
    assert_eq!(prctl_shape(0xdead_beef), Prctl::Refused);
}

#[test]
fn socket_options_by_name() {
    let shape = |level: i32, name: i32, set| sockopt_shape(level as u64, name as u64, set);
    assert_eq!(shape(libc::SOL_SOCKET, libc::SO_REUSEADDR, true), SockOpt::Plain);
    assert_eq!(shape(libc::SOL_TCP, libc::TCP_NODELAY, true), SockOpt::Plain);
    assert_eq!(shape(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, true), SockOpt::Pointer);
    assert_eq!(shape(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, false), SockOpt::Refused);
    assert_eq!(shape(libc::SOL_PACKET, libc::PACKET_RX_RING, true), SockOpt::Refused);
    assert_eq!(shape(libc::SOL_XDP, libc::XDP_UMEM_REG, true), SockOpt::Refused);
}

#[test]
fn clones_by_what_they_share() {
    let pthread = libc::CLONE_VM
        | libc::CLONE_FS
        | libc::CLONE_FILES
        | libc::CLONE_SIGHAND
        | libc::CLONE_THREAD
        | libc::CLONE_SYSVSEM
        | libc::CLONE_SETTLS
        | libc::CLONE_PARENT_SETTID
        | libc::CLONE_CHILD_CLEARTID;
    let sharing = |flags: i32| clone_sharing(flags as u64);
    assert_eq!(sharing(pthread), Sharing::Thread);
    assert_eq!(sharing(pthread & !libc::CLONE_SETTLS), Sharing::Foreign);
    assert_eq!(
        sharing(libc::SIGCHLD | libc::CLONE_CHILD_SETTID | libc::CLONE_CHILD_CLEARTID),
        Sharing::Process
    );
    assert_eq!(sharing(libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD), Sharing::Vfork);
    assert_eq!(sharing(libc::CLONE_VM | libc::SIGCHLD), Sharing::Foreign);
}

#[test]
fn system_v_structures_are_those_of_libc() {
    for (nr, size) in [
        (libc::SYS_shmctl, size_of::<libc::shmid_ds>()),
        (libc::SYS_semctl, size_of::<libc::semid_ds>()),
        (libc::SYS_msgctl, size_of::<libc::msqid_ds>()),
    ] {
        assert_eq!(command_out(nr as u64, libc::IPC_STAT as u64), Some(size as u32));
        assert_eq!(command_out(nr as u64, libc::IPC_STAT as u64 | 0x100), Some(size as u32));
        assert_eq!(command_out(nr as u64, libc::IPC_RMID as u64), Some(0));
        assert_eq!(command_out(nr as u64, 999), None);
    }
    assert_eq!(command_out(libc::SYS_semctl as u64, 13), None, "GETALL is as long as the set");
    assert_eq!(command_out(libc::SYS_read as u64, 2), None);
}

//! What a service manager hands to a program that it starts, and the program to it: `sd_notify`, `LISTEN_PID`, `WATCHDOG_PID`.
//!
//! A manager takes notifications of a service's main process, which we are. So the program gets a socket of ours, and what it says
//! there we say. `MAINPID` we keep to ourselves: a primary's number would be the number of somebody dead after a failover.

use std::ffi::{CStr, OsString};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use crate::proc;

/// Names the manager's socket.
const NOTIFY: &str = "NOTIFY_SOCKET";

/// Say for whom descriptors and a watchdog are.
const NUMBERED: [&[u8]; 2] = [b"LISTEN_PID=", b"WATCHDOG_PID="];

/// Longest notification.
const BYTES_MAX: usize = 64 << 10;

/// Most descriptors in one.
const FDS_MAX: usize = 64;

/// Notifications passed on at a time: the group has other things to do.
const AT_A_TIME: usize = 64;

/// The socket that the program takes for the manager's.
#[derive(Debug)]
pub struct Relay {
    ours: OwnedFd,
    name: OsString,
    manager: SocketAddrUnix,
}

impl Relay {
    /// One to the manager that has started us; `None` where there is none, or no socket to be had: then the program has the
    /// manager's own, as before.
    pub fn open() -> Option<Relay> {
        Relay::to(&std::env::var_os(NOTIFY)?)
    }

    fn to(manager: &std::ffi::OsStr) -> Option<Relay> {
        let manager = match manager.as_bytes() {
            [b'/', ..] => SocketAddrUnix::new(manager).ok()?,
            [b'@', name @ ..] => SocketAddrUnix::new_abstract_name(name).ok()?,
            _ => return None,
        };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let ours = rustix::net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None).ok()?;
        rustix::net::sockopt::set_socket_passcred(&ours, true).ok()?;
        // In no folder: a program that has given up our user, or changed its root, finds it too.
        let name = format!("understudy/{}/notify", std::process::id());
        rustix::net::bind(&ours, &SocketAddrUnix::new_abstract_name(name.as_bytes()).ok()?).ok()?;
        Some(Relay { ours, name: format!("@{name}").into(), manager })
    }

    /// Readable when the program has said something.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ours.as_fd()
    }

    /// Puts it into the program's environment in the place of the manager's.
    pub fn enter(&self, environment: &mut [OsString]) {
        let begins = |entry: &&mut OsString| entry.as_bytes().starts_with(b"NOTIFY_SOCKET=");
        if let Some(entry) = environment.iter_mut().find(begins) {
            *entry = format!("{NOTIFY}=").into();
            entry.push(&self.name);
        }
    }

    /// Passes on what the program has said.
    pub fn pass_on(&self) {
        for _ in 0..AT_A_TIME {
            if !self.pass_one_on() {
                return;
            }
        }
    }

    /// Whether there was one.
    fn pass_one_on(&self) -> bool {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX), ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut bytes = vec![0; BYTES_MAX];
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
        let Ok(got) = rustix::net::recvmsg(&self.ours, &mut parts, &mut control, flags) else { return false };
        let (mut sender, mut fds) = (0, Vec::new());
        for message in control.drain() {
            match message {
                RecvAncillaryMessage::ScmCredentials(who) => sender = who.pid.as_raw_nonzero().get() as u32,
                RecvAncillaryMessage::ScmRights(rights) => fds.extend(rights),
                _ => {}
            }
        }
        let text = without_main_pid(&bytes[..got.bytes]);
        // Anybody may know the name of our socket.
        if proc::is_descendant(sender, std::process::id()) && !text.is_empty() {
            self.send(&text, &fds);
        }
        true
    }

    /// A manager that does not take it has gone, or will not: neither is the program's affair.
    fn send(&self, text: &[u8], fds: &[OwnedFd]) {
        let fds: Vec<BorrowedFd> = fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&fds));
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ =
            rustix::net::sendmsg_addr(&self.ours, &self.manager, &[IoSlice::new(text)], &mut control, flags);
    }
}

/// The lines of a notification, without those that name a main process.
fn without_main_pid(text: &[u8]) -> Vec<u8> {
    let lines = text.split(|byte| *byte == b'\n');
    let kept: Vec<&[u8]> =
        lines.filter(|line| !line.starts_with(b"MAINPID=") && !line.starts_with(b"MAINPIDFDID=")).collect();
    kept.join(&b'\n')
}

/// Variables that name the process that they are for, which is us: the program's number is known behind the fork only.
pub struct Numbered {
    /// Which variable, and the room for it.
    all: Vec<(usize, Vec<u8>, usize)>,
}

impl Numbered {
    /// Those of `environment` with our number in them.
    pub fn of<'a>(environment: impl Iterator<Item = &'a CStr>) -> Numbered {
        let own = std::process::id().to_string();
        let numbered = |(at, variable): (usize, &CStr)| {
            let variable = variable.to_bytes();
            let name = NUMBERED.into_iter().find(|name| variable.starts_with(name))?;
            let mut room = name.to_vec();
            room.resize(name.len() + 11, 0);
            (variable[name.len()..] == *own.as_bytes()).then_some((at, room, name.len()))
        };
        Numbered { all: environment.enumerate().filter_map(numbered).collect() }
    }

    /// Puts `pid` in, in an array of pointers to such variables. Takes no memory: it is called between fork and exec.
    pub fn fill_in(&mut self, pointers: &mut [*const libc::c_char], pid: u32) {
        for (at, room, from) in &mut self.all {
            let digits = pid.checked_ilog10().unwrap_or(0) as usize + 1;
            let mut rest = pid;
            for digit in room[*from..*from + digits].iter_mut().rev() {
                *digit = b'0' + (rest % 10) as u8;
                rest /= 10;
            }
            pointers[*at] = room.as_ptr().cast();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::CString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_main_process_is_not_named() {
        assert_eq!(without_main_pid(b"READY=1\nMAINPID=12\nSTATUS=x\n"), b"READY=1\nSTATUS=x\n");
        assert_eq!(without_main_pid(b"MAINPID=12"), b"");
    }

    #[test]
    fn the_number_is_the_programs() {
        let own = std::process::id();
        let variables: Vec<CString> =
            [&format!("LISTEN_PID={own}"), "A=b", &format!("WATCHDOG_PID={own}"), "LISTEN_PID=1"]
                .map(|text| CString::new(text).unwrap())
                .into();
        let mut pointers: Vec<_> = variables.iter().map(|text| text.as_ptr()).collect();
        let mut numbered = Numbered::of(variables.iter().map(CString::as_c_str));
        let read = |numbered: &Numbered| -> Vec<(usize, String)> {
            let text = |room: &[u8]| CStr::from_bytes_until_nul(room).unwrap().to_str().unwrap().to_owned();
            numbered.all.iter().map(|(at, room, _)| (*at, text(room))).collect()
        };
        for pid in [7, 10, 4_194_304, u32::MAX] {
            numbered.fill_in(&mut pointers, pid);
            assert_eq!(
                read(&numbered),
                [(0, format!("LISTEN_PID={pid}")), (2, format!("WATCHDOG_PID={pid}"))]
            );
            assert_eq!(pointers[0], numbered.all[0].1.as_ptr().cast());
        }
        assert_eq!(pointers[3], variables[3].as_ptr());
    }

    #[test]
    fn strangers_are_not_passed_on() {
        let manager = std::os::unix::net::UnixDatagram::unbound().unwrap();
        let folder = tempfile::tempdir().unwrap();
        drop(manager);
        let path = folder.path().join("manager");
        let manager = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        manager.set_nonblocking(true).unwrap();
        let relay = Relay::to(path.as_os_str()).unwrap();
        let mut environment = vec![OsString::from("A=b"), OsString::from_vec(b"NOTIFY_SOCKET=/x".to_vec())];
        relay.enter(&mut environment);
        let name = environment[1].to_str().unwrap().strip_prefix("NOTIFY_SOCKET=@").unwrap();
        let to = SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap();
        let ours = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        // We are no descendant of ourselves.
        rustix::net::sendto(&ours, b"READY=1", SendFlags::empty(), &to).unwrap();
        relay.pass_on();
        assert!(manager.recv(&mut [0; 16]).is_err());
        relay.send(b"READY=1", &[]);
        let mut got = [0; 16];
        assert_eq!(manager.recv(&mut got).unwrap(), 7);
    }
}

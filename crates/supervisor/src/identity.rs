//! Whose groups a command is about.
//!
//! Root may look at, and act on, the groups of another user. What that user has written into files must not decide what
//! root does. So the command becomes that user first, for good: the kernel then refuses whatever the user could not do.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use rustix::process::Uid;

use crate::error::Error;

/// A user's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct User {
    uid: u32,
    gid: u32,
}

/// Nobody's group.
const NO_GROUP: u32 = 65534;

/// Our own number.
pub fn own() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Who is at the other end of a local socket.
pub struct Peer {
    /// Its number among the processes that we see. One that is in a pid namespace above ours has none there.
    pub pid: Option<u32>,
    /// Its user.
    pub user: Uid,
}

/// Who connected a local socket. (rustix gives a number that cannot be 0, which it is for a process outside of a container.)
///
/// # Errors
/// The socket's.
pub fn peer(socket: impl AsFd) -> io::Result<Peer> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = size_of_val(&who) as u32;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes of `who`, which has so many.
    let result = unsafe {
        libc::getsockopt(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &raw mut len)
    };
    match result {
        0 => Ok(Peer {
            pid: u32::try_from(who.pid).ok().filter(|pid| *pid != 0),
            user: Uid::from_raw(who.uid),
        }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Becomes the user of this name or number. To be called before any thread is started.
///
/// # Errors
/// When there is no such user, or we are another user and not root.
pub fn become_user(name: &str) -> Result<(), Error> {
    let user = find(name).ok_or_else(|| Error::Refused(format!("there is no user {name}")))?;
    let me = rustix::process::geteuid();
    if me.as_raw() == user.uid {
        return Ok(());
    }
    if !me.is_root() {
        return Err(Error::Refused("only root may ask for the groups of another user".into()));
    }
    change(user).map_err(|cause| Error::system("become that user", cause))?;
    // Where that user's groups may be; and no folder of root's own.
    let session = format!("/run/user/{}", user.uid);
    // SAFETY: no other thread has been started.
    unsafe { std::env::set_var("XDG_RUNTIME_DIR", session) };
    Ok(())
}

fn change(user: User) -> io::Result<()> {
    let done = |result: libc::c_int| if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: calls on this process alone; the list of groups is empty, the path a string.
    unsafe {
        // Its memory and its descriptors stay root's.
        done(libc::prctl(libc::PR_SET_DUMPABLE, 0))?;
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
        done(libc::chdir(c"/".as_ptr()))?;
        done(libc::setgroups(0, ptr::null()))?;
        done(libc::setresgid(user.gid, user.gid, user.gid))?;
        done(libc::setresuid(user.uid, user.uid, user.uid))?;
        // The change of numbers may have set it anew, as the administrator's switch says.
        done(libc::prctl(libc::PR_SET_DUMPABLE, 0))
    }
}

/// The number of the user of this name.
pub fn number_of(name: &str) -> Option<u32> {
    find(name).map(|user| user.uid)
}

fn find(name: &str) -> Option<User> {
    let text = CString::new(name).ok()?;
    let mut room = vec![0; 16 << 10];
    let number: Option<u32> = name.parse().ok();
    // SAFETY: passwd is plain old data; the functions write into it and into `room`, and `found` points into neither or both.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = ptr::null_mut();
        let (at, length) = (room.as_mut_ptr(), room.len());
        match number {
            Some(uid) => libc::getpwuid_r(uid, &mut entry, at, length, &mut found),
            None => libc::getpwnam_r(CStr::as_ptr(&text), &mut entry, at, length, &mut found),
        };
        match (found.is_null(), number) {
            (false, _) => Some(User { uid: entry.pw_uid, gid: entry.pw_gid }),
            // One that no list knows may run programs as well.
            (true, Some(uid)) => Some(User { uid, gid: NO_GROUP }),
            (true, None) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        assert_eq!(find("root"), Some(User { uid: 0, gid: 0 }));
        assert_eq!(find("0"), find("root"));
        assert_eq!(find("4000000000"), Some(User { uid: 4_000_000_000, gid: NO_GROUP }));
        assert_eq!(find("no such user"), None);
    }
}

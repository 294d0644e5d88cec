//! Files of the group's folder, handed to processes of the group that cannot open them themselves.
//!
//! The folder is its owner's alone. A process that has changed its user, or its root, has what it inherits mapped; but a new image
//! has nothing, and a child could make no segment. So they ask here, at a socket in no folder, and get a descriptor.
//!
//! Who asks is known from the kernel: a process that descends from us, and in which nobody has logged in who has not started us.
//! It gets what every process of the group has, and of segments its own alone.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType,
};
use rustix::process::Uid;
use us_abi::{Config, REGIONS_MAX, handout};

use crate::child::Child;
use crate::dir::Dir;
use crate::folder::{self, SEGMENT};
use crate::identity;
use crate::roster::{self, Roster};
use crate::segment::Segment;
use crate::sentry::thread;
use crate::upgrade;

/// How long somebody may take to say what he wants, or to take it.
const PATIENCE: Duration = Duration::from_millis(100);

/// Those who wait for their turn, at most.
const WAITING_MAX: i32 = 64;

/// The socket, before anybody is heard there.
#[derive(Debug)]
pub struct Handout {
    listener: OwnedFd,
    /// The head of a segment as it is before the start.
    likeness: File,
}

impl Handout {
    /// Makes the socket of the group whose program is told the path `segment`.
    ///
    /// # Errors
    /// When somebody has its name, or there is no room for it.
    pub fn open(segment: &Path, config: Config) -> io::Result<Handout> {
        // By its bytes, as the runtime has it: a recording's path is longer than it need be.
        let path = segment.as_os_str().as_bytes();
        let folder = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
        let name = handout::name(&path[..folder]);
        let flags = SocketFlags::CLOEXEC;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        rustix::net::bind(&listener, &SocketAddrUnix::new_abstract_name(&name)?)?;
        rustix::net::listen(&listener, WAITING_MAX)?;
        Ok(Handout { listener, likeness: Segment::likeness(config).map_err(io::Error::other)? })
    }

    /// Starts the thread that hears who asks. It ends with the process. `root` is the program's own number.
    ///
    /// # Errors
    /// When the system has no room for it.
    pub fn start(self, dir: Arc<Dir>, roster: Arc<Roster>, root: u32) -> io::Result<()> {
        let login = crate::proc::login(std::process::id());
        thread("handout", move || {
            loop {
                match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC) {
                    // Whoever is not answered goes on without.
                    Ok(asker) => {
                        _ = Desk { given: &self, dir: &dir, roster: &roster, root }.serve(&asker, &login)
                    }
                    // Too many descriptors are open: not for long.
                    Err(_) => std::thread::sleep(PATIENCE),
                }
            }
        })
        .map(|_| ())
    }
}

/// What an asker is answered from.
struct Desk<'a> {
    given: &'a Handout,
    dir: &'a Dir,
    roster: &'a Roster,
    root: u32,
}

impl Desk<'_> {
    fn serve(&self, asker: &OwnedFd, login: &[u8]) -> io::Result<()> {
        let who = identity::peer(asker)?;
        let Some(pid) = who.pid else { return Ok(()) };
        let is_known = || Child::of_descendant(pid).is_some_and(|asker| asker.is_alive());
        // A login has ended what its parents had: it is somebody else's.
        if !is_known()
            || crate::proc::login(pid) != login
            || self.roster.header().closing.load(Ordering::SeqCst) != 0
        {
            return Ok(());
        }
        for timeout in [Timeout::Recv, Timeout::Send] {
            sockopt::set_socket_timeout(asker, timeout, Some(PATIENCE))?;
        }
        let mut request = [0u8; handout::REQUEST_BYTES_MAX];
        let (bytes, _) = rustix::net::recv(asker, &mut request[..], RecvFlags::empty())?;
        let Some((wanted, name)) = request[..bytes].split_first() else { return Ok(()) };
        let file = self.file(pid, who.user, *wanted, OsStr::from_bytes(name));
        if file.is_ok() && who.user != rustix::process::geteuid() {
            // It could not say so itself.
            self.roster.note_other_user();
        }
        send(asker, file.ok())
    }

    fn file(&self, pid: u32, user: Uid, wanted: u8, name: &OsStr) -> io::Result<File> {
        let refused = || io::Error::from(io::ErrorKind::PermissionDenied);
        let segment_of = || name.to_str().and_then(|name| name.strip_prefix(SEGMENT));
        match (wanted, name.to_str()) {
            (handout::READ_WRITE, Some(roster::NAME)) => self.dir.file(name, OFlags::RDWR),
            (handout::READ, Some(roster::REGISTRY)) => self.dir.file(name, OFlags::RDONLY),
            (handout::READ, Some(name)) if self.is_of(pid, name.strip_prefix(upgrade::STEPS)) => {
                self.dir.file(name, OFlags::RDONLY)
            }
            // Whoever has other rights may use what the others have found, and not add to it.
            (handout::READ_WRITE, Some(folder::PLANS)) => self.dir.file(name, OFlags::RDONLY),
            (handout::READ_WRITE, _) => {
                let number = match segment_of().ok_or_else(refused)? {
                    "" => Some(self.root),
                    number => number.strip_prefix('.').and_then(|number| number.parse().ok()),
                };
                let number = number.ok_or_else(refused)?;
                match self.roster.successor_of(number).unwrap_or(number) == pid {
                    true => self.dir.file(name, OFlags::RDWR),
                    // A relative's. It is told what the group was started with.
                    false => Segment::likeness_of(&self.given.likeness),
                }
            }
            (handout::MAKE, Some(name)) if name == folder::member(pid) => Segment::make_file(self.dir, name),
            (handout::MAKE_OR_FIND, Some(name)) if self.is_of_family(name) => self.of_user(name, user),
            _ => Err(refused()),
        }
    }

    /// Whether this is the number of the process that has this pid now.
    fn is_of(&self, pid: u32, number: Option<&str>) -> bool {
        let number = number.and_then(|number| number.parse().ok());
        number.is_some_and(|number| self.roster.successor_of(number).unwrap_or(number) == pid)
    }

    /// Whether it is the name of a copy of the present family's memory.
    fn is_of_family(&self, name: &str) -> bool {
        let family = self.roster.family().number.load(Ordering::Acquire);
        (0..REGIONS_MAX).any(|region| name == format!("family.{family}.{region}"))
    }

    /// A file that processes of one user have among themselves, made for the first of them. What one has put there no other user
    /// is given: it is memory that those share who have it natively.
    fn of_user(&self, name: &str, user: Uid) -> io::Result<File> {
        match self.dir.make_file(name) {
            Ok(file) => {
                rustix::fs::fchown(&file, Some(user), None)?;
                Ok(file)
            }
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => self.dir.file_of(name, user),
            Err(cause) => Err(cause),
        }
    }
}

/// Answers: with the file, or with none.
fn send(asker: &OwnedFd, file: Option<File>) -> io::Result<()> {
    let fds = file.as_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if let Some(fd) = &fds {
        control.push(SendAncillaryMessage::ScmRights(std::slice::from_ref(fd)));
    }
    rustix::net::sendmsg(asker, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    fn config() -> Config {
        Config {
            lag_timeout_ms: 100,
            standbys: 1,
            lag_limit: us_abi::LAG_LIMIT_MIN,
            verify: 0,
            flags: 0,
            lead_us: us_order::pace::LEAD_US,
            pad: 0,
            primary_cpus: [0; 16],
            standby_cpus: [0; 16],
        }
    }

    fn given(state: &Path) -> (Arc<Dir>, Roster, Handout) {
        let dir = Arc::new(Dir::open(state).unwrap());
        let roster = Roster::create(&dir).unwrap();
        for name in [SEGMENT, "segment.7", "meta.json", folder::PLANS, "upgrade.7"] {
            dir.make_file(name).unwrap();
        }
        let handout = Handout::open(&dir.at(SEGMENT), config()).unwrap();
        (dir, roster, handout)
    }

    #[test]
    fn everybody_gets_his_own_and_what_all_have() {
        let state = tempfile::tempdir().unwrap();
        let (dir, roster, given) = given(state.path());
        let desk = Desk { given: &given, dir: &dir, roster: &roster, root: 5 };
        let own = rustix::process::geteuid();
        let get = |pid, wanted, name: &str| desk.file(pid, own, wanted, OsStr::new(name));
        let is = |file: io::Result<File>, name: &str| {
            file.unwrap().metadata().unwrap().ino() == dir.identity(name).unwrap().1
        };
        let is_writable = |file: &File| {
            rustix::fs::fcntl_getfl(file).unwrap().intersection(OFlags::RWMODE) != OFlags::RDONLY
        };
        assert!(is(get(9, handout::READ_WRITE, "roster"), "roster"));
        assert!(!is_writable(&get(9, handout::READ, "registry").unwrap()));
        assert!(!is_writable(&get(9, handout::READ_WRITE, folder::PLANS).unwrap()));
        assert!(is(get(5, handout::READ_WRITE, SEGMENT), SEGMENT));
        assert!(is(get(7, handout::READ_WRITE, "segment.7"), "segment.7"));
        for (pid, name) in [(7, SEGMENT), (5, "segment.7"), (9, "segment.7")] {
            assert!(!is(get(pid, handout::READ_WRITE, name), name), "{name} is not that of {pid}");
        }
        assert!(!is_writable(&get(7, handout::READ, "upgrade.7").unwrap()));
        assert!(get(5, handout::READ, "upgrade.7").is_err());
        assert!(get(8, handout::MAKE, "segment.8").is_ok());
        let number = roster.family().number.load(Ordering::Acquire);
        let copy = format!("family.{number}.3");
        for _ in 0..2 {
            assert!(is(get(9, handout::MAKE_OR_FIND, &copy), &copy));
        }
        let other = Uid::from_raw(own.as_raw() + 1);
        assert!(desk.file(9, other, handout::MAKE_OR_FIND, OsStr::new(&copy)).is_err());
        for (wanted, name) in [
            (handout::MAKE, "segment.7"),
            (handout::MAKE, "segment.9"),
            (handout::READ_WRITE, "registry"),
            (handout::READ_WRITE, "upgrade.7"),
            (handout::READ_WRITE, "meta.json"),
            (handout::READ_WRITE, "segment/../meta.json"),
            (handout::READ, "roster"),
            (handout::READ_WRITE, "family.0.3"),
            (handout::MAKE_OR_FIND, "family.99.3"),
            (handout::MAKE_OR_FIND, "shared.1"),
            (9, "roster"),
        ] {
            assert!(get(7, wanted, name).is_err(), "{name}");
        }
    }

    #[test]
    fn a_stranger_is_given_nothing() {
        let state = tempfile::tempdir().unwrap();
        let (dir, roster, given) = given(state.path());
        let name = handout::name(&[state.path().as_os_str().as_bytes(), b"/"].concat());
        given.start(dir, Arc::new(roster), 5).unwrap();
        let stranger = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
        rustix::net::connect(&stranger, &SocketAddrUnix::new_abstract_name(&name).unwrap()).unwrap();
        let _ = rustix::net::send(&stranger, b"\x02roster", SendFlags::NOSIGNAL);
        // We are no descendant of ourselves.
        let got = rustix::net::recv(&stranger, &mut [0u8; 8][..], RecvFlags::empty());
        assert!(got.map_or(true, |(bytes, _)| bytes == 0));
    }
}

//! The socket in a group's folder on which its supervisor takes requests: what needs the supervisor's own
//! hand, as a planned switch does.
//!
//! A caller sends one line and gets one JSON object. The folder is open to its owner alone, and so is the
//! socket. A caller that says nothing keeps one of a few places, and the supervisor waiting for nobody.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;

use crate::dir::Dir;
use crate::error::Error;
use crate::folder::Found;

/// The socket's name in the folder.
pub const NAME: &str = "control";

/// A request for a planned switch, of the process whose number follows it or of the program itself.
pub const FAILOVER: &str = "failover";

/// A signal, whose number follows, for the process that leads: answered when that has it, or its next copy is sure to get it.
pub const SIGNAL: &str = "signal";

/// A checkpoint of the program is wanted, in the file that the caller has under the number that follows.
pub const CHECKPOINT: &str = "checkpoint";

/// Behind that: the program is to end where its checkpoint has been taken.
pub const AND_STOP: &str = "stop";

/// Behind that, too: the checkpoint is to be sealed with the key in the file that the caller has under the number that follows.
pub const AND_SEAL: &str = "seal=";

/// Behind that, too: its copies are to stay, so that the next one that builds on it need not read all memory.
pub const AND_KEEP: &str = "keep";

/// Behind that, too: it is to hold what is not in the checkpoint that the caller has under the number that follows.
pub const AND_BUILD_ON: &str = "base=";

/// Behind that, too: files are to be taken with it, as the plan says that the caller has under the number that follows.
pub const AND_FILES: &str = "files=";

/// Another version of the runtime is to be put into the program: the caller has its file under the number that follows.
pub const UPGRADE: &str = "upgrade";

/// Somebody ends the whole group: its supervisor is to stay until every process of it has ended.
pub const STOP: &str = "stop";

/// Somebody is about to kill the whole group: no standby takes over any more, and none is made.
pub const KILL: &str = "kill";

/// Callers heard at once.
const CALLERS_MAX: usize = 8;

/// How long a caller waits for its answer: far longer than every bound of the supervisor's.
const ANSWER: Duration = Duration::from_secs(60);

/// No answer is longer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;

/// Runs `act` on a path of the socket that leads through the folder's descriptor. It is short wherever the folder is: an
/// address has room for 107 bytes.
fn with_path<T>(folder: &Dir, act: impl FnOnce(&Path) -> std::io::Result<T>) -> std::io::Result<T> {
    act(&crate::proc::descriptor("self", folder.as_fd().as_raw_fd()).join(NAME))
}

/// The supervisor's end.
#[derive(Debug)]
pub struct Desk {
    listener: UnixListener,
    /// Those that have not said yet what they want.
    callers: Vec<UnixStream>,
}

impl Desk {
    /// Makes the socket in `folder`.
    ///
    /// # Errors
    /// When the folder or the system has no room for it.
    pub fn open(folder: &Dir) -> std::io::Result<Desk> {
        let listener = with_path(folder, |path| UnixListener::bind(path))?;
        listener.set_nonblocking(true)?;
        Ok(Desk { listener, callers: Vec::new() })
    }

    /// Readable when there may be a request.
    pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        std::iter::once(self.listener.as_fd()).chain(self.callers.iter().map(AsFd::as_fd))
    }

    /// The requests that have come in, and whom to answer.
    pub fn requests(&mut self) -> Vec<(String, UnixStream)> {
        // One that cannot be taken, or that nobody has a place for, is cut off and hears of it.
        while let Ok((caller, _)) = self.listener.accept() {
            if self.callers.len() < CALLERS_MAX && caller.set_nonblocking(true).is_ok() {
                self.callers.push(caller);
            }
        }
        let mut requests = Vec::new();
        for mut caller in std::mem::take(&mut self.callers) {
            let mut line = [0; 64];
            match caller.read(&mut line) {
                Err(cause) if matches!(cause.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    self.callers.push(caller);
                }
                Ok(length) if length > 0 => {
                    requests.push((String::from_utf8_lossy(&line[..length]).trim().to_owned(), caller));
                }
                _ => {}
            }
        }
        requests
    }
}

/// A path to the file that a caller has under this number.
///
/// # Errors
/// When it is no number, or the caller is gone.
pub(crate) fn callers(caller: &UnixStream, number: &str) -> Result<PathBuf, String> {
    let peer = crate::identity::peer(caller).map_err(|cause| format!("who asks? {cause}"))?;
    let pid = peer.pid.ok_or("who asks is outside of the container: ask from inside")?;
    let number: u32 = number.parse().map_err(|_| format!("{number:?} is no descriptor"))?;
    Ok(crate::proc::descriptor(pid, number))
}

/// Answers a caller, which may be gone.
pub fn answer(mut caller: UnixStream, answer: &Value) {
    let _ = caller.write_all(answer.to_string().as_bytes());
}

/// Sends `request` to the group's supervisor; its answer.
///
/// # Errors
/// [`Error::NoSuchGroup`] when nobody is there to answer, and what the supervisor says against it.
pub fn ask(group: &Found, request: &str) -> Result<Value, Error> {
    ask_for(group, request, Some(ANSWER))
}

/// The same, waiting at most so long, or for as long as it takes.
///
/// # Errors
/// As there.
pub fn ask_for(group: &Found, request: &str, patience: Option<Duration>) -> Result<Value, Error> {
    let talk = |path: &Path| {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(patience)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES_MAX).read_to_end(&mut answer)?;
        Ok(answer)
    };
    let answer = with_path(&group.dir, talk).map_err(|cause| match cause.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Error::NoSuchGroup(group.name.clone()),
        ErrorKind::ConnectionRefused => Error::Refused(format!("{}: the supervisor is gone", group.name)),
        _ => Error::system("ask the supervisor", cause),
    })?;
    let answer: Value = serde_json::from_slice(&answer)
        .map_err(|_| Error::Refused(format!("{} ended before it could answer", group.name)))?;
    match answer["error"].as_str() {
        Some(why) => Err(Error::Refused(format!("{}: {why}", group.name))),
        None => Ok(answer),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn requests_are_heard_and_silent_callers_hold_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(120));
        std::fs::create_dir(&long).unwrap();
        let long = Dir::open(&long).unwrap();
        let mut desk = Desk::open(&long).unwrap();
        let connect = || with_path(&long, |path| UnixStream::connect(path)).unwrap();
        let silent: Vec<UnixStream> = (0..5).map(|_| connect()).collect();
        let mut caller = connect();
        assert!(desk.requests().is_empty());
        assert_eq!(desk.fds().count(), 7);
        caller.write_all(b"failover\n").unwrap();
        let (request, stream) = desk.requests().pop().unwrap();
        assert_eq!(request, FAILOVER);
        answer(stream, &serde_json::json!({ "error": "no" }));
        let mut said = String::new();
        caller.read_to_string(&mut said).unwrap();
        assert_eq!(said, r#"{"error":"no"}"#);
        drop(silent);
        // Not at once: a child that another test is just forking holds every descriptor of this process until it executes.
        let patience = Instant::now() + Duration::from_secs(20);
        while desk.fds().count() != 1 {
            assert!(desk.requests().is_empty());
            assert!(Instant::now() < patience, "callers that have gone are still listened to");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn callers_beyond_the_last_place_are_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let folder = Dir::open(folder.path()).unwrap();
        let mut desk = Desk::open(&folder).unwrap();
        let connect = || with_path(&folder, |path| UnixStream::connect(path)).unwrap();
        let mut callers: Vec<UnixStream> = (0..=CALLERS_MAX).map(|_| connect()).collect();
        assert!(desk.requests().is_empty());
        assert_eq!(callers.last_mut().unwrap().read(&mut [0]).unwrap(), 0);
        assert_eq!(desk.fds().count(), 1 + CALLERS_MAX);
    }
}

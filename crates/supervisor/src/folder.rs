//! The state folder: one folder per group, there while the group is.
//!
//! `<state>/<name>/` holds `segment`, `segment.PID` of each process that has joined, `roster`, `sites` (how the
//! runtime has patched libraries, for the next image), `meta.json` (what was
//! started, and the primary's identity), `history.json` (what happened since) and the socket `control`. The supervisor holds a `flock` on the group's folder: whoever can
//! take it knows that the supervisor is gone. Making and removing folders happens under a `flock` on the
//! state folder, so that nobody sees a group half made.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::child::raw;
use crate::error::Error;
use crate::snapshot::{self, Listed, Snapshot};
use crate::{proc, roster};

/// Names another state folder than the user's own.
pub const ENV_STATE: &str = "UNDERSTUDY_DIR";

/// The file of the runtime's plans of patched texts.
const PLANS: &str = "sites";

/// Where every user's state folder is.
const SHM: &str = "/dev/shm";

/// A process named for ever: a pid alone is used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Kernel's pid.
    pub pid: u32,
    /// Start, in clock ticks since boot.
    pub start: u64,
}

impl ProcessId {
    /// The process that has `pid` now.
    pub fn of(pid: u32) -> ProcessId {
        ProcessId { pid, start: proc::read(pid).map_or(0, |process| process.start) }
    }

    /// Whether this very process is alive.
    pub fn is_alive(self) -> bool {
        self.pid != 0 && proc::is_alive(self.pid, self.start)
    }
}

/// `meta.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Meta {
    /// Version of this file's fields.
    pub version: u32,
    /// PROGRAM and its arguments.
    pub program: Vec<String>,
    /// `--order`.
    pub order: String,
    /// Start of the group, RFC 3339.
    pub since: String,
    /// Start of the group, CLOCK_MONOTONIC, ns.
    pub since_ns: u64,
    /// The supervisor.
    pub supervisor: ProcessId,
    /// The program itself, by the pid that it knows as its own.
    pub root: u32,
    /// The process that the group is judged by and that takes its signals: the program, or the daemon it has left.
    pub lead: u32,
    /// That one's primary, once it exists.
    pub primary: ProcessId,
    /// `--standbys`.
    pub standbys: u32,
    /// A standby that is gone is replaced.
    pub reprotect: bool,
    /// `--probe`, if there is one.
    pub probe: Option<String>,
    /// The recording that is written, if there is one.
    #[serde(default)]
    pub recording: Option<Recording>,
}

/// A recording as it stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Recording {
    /// The file, by its whole path.
    pub file: String,
    /// Why it is not whole, if it is not: the first reason. Of other processes it may go on.
    pub ended: Option<String>,
}

/// The state folder of this user (or of `$UNDERSTUDY_DIR`).
pub fn own_state() -> PathBuf {
    match std::env::var_os(ENV_STATE).filter(|path| !path.is_empty()) {
        Some(path) => path.into(),
        None => default_state(),
    }
}

fn default_state() -> PathBuf {
    Path::new(SHM).join(format!("understudy-{}", rustix::process::geteuid().as_raw()))
}

/// The state folders whose groups this user may see: its own; all of them for root.
pub fn visible_states() -> Vec<PathBuf> {
    let own = own_state();
    let mut states = vec![own.clone()];
    if rustix::process::geteuid().is_root() && std::env::var_os(ENV_STATE).is_none() {
        let entries = fs::read_dir(SHM).into_iter().flatten().flatten();
        let others = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("understudy-"));
        states.extend(others.map(|entry| entry.path()).filter(|path| *path != own));
        states.sort();
    }
    states
}

/// The lock on a state folder, while groups are made or removed.
struct StateLock {
    _file: File,
}

/// Makes sure that the state folder is there, is ours alone, and stays while the lock is held.
fn lock_state(state: &Path) -> Result<StateLock, Error> {
    loop {
        match fs::DirBuilder::new().mode(0o700).create(state) {
            Err(cause) if cause.kind() != std::io::ErrorKind::AlreadyExists => {
                return Err(Error::file("make", state, cause));
            }
            _ => {}
        }
        match lock_existing(state)? {
            Some(lock) => return Ok(lock),
            // Removed by the end of another group between the two lines above.
            None => continue,
        }
    }
}

/// Locks a state folder that is there; `None` when it is not.
fn lock_existing(state: &Path) -> Result<Option<StateLock>, Error> {
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let file = match File::options().read(true).custom_flags(flags).open(state) {
        Err(cause) if cause.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(|cause| Error::file("open", state, cause))?,
    };
    let meta = file.metadata().map_err(|cause| Error::file("look at", state, cause))?;
    // In a folder that everybody can write to, somebody else may have made ours first.
    let me = rustix::process::geteuid();
    if meta.uid() != me.as_raw() && !me.is_root() {
        let cause = std::io::Error::new(std::io::ErrorKind::PermissionDenied, "it belongs to another user");
        return Err(Error::file("use", state, cause));
    }
    rustix::fs::flock(&file, FlockOperation::LockExclusive)
        .map_err(|cause| Error::file("lock", state, cause))?;
    let still =
        fs::symlink_metadata(state).is_ok_and(|now| (now.dev(), now.ino()) == (meta.dev(), meta.ino()));
    Ok(still.then_some(StateLock { _file: file }))
}

/// A living group's folder, held by its supervisor. Removed when dropped.
#[derive(Debug)]
pub struct GroupFolder {
    /// The group's name.
    pub name: String,
    /// The folder.
    pub path: PathBuf,
    state: PathBuf,
    _lock: File,
}

impl GroupFolder {
    /// Makes a folder for a group that was given a name by its user.
    ///
    /// # Errors
    /// [`Error::NameInUse`] when a group of that name is alive.
    pub fn named(name: &str) -> Result<GroupFolder, Error> {
        let state = own_state();
        let _lock = lock_state(&state)?;
        GroupFolder::try_make(&state, name)?.ok_or_else(|| Error::NameInUse(name.into()))
    }

    /// Makes a folder for `base`, or for the first of `base-2`, `base-3`, … that is free.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn first_free(base: &str) -> Result<GroupFolder, Error> {
        let state = own_state();
        let _lock = lock_state(&state)?;
        for number in 1.. {
            let name = if number == 1 { base.to_owned() } else { format!("{base}-{number}") };
            if let Some(folder) = GroupFolder::try_make(&state, &name)? {
                return Ok(folder);
            }
        }
        unreachable!("the numbers do not end")
    }

    /// `None` when a living group has the name. To be called with the state folder locked.
    fn try_make(state: &Path, name: &str) -> Result<Option<GroupFolder>, Error> {
        let path = state.join(name);
        if path.exists() {
            if is_living(&path) {
                return Ok(None);
            }
            clear_dead(&path);
        }
        fs::DirBuilder::new().mode(0o700).create(&path).map_err(|cause| Error::file("make", &path, cause))?;
        let lock = File::open(&path).map_err(|cause| Error::file("open", &path, cause))?;
        // Waiting, at most for the moment in which a `status` asks whether somebody holds it.
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(|cause| Error::file("lock", &path, cause))?;
        // Made here, and never by an image: one that begins while the folder is removed would bring it back. Without
        // it every image scans by itself.
        let _ = File::options().write(true).create_new(true).mode(0o600).open(path.join(PLANS));
        Ok(Some(GroupFolder { name: name.into(), path, state: state.into(), _lock: lock }))
    }

    /// The segment's file.
    pub fn segment_path(&self) -> PathBuf {
        self.path.join("segment")
    }

    /// The segment's file of the process that joined with this number.
    pub fn member_path(&self, pid: u32) -> PathBuf {
        self.path.join(format!("segment.{pid}"))
    }

    /// The roster's file.
    pub fn roster_path(&self) -> PathBuf {
        self.path.join(roster::NAME)
    }

    /// Writes `value` to the file `name`, whole or not at all.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let path = self.path.join(name);
        let new = self.path.join(format!("{name}.new"));
        let write = || -> std::io::Result<()> {
            let bytes = serde_json::to_vec(value)?;
            File::options()
                .write(true)
                .create(true)
                .truncate(true)
                .mode(0o600)
                .open(&new)?
                .write_all(&bytes)?;
            fs::rename(&new, &path)
        };
        write().map_err(|cause| Error::file("write", path, cause))
    }
}

impl Drop for GroupFolder {
    fn drop(&mut self) {
        // Without the state's lock the folder is removed all the same: nothing may be left.
        let lock = lock_existing(&self.state);
        remove_folder(&self.path);
        if self.state == default_state() {
            // Fails while other groups are in it, as it should.
            let _ = fs::remove_dir(&self.state);
        }
        drop(lock);
    }
}

fn remove_folder(path: &Path) {
    // Far more than there are processes that may just be making their segments, each once: a file that is made between
    // our look and our end would leave the folder behind.
    const TRIES: usize = 100;
    // Nothing can be done about a folder that does not go; the next run of this name tries again.
    let _ = (0..TRIES).any(|_| fs::remove_dir_all(path).is_ok() || !path.exists());
}

/// Ends the standbys of a dead group, should they have missed their supervisor's death, and removes the folder.
fn clear_dead(path: &Path) {
    snapshot::close(&path.join(roster::NAME));
    for segment in segments(path) {
        for number in Snapshot::read(&segment).map_or(Vec::new(), |snapshot| copies(&snapshot)) {
            if let Some(pid) = raw(number)
                && let Ok(pidfd) = rustix::process::pidfd_open(pid, PidfdFlags::empty())
                // The pid may have been used again.
                && proc::maps(number, &segment)
            {
                let _ = rustix::process::pidfd_send_signal(pidfd, Signal::KILL);
            }
        }
    }
    remove_folder(path);
}

/// Pids of all standbys that a segment names.
fn copies(snapshot: &Snapshot) -> Vec<u32> {
    let spares = snapshot.spares().into_iter().map(|(_, pid)| pid);
    spares.chain([snapshot.standby_pid()]).collect()
}

/// The segments in a group's folder.
fn segments(path: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let paths = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("segment"));
    paths.map(|entry| entry.path()).collect()
}

/// A group as others see it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub path: PathBuf,
    state: PathBuf,
}

impl Found {
    /// Reads one of the folder's JSON files.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_slice(&fs::read(self.path.join(name)).ok()?).ok()
    }

    /// `meta.json`.
    pub fn meta(&self) -> Option<Meta> {
        self.read_json("meta.json")
    }

    /// The segment of the process that joined with the number `pid`, copied.
    pub fn snapshot(&self, meta: &Meta, pid: u32) -> Option<Snapshot> {
        let name = if pid == meta.root { "segment".into() } else { format!("segment.{pid}") };
        Snapshot::read(&self.path.join(name))
    }

    /// Whether the supervisor is alive.
    pub fn has_supervisor(&self) -> bool {
        has_supervisor(&self.path)
    }

    /// The primary of the process that leads: the one in its segment, if it is a process of the group's owner.
    pub fn primary(&self) -> Option<ProcessId> {
        let meta = self.meta()?;
        let snapshot = self.snapshot(&meta, meta.lead);
        let pid = snapshot.map(|snapshot| snapshot.primary_pid()).filter(|pid| self.may_be_ours(*pid));
        Some(match pid {
            Some(pid) if meta.primary.pid != pid => ProcessId::of(pid),
            _ => meta.primary,
        })
    }

    /// Whether the program itself has not ended: a standby may be taking over at this moment.
    pub fn has_program(&self) -> bool {
        let Some(meta) = self.meta() else { return false };
        let is_listed = || self.roster().iter().any(|entry| entry.is_first && entry.pid == meta.root);
        if self.has_supervisor() { is_listed() } else { self.primary().is_some_and(ProcessId::is_alive) }
    }

    /// Every process that the roster names and whose primary is one of the group, in the order of their births. An
    /// entry may outlive its process, whose number is then used again.
    pub fn listed(&self) -> Vec<Listed> {
        let mut listed = self.roster();
        listed.retain(|entry| self.is_ours(entry.primary));
        listed
    }

    /// Whether a process that the roster or a segment names is one of the group.
    pub fn is_ours(&self, pid: u32) -> bool {
        let supervisor = self.meta().map(|meta| meta.supervisor).filter(|supervisor| supervisor.is_alive());
        let descends = || supervisor.is_some_and(|supervisor| proc::is_descendant(pid, supervisor.pid));
        let holds = || proc::maps(pid, &self.path.join(roster::NAME));
        self.may_be_ours(pid) && (descends() || holds())
    }

    /// Every process that the roster names.
    pub fn roster(&self) -> Vec<Listed> {
        snapshot::listed(&self.path.join(roster::NAME))
    }

    /// Primaries of all processes.
    pub fn primaries(&self) -> Vec<ProcessId> {
        let listed = self.listed().into_iter().map(|entry| ProcessId::of(entry.primary));
        let unlisted = if self.has_supervisor() { Vec::new() } else { self.unlisted() };
        listed.chain(self.primary()).chain(unlisted).collect()
    }

    /// Processes that nobody has listed, and that are no standbys. A child that has just been forked is one, and when its parent
    /// ends at that moment nothing else leads to it. Looks at every process of the machine.
    fn unlisted(&self) -> Vec<ProcessId> {
        let (listed, standbys) = (self.roster(), self.standbys());
        let is_known = |pid: u32| listed.iter().any(|entry| entry.primary == pid);
        let mapping = proc::mapping(&self.path.join(roster::NAME));
        let unlisted = mapping.into_iter().filter(|pid| self.may_be_ours(*pid) && !is_known(*pid));
        unlisted.map(ProcessId::of).filter(|process| !standbys.contains(process)).collect()
    }

    /// Standbys of all processes.
    pub fn standbys(&self) -> Vec<ProcessId> {
        let snapshots = segments(&self.path).into_iter().filter_map(|path| Snapshot::read(&path));
        let pids = snapshots.flat_map(|snapshot| copies(&snapshot));
        pids.filter(|pid| self.may_be_ours(*pid)).map(ProcessId::of).collect()
    }

    /// A segment can be written by its guest: a pid in it counts only if root, asked to stop the group, would
    /// not be led to a process of somebody else.
    pub(crate) fn may_be_ours(&self, pid: u32) -> bool {
        let Ok(folder) = fs::symlink_metadata(&self.path) else { return false };
        pid > 1 && (folder.uid() == 0 || proc::owner(pid) == Some(folder.uid()))
    }

    /// Whether the folder is still there.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// Removes the folder if nobody of the group is alive.
    pub fn remove_if_dead(&self) -> bool {
        let Ok(Some(_lock)) = lock_existing(&self.state) else { return !self.exists() };
        let dead = !is_living(&self.path);
        if dead {
            clear_dead(&self.path);
            if self.state == default_state() {
                let _ = fs::remove_dir(&self.state);
            }
        }
        dead
    }
}

/// The groups that this user may see, by name.
pub fn groups() -> Vec<Found> {
    let mut found: Vec<Found> = visible_states().iter().flat_map(|state| groups_in(state)).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn groups_in(state: &Path) -> Vec<Found> {
    // Without the state's lock: root must not wait for what another user may hold. A group half made has no
    // meta.json yet, and whoever wants to remove one takes the lock.
    let entries = fs::read_dir(state).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            Some(Found { name, path: entry.path(), state: state.into() })
        })
        .collect()
}

/// The group of this name; this user's own comes first.
///
/// # Errors
/// [`Error::NoSuchGroup`].
pub fn find(name: &str) -> Result<Found, Error> {
    let own = own_state();
    let mut found: Vec<Found> = groups().into_iter().filter(|group| group.name == name).collect();
    found.sort_by_key(|group| group.state != own);
    found.into_iter().next().ok_or_else(|| Error::NoSuchGroup(name.into()))
}

fn has_supervisor(path: &Path) -> bool {
    let Ok(folder) = File::options().read(true).custom_flags(libc::O_NOFOLLOW).open(path) else {
        return false;
    };
    rustix::fs::flock(&folder, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// Whether the supervisor or a primary of the group in `path` is alive.
fn is_living(path: &Path) -> bool {
    if has_supervisor(path) {
        return true;
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let found = Found { name, path: path.into(), state: path.parent().unwrap_or(path).into() };
    found.meta().is_some_and(|meta| meta.primary.is_alive())
        || found.listed().iter().any(|entry| ProcessId::of(entry.primary).is_alive())
        || !found.unlisted().is_empty()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::roster::Roster;

    #[test]
    fn a_folder_goes_although_children_make_their_segments_in_it() {
        for _ in 0..20 {
            let state = tempfile::tempdir().unwrap();
            let path = state.path().join("group");
            fs::create_dir(&path).unwrap();
            std::thread::scope(|scope| {
                let children = scope.spawn(|| {
                    for number in 0..40 {
                        let _ = File::create(path.join(format!("segment.{number}")));
                        std::thread::sleep(Duration::from_micros(20));
                    }
                });
                std::thread::sleep(Duration::from_micros(300));
                remove_folder(&path);
                assert!(!path.exists());
                children.join().unwrap();
            });
        }
    }

    #[test]
    fn a_dead_groups_children_hear_that_it_is_closed() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(roster::NAME);
        let roster = Roster::create(&path).unwrap();
        snapshot::close(&path);
        assert_eq!(roster.header().closing.load(std::sync::atomic::Ordering::SeqCst), 1);
    }

    #[test]
    fn whoever_maps_the_roster_is_found_listed_or_not() {
        let state = tempfile::tempdir().unwrap();
        let path = state.path().join(roster::NAME);
        let _mapped = Roster::create(&path).unwrap();
        let found = Found { name: "group".into(), path: state.path().into(), state: state.path().into() };
        assert_eq!(found.unlisted(), [ProcessId::of(std::process::id())]);
    }
}

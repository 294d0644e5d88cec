//! The state folder: one folder per group, there while the group is.
//!
//! `<state>/<name>/` holds `segment`, `segment.PID` of each process that has joined, `roster`, `sites` (how the
//! runtime has patched libraries, for the next image), `meta.json` (what was
//! started, and the primary's identity), `history.json` (what happened since) and the socket `control`. The supervisor holds a `flock` on the group's folder: whoever can
//! take it knows that the supervisor is gone. Making and removing folders happens under a `flock` on the
//! state folder, so that nobody sees a group half made.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::OFlags;
use rustix::process::PidfdFlags;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::child::raw;
use crate::dir::Dir;
use crate::ended::{self, Ended};
use crate::error::Error;
use crate::history::History;
use crate::options::check_name;
use crate::snapshot::{self, Listed, Snapshot};
use crate::spawn::pidfd_signal;
use crate::{place, proc, races, roster};

/// The file of the runtime's plans of patched texts.
pub const PLANS: &str = "sites";

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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The file, by its whole path.
    pub file: String,
    /// Why it is not whole, if it is not: the first reason. Of other processes it may go on.
    pub ended: Option<String>,
}

impl Recording {
    /// One that is being written to `file`.
    pub fn into(file: &Path) -> Recording {
        let whole = std::path::absolute(file).unwrap_or_else(|_| file.into());
        Recording { file: whole.to_string_lossy().into_owned(), ended: None }
    }
}

/// A living group's folder, held by its supervisor. Removed when dropped.
#[derive(Debug)]
pub struct GroupFolder {
    /// The group's name.
    pub name: String,
    /// The folder. We have it locked.
    pub dir: Arc<Dir>,
    state: Dir,
}

impl GroupFolder {
    /// Makes a folder for a group that was given a name by its user.
    ///
    /// # Errors
    /// [`Error::NameInUse`] when a group of that name is alive.
    pub fn named(name: &str) -> Result<GroupFolder, Error> {
        place::with_lock(|state| {
            clear_all_dead(state);
            GroupFolder::try_make(state, name)?.ok_or_else(|| match is_foreign(state, name) {
                true => Error::NothingRun(format!(
                    "{} exists and does not belong to a group",
                    state.at(name).display()
                )),
                false => Error::NameInUse(name.into()),
            })
        })
    }

    /// Makes a folder for `base`, or for the first of `base-2`, `base-3`, … that is free.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub fn first_free(base: &str) -> Result<GroupFolder, Error> {
        place::with_lock(|state| {
            clear_all_dead(state);
            for number in 1.. {
                let name = if number == 1 { base.to_owned() } else { format!("{base}-{number}") };
                if let Some(folder) = GroupFolder::try_make(state, &name)? {
                    return Ok(folder);
                }
            }
            unreachable!("the numbers do not end")
        })
    }

    /// `None` when a living group has the name, or something else. To be called with the state folder locked.
    fn try_make(state: &Dir, name: &str) -> Result<Option<GroupFolder>, Error> {
        let elsewhere = place::existing().into_iter().filter(|other| other.path() != state.path());
        if elsewhere.filter_map(|other| Found::open(other, name)).any(|found| found.is_living()) {
            return Ok(None);
        }
        if state.identity(name).is_some() {
            let again = state.again().map_err(|cause| Error::file("open", state.path(), cause))?;
            match Found::open(again, name) {
                Some(found) if !found.is_living() => found.clear_dead(),
                _ => return Ok(None),
            }
        }
        let make = || -> io::Result<GroupFolder> {
            let dir = state.make_folder(name)?;
            // Waiting, at most for the moment in which a `status` asks whether somebody holds it.
            dir.lock()?.for_good();
            // Made here, and never by an image: one that begins while the folder is removed would bring it back. Without
            // it every image scans by itself.
            let _ = dir.make_file(PLANS);
            races::copy(state, &dir);
            Ok(GroupFolder { name: name.into(), dir: Arc::new(dir), state: state.again()? })
        };
        make().map(Some).map_err(|cause| Error::file("make", state.at(name), cause))
    }

    /// The whole path of the program's segment, for the runtime.
    ///
    /// # Errors
    /// When the folder is not there any more.
    pub fn segment_path(&self) -> Result<PathBuf, Error> {
        let path = self.dir.at(SEGMENT);
        path.canonicalize().map_err(|cause| Error::file("find", path, cause))
    }

    /// The threads of the process `pid` have raced, and take turns by themselves from here on.
    pub fn remember_race(&self, pid: u32) {
        races::remember(&self.state, &self.dir, pid);
    }

    /// Keeps for a day how the group has ended.
    pub fn keep_end(&self, ended: &Ended) {
        ended::keep(&self.state, ended);
    }

    /// Writes `value` to the file `name`, whole or not at all.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), Error> {
        let written = serde_json::to_vec(value).map_err(io::Error::from);
        written
            .and_then(|bytes| self.dir.replace(name, &bytes))
            .map_err(|cause| Error::file("write", self.dir.at(name), cause))
    }
}

impl Drop for GroupFolder {
    fn drop(&mut self) {
        // Without the state's lock the folder is removed all the same: nothing may be left.
        let lock = self.state.lock();
        remove_folder(&self.state, &self.name);
        if let Ok(lock) = &lock {
            place::leave(&self.state, lock);
        }
    }
}

/// The segment's file of the program itself.
pub const SEGMENT: &str = "segment";

/// The segment's file of the process that joined with this number.
pub fn member(pid: u32) -> String {
    format!("{SEGMENT}.{pid}")
}

/// Whether there is something of this name that no group has made: it is not ours to remove. A user may have named a place in
/// which there is more.
fn is_foreign(state: &Dir, name: &str) -> bool {
    state.identity(name).is_some() && !state.folder(name).is_ok_and(|dir| is_groups(&dir))
}

/// Whether a group has made the folder: the plans are the first file in it.
fn is_groups(dir: &Dir) -> bool {
    dir.file(PLANS, OFlags::RDONLY).is_ok() || dir.names().is_empty()
}

/// Removes what supervisors have left that were killed, with all of their programs.
fn clear_all_dead(state: &Dir) {
    for found in state.again().into_iter().flat_map(groups_in).filter(|found| !found.is_living()) {
        found.clear_dead();
    }
}

fn remove_folder(state: &Dir, name: &str) {
    // Far more than there are processes that may just be making their segments, each once: a file that is made between
    // our look and our end would leave the folder behind.
    const TRIES: usize = 100;
    // Nothing can be done about a folder that does not go; the next run of this name tries again.
    let _ = (0..TRIES).any(|_| state.remove_all(name).is_ok() || state.identity(name).is_none());
}

/// Pids of all standbys that a segment names.
fn copies(snapshot: &Snapshot) -> Vec<u32> {
    let spares = snapshot.spares().into_iter().map(|(_, pid)| pid);
    spares.chain([snapshot.standby_pid()]).collect()
}

/// A process of a group, held: what was found out about it is true of the process that gets the signals.
#[derive(Debug)]
pub struct Held {
    /// Its name for ever.
    pub id: ProcessId,
    pidfd: OwnedFd,
}

impl Held {
    /// Whether it has not ended.
    pub fn is_alive(&self) -> bool {
        self.id.is_alive()
    }

    /// Sends it the signal `number`.
    ///
    /// # Errors
    /// The kernel's refusal; a process that has ended is none.
    pub fn signal(&self, number: i32) -> io::Result<()> {
        match pidfd_signal(&self.pidfd, number) {
            Err(cause) if cause.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }
}

/// A group as others see it.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Its folder.
    pub dir: Arc<Dir>,
    state: Arc<Dir>,
}

impl Found {
    /// The group's folder in `state`; `None` when there is none.
    fn open(state: impl Into<Arc<Dir>>, name: &str) -> Option<Found> {
        let state = state.into();
        let dir = state.folder(name).ok().filter(is_groups)?;
        Some(Found { name: name.into(), dir: Arc::new(dir), state })
    }

    /// Reads one of the folder's JSON files.
    pub fn read_json<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        /// Thousands of failovers, each with its words, are far less.
        const BYTES_MAX: u64 = 64 << 20;
        serde_json::from_slice(&self.dir.read(name, BYTES_MAX).ok()?).ok()
    }

    /// `meta.json`.
    pub fn meta(&self) -> Option<Meta> {
        self.read_json("meta.json")
    }

    /// The segment of the process that joined with the number `pid`, copied.
    pub fn snapshot(&self, meta: &Meta, pid: u32) -> Option<Snapshot> {
        let name = if pid == meta.root { SEGMENT.into() } else { member(pid) };
        Snapshot::read(&self.dir, name)
    }

    /// The segments in the folder, copied.
    fn snapshots(&self) -> impl Iterator<Item = Snapshot> {
        let is_segment = |name: &OsString| name.to_string_lossy().starts_with(SEGMENT);
        let names = self.dir.names().into_iter().filter(is_segment);
        names.filter_map(|name| Snapshot::read(&self.dir, name))
    }

    /// Whether the supervisor is alive.
    pub fn has_supervisor(&self) -> bool {
        self.dir.is_locked()
    }

    /// The primary of the process that leads: the one in its segment, if that is one of the group.
    pub fn primary(&self) -> Option<ProcessId> {
        let meta = self.meta()?;
        let snapshot = self.snapshot(&meta, meta.lead);
        let pid = snapshot.map(|snapshot| snapshot.primary_pid());
        match pid {
            Some(pid) if meta.primary.pid != pid && self.is_ours(pid) => Some(ProcessId::of(pid)),
            _ => Some(meta.primary),
        }
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

    /// Whether a process that the roster or a segment names is one of the group, by what the kernel says of it. The
    /// programs of a group write there what they like.
    pub fn is_ours(&self, pid: u32) -> bool {
        let supervisor = self.meta().map(|meta| meta.supervisor).filter(|supervisor| supervisor.is_alive());
        let descends = || supervisor.is_some_and(|supervisor| proc::is_descendant(pid, supervisor.pid));
        pid > 1 && (descends() || proc::maps(pid, &self.roster_path()))
    }

    /// Holds on to a process, if it is one of the group.
    pub fn hold(&self, process: ProcessId) -> Option<Held> {
        // Held first and looked at behind it: the number may have become somebody else's meanwhile.
        let pidfd = rustix::process::pidfd_open(raw(process.pid)?, PidfdFlags::empty()).ok()?;
        let is_known = self.is_ours(process.pid) || self.meta().is_some_and(|meta| meta.primary == process);
        let is_it = is_known && process.is_alive();
        is_it.then_some(Held { id: process, pidfd })
    }

    fn roster_path(&self) -> PathBuf {
        self.dir.at(roster::NAME)
    }

    /// Every process that the roster names.
    pub fn roster(&self) -> Vec<Listed> {
        snapshot::listed(&self.dir)
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
        let mapping = proc::mapping(&self.roster_path());
        let unlisted = mapping.into_iter().filter(|pid| *pid > 1 && !is_known(*pid));
        unlisted.map(ProcessId::of).filter(|process| !standbys.contains(process)).collect()
    }

    /// Standbys of all processes.
    pub fn standbys(&self) -> Vec<ProcessId> {
        let pids = self.snapshots().flat_map(|snapshot| copies(&snapshot));
        pids.filter(|pid| self.is_ours(*pid)).map(ProcessId::of).collect()
    }

    /// Whether the folder is still there.
    pub fn exists(&self) -> bool {
        self.dir.is_there()
    }

    /// Whether the supervisor or a primary of the group is alive.
    fn is_living(&self) -> bool {
        self.has_supervisor()
            || self.meta().is_some_and(|meta| meta.primary.is_alive())
            || self.listed().iter().any(|entry| ProcessId::of(entry.primary).is_alive())
            || !self.unlisted().is_empty()
    }

    /// Removes the folder if nobody of the group is alive.
    pub fn remove_if_dead(&self) -> bool {
        let Ok(lock) = self.state.lock() else { return !self.exists() };
        if !self.exists() {
            return true;
        }
        let dead = !self.is_living();
        if dead {
            self.clear_dead();
            place::leave(&self.state, &lock);
        }
        dead
    }

    /// Ends the standbys of a dead group, should they have missed their supervisor's death, and removes the folder.
    fn clear_dead(&self) {
        if let Some(meta) = self.meta() {
            let history: History = self.read_json("history.json").unwrap_or_default();
            ended::keep(&self.state, &Ended::of(&self.name, &meta, &history, None));
        }
        snapshot::close(&self.dir);
        for standby in self.standbys() {
            if let Some(standby) = self.hold(standby) {
                let _ = standby.signal(libc::SIGKILL);
            }
        }
        remove_folder(&self.state, &self.name);
    }
}

/// This user's groups, by name.
pub fn groups() -> Vec<Found> {
    let mut found: Vec<Found> = place::existing().into_iter().flat_map(groups_in).collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    found
}

fn groups_in(state: Dir) -> Vec<Found> {
    // Without the state's lock: a group half made has no meta.json yet, and whoever wants to remove one takes the lock.
    let state = Arc::new(state);
    let names = state.names().into_iter().filter_map(|name| name.into_string().ok());
    // A name that no group can have is not printed, either.
    let names = names.filter(|name| check_name(name).is_ok());
    names.filter_map(|name| Found::open(Arc::clone(&state), &name)).collect()
}

/// The group of this name.
///
/// # Errors
/// [`Error::NoSuchGroup`].
pub fn find(name: &str) -> Result<Found, Error> {
    let found = place::existing().into_iter().find_map(|state| Found::open(state, name));
    found.ok_or_else(|| Error::NoSuchGroup(name.into()))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
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
                        let _ = File::create(path.join(member(number)));
                        std::thread::sleep(Duration::from_micros(20));
                    }
                });
                std::thread::sleep(Duration::from_micros(300));
                remove_folder(&Dir::open(state.path()).unwrap(), "group");
                assert!(!path.exists());
                children.join().unwrap();
            });
        }
    }

    #[test]
    fn a_dead_groups_children_hear_that_it_is_closed() {
        let state = tempfile::tempdir().unwrap();
        let dir = Dir::open(state.path()).unwrap();
        let roster = Roster::create(&dir).unwrap();
        snapshot::close(&dir);
        assert_eq!(roster.header().closing.load(std::sync::atomic::Ordering::SeqCst), 1);
    }

    #[test]
    fn whoever_maps_the_roster_is_found_listed_or_not() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join("group")).unwrap();
        let found = Found::open(Dir::open(state.path()).unwrap(), "group").unwrap();
        let _mapped = Roster::create(&found.dir).unwrap();
        assert_eq!(found.unlisted(), [ProcessId::of(std::process::id())]);
    }

    #[test]
    fn a_number_that_a_guest_has_written_is_not_held() {
        let state = tempfile::tempdir().unwrap();
        fs::create_dir(state.path().join("group")).unwrap();
        let found = Found::open(Dir::open(state.path()).unwrap(), "group").unwrap();
        let mut stranger = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        assert!(!found.is_ours(stranger.id()) && found.hold(ProcessId::of(stranger.id())).is_none());
        let _mapped = Roster::create(&found.dir).unwrap();
        let own = ProcessId::of(std::process::id());
        assert!(found.hold(own).is_some_and(|held| held.is_alive()));
        assert!(found.hold(ProcessId { start: own.start + 1, ..own }).is_none(), "another of that number");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
    }
}

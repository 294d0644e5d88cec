//! A recorded program's state beside its recording, again and again: places from which a replay can begin.
//!
//! Each is a [checkpoint](crate::checkpoint) without descriptors, in a folder whose name is the recording's and `.checkpoints`. Its
//! own name is the number of the first event behind it.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;
use std::time::Duration;

use checkpoint::Recorded;
use recording::Header;

use super::state::{For, States};
use super::tape::Tape;
use crate::checkpoint::output::Output;
use crate::checkpoint::pages;
use crate::checkpoint::restore::Checkpoint;
use crate::checkpoint::take::Refusal;
use crate::clock;
use crate::dir::Dir;
use crate::error::Error;
use crate::roster::Roster;
use crate::sentry;

/// Behind the name of a recording: the folder of its checkpoints.
const FOLDER: &str = ".checkpoints";
/// Behind the name of one that is being written.
const PART: &str = ".part";

/// Where the checkpoints of a recording are.
fn folder_of(recording: &Path) -> PathBuf {
    let mut name = recording.as_os_str().to_owned();
    name.push(FOLDER);
    name.into()
}

/// Takes a program's checkpoints.
pub(super) struct Checkpoints {
    folder: PathBuf,
    states: States,
    interval_ns: u64,
    due_ns: u64,
    writer: Option<JoinHandle<Result<(), String>>>,
    /// No more are taken.
    is_over: bool,
    /// What has been said last.
    said: String,
}

impl Checkpoints {
    /// Those of a recording into the file at `path` that begins like this, of the program whose group has this folder.
    ///
    /// # Errors
    /// When there is something in their place.
    pub(super) fn new(
        path: &Path,
        header: &Header,
        group: &Dir,
        interval: Duration,
    ) -> Result<Checkpoints, Error> {
        let folder = folder_of(path);
        fs::DirBuilder::new().mode(0o700).create(&folder).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::AlreadyExists => Error::NothingRun(format!(
                "{} already exists; choose another file, or remove it",
                folder.display()
            )),
            _ => Error::file("make", &folder, cause),
        })?;
        let interval_ns = interval.as_nanos() as u64;
        Ok(Checkpoints {
            folder,
            states: States::new(header, group)?,
            interval_ns,
            due_ns: clock::monotonic_ns() + interval_ns,
            writer: None,
            is_over: false,
            said: String::new(),
        })
    }

    /// Nothing is recorded after all.
    pub(super) fn take_away(&self) {
        let _ = fs::remove_dir(&self.folder);
    }

    /// Takes one if it is time. What somebody should hear.
    pub(super) fn drive(&mut self, tape: &mut Tape, roster: &Roster, pid: u32) -> Option<String> {
        if self.writer.as_ref().is_some_and(JoinHandle::is_finished) {
            let why = self.written()?;
            return self.say(why);
        }
        let now = clock::monotonic_ns();
        if now < self.due_ns || self.is_over || self.writer.is_some() {
            return None;
        }
        if tape.has_several() {
            self.is_over = true;
            return Some(
                "it has several processes now: a replay can begin at a checkpoint from before that, or at the beginning"
                    .into(),
            );
        }
        self.due_ns = now + self.interval_ns;
        if !self.states.can_stand(tape) {
            return None;
        }
        let taken = self.take(tape, roster, pid);
        self.due_ns = clock::monotonic_ns() + self.interval_ns;
        taken.err().and_then(|why| self.say(why))
    }

    /// The same reason is heard once.
    fn say(&mut self, why: String) -> Option<String> {
        if why == self.said {
            return None;
        }
        self.said = why.clone();
        Some(format!("no checkpoint of it: {why}"))
    }

    fn take(&mut self, tape: &mut Tape, roster: &Roster, pid: u32) -> Result<(), String> {
        let (copies, mut described, recorded) =
            self.states.take(tape, roster, pid, For::Replay).map_err(Refusal::into_why)?;
        let path = self.folder.join(recorded.events.to_string());
        let part = self.folder.join(format!("{}{PART}", recorded.events));
        let write = move || {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part);
            let output = file.and_then(|file| Output::new(file, None)).map_err(|cause| cause.to_string())?;
            let written =
                pages::write(&copies, &mut described, output, None).map_err(|cause| cause.to_string());
            let written = written.and_then(|_| fs::rename(&part, &path).map_err(|cause| cause.to_string()));
            written.inspect_err(|_| _ = fs::remove_file(&part))
        };
        self.writer = Some(sentry::thread("checkpoint", write).map_err(|cause| cause.to_string())?);
        Ok(())
    }

    /// Waits for what is being written. Why it could not be.
    fn written(&mut self) -> Option<String> {
        let written = self.writer.take()?.join();
        written.unwrap_or_else(|_| Err("its writer has failed".into())).err()
    }

    /// The program has ended. What somebody should hear.
    pub(super) fn finish(&mut self) -> Option<String> {
        let why = self.written()?;
        self.say(why)
    }
}

/// Whether nobody but this user or root can have put it there.
fn is_ours(path: &Path) -> bool {
    let me = rustix::process::geteuid().as_raw();
    let status = rustix::fs::lstat(path);
    status.is_ok_and(|status| (status.st_uid == me || status.st_uid == 0) && status.st_mode & 0o022 == 0)
}

/// The last checkpoint of a recording, which began at `began`, that is not behind the event of this number; `None` if there is none.
///
/// # Errors
/// When it cannot be read, is another user's, or is not of this recording.
pub(super) fn nearest(
    recording: &Path,
    began: u64,
    event: u64,
) -> Result<Option<(Checkpoint, Recorded)>, Error> {
    let Ok(entries) = fs::read_dir(folder_of(recording)) else { return Ok(None) };
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse::<u64>().ok();
    let found = entries.filter_map(Result::ok).filter_map(number).filter(|number| *number <= event).max();
    let Some(found) = found else { return Ok(None) };
    let path = folder_of(recording).join(found.to_string());
    if !is_ours(&folder_of(recording)) || !is_ours(&path) {
        return Err(Error::NotReplayed(format!(
            "{}: others can have written it: a checkpoint is a program, and a replay would run it as you",
            path.display()
        )));
    }
    let checkpoint = Checkpoint::read_any(&path, None, None).map_err(|error| match error {
        Error::NothingRun(why) => Error::NotReplayed(why),
        other => other,
    })?;
    match checkpoint.head().recorded {
        Some(recorded) if recorded.recording == began && recorded.events == found => {
            Ok(Some((checkpoint, recorded)))
        }
        _ => Err(Error::NotReplayed(format!("{}: it is not of this recording", path.display()))),
    }
}

//! Taking a checkpoint of a program that runs.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use checkpoint::{Content, Object, Taken, TakenFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use us_abi::{command, leaving, stand};

use super::bases::BaseFile;
pub(crate) use super::describe::{Described, Lasting};
use super::describe::{Looked, in_process};
use super::files::{Prepared, Wanted};
use super::kept::{Kept, Shelf};
use super::key::KeyFile;
use super::output::Output;
use super::pages::{self, Written};
use crate::child::Child;
use crate::error::Error;
use crate::folder::Found;
use crate::request;
use crate::roster::{Ends, Place, Roster};
use crate::segment::{Segment, clear_text, read_text, wake};

/// How long the program may take to park and fork.
const PARK: Duration = Duration::from_secs(3);
/// Between two looks whether it has.
const LOOK: Duration = Duration::from_micros(200);
/// Looks that it has at least: on a machine that stood still meanwhile the time is over before the program has had any.
const LOOKS_MIN: u32 = 1000;

/// The copy that stands still. It is ended when nobody needs it any more.
pub(crate) struct Copy {
    child: Child,
}

impl Copy {
    /// The kernel's number of its process.
    pub(super) fn pid(&self) -> u32 {
        self.child.pid
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.child.kill();
        // Until it is gone it holds the program's sockets, and whoever goes on from the checkpoint wants their addresses.
        let mut gone = [PollFd::new(&*self.child.pidfd, PollFlags::IN)];
        let _ = poll(&mut gone, Some(&GONE));
    }
}

/// How long a copy that has been killed is waited for.
const GONE: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// One process of the program.
pub(crate) struct One<'a> {
    /// Where it stands in the roster.
    pub(crate) place: Place,
    /// Its segment.
    pub(crate) segment: &'a Segment,
    /// The kernel's number of its primary.
    pub(crate) primary: u32,
    /// Makes one of its threads look.
    pub(crate) knock: Box<dyn FnMut() + 'a>,
}

/// Why there is no checkpoint.
pub(crate) enum Refusal {
    /// There may be one in a moment.
    Later(String),
    /// There is none.
    Never(String),
}

impl Refusal {
    /// The reason in words.
    pub(crate) fn into_why(self) -> String {
        match self {
            Refusal::Later(why) | Refusal::Never(why) => why,
        }
    }
}

impl From<String> for Refusal {
    fn from(why: String) -> Refusal {
        Refusal::Never(why)
    }
}

/// Asks every process of a program for a copy that stands still, and describes what they share. All of them stand still before the
/// first one forks: what a checkpoint holds is of one moment. With `stays` they stand still behind that, until they are
/// [let go](give_up). `strangers` says, when all stand, which others have ended, or who stands in the way. `files` are taken then.
///
/// # Errors
/// Why there is none; every process goes on then.
pub(crate) fn take(
    all: &mut [One],
    roster: &Roster,
    strangers: impl FnOnce(&[One]) -> Result<Ends, Refusal>,
    stays: bool,
    files: Option<Wanted>,
) -> Result<(Vec<Copy>, Described), Refusal> {
    let asked = if stays { stand::ASKED_FOR_LONG } else { stand::ASKED };
    request_all(all, asked)?;
    let copies = stand(all, strangers, asked);
    let looked = copies.and_then(|(copies, ended)| {
        let pids: Vec<u32> = copies.iter().map(|copy| copy.child.pid).collect();
        let mut looked = Looked::at(all, &pids, (roster, &ended), stays)?;
        files.map_or(Ok(()), |files| looked.take_files(files, &pids))?;
        Ok((looked, copies, pids))
    });
    if looked.is_err() {
        all.iter().for_each(|one| give_up(one.segment));
    } else if !stays {
        all.iter().for_each(|one| let_go(one.segment));
    }
    let (looked, copies, pids) = looked?;
    // Of what is the copies' alone there is time to speak: it changes no more.
    let described = looked.describe(all, &pids, roster);
    if stays && described.is_err() {
        all.iter().for_each(|one| give_up(one.segment));
    }
    Ok((copies, described?))
}

/// The same of the only process of a program, for a replay: without descriptors, and with the content of all mapped files but the
/// `lasting` ones. `at_stand` is called while the program stands still, and what it says goes with it. With `is_followed` it is for
/// another machine that follows from there on, and has what is behind the descriptors.
///
/// # Errors
/// As there, and what `at_stand` says.
pub(crate) fn take_for_replay<T>(
    one: One,
    (lasting, is_followed): (&Lasting, bool),
    roster: &Roster,
    at_stand: impl FnOnce() -> Result<T, String>,
) -> Result<(Vec<Copy>, Described, T), Refusal> {
    let mut all = [one];
    request_all(&all, stand::ASKED_FOR_REPLAY)?;
    let copies = stand(&mut all, |_| Ok(Ends::new()), stand::ASKED_FOR_REPLAY);
    let look = |copies: &[Copy]| match (is_followed, copies.first()) {
        (true, Some(copy)) => Looked::for_followed(&all[0], copy.pid(), lasting),
        _ => Looked::for_replay(&all[0], lasting),
    };
    let looked = copies.and_then(|(copies, _)| Ok((look(&copies)?, copies, at_stand()?)));
    if looked.is_ok() {
        let_go(all[0].segment);
    } else {
        give_up(all[0].segment);
    }
    let (looked, copies, told) = looked?;
    let pids: Vec<u32> = copies.iter().map(|copy| copy.child.pid).collect();
    let described = looked.describe(&all, &pids, roster)?;
    Ok((copies, described, told))
}

/// Has one process stand still, and put another version of its runtime beside the one that runs: the steps lie in the folder.
///
/// # Errors
/// Why there is none; the process goes on as it was.
pub(crate) fn upgrade(one: &mut One) -> Result<(), Refusal> {
    request(one, stand::ASKED_FOR_UPGRADE)?;
    let done = await_all(std::slice::from_mut(one), stand::ASKED_FOR_UPGRADE, stand::UPGRADED);
    if done.is_err() {
        give_up(one.segment);
    }
    done
}

/// Asks all processes to stand still, or none.
fn request_all(all: &[One], asked: u32) -> Result<(), Refusal> {
    for (at, one) in all.iter().enumerate() {
        if let Err(why) = request(one, asked) {
            all[..at].iter().for_each(|one| give_up(one.segment));
            return Err(why);
        }
    }
    Ok(())
}

/// Has all processes, which have been asked, stand still, and then fork.
fn stand(
    all: &mut [One],
    strangers: impl FnOnce(&[One]) -> Result<Ends, Refusal>,
    asked: u32,
) -> Result<(Vec<Copy>, Ends), Refusal> {
    await_all(all, asked, stand::PARKED)?;
    let ended = strangers(all)?;
    for one in all.iter() {
        let state = &one.segment.header().stand.state;
        let _ = state.compare_exchange(stand::PARKED, stand::FORK, Ordering::AcqRel, Ordering::Acquire);
        wake(state);
    }
    await_all(all, stand::FORK, stand::STANDS)?;
    let copy = |one: &One| {
        let pid = one.segment.header().stand.pid.load(Ordering::Acquire);
        let child = Child::of_descendant(pid);
        child.map(|child| Copy { child }).ok_or_else(|| in_process("the copy is gone".into(), one))
    };
    let copies: Result<Vec<Copy>, String> = all.iter().map(copy).collect();
    Ok((copies?, ended))
}

/// Asks one process to stand still.
fn request(one: &One, asked: u32) -> Result<(), Refusal> {
    let header = one.segment.header();
    let word = &header.command.0;
    let is_busy =
        || Refusal::Later(in_process("the program is asked for something else at this moment".into(), one));
    // Looked at first: until the last request has been taken back, the program still waits for what the state says of it.
    if word.load(Ordering::SeqCst) != command::FOLLOW {
        return Err(is_busy());
    }
    clear_text(&header.stand.why);
    header.stand.pid.store(0, Ordering::Relaxed);
    header.stand.state.store(asked, Ordering::Release);
    let from =
        word.compare_exchange(command::FOLLOW, command::CHECKPOINT, Ordering::SeqCst, Ordering::Acquire);
    wake(word);
    from.map(|_| ()).map_err(|_| is_busy())
}

/// Waits until each process has come from one state to the other.
fn await_all(all: &mut [One], from: u32, to: u32) -> Result<(), Refusal> {
    let (since, mut looks) = (Instant::now(), 0);
    for at in 0.. {
        let Some(one) = all.get(at) else { break };
        let header = one.segment.header();
        loop {
            let now = header.stand.state.load(Ordering::Acquire);
            if now == to {
                break;
            }
            let one = &all[at];
            if now != from {
                let why = read_text(&header.stand.why).map_or("it says no reason".into(), |(_, why)| why);
                return Err(Refusal::Later(in_process(why, one)));
            }
            if from != stand::FORK && header.leaving.0.load(Ordering::SeqCst) != leaving::NO {
                // It waits for us then, before it ends.
                return Err(Refusal::Later(in_process("the program is about to end".into(), one)));
            }
            let is_late = looks > LOOKS_MIN && since.elapsed() > PARK;
            if is_late || header.command.0.load(Ordering::Acquire) != command::CHECKPOINT {
                let why = "the program did not come to a point where it can be parked";
                return Err(Refusal::Later(in_process(why.into(), one)));
            }
            // All of those that have not come so far: who stands still waits for the others.
            for one in &mut all[at..] {
                if one.segment.header().stand.state.load(Ordering::Acquire) == from {
                    (one.knock)();
                }
            }
            std::thread::sleep(LOOK);
            looks += 1;
        }
    }
    Ok(())
}

/// Lets a process go on that stands still for its checkpoint: when its copy has closed what it has open.
fn let_go(segment: &Segment) {
    say(segment, stand::DESCRIBED);
}

/// The same of one that may only be about to stand still, where nothing has become of it: nobody need wait for the copy.
pub(crate) fn give_up(segment: &Segment) {
    say(segment, stand::FAILED);
    let header = segment.header();
    let word = &header.command.0;
    let _ = word.compare_exchange(command::CHECKPOINT, command::FOLLOW, Ordering::SeqCst, Ordering::Acquire);
    wake(word);
}

fn say(segment: &Segment, what: u32) {
    let state = &segment.header().stand.state;
    state.store(what, Ordering::Release);
    wake(state);
}

/// Writes the checkpoint and answers the caller, in a thread of its own: the supervisor goes on, but does not end before it.
/// `then` hears whether all of it has been written, before the caller does. With `keeps` the copies come to the `shelf` then.
pub(crate) fn write_beside(
    copies: Vec<Copy>,
    mut described: Described,
    (output, base): (Output, Option<BaseFile>),
    (shelf, keeps): (Shelf, bool),
    caller: UnixStream,
    then: impl FnOnce(bool) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        let began = Instant::now();
        let is_reset = |object: &&Object| matches!(object, Object::Broken { .. });
        let resets = described.head.objects.iter().filter(is_reset).count();
        let loses = |object: &&Object| matches!(object, Object::Socket(socket) if socket.loses);
        let emptied = described.head.objects.iter().filter(loses).count();
        let written = list(&mut described).and_then(|()| {
            let kept = shelf.lock().unwrap_or_else(PoisonError::into_inner);
            pages::write(&copies, &mut described, output, base.map(|base| (base, kept.as_ref())))
        });
        let written_all = written.is_ok();
        then(written_all);
        let answer = match written {
            Ok(Written { bytes, memory, changed }) => json!({
                "bytes": bytes,
                "memory_bytes": memory,
                "changed_bytes": changed,
                "base": described.head.base.as_ref().map(|base| &base.path),
                "processes": described.head.processes.len(),
                "connections_reset": resets,
                "sockets_emptied": emptied,
                "files": described.head.beside.as_ref().map(|taken| taken.files.len()),
                "file_bytes": described.head.beside.as_ref().map(file_bytes),
                "file_bytes_standing": described.files.as_ref().map(|(_, spent)| spent.standing_bytes),
                "seconds": began.elapsed().as_secs_f64(),
            }),
            Err(why) => json!({ "error": format!("cannot write the checkpoint: {why}") }),
        };
        if keeps && written_all {
            let kept = Kept::new(&described.head, copies);
            let last = shelf.lock().unwrap_or_else(PoisonError::into_inner).replace(kept);
            drop(last);
        } else {
            drop(copies);
        }
        request::answer(caller, &answer);
    };
    crate::sentry::thread("checkpoint", work)
}

/// Bytes of the files that were taken.
fn file_bytes(taken: &Taken) -> u64 {
    let bytes = |one: &TakenFile| match one.content {
        Content::File { bytes, .. } => bytes,
        _ => 0,
    };
    taken.files.iter().map(bytes).sum()
}

/// Others may build on it: it gets a number, and a list of its pages.
fn list(described: &mut Described) -> Result<(), checkpoint::Error> {
    let mut drawn = [0u8; 24];
    rustix::rand::getrandom(&mut drawn, rustix::rand::GetRandomFlags::empty())
        .map_err(std::io::Error::from)?;
    let (id, seed) = drawn.split_at(16);
    described.head.id = id.iter().map(|byte| format!("{byte:02x}")).collect();
    described.head.seed = seed.first_chunk().copied().map(u64::from_le_bytes);
    Ok(())
}

/// Sends the request to a group: the file is the caller's own descriptor. With `stops` the program ends where its checkpoint is taken.
/// With `keeps` its copies stay until the next one that says so.
/// It is sealed with `key`, what the key's file holds, builds on what is in the file `base`, and is taken with the `files` that the
/// caller has prepared.
///
/// # Errors
/// What the supervisor says against it.
pub fn ask(
    group: &Found,
    file: &File,
    (stops, keeps): (bool, bool),
    key: Option<&KeyFile>,
    base: Option<&File>,
    files: Option<&Prepared>,
) -> Result<Value, Error> {
    let key = key.map(KeyFile::hold).transpose()?;
    let mut words = vec![request::CHECKPOINT.to_owned(), file.as_raw_fd().to_string()];
    words.extend(stops.then(|| request::AND_STOP.to_owned()));
    words.extend(keeps.then(|| request::AND_KEEP.to_owned()));
    words.extend(key.as_ref().map(|key| format!("{}{}", request::AND_SEAL, key.as_raw_fd())));
    words.extend(base.map(|base| format!("{}{}", request::AND_BUILD_ON, base.as_raw_fd())));
    words.extend(files.map(|files| format!("{}{}", request::AND_FILES, files.number())));
    request::ask_for(group, &words.join(" "), None)
}

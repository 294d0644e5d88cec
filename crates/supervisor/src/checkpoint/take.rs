//! Taking a checkpoint of a program that runs.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use checkpoint::{Mapping, Object, Owner, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use us_abi::{SEGMENT_ADDRESS, THREADS_OFFSET, command, leaving, stand};

pub(crate) use super::describe::{Described, Lasting};
use super::describe::{Looked, in_process};
use super::key::KeyFile;
use super::memory;
use super::output::Output;
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
/// Pages that are looked at at once.
const PAGES: usize = 4096;
const PAGE: u64 = 4096;

/// The copy that stands still. It is ended when nobody needs it any more.
pub(crate) struct Copy {
    child: Child,
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
/// [let go](give_up). `strangers` says, when all stand, which others have ended, or who stands in the way.
///
/// # Errors
/// Why there is none; every process goes on then.
pub(crate) fn take(
    all: &mut [One],
    roster: &Roster,
    strangers: impl FnOnce(&[One]) -> Result<Ends, Refusal>,
    stays: bool,
) -> Result<(Vec<Copy>, Described), Refusal> {
    let asked = if stays { stand::ASKED_FOR_LONG } else { stand::ASKED };
    request_all(all, asked)?;
    let copies = stand(all, strangers, asked);
    let looked = copies.and_then(|(copies, ended)| {
        let pids: Vec<u32> = copies.iter().map(|copy| copy.child.pid).collect();
        Ok((Looked::at(all, &pids, (roster, &ended), stays)?, copies, pids))
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
/// `lasting` ones. `at_stand` is called while the program stands still, and what it says goes with it.
///
/// # Errors
/// As there, and what `at_stand` says.
pub(crate) fn take_for_replay<T>(
    one: One,
    lasting: &Lasting,
    roster: &Roster,
    at_stand: impl FnOnce() -> Result<T, String>,
) -> Result<(Vec<Copy>, Described, T), Refusal> {
    let mut all = [one];
    request_all(&all, stand::ASKED_FOR_REPLAY)?;
    let copies = stand(&mut all, |_| Ok(Ends::new()), stand::ASKED_FOR_REPLAY);
    let looked =
        copies.and_then(|(copies, _)| Ok((Looked::for_replay(&all[0], lasting)?, copies, at_stand()?)));
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
    let since = Instant::now();
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
            if since.elapsed() > PARK || header.command.0.load(Ordering::Acquire) != command::CHECKPOINT {
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
/// `then` hears whether all of it has been written, before the caller does.
pub(crate) fn write_beside(
    copies: Vec<Copy>,
    mut described: Described,
    output: Output,
    caller: UnixStream,
    then: impl FnOnce(bool) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        let began = Instant::now();
        let is_reset = |object: &&Object| matches!(object, Object::Broken { .. });
        let resets = described.head.objects.iter().filter(is_reset).count();
        let written = write(&copies, &mut described, output);
        then(written.is_ok());
        let answer = match written {
            Ok((bytes, pages)) => json!({
                "bytes": bytes,
                "memory_bytes": pages,
                "processes": described.head.processes.len(),
                "connections_reset": resets,
                "seconds": began.elapsed().as_secs_f64(),
            }),
            Err(why) => json!({ "error": format!("cannot write the checkpoint: {why}") }),
        };
        drop(copies);
        request::answer(caller, &answer);
    };
    crate::sentry::thread("checkpoint", work)
}

/// Writes a whole checkpoint. Bytes of the file, and of the memory in it.
///
/// # Errors
/// What cannot be read or written.
pub(crate) fn write(
    copies: &[Copy],
    described: &mut Described,
    output: Output,
) -> Result<(u64, u64), checkpoint::Error> {
    described.read_files().map_err(std::io::Error::other)?;
    let head = &described.head;
    let mut writer = Writer::new(output, head)?;
    let mut bytes = 0;
    let mut buffer = vec![0u8; PAGES * PAGE as usize];
    for (index, (copy, process)) in copies.iter().zip(&head.processes).enumerate() {
        let proc = |name: &str| crate::proc::open(copy.child.pid, name);
        let (memory, table) = (proc("mem")?, proc("pagemap")?);
        writer.begin(Owner::Process(index as u32))?;
        writer.pages((SEGMENT_ADDRESS + THREADS_OFFSET) as u64, &described.entries[index])?;
        if index == 0 {
            for (address, bytes) in &described.roster {
                writer.begin_mapping();
                writer.pages(*address, bytes)?;
            }
        }
        let is_own = |mapping: &&Mapping| {
            let is_others = mapping.shared.is_some() || mapping.system_v.is_some() || mapping.through;
            mapping.kernel.is_none() && !is_others
        };
        for mapping in process.mappings.iter().filter(is_own) {
            let place = (mapping.start, mapping.end);
            bytes += match described.whole.contains(&place) {
                true => write_whole(&mut writer, place, &memory, &mut buffer)?,
                false => write_mapping(&mut writer, place, &memory, &table, &mut buffer)?,
            };
        }
    }
    for (index, file) in described.memory.iter().enumerate() {
        writer.begin(Owner::Shared(index as u32))?;
        memory::each_there(file, |at, part| {
            bytes += part.len() as u64;
            writer.pages(at, part)
        })?;
    }
    let file = writer.finish()?.finish()?;
    Ok((file.metadata()?.len(), bytes))
}

fn write_mapping(
    writer: &mut Writer<impl Write>,
    (start, end): (u64, u64),
    memory: &File,
    table: &File,
    buffer: &mut [u8],
) -> Result<u64, checkpoint::Error> {
    /// The page is there, or swapped out; and it is of a file, or nobody's.
    const IS_THERE: u64 = 3 << 62;
    const OF_FILE: u64 = 1 << 61;
    writer.begin_mapping();
    let mut bytes = 0;
    let mut words = vec![0u8; PAGES * 8];
    let mut at = start;
    while at < end {
        let pages = (((end - at) / PAGE) as usize).min(PAGES);
        table.read_exact_at(&mut words[..pages * 8], at / PAGE * 8)?;
        let is_own = |page: usize| {
            let word = words[page * 8..page * 8 + 8].try_into().map_or(0, u64::from_le_bytes);
            word & IS_THERE != 0 && word & OF_FILE == 0
        };
        let mut page = 0;
        while page < pages {
            let first = (page..pages).find(|page| is_own(*page)).unwrap_or(pages);
            page = (first..pages).find(|page| !is_own(*page)).unwrap_or(pages);
            if first < page {
                let (from, len) = (at + first as u64 * PAGE, (page - first) * PAGE as usize);
                memory.read_exact_at(&mut buffer[..len], from)?;
                writer.pages(from, &buffer[..len])?;
                bytes += len as u64;
            }
        }
        at += pages as u64 * PAGE;
    }
    Ok(bytes)
}

/// Writes all that can be read of a mapping: behind the end of its file there is nothing.
fn write_whole(
    writer: &mut Writer<impl Write>,
    (start, end): (u64, u64),
    memory: &File,
    buffer: &mut [u8],
) -> Result<u64, checkpoint::Error> {
    writer.begin_mapping();
    let mut at = start;
    while at < end {
        let len = ((end - at) as usize).min(buffer.len());
        match memory.read_at(&mut buffer[..len], at) {
            Ok(got) if got >= PAGE as usize => {
                let got = got as u64 / PAGE * PAGE;
                writer.pages(at, &buffer[..got as usize])?;
                at += got;
            }
            _ => break,
        }
    }
    Ok(at - start)
}

/// Sends the request to a group: the file is the caller's own descriptor. With `stops` the program ends where its checkpoint is taken.
/// It is sealed with `key`, what the key's file holds.
///
/// # Errors
/// What the supervisor says against it.
pub fn ask(group: &Found, file: &File, stops: bool, key: Option<&KeyFile>) -> Result<Value, Error> {
    let mut request = format!("{} {}", request::CHECKPOINT, file.as_raw_fd());
    if stops {
        request = format!("{request} {}", request::AND_STOP);
    }
    let key = key.map(KeyFile::hold).transpose()?;
    if let Some(key) = &key {
        request = format!("{request} {}{}", request::AND_SEAL, key.as_raw_fd());
    }
    request::ask_for(group, &request, None)
}

//! Taking a checkpoint of a program that runs.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use checkpoint::{Object, Writer};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};
use us_abi::{SEGMENT_ADDRESS, THREADS_OFFSET, command, stand};

pub(crate) use super::describe::Described;
use super::describe::{self, Shared};
use super::key::KeyFile;
use super::output::Output;
use crate::child::Child;
use crate::error::Error;
use crate::folder::Found;
use crate::request;
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

/// Asks a program for a copy that stands still, and describes what both share. `knock` makes one of its threads look. With
/// `stays` the program stands still behind that, until it is [let go](let_go).
///
/// # Errors
/// Why there is none, in words.
pub(crate) fn take(
    segment: &Segment,
    primary: u32,
    mut knock: impl FnMut(),
    stays: bool,
) -> Result<(Copy, Described), String> {
    let header = segment.header();
    clear_text(&header.stand.why);
    let asked = if stays { stand::ASKED_FOR_LONG } else { stand::ASKED };
    header.stand.state.store(asked, Ordering::Release);
    let word = &header.command.0;
    word.compare_exchange(command::FOLLOW, command::CHECKPOINT, Ordering::SeqCst, Ordering::Acquire)
        .map_err(|_| "the program is asked for something else at this moment".to_owned())?;
    wake(word);
    let since = Instant::now();
    let take_back = || {
        let _ =
            word.compare_exchange(command::CHECKPOINT, command::FOLLOW, Ordering::SeqCst, Ordering::Acquire);
        wake(word);
    };
    while header.stand.state.load(Ordering::Acquire) == asked {
        if since.elapsed() > PARK {
            take_back();
            return Err("the program did not come to a point where it can be parked".into());
        }
        knock();
        std::thread::sleep(LOOK);
    }
    if header.stand.state.load(Ordering::Acquire) == stand::FAILED {
        return Err(read_text(&header.stand.why).map_or("it says no reason".into(), |(_, why)| why));
    }
    let pid = header.stand.pid.load(Ordering::Acquire);
    let copy = Child::of_child(pid).ok_or("the copy is gone".to_owned()).map(|child| Copy { child });
    let looked = copy.and_then(|copy| Ok((copy, Shared::look(pid, primary, segment, stays)?)));
    if !stays || looked.is_err() {
        let_go(segment);
    }
    let (copy, shared) = looked?;
    // Of what is the copy's alone there is time to speak: it changes no more.
    let described = describe::describe(pid, segment, shared);
    if stays && described.is_err() {
        let_go(segment);
    }
    Ok((copy, described?))
}

/// Lets a program go on that stands still for its checkpoint.
pub(crate) fn let_go(segment: &Segment) {
    let state = &segment.header().stand.state;
    state.store(stand::DESCRIBED, Ordering::Release);
    wake(state);
}

/// Writes the checkpoint and answers the caller, in a thread of its own: the supervisor goes on, but does not end before it.
/// `then` hears whether all of it has been written, before the caller does.
pub(crate) fn write_beside(
    copy: Copy,
    mut described: Described,
    output: Output,
    caller: UnixStream,
    then: impl FnOnce(bool) + Send + 'static,
) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        let began = Instant::now();
        let is_reset = |object: &&Object| matches!(object, Object::Broken { .. });
        let resets = described.head.objects.iter().filter(is_reset).count();
        let known = described.read_files().map_err(|why| std::io::Error::other(why).into());
        let written = known.and_then(|()| write(&copy, &described, output));
        then(written.is_ok());
        let answer = match written {
            Ok((bytes, pages)) => json!({
                "bytes": bytes,
                "memory_bytes": pages,
                "connections_reset": resets,
                "seconds": began.elapsed().as_secs_f64(),
            }),
            Err(why) => json!({ "error": format!("cannot write the checkpoint: {why}") }),
        };
        drop(copy);
        request::answer(caller, &answer);
    };
    crate::sentry::thread("checkpoint", work)
}

/// Bytes of the file, and of the memory in it.
fn write(copy: &Copy, described: &Described, output: Output) -> Result<(u64, u64), checkpoint::Error> {
    let proc = |name: &str| crate::proc::open(copy.child.pid, name);
    let (memory, table) = (proc("mem")?, proc("pagemap")?);
    let (head, entries) = (&described.head, &described.entries);
    let mut writer = Writer::new(output, head)?;
    writer.pages((SEGMENT_ADDRESS + THREADS_OFFSET) as u64, entries)?;
    let mut bytes = 0;
    let mut buffer = vec![0u8; PAGES * PAGE as usize];
    for mapping in head.mappings.iter().filter(|mapping| mapping.kernel.is_none()) {
        bytes += write_mapping(&mut writer, (mapping.start, mapping.end), &memory, &table, &mut buffer)?;
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

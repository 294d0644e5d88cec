//! One recorded process: its rings are emptied into the recording.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use recording::{How, Image, Writer};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::PidfdFlags;
use us_abi::{CallArgs, EventKind, Header, SIGNAL_WAIT_NS_MAX, how, recorder};

use super::facts;
use super::making::Making;
use super::rings::{self, Rings, first_event};
use crate::dir::Dir;
use crate::error::Error;
use crate::segment::{Segment, read_text, write_text};
use crate::{child, clock, spawn};

/// Bytes that are taken out of a ring at once.
const PIECE: usize = 1 << 20;

const EXIT_GROUP: u16 = libc::SYS_exit_group as u16;

/// How often the rings are looked at to find a moment.
const MOMENT_LOOKS: u32 = 16;

/// How often the rings of a process are emptied at its end.
const LAST_LOOKS: u32 = 1000;

/// What the recording has to know of all processes.
pub struct Book<'a> {
    /// The file.
    pub writer: &'a mut Writer,
    /// Images so far.
    pub images: u32,
    /// The last image of each number.
    pub by_pid: std::collections::HashMap<u32, u32>,
}

/// A recorded process.
#[derive(Debug)]
pub struct Taken {
    rings: Rings,
    dir: Arc<Dir>,
    /// Its segment's name there.
    name: String,
    /// Readable once the process has ended; `None` if it had before we could look.
    pub pidfd: Option<Arc<OwnedFd>>,
    /// Guest's number, and that by which the kernel knows the first copy.
    pub pid: u32,
    /// Kernel's number of the process that `pidfd` is of.
    primary: u32,
    /// When it was found gone while somebody else is to say whether that is the end, CLOCK_MONOTONIC ns.
    pub gone_ns: Option<u64>,
    image: Option<u32>,
    /// Facts of an image that are not whole yet.
    facts: Vec<u8>,
    images_seen: u32,
    exit_status: Option<i32>,
    /// Threads of the image that are about to be made.
    making: Making,
    /// Failovers that have been come to.
    cuts_seen: u32,
    stopped: bool,
    buffer: Vec<u8>,
}

impl Taken {
    /// A process whose segment is `name` in `dir`.
    pub fn new(rings: Rings, dir: &Arc<Dir>, name: String, pid: u32, pidfd: Option<Arc<OwnedFd>>) -> Taken {
        Taken {
            rings,
            dir: Arc::clone(dir),
            name,
            pidfd,
            pid,
            primary: pid,
            gone_ns: None,
            image: None,
            facts: Vec::new(),
            images_seen: 0,
            exit_status: None,
            making: Making::default(),
            cuts_seen: 0,
            stopped: false,
            buffer: Vec::new(),
        }
    }

    /// Goes on as this image of a recording that somebody else has begun: what its rings hold is in there. Before its process logs
    /// anything more.
    pub fn goes_on_as(&mut self, image: u32) {
        let header = self.rings.segment.header();
        (self.image, self.images_seen) = (Some(image), header.images.load(Ordering::Acquire));
        // The take-over itself is one that no recorder has come to: who follows closes the gaps of the dead machine's log there.
        self.cuts_seen = header.cuts_taken.load(Ordering::Acquire);
    }

    /// Which image it is in the recording.
    pub fn image(&self) -> Option<u32> {
        self.image
    }

    /// Its segment.
    pub fn segment(&self) -> &Segment {
        &self.rings.segment
    }

    /// Writes down what a gate says.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub fn note(&mut self, note: &[u8], book: &mut Book) -> Result<(), recording::Error> {
        self.write(0, &rings::event(EventKind::Gate, 0, note), book)
    }

    /// Writes down a piece of an image of the program.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub fn picture(&mut self, piece: &[u8], book: &mut Book) -> Result<(), recording::Error> {
        self.write(0, &rings::event(EventKind::Picture, 0, piece), book)
    }

    /// Whether all that its process has logged has been taken.
    pub fn has_all(&self) -> bool {
        !self.stopped
            && (0..self.rings.segment.slots()).all(|slot| {
                let (from, to) = self.rings.untaken(slot);
                from == to
            })
    }

    /// Follows the process over a failover: whose end is looked for is the primary that its segment names.
    pub fn look_at_primary(&mut self) {
        let now = self.rings.segment.header().primary_pid.load(Ordering::Acquire);
        if now != self.primary && now != 0 {
            (self.primary, self.gone_ns) = (now, None);
            self.pidfd = pidfd_of(now);
        }
    }

    /// Whether its process has ended, as far as that is known.
    pub fn has_ended(&self) -> bool {
        self.pidfd.as_ref().is_none_or(|pidfd| {
            let mut fds = [PollFd::from_borrowed_fd(pidfd.as_fd(), PollFlags::IN)];
            poll(&mut fds, Some(&clock::timespec(0))).is_ok_and(|ready| ready > 0)
        })
    }

    /// Signals that wait for a thread that only computes: it is asked to take them where it is, as under `run`.
    pub fn ask_for_late_signals(&self, now_ns: u64) {
        for entry in (0..self.rings.segment.slots()).map(|slot| self.rings.segment.thread(slot)) {
            if entry.pending_signal.load(Ordering::Acquire) == 0 {
                continue;
            }
            if now_ns >= entry.pending_since_ns.load(Ordering::Acquire) + SIGNAL_WAIT_NS_MAX {
                spawn::nudge(self.pid, entry.primary_tid.load(Ordering::Acquire));
            }
        }
    }

    /// Whether the log of this process is taken no more, and why.
    pub fn has_stopped(&self) -> Option<String> {
        let header = self.rings.segment.header();
        (header.recorder.0.load(Ordering::Acquire) == recorder::STOPPED)
            .then(|| read_text(&header.unrecorded.0).map_or("no reason was given".into(), |(_, why)| why))
    }

    /// Takes no more, and holds nobody up: the file cannot be written, or nobody will look again.
    pub fn stop(&self, why: &str) {
        let header = self.rings.segment.header();
        if header.recorder.0.load(Ordering::Acquire) == recorder::TAKES {
            write_text(&header.unrecorded.0, 1, why);
            header.recorder.0.store(recorder::STOPPED, Ordering::Release);
        }
    }

    /// Takes what there is. Returns how many bytes.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub fn drain(&mut self, book: &mut Book) -> Result<u64, recording::Error> {
        if self.stopped || self.rings.segment.header().recorder.0.load(Ordering::Acquire) == recorder::NONE {
            return Ok(0);
        }
        // What is published in one ring may follow from what is in another one. Found alike twice, all of it was there at one moment.
        let tails = |rings: &Rings| -> Vec<(u64, u64)> {
            let look = || (0..rings.segment.slots()).map(|slot| rings.untaken(slot)).collect();
            let mut seen: Vec<(u64, u64)> = look();
            for _ in 0..MOMENT_LOOKS {
                let before = std::mem::replace(&mut seen, look());
                if seen == before {
                    break;
                }
            }
            seen
        };
        let mut waiting = tails(&self.rings);
        // A new image publishes what it is before it makes a thread: seen in this order, its first events are among
        // those that we have, whatever else is.
        let images = self.rings.segment.header().images.load(Ordering::Acquire);
        if images != self.images_seen {
            self.images_seen = images;
            waiting = tails(&self.rings);
        }
        // Read behind the tails: who sees an event of the new primary sees where the old one's log ends.
        let cuts = self.rings.segment.header().cuts.load(Ordering::Acquire);
        if cuts != self.cuts_seen {
            for (slot, (from, to)) in waiting.iter_mut().enumerate() {
                let cut = self.rings.segment.thread(slot).cut.load(Ordering::Acquire);
                *to = (*to).min(cut).max(*from);
            }
        }
        let mut order: Vec<usize> = (0..waiting.len()).collect();
        order.sort_by_key(|slot| !self.begins_image(*slot, waiting[*slot]));
        let mut taken = 0;
        for slot in order {
            let (from, to) = waiting[slot];
            taken += to - from;
            self.take(slot, from, to, book)?;
        }
        if cuts != self.cuts_seen {
            self.cuts_seen = cuts;
            let header = self.rings.segment.header();
            let pid = header.cut_pid.load(Ordering::Acquire);
            let mut event = rings::event(EventKind::Failover, 0, &[]);
            event[8..16].copy_from_slice(&u64::from(pid).to_le_bytes());
            self.write(0, &event, book)?;
            self.rings.segment.header().cuts_taken.store(cuts, Ordering::Release);
            // There may be more behind it.
            taken += 1;
        }
        Ok(taken)
    }

    fn begins_image(&self, slot: usize, (from, to): (u64, u64)) -> bool {
        let mut kind = [0u8; 16];
        to - from >= 16 && self.rings.read(slot, from, &mut kind).is_ok() && kind[0] == EventKind::Image as u8
    }

    fn take(&mut self, slot: usize, mut from: u64, to: u64, book: &mut Book) -> Result<(), recording::Error> {
        let mut buffer = std::mem::take(&mut self.buffer);
        while from < to {
            buffer.resize(((to - from) as usize).min(PIECE), 0);
            self.rings.read(slot, from, &mut buffer)?;
            // Where nobody waits for us any more, the log goes as far as it has not been written over.
            if self.has_stopped().is_some() && !self.rings.is_intact(slot, from) {
                self.stopped = true;
                break;
            }
            let whole = self.pass_on(slot, &buffer, book)?;
            if whole == 0 && self.has_stopped().is_some() {
                self.stopped = true;
                break;
            }
            if whole == 0 {
                // What lies in a ring below its tail is whole; a guest that has written there itself ends up here.
                return Err(recording::Error::Misuse(format!("the log of process {} is damaged", self.pid)));
            }
            from += whole as u64;
            self.rings.release(slot, from);
        }
        self.buffer = buffer;
        Ok(())
    }

    /// Writes the whole events at the start of `bytes`. Returns how many bytes they were.
    fn pass_on(&mut self, slot: usize, bytes: &[u8], book: &mut Book) -> Result<usize, recording::Error> {
        let (mut begun, mut at) = (0, 0);
        let slot = slot as u16;
        while let Some((size, kind)) = first_event(&bytes[at..]) {
            if EventKind::from_u8(kind).is_none() {
                break;
            }
            if kind == EventKind::Image as u8 {
                self.write(slot, &bytes[begun..at], book)?;
                self.take_facts(&bytes[at..at + size], book)?;
                begun = at + size;
            } else {
                self.making.see(slot, &bytes[at..at + size]);
                if kind == EventKind::Enter as u8 && size >= 32 {
                    self.note_exit(&bytes[at..at + size]);
                }
            }
            at += size;
        }
        self.write(slot, &bytes[begun..at], book)?;
        // A long leap over the rest of the ring: its payload need not be read.
        if at == 0 && bytes.len() >= 16 && bytes[0] == EventKind::Skip as u8 {
            let length = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            return Ok(Header::size(length));
        }
        Ok(at)
    }

    fn write(&mut self, slot: u16, events: &[u8], book: &mut Book) -> Result<(), recording::Error> {
        match self.image {
            Some(image) if !events.is_empty() => book.writer.events(image, slot, events),
            _ => Ok(()),
        }
    }

    fn note_exit(&mut self, event: &[u8]) {
        let call = u16::from_le_bytes([event[2], event[3]]);
        let at = 16 + std::mem::offset_of!(CallArgs, len);
        if call == EXIT_GROUP {
            self.exit_status = Some(i32::from(event[at]) << 8);
        }
    }

    fn take_facts(&mut self, event: &[u8], book: &mut Book) -> Result<(), recording::Error> {
        let length = u32::from_le_bytes([event[4], event[5], event[6], event[7]]) as usize;
        self.facts.extend_from_slice(&event[16..16 + length]);
        if event[1] & us_abi::event::RETURN_MORE != 0 {
            return Ok(());
        }
        let facts = std::mem::take(&mut self.facts);
        let Some((pid, parent, made)) = facts::head(&facts) else { return Ok(()) };
        let before = self.image.take();
        if let Some(before) = before {
            book.writer.end(before, 0, EXECUTED)?;
        }
        let number = book.images;
        let image = Image {
            number,
            pid: pid as i32,
            parent: before.or_else(|| book.by_pid.get(&parent).copied()),
            how: match made {
                how::FORKED => How::Forked,
                how::EXECUTED => How::Executed,
                _ => How::Started,
            },
            facts,
        };
        book.writer.image(&image)?;
        book.images += 1;
        book.by_pid.insert(pid, number);
        self.image = Some(number);
        self.exit_status = None;
        self.making = Making::default();
        Ok(())
    }

    /// The process has ended, or will say no more: everything that is left, and its end. `status` is what the kernel says,
    /// where it tells us.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub fn finish(&mut self, status: Option<i32>, book: &mut Book) -> Result<(), recording::Error> {
        // One that goes on could log for ever.
        for _ in 0..LAST_LOOKS {
            if self.drain(book)? == 0 {
                break;
            }
        }
        self.stopped = true;
        let why = self.has_stopped();
        for (slot, end) in self.making.ends() {
            self.write(slot, &end, book)?;
        }
        if let Some(image) = self.image.take() {
            let status = status.or(self.exit_status).unwrap_or(UNKNOWN);
            book.writer.end(image, status, why.unwrap_or_default().as_bytes())?;
        }
        Ok(())
    }

    /// Whether it has just been found to be taken no more. What it had logged until then is taken first: to be asked
    /// before a last [`Taken::drain`], and told afterwards.
    pub fn stops_now(&self) -> Option<String> {
        self.has_stopped().filter(|_| !self.stopped)
    }

    /// Nothing more is taken.
    pub fn is_done(&mut self) {
        self.stopped = true;
    }

    /// Removes the segment's file.
    pub fn remove(&self) {
        self.rings.segment.remove(&self.dir, &self.name);
    }
}

/// Instead of a status: nobody has told us how the process ended.
pub const UNKNOWN: i32 = -1;

/// Facts of an image's end: another one has taken its place.
pub const EXECUTED: &[u8] = b"exec";

/// By the facts of an image's end: why its log ends before its process did, if it does.
pub fn why_cut(facts: &[u8]) -> Option<String> {
    (!facts.is_empty() && facts != EXECUTED).then(|| String::from_utf8_lossy(facts).into_owned())
}

/// Opens the segment `name` in `dir`, of the process `pid`.
///
/// # Errors
/// When it is none.
pub fn open(dir: &Arc<Dir>, name: String, pid: u32) -> Result<Taken, Error> {
    let segment = Segment::open(dir, &name)?;
    Ok(Taken::new(Rings::new(segment, dir, &name)?, dir, name, pid, pidfd_of(pid)))
}

fn pidfd_of(pid: u32) -> Option<Arc<OwnedFd>> {
    let pidfd = child::raw(pid).and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok());
    pidfd.map(Arc::new)
}

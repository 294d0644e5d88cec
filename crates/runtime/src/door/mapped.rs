//! Mappings of files that the standby may not have repeated yet: shared ones, and those of files that nobody changes.
//!
//! It repeats them from the descriptor, which most programs close next, and without it there is no file that the standby
//! could have in sight when it is promoted. So a thread that closes such a descriptor lets the standby come after first.
//! It does so then and not at the mapping: a server that maps a file for each request has unmapped it by then, and nothing
//! is left to wait for. (Waiting at the mapping was most of what Apache's requests cost.)

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::thread::Thread;
use crate::{raw, seats};

struct Mapped {
    /// The descriptor plus one, 0 for a free entry, [`TAKEN`] for one that is being filled.
    fd: AtomicU64,
    start: AtomicU64,
    bytes: AtomicU64,
    /// Whose ring has it, and up to where.
    slot: AtomicU32,
    /// How often a thread that closes the descriptor looks whether the standby has come there.
    looks: AtomicU32,
    end: AtomicU64,
}

const TAKEN: u64 = u64::MAX;
const ENTRIES: usize = 64;
static MAPPED: [Mapped; ENTRIES] = [const {
    Mapped {
        fd: AtomicU64::new(0),
        start: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        slot: AtomicU32::new(0),
        looks: AtomicU32::new(0),
        end: AtomicU64::new(0),
    }
}; ENTRIES];
/// Entries that are filled, or about to be.
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Mapped {
    /// Whether every standby has come past it.
    fn is_repeated(&self) -> bool {
        let end = self.end.load(Ordering::Relaxed);
        seats::slowest(self.slot.load(Ordering::Relaxed)).is_none_or(|head| head >= end)
    }

    /// Frees the entry, if it is still that of this descriptor.
    fn clear(&self, fd: u64) {
        if self.fd.compare_exchange(fd, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            COUNT.fetch_sub(1, Ordering::Release);
        }
    }
}

/// The filled entries, each with what it says of its descriptor.
fn filled() -> impl Iterator<Item = (&'static Mapped, u64)> {
    let entries = if COUNT.load(Ordering::Acquire) == 0 { &MAPPED[..0] } else { &MAPPED[..] };
    entries
        .iter()
        .map(|mapped| (mapped, mapped.fd.load(Ordering::Acquire)))
        .filter(|(_, fd)| *fd != 0 && *fd != TAKEN)
}

/// As a primary: a shared mapping of the file behind `fd` is there, and in the log.
pub fn add(thread: &Thread, fd: i32, start: u64, bytes: u64) {
    /// Some twenty milliseconds.
    const LOOKS: u32 = 1000;
    add_for(thread, fd, start, bytes, LOOKS);
}

/// The same of one that the standby finds by other means as well, though not as cheaply.
pub fn add_in_reach(thread: &Thread, fd: i32, start: u64, bytes: u64) {
    const LOOKS: u32 = 50;
    add_for(thread, fd, start, bytes, LOOKS);
}

fn add_for(thread: &Thread, fd: i32, start: u64, bytes: u64, looks: u32) {
    if !seats::is_followed() {
        return;
    }
    COUNT.fetch_add(1, Ordering::AcqRel);
    let Some(mapped) = claim().or_else(|| {
        // Of files that stay open.
        filled().filter(|(mapped, _)| mapped.is_repeated()).for_each(|(mapped, fd)| mapped.clear(fd));
        claim()
    }) else {
        COUNT.fetch_sub(1, Ordering::Release);
        await_standby(looks, || {
            seats::slowest(thread.slot()).is_none_or(|head| head >= thread.ends.producer.at)
        });
        return;
    };
    mapped.start.store(start, Ordering::Relaxed);
    mapped.bytes.store(bytes, Ordering::Relaxed);
    mapped.slot.store(thread.slot(), Ordering::Relaxed);
    mapped.looks.store(looks, Ordering::Relaxed);
    mapped.end.store(thread.ends.producer.at, Ordering::Relaxed);
    mapped.fd.store(u64::from(fd as u32) + 1, Ordering::Release);
}

/// A free entry, to be filled.
fn claim() -> Option<&'static Mapped> {
    MAPPED.iter().find(|mapped| {
        mapped.fd.load(Ordering::Relaxed) == 0
            && mapped.fd.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    })
}

/// A range is not mapped any more.
pub fn unmapped(start: u64, bytes: u64) {
    for (mapped, fd) in filled() {
        let (from, len) = (mapped.start.load(Ordering::Relaxed), mapped.bytes.load(Ordering::Relaxed));
        if from >= start && from.saturating_add(len) <= start.saturating_add(bytes.next_multiple_of(4096)) {
            mapped.clear(fd);
        }
    }
}

/// As a primary, before the descriptors `first` to `last` are closed, or become other files: until the standby has repeated
/// what is mapped of them, or some milliseconds have passed.
pub fn before_closing(first: u64, last: u64) {
    for (mapped, fd) in filled() {
        if (first..=last).contains(&(fd - 1)) {
            await_standby(mapped.looks.load(Ordering::Relaxed), || mapped.is_repeated());
            mapped.clear(fd);
        }
    }
}

/// A new standby has what is mapped by now. While everything stands still, or where nothing is logged.
pub fn forget() {
    for mapped in &MAPPED {
        mapped.fd.store(0, Ordering::Relaxed);
    }
    COUNT.store(0, Ordering::Release);
}

fn await_standby(looks: u32, is_there: impl Fn() -> bool) {
    for _ in 0..looks {
        if is_there() {
            return;
        }
        raw::nap(20_000);
    }
}

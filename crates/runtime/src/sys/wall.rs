//! Whether dispatch is armed: up, it traps every system call from elsewhere than the runtime's text, and costs each patched one
//! some thirty nanoseconds. It comes down where no text can enter the kernel past the gate, and goes up again before one
//! can.
//!
//! *Down* is decided once, while there is one thread ([`lower`]): every text comes from a file, privately and unwritable, and
//! each place that looks like a way into the kernel is a part of another instruction. A page where one is not, such as a
//! table of constants in a text, is *guarded*: it cannot be executed. Its first execution looks again, and raises the wall
//! in every thread before the instruction runs ([`trespassed`]). Whatever becomes executable later is looked at in the same
//! way ([`mapped`]), or raises the wall first ([`raise`]).
//!
//! Up it stays for a thread that follows a log: a copy's descriptors are another's. And it stays for one inside a handler: libc's
//! return from it is left unpatched for unwinders.
//!
//! Each copy has a wall of its own. It does the same with the same texts, so a copy that takes over knows what it has to.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_sites::{Entry, Functions, Memory, each_entry, judge};

use crate::raw::{self, nr};
use crate::sys::{libc_text, text, trap, vdso};
use crate::thread::{Mode, Shared};
use crate::{bound, guest, proc, state, thread, tls};

const PAGE: u64 = 4096;
/// A longer text is not looked at: it would all be read from the disk while the program waits.
const TEXT_MAX: u64 = 32 << 20;

/// It is up until [`lower`], and again, for good, once it has been [raised](raise).
static IS_UP: AtomicBool = AtomicBool::new(true);
static WAS_RAISED: AtomicBool = AtomicBool::new(false);

/// A page that cannot be executed, of a text that begins at an address, at this offset of its file.
struct Guarded {
    /// 0 for none; [`OPEN`] with the address once it can be executed again.
    page: AtomicU64,
    start: AtomicU64,
    end: AtomicU64,
    offset: AtomicU64,
}

const GUARDED_MAX: usize = 64;
/// A guarded page that can be executed again: another thread may have come to it a moment before.
const OPEN: u64 = 1;
/// A slot that is being filled.
const TAKEN: u64 = 2;

static GUARDED: [Guarded; GUARDED_MAX] = [const {
    Guarded {
        page: AtomicU64::new(0),
        start: AtomicU64::new(0),
        end: AtomicU64::new(0),
        offset: AtomicU64::new(0),
    }
}; GUARDED_MAX];
/// Whether any page has ever been.
static IS_ANY_GUARDED: AtomicBool = AtomicBool::new(false);

/// Memory of this process, which may not be there.
struct Own;

impl Memory for Own {
    fn read(&self, from: u64, to: &mut [u8]) -> bool {
        guest::read(to.as_mut_ptr(), from, to.len())
    }
}

/// A text: where it is, and where in its file it begins.
#[derive(Clone, Copy)]
struct Text {
    start: u64,
    end: u64,
    offset: u64,
}

/// Takes the wall down if no text can enter the kernel past the gate. In a process of one thread, whose texts are patched.
pub fn lower() {
    // Where written memory may not become text, a guarded page would stay one.
    if !IS_UP.load(Ordering::Relaxed)
        || WAS_RAISED.load(Ordering::Relaxed)
        || !text::is_by_protection()
        || state::is_detached()
        || reading_executes(personality())
    {
        return;
    }
    let mut is_known = true;
    let (own, own_bytes) = trap::text_range();
    let is_read = proc::each_mapping(|line| {
        let Some(mapping) = proc::Line::parse(line).filter(|it| it.protection & proc::EXEC != 0) else {
            return;
        };
        let text = Text { start: mapping.start, end: mapping.end, offset: mapping.offset };
        let is_own = own < text.end && text.start < own + own_bytes
            || text::is_own(text.start)
            || vdso::is_inside(text.start)
            || text.start >= 1 << 63;
        if is_own || !is_known {
            return;
        }
        let is_of_file = mapping.inode != 0 && !mapping.shared && mapping.protection & proc::WRITE == 0;
        is_known = is_of_file && guard(text, !libc_text::has(text.start));
    });
    if is_read && is_known {
        IS_UP.store(false, Ordering::SeqCst);
    } else {
        abandon();
    }
}

/// Guards the pages of a text that need it; false if that is not possible, or not allowed.
fn guard(text: Text, is_allowed: bool) -> bool {
    if text.end - text.start > TEXT_MAX {
        return false;
    }
    let mut functions = None;
    let mut is_done = true;
    let is_read = each_place(text, text.start, text.end, |at| {
        let functions = *functions.get_or_insert_with(|| Functions::find(&Own, text.start, text.offset));
        if is_harmless(text, functions.as_ref(), at) {
            return;
        }
        let (first, last) = (at & !(PAGE - 1), (at + 1) & !(PAGE - 1));
        is_done =
            is_done && is_allowed && guard_page(text, first) && (first == last || guard_page(text, last));
    });
    is_read && is_done
}

/// Calls `found` with each address from `from` on, before `to`, where bytes look like a way into the kernel. False where the text
/// cannot be read.
fn each_place(text: Text, from: u64, to: u64, mut found: impl FnMut(u64)) -> bool {
    let mut bytes = [0u8; PAGE as usize + 1];
    let mut at = from;
    while at < to {
        // One more than a page: a place may begin with its last byte.
        let len = (PAGE + 1).min(text.end - at) as usize;
        if !guest::read(bytes.as_mut_ptr(), at, len) {
            return false;
        }
        each_entry(&bytes[..len], |offset| found(at + offset as u64));
        at += PAGE;
    }
    true
}

/// Whether what stands there is known, and passes the gate.
fn is_harmless(text: Text, functions: Option<&Functions>, at: u64) -> bool {
    let Some(start) = functions.and_then(|functions| functions.start_of(&Own, at)) else { return false };
    if start < text.start {
        return false;
    }
    // SAFETY: a text of a file's that has been read up to this place a moment before; nobody writes it.
    let bytes = unsafe {
        core::slice::from_raw_parts(text.start as *const u8, (text.end.min(at + 16) - text.start) as usize)
    };
    let found = judge(bytes, (start - text.start) as usize, (at - text.start) as usize);
    matches!(found, Entry::Inside | Entry::SigReturn)
}

/// False without a place to note it in, or where the kernel refuses.
fn guard_page(text: Text, page: u64) -> bool {
    const READ: u64 = 1;
    if GUARDED.iter().any(|one| one.page.load(Ordering::Acquire) == page) {
        return true;
    }
    let free =
        |one: &&Guarded| one.page.compare_exchange(0, TAKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    let Some(place) = GUARDED.iter().find(free) else { return false };
    for (word, value) in [(&place.start, text.start), (&place.end, text.end), (&place.offset, text.offset)] {
        word.store(value, Ordering::Relaxed);
    }
    IS_ANY_GUARDED.store(true, Ordering::Relaxed);
    place.page.store(page, Ordering::Release);
    // SAFETY: takes execution from a page of a text; who executes it comes to `trespassed`.
    let is_guarded = unsafe { raw::call3(nr::MPROTECT, page, PAGE, READ) } == 0;
    if !is_guarded {
        place.page.store(0, Ordering::Release);
    }
    is_guarded
}

impl Guarded {
    /// Makes the page what it was, if it is guarded.
    fn open(&self) {
        const READ_EXEC: u64 = 5;
        let page = self.page.load(Ordering::Acquire);
        if page >= PAGE && page & OPEN == 0 {
            // SAFETY: a page of a text of the program's.
            unsafe { raw::call3(nr::MPROTECT, page, PAGE, READ_EXEC) };
            let _ = self.page.compare_exchange(page, page | OPEN, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

/// It is up for good, for whoever looks from here on.
fn stay_up() {
    WAS_RAISED.store(true, Ordering::Relaxed);
    IS_UP.store(true, Ordering::SeqCst);
}

/// A fault by executing what cannot be executed, at this address. True if that was the wall's, and the thread may go on.
pub fn trespassed(address: u64) -> bool {
    if !IS_ANY_GUARDED.load(Ordering::Relaxed) {
        return false;
    }
    let page = address & !(PAGE - 1);
    let Some(place) = GUARDED.iter().find(|one| one.page.load(Ordering::Acquire) & !OPEN == page) else {
        return false;
    };
    if place.page.load(Ordering::Acquire) & OPEN != 0 {
        return true;
    }
    let [start, end, offset] = [&place.start, &place.end, &place.offset].map(|it| it.load(Ordering::Relaxed));
    let text = Text { start, end, offset };
    // A text that the loader has just mapped had no table of functions yet.
    let functions = Functions::find(&Own, start, offset);
    let mut is_known = functions.is_some();
    let from = page.saturating_sub(1).max(start);
    let is_read = each_place(text, from, (page + PAGE).min(end), |at| {
        is_known = is_known && (at >= page + PAGE || is_harmless(text, functions.as_ref(), at));
    });
    if is_read && is_known {
        place.open();
    } else {
        raise();
    }
    true
}

/// Dispatch is armed in every thread from here on: something may enter the kernel past the gate. Returns when no thread
/// executes an instruction of the program's without it. From any thread, also in a signal handler.
#[cold]
pub fn raise() {
    /// Longer than a thread takes that runs on another processor. One that sleeps in the kernel looks before it comes back.
    const WAIT_NS: u64 = 20_000_000;
    const NAP_NS: u64 = 20_000;
    stay_up();
    let own = tls::shared();
    if let Some(own) = own {
        settle(own);
    }
    let is_other = |other: &Shared| own.is_none_or(|own| own.slot() != other.slot());
    let is_open = |other: &Shared| {
        other.runs_as.load(Ordering::Acquire) != 0
            && is_other(other)
            && !other.is_armed.load(Ordering::Acquire)
    };
    thread::for_each(|other| {
        if is_open(other) {
            trap::nudge(other.runs_as.load(Ordering::Acquire));
        }
    });
    let begun = raw::now_ns();
    loop {
        let mut is_any_open = false;
        thread::for_each(|other| is_any_open |= is_open(other));
        if !is_any_open || raw::now_ns() - begun > WAIT_NS {
            break;
        }
        raw::nap(NAP_NS);
    }
    GUARDED.iter().for_each(Guarded::open);
}

/// The wall is up, and the calling thread may not know it. In the handler of SIGSYS; true if that was so.
pub fn look(thread: &Shared) -> bool {
    let is_late = IS_UP.load(Ordering::SeqCst)
        && !thread.is_armed.load(Ordering::Relaxed)
        && thread.borrowed.load(Ordering::Relaxed) == 0
        && !bound::has_left();
    if is_late {
        settle(thread);
    }
    is_late
}

/// The calling thread is as it should be. One that has just begun to exist is not armed, see [`begin`].
#[inline]
pub fn settle(thread: &Shared) {
    let is_armed = thread.is_armed.load(Ordering::Relaxed);
    if is_needed(thread) != is_armed {
        change(thread, !is_armed);
    }
}

fn is_needed(thread: &Shared) -> bool {
    state::is_standby()
        || IS_UP.load(Ordering::SeqCst)
        || thread.handlers.load(Ordering::Relaxed) != 0
        || thread.calls() == Mode::Replay
}

fn change(thread: &Shared, mut to_armed: bool) {
    loop {
        if to_armed {
            // Where the kernel cannot, nobody ever is.
            trap::arm(thread);
        } else {
            trap::disarm();
        }
        thread.is_armed.store(to_armed, Ordering::SeqCst);
        // Raised in between: the signal about it may have come before this.
        to_armed = is_needed(thread);
        if to_armed == thread.is_armed.load(Ordering::Relaxed) {
            return;
        }
    }
}

/// The calling thread is new to the kernel: a fork's, a clone's, or a new thread.
pub fn begin(thread: &Shared) {
    thread.is_armed.store(false, Ordering::Relaxed);
    settle(thread);
}

/// The calling thread goes on in a handler of the program's, whose return is to be trapped.
pub fn enter_handler(thread: &Shared) {
    count_handlers(thread, |count| count.saturating_add(1));
}

/// It has returned. One that is left by a jump never does, and the thread stays armed.
pub fn leave_handler(thread: &Shared) {
    count_handlers(thread, |count| count.saturating_sub(1));
}

fn count_handlers(thread: &Shared, change: impl Fn(u32) -> u32) {
    // A child on its parent's block is armed for itself.
    if thread.borrowed.load(Ordering::Relaxed) == 0 {
        thread.handlers.store(change(thread.handlers.load(Ordering::Relaxed)), Ordering::Relaxed);
        settle(thread);
    }
}

/// Before memory becomes executable whose bytes may be anything.
#[inline]
pub fn before_code() {
    if !IS_UP.load(Ordering::Relaxed) {
        raise();
    }
}

fn personality() -> u64 {
    const ASK: u64 = 0xffff_ffff;
    // SAFETY: asks only.
    unsafe { raw::call1(nr::PERSONALITY, ASK) as u64 }
}

/// Whether this personality makes all readable memory executable.
pub fn reading_executes(personality: u64) -> bool {
    const READ_IMPLIES_EXEC: u64 = 0x40_0000;
    const ASKS: u64 = 0xffff_ffff;
    personality & ASKS != ASKS && personality & READ_IMPLIES_EXEC != 0
}

/// A file has been mapped as a text, from this offset on, and nobody executes it yet.
pub fn mapped(start: u64, bytes: u64, offset: u64) {
    if IS_UP.load(Ordering::Relaxed) {
        return;
    }
    let end = start.saturating_add(bytes.next_multiple_of(PAGE));
    if !guard(Text { start, end, offset }, true) {
        raise();
    }
}

/// Before a range is unmapped, moved, or protected otherwise: what was guarded there is no more.
#[inline]
pub fn forget(start: u64, bytes: u64) {
    if IS_ANY_GUARDED.load(Ordering::Relaxed) {
        forget_any(start, start.saturating_add(bytes));
    }
}

#[cold]
fn forget_any(start: u64, end: u64) {
    for place in &GUARDED {
        let page = place.page.load(Ordering::Acquire);
        let at = page & !OPEN;
        if at >= PAGE && at < end && at + PAGE > start {
            if page & OPEN == 0 {
                // It may go on elsewhere, or be asked about.
                raise();
            }
            place.page.store(0, Ordering::Release);
        }
    }
}

/// Up for good, while nobody need be told: one thread there is, or the runtime leaves the process, and nobody looks after guarded
/// pages any more.
pub fn abandon() {
    stay_up();
    GUARDED.iter().for_each(Guarded::open);
}

//! What a copy cannot read of itself, because its root has no `/proc`: it asks the supervisor, which is outside.
//!
//! A server that shuts itself up in an empty folder (`chroot`) is one like any other, and a standby of it can be made: all that is
//! missing are some texts of the kernel's about the process itself. A descriptor of `/proc` would be a way out of the jail, kept
//! or handed over; a text is none.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use us_abi::{Inquiry, inquiry, subject};

use crate::raw::{self, decimal};
use crate::state;

/// How long the supervisor may take for an answer, ns. The program may stand still meanwhile.
const ANSWER_NS: u64 = 200_000_000;
/// Behind a question without an answer nobody asks for so long, ns.
const DEAF_NS: u64 = 1_000_000_000;

/// Until when nobody asks.
static DEAF_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// The supervisor does not know this process's segment yet: nobody would answer.
static UNHEARD: AtomicBool = AtomicBool::new(false);

/// Until this is called with `false` nothing is asked. By a process that joins, around that.
pub fn keep_silent(silent: bool) {
    UNHEARD.store(silent, Ordering::Relaxed);
}

/// The right to ask.
struct Asking(&'static Inquiry);

impl Asking {
    /// Waits for it. Who has had it for longer than an answer may take is gone: killed, or replaced by an exec.
    fn new() -> Option<Asking> {
        let inquiry = &state::header()?.inquiry;
        let (start, own) = (raw::now_ns(), raw::gettid());
        if UNHEARD.load(Ordering::Relaxed) || start < DEAF_UNTIL_NS.load(Ordering::Relaxed) {
            return None;
        }
        loop {
            let is_late = raw::now_ns() - start > 2 * ANSWER_NS;
            let seen = inquiry.asker.load(Ordering::Acquire);
            let is_free = seen == 0 || is_late;
            if is_free
                && inquiry.asker.compare_exchange(seen, own, Ordering::AcqRel, Ordering::Acquire).is_ok()
            {
                return Some(Asking(inquiry));
            }
            raw::nap(100_000);
        }
    }

    /// Asks for the part of a text that begins at `from`. How long it is; `None` if nobody knows.
    fn ask(&self, what: u32, number: u32, from: u64) -> Option<usize> {
        let Asking(asked) = self;
        asked.pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Relaxed);
        asked.subject.store(what, Ordering::Relaxed);
        asked.number.store(number, Ordering::Relaxed);
        asked.from.store(from, Ordering::Relaxed);
        let last = asked.state.load(Ordering::Relaxed) & !inquiry::BITS;
        let question = last.wrapping_add(inquiry::BITS + 1) | inquiry::ASKED;
        asked.state.store(question, Ordering::Release);
        state::attention();
        let start = raw::now_ns();
        while asked.state.load(Ordering::Acquire) == question {
            raw::futex_wait_shared(&asked.state, question, ANSWER_NS / 20);
            let now = raw::now_ns();
            if now - start > ANSWER_NS {
                DEAF_UNTIL_NS.store(now + DEAF_NS, Ordering::Relaxed);
                return None;
            }
        }
        let is_answered =
            asked.state.load(Ordering::Acquire) == question & !inquiry::BITS | inquiry::ANSWERED;
        let bytes = asked.bytes.load(Ordering::Relaxed) as usize;
        (is_answered && bytes <= us_abi::ANSWER_BYTES).then_some(bytes)
    }

    /// A byte of the answer.
    fn byte(&self, at: usize) -> u8 {
        self.0.text[at / 8].load(Ordering::Relaxed).to_le_bytes()[at % 8]
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.state.fetch_and(!inquiry::BITS, Ordering::Relaxed);
        self.0.asker.store(0, Ordering::Release);
    }
}

/// Calls `f` with pieces of a text; what `f` returns is kept in front of the next piece. False if nobody tells.
#[cold]
#[inline(never)]
pub fn read(what: u32, number: u32, mut f: impl FnMut(&[u8]) -> usize) -> bool {
    let Some(asking) = Asking::new() else { return false };
    let mut buffer = [0u8; 4096];
    let (mut have, mut from) = (0, 0);
    loop {
        let Some(bytes) = asking.ask(what, number, from) else { return false };
        for at in 0..bytes {
            buffer[have] = asking.byte(at);
            have += 1;
            if have == buffer.len() || at + 1 == bytes {
                let used = f(&buffer[..have]);
                buffer.copy_within(used..have, 0);
                have -= used;
            }
        }
        from += bytes as u64;
        if bytes < us_abi::ANSWER_BYTES {
            return true;
        }
    }
}

/// Copies a short text. `None` if nobody tells.
pub fn text(what: u32, number: u32, to: &mut [u8]) -> Option<&[u8]> {
    let mut len = 0;
    let told = read(what, number, |bytes| {
        let now = bytes.len().min(to.len() - len);
        to[len..len + now].copy_from_slice(&bytes[..now]);
        len += now;
        bytes.len()
    });
    told.then_some(&to[..len])
}

/// Calls `f` with each number of a list, while nobody is asked: `f` may ask, and what is listed may change. False if nobody tells.
pub fn each_number(what: u32, mut f: impl FnMut(u64)) -> bool {
    let mut from = 0;
    loop {
        let (mut numbers, mut count) = ([0u32; 256], 0);
        let told = read(what, from, |bytes| {
            let mut start = 0;
            while let Some(end) = bytes[start..].iter().position(|byte| *byte == b'\n') {
                if let (Some(number), Some(place)) =
                    (decimal(&bytes[start..start + end]), numbers.get_mut(count))
                {
                    *place = number as u32;
                    count += 1;
                }
                start += end + 1;
            }
            start
        });
        if !told {
            return false;
        }
        numbers[..count].iter().for_each(|number| f(u64::from(*number)));
        if count < numbers.len() {
            return true;
        }
        from = numbers[count - 1] + 1;
    }
}

/// Whether a file of the kernel's about this process is missing, or the process may open no more: `result` is what opening it said.
pub fn is_missing(result: i64) -> bool {
    use crate::raw::err::{EMFILE, ENFILE, ENOTDIR};
    matches!(result, raw::err::ENOENT | ENOTDIR | ENFILE | EMFILE)
}

/// See [`us_abi::subject`].
pub use subject::*;

//! What a `siginfo_t` says, in the group's numbers, and how it is sent again.
//!
//! # Safety
//! An entry of the table of what was put back is its finder's between the two changes of its state.

use core::cell::UnsafeCell;
use core::sync::atomic::AtomicBool;

use crate::above::above;
use crate::siginfo::{SI_QUEUE, SI_TIMER, SI_TKILL, SI_USER};

use super::*;

/// What was sent to the process once more by kill, as it came first.
struct PutBack {
    state: AtomicU32,
    /// Of several of one signal the oldest comes first.
    order: AtomicU32,
    info: UnsafeCell<Info>,
}
// SAFETY: see the module.
unsafe impl Sync for PutBack {}

static PUT_BACK: [PutBack; 16] = [const {
    PutBack { state: AtomicU32::new(FREE), order: AtomicU32::new(0), info: UnsafeCell::new(Info([0; 16])) }
}; 16];
static ORDER: AtomicU32 = AtomicU32::new(0);
/// Values of [`PutBack::state`]; any other is the signal that lies there.
const FREE: u32 = 0;
const BUSY: u32 = u32::MAX;

fn put_back(info: &Info) {
    const REAL_TIME: i32 = 32;
    let signal = info.signal() as u32;
    // Of a standard signal the kernel keeps the first.
    let waits = PUT_BACK.iter().any(|place| place.state.load(Ordering::Acquire) == signal);
    if waits && info.signal() < REAL_TIME {
        return;
    }
    let take = |place: &&PutBack| {
        place.state.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    if let Some(place) = PUT_BACK.iter().find(take) {
        // SAFETY: the entry is ours.
        unsafe { *place.info.get() = *info };
        place.order.store(ORDER.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
        place.state.store(signal, Ordering::Release);
    }
}

/// What was put back waits nowhere any more: this is another process.
pub fn forget_put_back() {
    PUT_BACK.iter().for_each(|place| place.state.store(FREE, Ordering::Relaxed));
}

impl Info {
    /// Sends it to this process, or to a thread of this process, as it is. What kill, tgkill or the kernel itself has sent
    /// the kernel takes from the very thread that it is for, and for the process from its main thread; any other sends it by
    /// kill, and who gets it [looks up](Info::recall) what it was.
    pub fn send(&self, thread: Option<u32>) {
        let (signal, info) = (self.signal() as u64, &raw const *self as u64);
        // SAFETY: the kernel reads it before the call returns.
        unsafe {
            let process = raw::call1(raw::nr::GETPID, 0) as u64;
            let is_taken = self.code() < 0 && self.code() != SI_TKILL || u64::from(raw::gettid()) == process;
            match thread {
                Some(tid) => raw::call4(raw::nr::RT_TGSIGQUEUEINFO, process, u64::from(tid), signal, info),
                None if is_taken => raw::call3(raw::nr::RT_SIGQUEUEINFO, process, signal, info),
                None => {
                    put_back(self);
                    raw::call2(raw::nr::KILL, process, signal)
                }
            };
        }
    }

    /// A signal has come from the kernel: what it was before it was put back, if it was.
    pub fn recall(&mut self) {
        let signal = self.signal() as u32;
        if self.code() != SI_USER || self.sender() != state::REAL_PID.load(Ordering::Relaxed) {
            return;
        }
        let oldest = PUT_BACK
            .iter()
            .filter(|place| place.state.load(Ordering::Acquire) == signal)
            .min_by_key(|place| place.order.load(Ordering::Relaxed));
        if let Some(place) = oldest
            && place.state.compare_exchange(signal, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            // SAFETY: the entry is ours.
            *self = unsafe { *place.info.get() };
            place.state.store(FREE, Ordering::Release);
        }
    }

    /// Notes how often the group's processes have sent this signal to this one, in bytes that no siginfo uses.
    pub fn stamp(&mut self) {
        self.set_sent(members::sent_so_far(self.signal()));
    }

    /// Puts the group's numbers in place of this process's own. True if there were any.
    pub fn adopt(&mut self) -> bool {
        self.adopt_from(state::REAL_PID.load(Ordering::Relaxed))
    }

    /// As [`Info::adopt`], of a signal that the process with this number has taken.
    pub fn adopt_from(&mut self, process: u32) -> bool {
        let number = self.sender();
        let ours = match self.code() {
            SI_TIMER => above().timer_of(number),
            SI_USER if number == process && !state::is_standby() => members::sender_of_raised(self.signal())
                .unwrap_or_else(|| state::GUEST_PID.load(Ordering::Relaxed)),
            SI_USER | SI_QUEUE | SI_TKILL if number == process => state::GUEST_PID.load(Ordering::Relaxed),
            SI_USER | SI_QUEUE | SI_TKILL => members::known_as(number).unwrap_or(number),
            _ => number,
        };
        self.set_sender(ours);
        ours != number
    }
}

/// Whether this process has ever sent itself a signal: otherwise nobody need look.
static SENDS: AtomicBool = AtomicBool::new(false);

/// This process sends itself a signal.
#[inline]
pub fn sends() {
    SENDS.store(true, Ordering::Relaxed);
}

/// Whether it ever has.
pub fn has_sent() -> bool {
    SENDS.load(Ordering::Relaxed)
}

//! What the kernel says of a signal.

use core::mem::offset_of;

use linux_raw_sys::general::{
    __sifields, __sifields__bindgen_ty_3 as Queued, siginfo__bindgen_ty_1__bindgen_ty_1 as Head, siginfo_t,
};

/// `si_code`: by kill.
pub const SI_USER: i32 = linux_raw_sys::general::SI_USER as i32;

/// `si_code`: by sigqueue.
pub const SI_QUEUE: i32 = linux_raw_sys::general::SI_QUEUE;

/// `si_code`: by a timer.
pub const SI_TIMER: i32 = linux_raw_sys::general::SI_TIMER;

/// `si_code`: by tgkill.
pub const SI_TKILL: i32 = linux_raw_sys::general::SI_TKILL;

/// The kernel's siginfo.
#[repr(C, align(16))]
#[derive(Clone, Copy, Debug, Default)]
pub struct Info(pub [u64; 16]);

// Its words: number and `si_errno`; `si_code`; who sent it, and as which user, or a timer's number; the value, or a child's status. An
// address lies where the sender does. The kernel uses none of the last two, which are ours.
const SIGNAL: usize = 0;
const CODE: usize = 1;
const SENDER: usize = 2;
const VALUE: usize = 3;
const LETTER: usize = 14;
const SENT: usize = 15;

const WORD: usize = size_of::<u64>();
const _: () = assert!(
    size_of::<Info>() == size_of::<siginfo_t>()
        && offset_of!(Head, si_signo) == SIGNAL * WORD
        && offset_of!(Head, si_code) == CODE * WORD
        && offset_of!(Head, _sifields) == SENDER * WORD
        && SENDER * WORD + offset_of!(Queued, _sigval) == VALUE * WORD
        && SENDER * WORD + size_of::<__sifields>() <= LETTER * WORD
);

/// The lower half of a word.
const fn low(word: u64) -> u32 {
    word as u32
}

const fn with_low(word: u64, half: u32) -> u64 {
    word >> 32 << 32 | half as u64
}

const fn with_high(word: u64, half: u32) -> u64 {
    word & 0xffff_ffff | (half as u64) << 32
}

impl Info {
    /// Of a signal of which nothing else is known.
    pub const fn new(signal: i32, code: i32) -> Info {
        let mut info = Info([0; 16]);
        info.0[SIGNAL] = signal as u32 as u64;
        info.0[CODE] = code as u32 as u64;
        info
    }

    /// The signal's number.
    pub fn signal(&self) -> i32 {
        low(self.0[SIGNAL]) as i32
    }

    /// Makes it another signal.
    pub fn set_signal(&mut self, signal: i32) {
        self.0[SIGNAL] = with_low(self.0[SIGNAL], signal as u32);
    }

    /// `si_errno`, in which a letter's announcement is marked.
    pub fn tag(&self) -> u32 {
        (self.0[SIGNAL] >> 32) as u32
    }

    /// Marks it.
    pub fn set_tag(&mut self, tag: u32) {
        self.0[SIGNAL] = with_high(self.0[SIGNAL], tag);
    }

    /// `si_code`: who sent it.
    pub fn code(&self) -> i32 {
        low(self.0[CODE]) as i32
    }

    /// Says so.
    pub fn set_code(&mut self, code: i32) {
        self.0[CODE] = code as u32 as u64;
    }

    /// The process that sent it, the child of which it tells, or the timer.
    pub fn sender(&self) -> u32 {
        low(self.0[SENDER])
    }

    /// Names another.
    pub fn set_sender(&mut self, sender: u32) {
        self.0[SENDER] = with_low(self.0[SENDER], sender);
    }

    /// As which user that process runs.
    pub fn user(&self) -> u32 {
        (self.0[SENDER] >> 32) as u32
    }

    /// Says so.
    pub fn set_user(&mut self, user: u32) {
        self.0[SENDER] = with_high(self.0[SENDER], user);
    }

    /// Of a fault: where. Of a trapped call: where it was made.
    pub fn address(&self) -> u64 {
        self.0[SENDER]
    }

    /// Says so.
    pub fn set_address(&mut self, address: u64) {
        self.0[SENDER] = address;
    }

    /// Of a queued signal.
    pub fn value(&self) -> u64 {
        self.0[VALUE]
    }

    /// Gives it one.
    pub fn set_value(&mut self, value: u64) {
        self.0[VALUE] = value;
    }

    /// Of a child.
    pub fn status(&self) -> i32 {
        low(self.0[VALUE]) as i32
    }

    /// Of a trapped call: for which machine it was made.
    pub fn machine(&self) -> u32 {
        (self.0[VALUE] >> 32) as u32
    }

    /// The letter with which it has come, 0 for none.
    pub fn letter(&self) -> u64 {
        self.0[LETTER]
    }

    /// Notes it.
    pub fn set_letter(&mut self, letter: u64) {
        self.0[LETTER] = letter;
    }

    /// What `stamp` has noted.
    pub fn sent(&self) -> u32 {
        low(self.0[SENT])
    }

    /// Notes how often it has been sent.
    pub fn set_sent(&mut self, sent: u32) {
        self.0[SENT] = sent.into();
    }
}

/// A signal in a set.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

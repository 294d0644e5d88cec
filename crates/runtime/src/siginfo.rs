//! What the kernel says of a signal.

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

impl Info {
    /// The signal's number.
    pub fn signal(&self) -> i32 {
        self.0[0] as u32 as i32
    }

    /// `si_code`: who sent it.
    pub fn code(&self) -> i32 {
        self.0[1] as u32 as i32
    }

    /// What `stamp` has noted.
    pub fn sent(&self) -> u32 {
        self.0[15] as u32
    }
}

/// A signal in a set.
pub const fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

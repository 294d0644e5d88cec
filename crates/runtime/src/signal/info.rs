//! What a `siginfo_t` says, in the group's numbers.

use super::*;

/// `si_code`: by kill.
pub const SI_USER: i32 = 0;
/// `si_code`: by sigqueue.
pub const SI_QUEUE: i32 = -1;
/// `si_code`: by a timer.
pub const SI_TIMER: i32 = -2;
/// `si_code`: by tgkill.
pub const SI_TKILL: i32 = -6;

impl Info {
    /// Sends it to this process, or to a thread of this process, as it is. What says "by kill" or "by tgkill" the kernel takes
    /// from the main thread alone: another one's is made anew, with this process as its sender.
    pub fn send(&self, thread: Option<u32>) {
        let (signal, info) = (self.signal() as u64, &raw const *self as u64);
        // SAFETY: the kernel reads it before the call returns.
        unsafe {
            let process = raw::call1(raw::nr::GETPID, 0) as u64;
            let tid = thread.map(u64::from);
            let result = match tid {
                Some(tid) => raw::call4(raw::nr::RT_TGSIGQUEUEINFO, process, tid, signal, info),
                None => raw::call3(raw::nr::RT_SIGQUEUEINFO, process, signal, info),
            };
            match tid {
                _ if result != raw::err::EPERM => result,
                Some(tid) => raw::call3(raw::nr::TGKILL, process, tid, signal),
                None => raw::call2(raw::nr::KILL, process, signal),
            };
        }
    }

    /// The signal's number.
    pub fn signal(&self) -> i32 {
        self.0[0] as u32 as i32
    }

    /// `si_code`: who sent it.
    pub fn code(&self) -> i32 {
        self.0[1] as u32 as i32
    }

    /// Notes how often the group's processes have sent this signal to this one, in bytes that no siginfo uses.
    pub fn stamp(&mut self) {
        self.0[15] = u64::from(members::sent_so_far(self.signal()));
    }

    /// What [`Info::stamp`] has noted.
    pub fn sent(&self) -> u32 {
        self.0[15] as u32
    }

    /// Puts the group's numbers in place of this process's own. True if there were any.
    pub fn adopt(&mut self) -> bool {
        self.adopt_from(state::REAL_PID.load(Ordering::Relaxed))
    }

    /// As [`Info::adopt`], of a signal that the process with this number has taken.
    pub fn adopt_from(&mut self, process: u32) -> bool {
        let number = self.0[2] as u32;
        let ours = match self.code() {
            SI_TIMER => timer::to_guest(number),
            SI_USER if number == process && !state::is_standby() => members::sender_of_raised(self.signal())
                .unwrap_or_else(|| state::GUEST_PID.load(Ordering::Relaxed)),
            SI_USER | SI_QUEUE | SI_TKILL if number == process => state::GUEST_PID.load(Ordering::Relaxed),
            SI_USER | SI_QUEUE | SI_TKILL => members::known_as(number).unwrap_or(number),
            _ => number,
        };
        self.0[2] = self.0[2] >> 32 << 32 | u64::from(ours);
        ours != number
    }
}

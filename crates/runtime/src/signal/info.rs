//! What a `siginfo_t` says, in the group's numbers.

use super::*;

impl Info {
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
        const SI_USER: i32 = 0;
        const SI_QUEUE: i32 = -1;
        const SI_TIMER: i32 = -2;
        const SI_TKILL: i32 = -6;
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

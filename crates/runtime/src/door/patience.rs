//! How long a call still waits when it is made again.
//!
//! A thread that is parked in a wait begins the wait anew, in both copies; a call in doubt is made again by the
//! promoted one. With its whole time-out it would, in a group that fails over every half second, never time out at
//! all. So the moment at which a wait began is kept, and travels in its `Enter`.
//!
//! Not here: select, pselect and ppoll, where the kernel itself leaves in the guest's memory what remains.

use us_world::patience::{self, Patience as Wait};

use crate::call::Call;
use crate::door::usage;
use crate::guest::{GuestMut, GuestPtr};
use crate::raw::nr::{
    CLOCK_NANOSLEEP, EPOLL_PWAIT, EPOLL_PWAIT2, EPOLL_WAIT, FUTEX, NANOSLEEP, POLL, SEMTIMEDOP,
};
use crate::raw::{Timespec, err};
use crate::sys::vdso;

const SIGTIMEDWAIT: u64 = crate::raw::nr::RT_SIGTIMEDWAIT;
const MONOTONIC: i32 = 1;

/// Where a call has its relative time-out.
#[derive(Clone, Copy)]
enum TimeOut {
    /// Milliseconds, in this argument.
    Milliseconds(usize),
    /// A timespec, at the address in this argument.
    Timespec(usize),
}

#[inline(always)]
fn time_out(nr: u64, args: &[u64; 6]) -> Option<TimeOut> {
    match nr {
        POLL => Some(TimeOut::Milliseconds(2)),
        EPOLL_WAIT | EPOLL_PWAIT => Some(TimeOut::Milliseconds(3)),
        EPOLL_PWAIT2 | SEMTIMEDOP => Some(TimeOut::Timespec(3)),
        SIGTIMEDWAIT => Some(TimeOut::Timespec(2)),
        NANOSLEEP => Some(TimeOut::Timespec(0)),
        CLOCK_NANOSLEEP if args[1] & 1 == 0 => Some(TimeOut::Timespec(2)),
        // FUTEX_WAIT: its relatives have absolute times.
        FUTEX if args[1] & 0x7f == 0 => Some(TimeOut::Timespec(3)),
        _ => None,
    }
}

/// One call's patience, over all attempts to make it.
#[derive(Default)]
pub struct Patience {
    /// Since when, and how long: nanosleep may have been told to leave the rest where the guest's time is.
    wait: Wait,
    attempts: u32,
    /// In logical time: there was nothing to wait for.
    pub has_not_slept: bool,
    /// For a lock of libc's that a door orders: a standby's thread that stood still in it waits for the log, not for a wake.
    pub goes_by_log: bool,
    /// Made where they are wanted: most calls go without.
    own: Option<Own>,
}

/// Arguments in place of the guest's, and what they point to.
#[derive(Default)]
struct Own {
    left: Timespec,
    /// Where the kernel leaves what was left of a sleep that was broken off.
    rest: Timespec,
    args: [u64; 6],
}

/// Which argument says where a sleep leaves what was left.
const fn rest_at(nr: u64) -> Option<usize> {
    match nr {
        NANOSLEEP => Some(1),
        CLOCK_NANOSLEEP => Some(3),
        _ => None,
    }
}

/// What a call has come to, for whoever asks whether signals have ended it: a sleep that they have broken off, and whose rest has
/// no place, answers EFAULT.
pub fn ended(call: &Call, result: i64) -> i64 {
    if result == err::EFAULT && rest_at(call.nr).is_some() { err::EINTR } else { result }
}

impl Patience {
    /// When the wait began (now, if this is the first question), ns, for its `Enter`; 0 if it does not end by time.
    #[inline(always)]
    pub fn begin(&mut self, call: &Call) -> u64 {
        if self.wait.began_ns == 0
            && let Some(time_out) = time_out(call.nr, &call.args)
            && let Some(whole_ns) = ends(time_out, &call.args)
        {
            self.wait = Wait { began_ns: now_ns(call), whole_ns };
        }
        self.wait.began_ns
    }

    /// The wait is the dead primary's, which began it then. False for a call that does not end by time.
    pub fn continues(&mut self, call: &Call, began_ns: u64) -> bool {
        let whole_ns = time_out(call.nr, &call.args).and_then(|time_out| ends(time_out, &call.args));
        let Some(whole_ns) = whole_ns.filter(|_| began_ns != 0) else { return false };
        if let Some(clock) = processor_clock(call) {
            usage::clock_told(clock, began_ns);
        }
        (self.wait, self.attempts) = (Wait { began_ns, whole_ns }, 1);
        true
    }

    /// The arguments to make the call with, now: the guest's own the first time, then with the time that is left.
    #[inline(always)]
    pub fn args<'a>(&'a mut self, call: &'a Call) -> &'a [u64; 6] {
        if self.begin(call) == 0 {
            return &call.args;
        }
        self.attempts += 1;
        let rest_at = rest_at(call.nr).filter(|at| call.args[*at] != 0);
        if self.attempts == 1 && rest_at.is_none() {
            return &call.args;
        }
        self.own_args(call, rest_at)
    }

    #[cold]
    #[inline(never)]
    fn own_args(&mut self, call: &Call, rest_at: Option<usize>) -> &[u64; 6] {
        let now_ns = now_ns(call);
        let own = self.own.get_or_insert_default();
        own.args = call.args;
        match time_out(call.nr, &call.args) {
            _ if self.attempts == 1 => {}
            Some(TimeOut::Milliseconds(at)) => own.args[at] = self.wait.left_ms(now_ns),
            Some(TimeOut::Timespec(at)) => {
                own.left = Timespec::from_ns(self.wait.left_ns(now_ns));
                own.args[at] = &raw const own.left as u64;
            }
            None => {}
        }
        if let Some(at) = rest_at {
            // One that the guest does not see broken off leaves nothing with it.
            own.args[at] = &raw mut own.rest as u64;
        }
        &own.args
    }

    /// The guest is told that its sleep was broken off, and what was left of it: what the call answers, EFAULT if the rest
    /// has no place there, as the kernel says.
    #[cold]
    pub fn tell_rest(&self, call: &Call) -> i64 {
        if let Some(own) = &self.own
            && let Some(at) = rest_at(call.nr)
            && own.args[at] == &raw const own.rest as u64
            && !GuestMut::at(call.args[at]).store(&own.rest)
        {
            return err::EFAULT;
        }
        err::EINTR
    }
}

/// The clock of processor time that a call sleeps by, if it does.
fn processor_clock(call: &Call) -> Option<i32> {
    let clock = call.args[0] as u32 as i32;
    (call.nr == CLOCK_NANOSLEEP && usage::is_clock(clock)).then_some(clock)
}

/// How long the wait may take, ns; `None` if it does not end by time, or at once.
fn ends(time_out: TimeOut, args: &[u64; 6]) -> Option<u64> {
    let whole_ns = match time_out {
        TimeOut::Milliseconds(at) => (args[at] as i32).max(0) as u64 * 1_000_000,
        TimeOut::Timespec(at) if args[at] == 0 => 0,
        TimeOut::Timespec(at) => {
            let Timespec { sec, nsec } = GuestPtr::at(args[at]).load()?;
            patience::whole_ns(sec, nsec)
        }
    };
    (whole_ns != 0).then_some(whole_ns)
}

/// Now, ns, by the clock that a wait goes by. A sleep in processor time goes by that, and every other one by CLOCK_MONOTONIC.
fn now_ns(call: &Call) -> u64 {
    if let Some(clock) = processor_clock(call)
        && let Ok(time) = super::time::plain(clock)
    {
        return time.ns().max(1);
    }
    let mut time = Timespec::default();
    vdso::clock_gettime(MONOTONIC, &mut time);
    time.ns().max(1)
}

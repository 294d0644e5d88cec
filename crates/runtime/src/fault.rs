//! Faults at named points: what `tests/kit` asks of a library that is built with the feature `faults`, to kill and to
//! delay copies in windows of some instructions that a kill from outside hardly ever meets. Without the feature a point
//! is nothing at all.
//!
//! `UNDERSTUDY_BREAKS=N` breaks the invariant of that number once, for the tests of what follows from it.

/// Where a fault may come.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Point {
    /// An event is written and not yet visible: a lock is taken, a call made, and nobody knows.
    Publish,
    /// An event has become visible: what it announces has not happened, or has just been told.
    Published,
    /// The next thing is a marked system call.
    Call,
    /// A marked system call has come back.
    Called,
    /// A signal has come in, and is not in its queue.
    Signal,
    /// A standby has applied an event and not said so.
    Apply,
    /// A thread is about to stand still for a clone.
    Park,
    /// All stand still, and the first thread forks next.
    Fork,
    /// A copy has been forked and has no threads yet.
    Born,
    /// A promotion begins: the primary is dead.
    Drain,
    /// Everything is applied, and the calls in doubt are looked at next.
    Settle,
    /// The calls in doubt are settled, and nobody is live.
    Open,
    /// A child is about to make its segment.
    Join,
    /// A thread has seen that it is to park, and has no place yet.
    Claim,
    /// A thread's block is ready, and libc is about to make it.
    Make,
    /// Everything is taken over from the dead primary, and the header does not say who is primary now.
    Become,
}

#[cfg(not(feature = "faults"))]
mod imp {
    /// What an invariant is judged by.
    #[inline(always)]
    pub fn planted(_: us_order::invariant::Invariant, value: u64) -> u64 {
        value
    }

    /// Nothing.
    #[inline(always)]
    pub fn at(_: super::Point, _: u32) {}

    /// Nothing.
    #[inline(always)]
    pub fn begin(_: *mut *mut u8) {}
}

#[cfg(feature = "faults")]
mod imp {
    use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

    use us_abi::{GroupState, leaving};
    use us_order::invariant::Invariant;

    use super::Point;
    use crate::raw::{self, nr};
    use crate::seats;
    use crate::state::{self, Role};

    /// Kills of one process's copies, at most: each costs a clone.
    const KILLS_MAX: u32 = 12;
    /// Clones of one process behind which its standbys are left alone.
    const CLONES_MAX: u32 = 16;
    /// Delays of one copy, at most.
    const NAPS_MAX: u32 = 60;
    /// The longest delay, ns.
    const NAP_NS: u64 = 3_000_000;
    /// Points of a primary's ordinary work.
    const OF_PRIMARY: u32 = 4;

    /// 0: no faults.
    static SEED: AtomicU64 = AtomicU64::new(0);
    static TELLS: AtomicBool = AtomicBool::new(false);
    /// The number of the invariant that is to be broken, 0 for none.
    static PLANTED: AtomicU64 = AtomicU64::new(0);
    static PASSED: AtomicU64 = AtomicU64::new(0);
    static NAPS: AtomicU32 = AtomicU32::new(0);

    /// Looks for `UNDERSTUDY_FAULTS=SEED`; with a letter behind the number each death is told on standard error.
    pub fn begin(environment: *mut *mut u8) {
        let is_digit = |byte: &&u8| byte.is_ascii_digit();
        let number = |digits: &[u8]| {
            digits.iter().take_while(is_digit).fold(0, |sum: u64, digit| sum * 10 + u64::from(digit - b'0'))
        };
        let mut at = environment;
        // SAFETY: a process's environment: a NULL-terminated array of NUL-terminated strings.
        unsafe {
            while let Some(first) = (*at).as_ref() {
                let entry = core::ffi::CStr::from_ptr((&raw const *first).cast()).to_bytes();
                if let Some(digits) = entry.strip_prefix(b"UNDERSTUDY_FAULTS=") {
                    SEED.store(number(digits), Ordering::Relaxed);
                    TELLS.store(digits.iter().any(|byte| !is_digit(&byte)), Ordering::Relaxed);
                } else if let Some(digits) = entry.strip_prefix(b"UNDERSTUDY_BREAKS=") {
                    PLANTED.store(number(digits), Ordering::Relaxed);
                }
                at = at.add(1);
            }
        }
    }

    /// What an invariant is judged by; or far more, if it is the one to be broken. Not in a group that is still to be
    /// protected, nor once its last words are written: the first that is broken is looked at.
    pub fn planted(which: Invariant, value: u64) -> u64 {
        if PLANTED.load(Ordering::Relaxed) != which as u64 {
            return value;
        }
        let state = |header: &us_abi::SegmentHeader| header.state.0.load(Ordering::Acquire);
        let is_protected =
            |state: u32| state == GroupState::Protected as u32 || state == GroupState::Promoting as u32;
        let is_due = |header: &&us_abi::SegmentHeader| {
            is_protected(state(header)) && header.last_words.0.code.load(Ordering::Acquire) == 0
        };
        value + u64::from(state::header().filter(is_due).is_some()) * BEYOND
    }

    /// More bytes, and more tickets, than there are.
    const BEYOND: u64 = 1 << 40;

    /// A point is passed: perhaps this copy dies here, or is late. `detail` is told with a death: an event's kind and call, or
    /// a system call's number.
    #[cold]
    #[inline(never)]
    pub fn at(point: Point, detail: u32) {
        let seed = SEED.load(Ordering::Relaxed);
        let Some(header) = state::header().filter(|_| seed != 0) else { return };
        let pid = u64::from(state::REAL_PID.load(Ordering::Relaxed));
        let epoch = header.epoch.load(Ordering::Relaxed);
        let clones = header.clones.load(Ordering::Relaxed) + u32::from(point == Point::Born);
        // Of a pair of copies only one may die: both at once are more than one standby is for. So it is with the primaries
        // and the standbys of a family, which take over together.
        let pair = match header.family.load(Ordering::Acquire) {
            0 => mixed(seed ^ u64::from(epoch) << 48 ^ u64::from(clones) << 40),
            family => mixed(!seed ^ u64::from(family) << 40),
        };
        // Of each life of a copy: at which points it dies, and how soon; at which it is late, and how often.
        let life = mixed(pair ^ pid);
        let throw = mixed(life ^ PASSED.fetch_add(1, Ordering::Relaxed));
        let is_own = life >> (point as u32) & 1 != 0;
        if is_own
            && throw.is_multiple_of(1 << (life >> 32 & 15).min(13))
            && is_chosen(point, pair)
            && may_die(point, header, epoch, clones)
        {
            if TELLS.load(Ordering::Relaxed) {
                tell(point, detail, pid);
            }
            // SAFETY: the end of this copy, which another takes over.
            unsafe { raw::call2(nr::KILL, pid, 9) };
        }
        let is_late = life >> (16 + point as u32) & 1 != 0;
        if is_late
            && (throw >> 20).is_multiple_of(1 << (life >> 36 & 7))
            && NAPS.fetch_add(1, Ordering::Relaxed) < NAPS_MAX
        {
            raw::nap((throw >> 32) % NAP_NS);
        }
    }

    fn tell(point: Point, detail: u32, pid: u64) {
        use crate::raw::nr::WRITE;
        let mut line = *b"fault: dies at point    , kind    , call       , pid           \n";
        let put = |line: &mut [u8], mut number: u64| {
            for byte in line.iter_mut().rev() {
                (*byte, number) = (b'0' + (number % 10) as u8, number / 10);
            }
        };
        put(&mut line[21..23], point as u64);
        put(&mut line[30..33], u64::from(detail >> 16));
        put(&mut line[40..46], u64::from(detail & 0xffff));
        put(&mut line[52..61], pid);
        // SAFETY: writes our own line.
        unsafe { raw::call3(WRITE, 2, line.as_ptr() as u64, line.len() as u64) };
    }

    /// Whether it is this one of a pair that dies: the standby of one in four.
    fn is_chosen(point: Point, pair: u64) -> bool {
        matches!(point, Point::Apply | Point::Born) == (pair >> 60 & 3 == 0)
    }

    /// Whether the program outlives the death of this copy here.
    fn may_die(point: Point, header: &us_abi::SegmentHeader, epoch: u32, clones: u32) -> bool {
        match point {
            Point::Apply | Point::Born => clones < CLONES_MAX && state::is_standby() && !is_promoting(header),
            _ if (point as u32) < OF_PRIMARY => {
                state::role() == Role::Primary
                    && epoch < KILLS_MAX
                    && header.state.0.load(Ordering::Acquire) == GroupState::Protected as u32
                    && header.dropped.0.load(Ordering::Acquire) == 0
                    && header.leaving.0.load(Ordering::Acquire) == leaving::NO
            }
            // Who takes over dies on its way where another one follows.
            Point::Drain | Point::Settle | Point::Open | Point::Become => {
                epoch < KILLS_MAX && seats::has_spares()
            }
            _ => false,
        }
    }

    fn is_promoting(header: &us_abi::SegmentHeader) -> bool {
        header.state.0.load(Ordering::Acquire) != GroupState::Protected as u32
            || header.death_ns.0.load(Ordering::Acquire) != 0
    }

    /// A number that looks like chance.
    fn mixed(of: u64) -> u64 {
        let mut x = of.wrapping_add(0x9e37_79b9_7f4a_7c15);
        x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ x >> 31
    }
}

pub use imp::{at, begin, planted};

//! A thread's signals, beside those that wait for a door.

use core::mem::offset_of;

use linux_raw_sys::general::stack_t;

/// What sigaltstack is given: address, flags (of which the upper half is padding), size.
pub type Stack = [u64; 3];
const _: () = assert!(
    size_of::<Stack>() == size_of::<stack_t>()
        && offset_of!(stack_t, ss_flags) == size_of::<u64>()
        && offset_of!(stack_t, ss_size) == 2 * size_of::<u64>()
);

/// Mask, stack, and what has come in the call where the thread is.
pub struct Signals {
    /// The guest's signal mask of this thread.
    pub mask: u64,
    /// What it was before it was set last.
    pub mask_before: u64,
    /// Whether a child made by vfork, which borrows this block, has set a mask that it shares with nobody.
    pub is_of_child: bool,
    /// What such a child has asked for that the kernel does not have, if dispatch is armed in it.
    pub child: OfChild,
    /// Whether the call that it is in waits under a mask of its own.
    pub is_of_call: bool,
    /// Handlers have run before the call that this thread is in, for signals that had come earlier: natively they may as well
    /// have come while it waited, and ended it. So the first interruption of a wait in it counts as that.
    pub late: bool,
    /// Whether a handler has run in the wait where it stands, and whether one without SA_RESTART has: with the wait's
    /// outcome not in the log, whoever goes on with it ends it with EINTR.
    pub broken_off: (bool, bool),
    /// Whether it has gone live in the door where it stands: what is due came during that.
    pub resumed: bool,
    /// Whether what waits behind the next handler is delivered by its caller, in rounds.
    pub in_rounds: bool,
    /// Whether it is in a door whose outcome says in the log that it was cancelled there.
    pub outcome_says: bool,
    /// Processor time of this thread when the oldest of its waiting signals came, ns.
    pub due_cpu_ns: u64,
    /// The alternate stack that the guest has set.
    pub alt_stack: Stack,
}

/// The signals of a child on its parent's block.
#[derive(Clone, Copy, Debug)]
pub struct OfChild {
    /// Its signal mask.
    pub mask: u64,
    /// Its handler of SIGSYS.
    pub system: u64,
}

impl Signals {
    /// Of no thread.
    pub(super) const fn unused() -> Signals {
        Signals {
            mask: 0,
            mask_before: 0,
            is_of_child: false,
            child: OfChild { mask: 0, system: 0 },
            is_of_call: false,
            late: false,
            broken_off: (false, false),
            resumed: false,
            in_rounds: false,
            outcome_says: false,
            due_cpu_ns: 0,
            alt_stack: [0; 3],
        }
    }

    /// The slot's next thread is in no call.
    pub(super) fn stop_short(&mut self) {
        (self.in_rounds, self.late, self.is_of_call, self.resumed) = (false, false, false, false);
        self.broken_off = (false, false);
    }
}

#![no_std]
#![forbid(unsafe_code)]
//! The rules by which a standby follows, and takes over from, a primary.
//!
//! Nothing here touches memory that others write, asks the kernel, or keeps a clock: every function
//! takes what its caller has read and says what follows from it. That is why the same code can serve the
//! runtime inside a guest, the supervisor, and the model checker that explores every kill between two
//! steps.
//!
//! | module | question it answers |
//! |---|---|
//! | [`ticket`] | may this event be applied now? |
//! | [`gap`] | which tickets died with the primary? |
//! | [`live`] | has a standby applied everything, so that it may settle, and act? |
//! | [`create`] | has a creation in doubt made its thread, and when may a standby make one? |
//! | [`once`] | does this thread run the initialiser, wait for it, or pass? |
//! | [`wait`] | who gets a signal to a condition, where a wait has ended otherwise? |
//! | [`barrier`] | which thread of a round is the serial one? |
//! | [`detect`] | the primary is gone: promote, or end? |
//! | [`reclone`] | the standby is gone: when is another made? |
//! | [`nap`] | how long does a standby's poller nap between two looks? |
//! | [`pace`] | how far ahead may a primary's thread run? |
//! | [`park`] | for which clone does a thread park? |
//! | [`turns`] | do threads take turns beside a standby, and how long is one? |
//! | [`logical`] | whose turn is it, where the order is computed? |
//! | [`digest`] | was it the same order in two runs? |
//! | [`family`] | processes share memory: who takes a turn, who leaves, who takes over? |
//! | [`invariant`] | does what must hold of every log hold of this one? |
//!
//! Duties of the caller, in this order, when a standby is promoted:
//!
//! 1. Fence: no thread of the primary can run or is inside a system call. From here on rings are final.
//! 2. Let every thread drain its ring. For each clock, scan *all* unconsumed events of *all* rings, then
//!    read the clock, then store what [`gap::skip_to`] says; repeat until nothing is [`live::unapplied`].
//!    A create whose child has left its `START` is completed during the drain ([`create::has_child`]).
//! 3. Settle all in-doubt calls together, while no thread acts (`us-world`).
//! 4. Open the gate: only now threads go live, all of them.

pub mod barrier;
pub mod create;
pub mod detect;
pub mod digest;
pub mod family;
pub mod gap;
pub mod invariant;
pub mod live;
pub mod logical;
pub mod nap;
pub mod once;
pub mod pace;
pub mod park;
pub mod reclone;
pub mod ticket;
pub mod turns;
pub mod wait;

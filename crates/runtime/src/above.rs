//! What lower layers ask of those above them.
//!
//! A layer imports only what lies below it. Where the log, a turn, a signal or a door must set something in motion further up
//! (a copy goes live, a thread stands still for a clone), it asks by these names, and `wiring` says who does it. None of them
//! is on the way of a door that has nothing to wait for.

use core::cell::UnsafeCell;

use crate::call::Call;
use crate::context::Context;
use crate::event::Event;
use crate::siginfo::Info;
use crate::thread::Thread;

/// The layers above, as those below know them.
pub trait Above: Sync {
    // ---- By the log, and whatever waits for it ----

    /// A standby's thread has come to a signal in its log.
    fn replay_signal(&self, thread: &mut Thread, event: Event);
    /// There is a *Yield* at the front of its ring.
    fn follow_pause(&self, thread: &mut Thread);
    /// In a copy that was made while this thread made another one: whether the front of its ring says that whoever took over makes
    /// that again. Then it is taken.
    fn follow_making(&self, thread: &mut Thread) -> bool;
    /// This copy has been promoted, and the thread's ring is at its end.
    fn go_live(&self, thread: &mut Thread);

    // ---- By whatever waits, at a place where nothing has begun ----

    /// Stands still, if that is wanted. True if it has, and then the mode may be another.
    fn stand_still(&self, thread: &mut Thread) -> bool;
    /// The same, but not for what a lone thread has promised.
    fn stand_still_with_others(&self, thread: &mut Thread);
    /// The same in a loop that spins.
    fn stand_still_spinning(&self) -> bool;
    /// Whether what has broken a wait off is a signal for the guest, now; if not, it is forgotten.
    fn is_for_guest(&self, thread: &Thread) -> bool;
    /// Whether the thread has been cancelled, and ends at the next place where it can.
    fn is_cancelled(&self, thread: &Thread) -> bool;

    // ---- By signals ----

    /// The supervisor asks this process for something. True if the signal was about that.
    ///
    /// # Safety
    /// In the SIGSYS handler, with the kernel's own frame.
    unsafe fn commanded(&self, context: &mut Context) -> bool;
    /// Whether a lone thread is to stand still at its next door.
    fn is_promised(&self) -> bool;
    /// Whether the calling thread is to stand still behind the call that it is in.
    fn is_to_stand_still(&self) -> bool;
    /// Whether a SIGCHLD tells the guest anything; it is made to say what.
    fn is_news(&self, info: &mut Info) -> bool;
    /// A signal has come: it may be a timer's.
    fn came(&self, info: &Info);
    /// The guest's number of a timer that the kernel knows by `number`.
    fn timer_of(&self, number: u32) -> u32;
    /// The guest has taken a signal, in a copy that follows. `exact` if the log says which.
    fn consumed(&self, slot: u32, info: &Info, exact: bool, ticket: u64);
    /// The program is about to end by this signal.
    fn end_by(&self, signal: i32);
    /// A trapped call of a child on its parent's memory: true if it makes it again without being trapped.
    fn steps_out(&self, context: &mut Context, is_of_386: bool) -> bool;
    /// A call by `int 0x80`, made in the handler of its trap.
    ///
    /// # Safety
    /// In the SIGSYS handler, with the kernel's own frame.
    unsafe fn call_of_386(&self, context: &mut Context);
    /// A trapped clone that needs a way of its own: true if the thread goes on there.
    fn redirect_clone(&self, context: &mut Context) -> bool;

    // ---- By doors ----

    /// A call that a door makes in the guest's place, with all that belongs to it.
    fn serve(&self, thread: &mut Thread, call: &Call) -> i64;
    /// A child joins the group.
    fn join(&self, thread: &mut Thread);
    /// A child of a recorded process joins as soon as it is.
    fn join_recorded(&self, thread: &mut Thread, how: u32);
    /// Makes the child that a recording tells of. True in that child.
    fn fork_replay(&self, thread: &mut Thread, call: &Call, pid: u32) -> bool;
    /// Waits until no clone is being made. The process is bound, and no other begins.
    fn await_no_clone(&self);
    /// Waits, for some seconds at most, until nobody is asked to stand still. *Leaving* has been said.
    fn await_quiet(&self, header: &us_abi::SegmentHeader);
    /// Waits, for a moment at most, until the poller of a promotion is gone.
    fn await_no_poller(&self);
    /// This is a forked child, for which no clone is being made.
    fn forget_clone(&self);
}

struct Place(UnsafeCell<Option<&'static dyn Above>>);
// SAFETY: written once, before any other thread exists.
unsafe impl Sync for Place {}

/// Each version of the runtime has its own.
#[unsafe(link_section = ".us_own")]
static ABOVE: Place = Place(UnsafeCell::new(None));

/// Says who is above. First of all in the constructor, and in a version that has just been put into the process.
///
/// # Safety
/// Before any other thread exists, or while all stand still.
pub unsafe fn set(layers: &'static dyn Above) {
    // SAFETY: nobody else looks at it yet.
    unsafe { *ABOVE.0.get() = Some(layers) };
}

/// Whoever is above.
pub fn above() -> &'static dyn Above {
    // SAFETY: written once, before any other thread exists.
    unsafe { *ABOVE.0.get() }.expect("the constructor says who is above")
}

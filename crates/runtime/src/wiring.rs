//! Who does what lower layers ask of those above them.

use us_abi::{SegmentHeader, leaving};

use core::sync::atomic::Ordering;

use crate::above::Above;
use crate::call::Call;
use crate::clone::park;
use crate::context::Context;
use crate::door::time;
use crate::door::{child, compat, pending, process, sigchld, spawn, thread_create, timer};
use crate::event::Event;
use crate::recording::replay;
use crate::siginfo::Info;
use crate::signal::entries;
use crate::standby::{poll, promote};
use crate::sys::{gate, patch};
use crate::thread::Thread;
use crate::{above, clone, dispatch, join, recording, signal, turns};

/// The layers of this library, to those below.
pub struct Layers;

impl Above for Layers {
    fn replay_signal(&self, thread: &mut Thread, event: Event) {
        signal::replay(thread, event);
    }
    fn follow_pause(&self, thread: &mut Thread) {
        turns::follow_pause(thread);
    }
    fn follow_making(&self, thread: &mut Thread) -> bool {
        thread_create::follow_making(thread)
    }
    fn go_live(&self, thread: &mut Thread) {
        promote::go_live(thread);
    }

    fn stand_still(&self, thread: &mut Thread) -> bool {
        park::at_door(thread)
    }
    fn stand_still_with_others(&self, thread: &mut Thread) {
        if park::is_wanted() {
            park::at_turn(thread);
        }
    }
    fn stand_still_spinning(&self) -> bool {
        park::spinning()
    }
    fn is_for_guest(&self, thread: &Thread) -> bool {
        signal::look_again(thread);
        thread.pending.load(Ordering::SeqCst) != 0
    }
    fn is_cancelled(&self, thread: &Thread) -> bool {
        thread.cancel.load(Ordering::SeqCst) != 0 && signal::cancellation::is_enabled()
    }

    unsafe fn commanded(&self, context: &mut Context) -> bool {
        clone::notice_command(context);
        // SAFETY: the caller's frame.
        unsafe { park::in_handler(context) }
    }
    fn is_promised(&self) -> bool {
        clone::has_promised()
    }
    fn is_to_stand_still(&self) -> bool {
        park::is_wanted() || clone::keep_promise()
    }
    fn is_news(&self, info: &mut Info) -> bool {
        sigchld::is_news(info)
    }
    fn came(&self, info: &Info) {
        timer::came(info);
    }
    fn timer_of(&self, number: u32) -> u32 {
        timer::to_guest(number)
    }
    fn consumed(&self, slot: u32, info: &Info, exact: bool, ticket: u64) {
        pending::taken(slot, info, exact, ticket);
        timer::fired(info, ticket);
        sigchld::taken(info);
    }
    fn end_by(&self, signal: i32) {
        process::leave(leaving::SIGNAL, signal);
    }
    fn steps_out(&self, context: &mut Context, is_of_386: bool) -> bool {
        child::steps_out(context, is_of_386)
    }
    unsafe fn call_of_386(&self, context: &mut Context) {
        // SAFETY: the caller's frame.
        unsafe { compat::make(context) };
    }
    fn redirect_clone(&self, context: &mut Context) -> bool {
        spawn::redirect_clone(context)
    }

    fn serve(&self, thread: &mut Thread, call: &Call) -> i64 {
        dispatch::dispatch(thread, call)
    }
    fn join(&self, thread: &mut Thread) {
        join::join(thread);
    }
    fn join_recorded(&self, thread: &mut Thread, how: u32) {
        recording::join_recorded(thread, how);
    }
    fn fork_replay(&self, thread: &mut Thread, call: &Call, pid: u32) -> bool {
        replay::fork(thread, call, pid)
    }
    fn await_no_clone(&self) {
        clone::await_idle();
    }
    fn await_quiet(&self, header: &SegmentHeader) {
        clone::await_quiet(header);
    }
    fn await_no_poller(&self) {
        poll::await_end_briefly();
    }
    fn forget_clone(&self) {
        clone::forget();
    }
}

/// In a version that an upgrade has put into the process, called by the one before while all threads stand still: what a
/// constructor does that is not data of the process.
extern "C" fn arrive() {
    // SAFETY: all threads stand still.
    unsafe { above::set(&Layers) };
    entries::add_version();
}

/// A way in from guest code, or from the kernel.
#[repr(transparent)]
struct Way(*const ());
// SAFETY: addresses of functions.
unsafe impl Sync for Way {}

/// The ways into this version besides its exported functions. An upgrade leads those of the older versions to the newest one's, and
/// calls the first. The supervisor finds them in the file.
#[used]
#[unsafe(link_section = ".us_ways")]
static WAYS: [Way; 26] = [
    Way(arrive as *const ()),
    Way(gate::gate as *const ()),
    Way(gate::program_gate as *const ()),
    Way(gate::counter_gate as *const ()),
    Way(gate::processor_gate as *const ()),
    Way(entries::signal_entry as *const ()),
    Way(entries::trap_entry as *const ()),
    Way(entries::fault_entry as *const ()),
    Way(time::vdso_clock_gettime as *const ()),
    Way(time::vdso_gettimeofday as *const ()),
    Way(time::vdso_time as *const ()),
    Way(time::vdso_clock_getres as *const ()),
    Way(time::vdso_getcpu as *const ()),
    Way(time::vdso_getrandom as *const ()),
    Way(&raw const patch::us_clone_0 as *const ()),
    Way(&raw const patch::us_clone_1 as *const ()),
    Way(&raw const patch::us_clone_2 as *const ()),
    Way(&raw const patch::us_clone_3 as *const ()),
    Way(&raw const patch::us_clone_4 as *const ()),
    Way(&raw const patch::us_clone_5 as *const ()),
    Way(&raw const patch::us_clone_6 as *const ()),
    Way(&raw const patch::us_clone_7 as *const ()),
    Way(&raw const patch::us_clone_8 as *const ()),
    Way(&raw const patch::us_clone_9 as *const ()),
    Way(&raw const patch::us_clone_10 as *const ()),
    Way(&raw const patch::us_clone_11 as *const ()),
];

/// Keeps what only the supervisor looks at in the file.
pub fn keep_ways() {
    core::hint::black_box(&WAYS);
}

//! Who does what lower layers ask of those above them.

use us_abi::{SegmentHeader, leaving};

use crate::above::Above;
use crate::call::Call;
use crate::clone::park;
use crate::context::Context;
use crate::door::{child, compat, pending, process, sigchld, spawn, timer};
use crate::event::Event;
use crate::recording::replay;
use crate::siginfo::Info;
use crate::standby::promote;
use crate::thread::Thread;
use crate::{clone, dispatch, join, recording, signal, turns};

/// The layers of this library, to those below.
pub struct Layers;

impl Above for Layers {
    fn replay_signal(&self, thread: &mut Thread, event: Event) {
        signal::replay(thread, event);
    }
    fn follow_pause(&self, thread: &mut Thread) {
        turns::follow_pause(thread);
    }
    fn go_live(&self, thread: &mut Thread) {
        promote::go_live(thread);
    }

    fn stand_still(&self, thread: &mut Thread) -> bool {
        park::at_door(thread)
    }
    fn stand_still_with_others(&self, thread: &mut Thread) {
        if park::is_wanted() {
            park::at_door(thread);
        }
    }
    fn stand_still_spinning(&self) -> bool {
        park::spinning()
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
    fn forget_clone(&self) {
        clone::forget();
    }
}

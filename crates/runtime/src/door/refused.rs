//! Calls that the log cannot carry.

use crate::above::above;
use crate::call::Call;
use crate::door::{leave, spawn};
use crate::thread::{Mode, Thread};
use crate::verdict::give_up_log;
use crate::{bound, fdtable, raw, signal, state};

/// A call that the log cannot carry: executed, counted, and the standby is given up.
#[cold]
pub fn refused(thread: &mut Thread, call: &Call, name: &str) -> i64 {
    loop {
        if state::is_standby() {
            // The primary drops its standby before it executes such a call, so only a standby that has gone
            // astray, or one about to be told, arrives here. It must not act.
            match thread.next() {
                crate::log::Next::Live => continue,
                crate::log::Next::Event(_) => crate::verdict::report_divergence(
                    thread,
                    &[b"a refused call where the log has an event: ", name.as_bytes()],
                ),
            }
        }
        if bound::binds(call) {
            count(call);
            return leave::make(thread, call, name);
        }
        fdtable::distrust();
        if thread.calls() == Mode::Record {
            let why = [b"system call ", name.as_bytes(), b" cannot be replayed"];
            give_up_log(us_abi::Cause::RefusedCall, &why);
        }
        // Where it was not made, the thread may have stood still: there is another log, or this is another copy.
        if let Some(result) = make_unlogged(thread, call) {
            count(call);
            spawn::note_namespace(call);
            return result;
        }
    }
}

fn count(call: &Call) {
    if let Some(counter) = state::header().and_then(|header| header.refused.get(call.nr as usize)) {
        counter.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

/// Makes a call of which there is no event. `None` if a signal came before it, as natively before its first instruction:
/// a handler has then run, or the thread has stood still, and the call is yet to be made.
pub fn make_unlogged(thread: &mut Thread, call: &Call) -> Option<i64> {
    // SAFETY: the guest's own call.
    let result = unsafe { raw::blocking(call.nr, &call.args, &thread.pending) };
    if result != raw::err::EINTR {
        return Some(result);
    }
    let was_made = !thread.pending.was_unentered();
    if signal::has_deliverable(thread) {
        let ends = us_calls::row(call.nr).is_none_or(|row| signal::ends_wait(thread, row));
        signal::deliver_at_call(thread, None);
        return (was_made && ends).then_some(result);
    }
    unnoticed(thread);
    None
}

/// A call was interrupted for a purpose of ours: the guest must not notice.
pub fn unnoticed(thread: &mut Thread) {
    signal::look_again(thread);
    above().stand_still(thread);
}

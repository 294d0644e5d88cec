//! Calls that the log cannot carry.

use crate::above::above;
use crate::call::Call;
use crate::door::{leave, spawn};
use crate::log::Next;
use crate::thread::{Mode, Thread};
use crate::verdict::{give_up_log, report_divergence};
use crate::{bound, fdtable, raw, signal, state};

/// A call that the log cannot carry: executed, counted, and the standby is given up.
#[cold]
pub fn refused(thread: &mut Thread, call: &Call, name: &str) -> i64 {
    loop {
        await_live(thread, &[b"a refused call where the log has an event: ", name.as_bytes()]);
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

/// As a thread of a standby where its primary has dropped that before it acts: only a standby that has gone astray, as `why` says, or
/// one about to be told, comes here. It must not act before it is live itself, and not only its copy: until then it blocks every
/// signal, and whom it makes would inherit that.
pub fn await_live(thread: &mut Thread, why: &[&[u8]]) {
    while thread.calls() == Mode::Replay {
        if let Next::Event(_) = thread.next() {
            report_divergence(thread, why);
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

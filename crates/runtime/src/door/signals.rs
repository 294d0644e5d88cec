//! The calls about signals that pass the log, or the shadows of what waits.

use core::cell::Cell;
use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, ReturnHead};
use us_calls::Row;

use crate::above::above;
use crate::call::Call;
use crate::door::patience::Patience;
use crate::door::{answer, pending as waiting, recorded, sigchld, table};
use crate::guest::{GuestMut, GuestPtr};
use crate::members::{self, mail};
use crate::raw::err;
use crate::siginfo::{Info, bit};
use crate::signal::{
    Plan, apply_mask, consumed, deliver_announced, held, nothing_is_late, plan, set_mask, solo_restart,
};
use crate::sys::spans::{self, Before};
use crate::thread::{Mode, Thread};
use crate::{signal, state};

/// pause, rt_sigsuspend: waits until a handler has run.
pub fn suspend(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    const SIGSUSPEND: u64 = 130;
    let before = thread.signals.mask;
    let mut during = before;
    if call.nr == SIGSUSPEND {
        match GuestPtr::at(call.args[0]).load() {
            Some(given) if call.args[1] == size_of::<u64>() as u64 => during = given,
            // The kernel refuses such a set, and does not wait.
            _ => return recorded::recorded(thread, row, call),
        }
        set_mask(thread, during);
    }
    // With the mask set, the wait is a pause: the window between the two is closed by the queue.
    let pause = Call { nr: 34, args: [0; 6], caller: call.caller };
    let result = recorded::recorded(thread, row, &pause);
    set_mask(thread, before);
    if during & !thread.signals.mask != 0 {
        deliver_announced(thread);
    }
    result
}

/// The set that the kernel gets for a guest's set of signals that it waits for. SIGSYS is how the runtime and its supervisor ask
/// a thread to look up: taken by a wait for all signals it would come to the program, and not to us.
fn without_ours(set: u64) -> u64 {
    set & !bit(31)
}

/// signalfd, signalfd4: without the runtime's own signal in the set.
pub fn descriptor(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let set = GuestPtr::at(call.args[1]).load().map(without_ours);
    let mut own = *call;
    if let Some(set) = &set {
        own.args[1] = &raw const *set as u64;
    }
    table::changing(thread, row, &own)
}

/// rt_sigpending: what the kernel holds, and what the runtime has queued.
pub fn pending(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let add = |thread: &mut Thread, call: &Call, _: i64| {
        let place = GuestMut::at(call.args[0]);
        if let Some(set) = place.written() {
            place.store(&((without_ours(set) | thread.queue.waiting()) & thread.signals.mask));
        }
        0
    };
    recorded::recorded_with(thread, row, call, add, |_, _, _| ())
}

/// rt_sigtimedwait: takes a waiting signal. What the runtime has queued comes first.
pub fn wait(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let place = GuestMut::<Info>::at(call.args[1]);
    let mut patience = Patience::default();
    thread.attempt(|thread, mode| {
        let mut before = Before::nothing();
        before.look(row, &call.args);
        match mode {
            Mode::Solo => {
                let Taken { result, letter, told } = take_or_wait(thread, row, call, &mut patience);
                mail::is_taken(letter);
                if result > 0 {
                    members::seen(result as i32, members::sent_so_far(result as i32));
                }
                (!solo_restart(thread, row, result)).then_some(told)
            }
            Mode::Record => {
                let begin =
                    CallArgs { len: patience.begin(call), ..spans::arguments(row, call, thread.verify) };
                recorded::begin(thread, row, begin);
                let Taken { result, letter, told } = take_or_wait(thread, row, call, &mut patience);
                let plan = plan(thread, row, result);
                if plan.is_abandoned() {
                    return None;
                }
                let sent = members::sent_so_far(result.max(0) as i32);
                members::seen(result.max(0) as i32, sent);
                let head = ReturnHead { result, identity: u64::from(sent) | letter << 32 };
                answer::log_outputs(thread, row, call, &before, plan.flags(), head);
                mail::is_taken(letter);
                (!plan.carry_out(thread)).then_some(told)
            }
            Mode::Replay => {
                let ours = spans::arguments(row, call, thread.verify);
                let began_ns = recorded::take_begin_with(thread, row, ours.fd, ours.digest, |_, _| ())?;
                // Whoever makes the call again, here or by the log, goes on with that.
                patience.continues(call, began_ns);
                let taken = Cell::new(0);
                let note = |_: &mut Thread, head: ReturnHead| taken.set(head.result);
                let (head, flags) = recorded::take_outputs(thread, row, call, &before, note)?;
                let result = taken.get();
                if result > 0 {
                    members::seen(result as i32, head.identity as u32);
                    mail::is_taken(head.identity >> 32);
                    let known = if place.is_nowhere() { None } else { place.written() };
                    let mut info = known.unwrap_or_default();
                    info.set_signal(result as i32);
                    let ticket = thread.begun().ticket;
                    consumed(thread, &info, known.is_some(), ticket);
                }
                (!Plan::replay(thread, flags, result)).then_some(head.result)
            }
        }
    })
}

/// What a wait for signals has come to.
struct Taken {
    /// The signal that is taken, or why none is.
    result: i64,
    /// The number of the letter with which it came, 0 for none.
    letter: u64,
    /// What the guest is told: like the kernel, that there was no room for what the signal says, when it is gone.
    told: i64,
}

impl Taken {
    fn nothing(result: i64) -> Taken {
        Taken { result, letter: 0, told: result }
    }

    fn one(result: i64, info: &Info, place: GuestMut<Info>) -> Taken {
        let told = match place.tell(&mail::without_letter(info)) {
            0 => result,
            error => error,
        };
        Taken { result, letter: mail::letter_of(info), told }
    }
}

fn take_or_wait(thread: &mut Thread, row: &Row, call: &Call, patience: &mut Patience) -> Taken {
    let place = GuestMut::<Info>::at(call.args[1]);
    let set = GuestPtr::<u64>::at(call.args[0]).load();
    if let Some(set) = set
        && let Some(info) = thread.queue.take(!set)
    {
        nothing_is_late(thread);
        apply_mask(thread.signals.mask | held(thread));
        return Taken::one(info.signal().into(), &info, place);
    }
    let mut taken = Info::default();
    let set = set.map(without_ours);
    loop {
        let mut args = *patience.args(call);
        if let Some(set) = &set {
            args[0] = &raw const *set as u64;
        }
        args[1] = &raw mut taken as u64;
        let result = recorded::execute(thread, row, call.nr, &args);
        if result == err::EINTR && thread.pending.load(Ordering::SeqCst) == 0 {
            // No signal of the guest's: the thread was asked to look at something of ours.
            continue;
        }
        if result <= 0 {
            return Taken::nothing(result);
        }
        let mut info = taken;
        info.recall();
        if result == 17 && !above().is_news(&mut info) {
            // As if nothing had come.
            continue;
        }
        info.adopt();
        if !mail::arrived(&mut info) {
            continue;
        }
        return Taken::one(result, &info, place);
    }
}

/// rt_sigaction: what the shadows hold of a signal that is ignored from here on is gone.
pub fn action(thread: &mut Thread, call: &Call) -> i64 {
    signal::action(thread, call, |signal, is_ignored, was_ignored| {
        if is_ignored && state::is_standby() {
            waiting::forget(signal);
        }
        // One that was raised again for a guest that ignored it is gone.
        if signal == 17 && (is_ignored || was_ignored && waiting::waiting() & bit(17) == 0) {
            sigchld::forget_owed();
        }
    })
}

//! What ends a copy, a standby or a log, and says why.

use core::sync::atomic::Ordering;

use us_abi::{Cause, EventKind, GroupState, SegmentHeader, command};

use crate::event::Event;
use crate::members::of_family;
use crate::state::{self, Decimal, Role};
use crate::thread::{self, Thread};
use crate::{raw, recorder, seats};

/// Leaves a message where the supervisor finds it and ends this copy.
///
/// A standby that dies so costs protection only. A primary has no choice either: what it would do next is
/// undefined, and its standby, whose state is whole, is promoted.
pub fn last_words(parts: &[&[u8]]) -> ! {
    if let Some(header) = state::header() {
        state::write_text(&header.last_words.0, 1, parts);
        state::attention();
    } else {
        // Nobody else would hear of it. In a group it is the supervisor's to say: descriptor 2 is the program's.
        raw::stderr(b"understudy: internal error: ");
        for part in parts {
            raw::stderr(part);
        }
        raw::stderr(b"\n");
    }
    // SAFETY: ends this process, by the one signal that no guest handler sees.
    unsafe {
        let pid = raw::call1(raw::nr::GETPID, 0) as u64;
        raw::call2(raw::nr::KILL, pid, 9);
        raw::call1(raw::nr::EXIT_GROUP, 134);
    }
    loop {
        core::hint::spin_loop();
    }
}

/// As a primary: from here on there is no standby. The first cause is the one reported. The log goes on if it is taken into
/// a recording.
#[cold]
#[inline(never)]
pub fn drop_standby(cause: Cause, why: &[&[u8]]) {
    let Some(header) = state::header() else { return };
    if state::role() != Role::Primary {
        return;
    }
    // The spares first: what the heir cannot follow they cannot, and none of them must be heir behind this.
    seats::drop_spares(header, cause, why);
    drop_heir(header, cause, why);
}

/// As a primary: from here on the standby in this seat does not follow; others may.
#[cold]
#[inline(never)]
pub fn drop_follower(seat: u32, cause: Cause, why: &[&[u8]]) {
    let Some(header) = state::header() else { return };
    if state::role() != Role::Primary {
        return;
    }
    if header.seats[seat as usize].state.load(Ordering::Acquire) == us_abi::seat::FREE {
        // Another may be heir by now.
        if header.heir.load(Ordering::Acquire) == seat {
            drop_heir(header, cause, why);
        }
        return;
    }
    seats::drop_spare(header, seat, cause, why);
    if !seats::is_followed() && !recorder::goes_on() {
        thread::stop_logging();
    }
    state::attention();
}

/// The same of the heir alone: others may follow.
pub fn drop_heir(header: &us_abi::SegmentHeader, cause: Cause, why: &[&[u8]]) {
    if of_family::is_member() {
        // First: a standby that the others are waiting for must not be given up.
        of_family::fail_with(why);
    }
    state::write_text(&header.why.0, cause as u32, why);
    header.dropped.0.store(cause as u32, Ordering::Release);
    if !recorder::goes_on() {
        thread::stop_logging();
    }
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
}

/// Stops logging, as a primary: what comes next no log can carry, neither to a standby nor into a recording.
#[cold]
#[inline(never)]
pub fn give_up_log(cause: Cause, why: &[&[u8]]) {
    recorder::stop(why);
    drop_standby(cause, why);
}

/// The standby did something else than the log says: it reports what and ends itself.
#[cold]
#[inline(never)]
pub fn diverge(thread: &Thread, kind: EventKind, call: u16, event: &Event) -> ! {
    let got = event.header;
    report_divergence(
        thread,
        &[
            b"the standby was at event kind ",
            Decimal::new(kind as u64).bytes(),
            b" call ",
            Decimal::new(call as u64).bytes(),
            b", the log says kind ",
            Decimal::new(got.kind as u64).bytes(),
            b" call ",
            Decimal::new(got.call as u64).bytes(),
        ],
    )
}

/// Ends a standby that cannot become what its primary was.
#[cold]
pub fn give_up_standby(why: &[&[u8]]) -> ! {
    end_standby(Cause::Diverged, why)
}

/// Ends a standby that cannot go on, for whatever reason.
#[cold]
pub fn end_standby(cause: Cause, why: &[&[u8]]) -> ! {
    if let Some(header) = state::header().filter(|header| !seats::is_given_up(header)) {
        end_spare(header, cause, why);
        header.divergences.fetch_add(u32::from(cause == Cause::Diverged), Ordering::AcqRel);
        state::write_text(&header.why.0, cause as u32, why);
        of_family::break_up(why);
        header.dropped.0.store(cause as u32, Ordering::Release);
        state::attention();
    }
    end_astray(why)
}

/// Ends a copy that is not what its primary was. One that has taken over already is not to look like a program that has
/// ended well.
pub fn end_astray(why: &[&[u8]]) -> ! {
    if state::role() == Role::Primary {
        last_words(why);
    }
    loop {
        // SAFETY: the standby ends; it has no effects of its own to finish.
        unsafe { raw::call1(raw::nr::EXIT_GROUP, 0) };
    }
}

/// A spare that cannot go on ends, and says so where it sits: the heir follows.
pub fn end_spare(header: &us_abi::SegmentHeader, cause: Cause, why: &[&[u8]]) {
    if !seats::is_spare(header) {
        return;
    }
    if seats::drop_spare(header, seats::own(), cause, why) || seats::is_spare(header) {
        state::attention();
        if cause == Cause::Diverged {
            stay_to_be_looked_at(header);
        }
        loop {
            // SAFETY: the standby ends; it has no effects of its own to finish.
            unsafe { raw::call1(raw::nr::EXIT_GROUP, 0) };
        }
    }
}

/// Reports a divergence in words and ends the standby.
#[cold]
#[inline(never)]
pub fn report_divergence(thread: &Thread, what: &[&[u8]]) -> ! {
    report_at(thread.slot(), thread.ends.consumer.at, what)
}

/// The same, of a thread that has come so far in its ring.
#[cold]
#[inline(never)]
pub fn report_at(slot: u32, position: u64, what: &[&[u8]]) -> ! {
    let (number, at) = (Decimal::new(u64::from(slot)), Decimal::new(position));
    let mut parts: [&[u8]; 16] = [b""; 16];
    parts[..4].copy_from_slice(&[b"thread ", number.bytes(), b" at ", at.bytes()]);
    parts[4] = b": ";
    for (place, part) in parts[5..].iter_mut().zip(what) {
        *place = part;
    }
    // What comes behind the end of one that has a successor is not for it.
    if let Some(header) = state::header().filter(|header| !seats::is_given_up(header)) {
        // What another thread meets meanwhile follows from it, and the first place is the one that is looked at.
        if state::is_standby() && !seats::stay() {
            // The first ends the process once it has said why.
            raw::nap(2 * LOOK_NS);
            end_astray(&parts);
        }
        header.diverged_slot.store(slot, Ordering::Relaxed);
        header.diverged_at.store(position, Ordering::Relaxed);
        header.divergences.fetch_add(1, Ordering::AcqRel);
        end_spare(header, Cause::Diverged, &parts);
        state::write_text(&header.why.0, Cause::Diverged as u32, &parts);
        of_family::break_up(&parts);
        header.dropped.0.store(Cause::Diverged as u32, Ordering::Release);
        header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
        state::attention();
        stay_to_be_looked_at(header);
    }
    end_astray(&parts)
}

/// How long a standby that has diverged stays at most.
const LOOK_NS: u64 = 100_000_000;

/// A standby that has said that it diverged stays where it did until the supervisor, which ends it, has looked at its stack. Not
/// for long, and not while somebody waits for it to take over.
fn stay_to_be_looked_at(header: &SegmentHeader) {
    if !state::is_standby() || state::is_detached() {
        return;
    }
    let until_ns = raw::now_ns() + LOOK_NS;
    loop {
        let command = header.command.0.load(Ordering::Acquire);
        let left_ns = until_ns.saturating_sub(raw::now_ns());
        if left_ns == 0 || matches!(command, command::PROMOTE | command::END) {
            return;
        }
        raw::futex_wait_shared(&header.command.0, command, left_ns);
    }
}

/// Ends a replay that has nothing left to follow.
pub fn end_replay(status: u64) -> ! {
    loop {
        // SAFETY: a replay has no effects of its own to finish.
        unsafe { raw::call1(raw::nr::EXIT_GROUP, status) };
    }
}

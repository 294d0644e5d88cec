//! `libunderstudy.so`: the part of Understudy that lives inside the guest process.
//!
//! Preloaded, it runs before the guest's code, makes the standby, and from then on stands at three doors:
//! exported functions ([`exports`](door)), patched and trapped system calls ([`sys`]), and the vDSO. At each
//! door a primary acts and logs, a standby waits for the log and applies it.
//!
//! House rules: no allocation and no lock on the hot path; no call into libc but from the doors that
//! forward to it by design; no vector register is assumed free at a patched site (see `sys::gate`).
#![no_std]
// The exports are C functions whose contract is their manual page.
#![allow(clippy::missing_safety_doc)]
// A cdylib has no users of its Rust items: "public" means "used by another file", and the pointers that go from
// one to the other are the guest's addresses and the ring's.
#![allow(clippy::not_unsafe_ptr_arg_deref, clippy::new_without_default, clippy::should_implement_trait)]

pub mod aside;
pub mod call;
pub mod clock;
pub mod clone;
pub mod context;
pub mod door;
pub mod entry;
pub mod family;
pub mod fault;
pub mod fdtable;
pub mod guest;
pub mod lock;
pub mod log;
pub mod mem;
pub mod members;
pub mod missing;
pub mod notice;
pub mod own_file;
pub mod pace;
pub mod paths;
pub mod raw;
pub mod real;
pub mod recording;
pub mod seats;
pub mod siginfo;
pub mod signal;
pub mod standby;
pub mod state;
pub mod sys;
pub mod thread;
pub mod tls;

use core::sync::atomic::Ordering;

use us_abi::{Cause, EventKind, GroupState};

use crate::log::Event;
use crate::state::{Decimal, Role};
use crate::thread::{Mode, Thread};

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let line = info.location().map_or(0, |place| place.line());
    let file = info.location().map_or("?", |place| place.file());
    let message = info.message().as_str().unwrap_or("");
    last_words(&[file.as_bytes(), b":", Decimal::new(line as u64).bytes(), b" ", message.as_bytes()])
}

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
    if !seats::is_followed() && !recording::goes_on() {
        stop_logging();
    }
    state::attention();
}

fn drop_heir(header: &us_abi::SegmentHeader, cause: Cause, why: &[&[u8]]) {
    if family::is_member() {
        // First: a standby that the others are waiting for must not be given up.
        family::fail_with(why);
    }
    state::write_text(&header.why.0, cause as u32, why);
    header.dropped.0.store(cause as u32, Ordering::Release);
    if !recording::goes_on() {
        stop_logging();
    }
    header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    state::attention();
}

/// Stops logging, as a primary: what comes next no log can carry, neither to a standby nor into a recording.
#[cold]
#[inline(never)]
pub fn give_up_log(cause: Cause, why: &[&[u8]]) {
    recording::stop(why);
    drop_standby(cause, why);
}

/// Puts every thread that records into solo mode. Others are left alone: one that was promoted and is not yet live
/// has something to do first.
pub fn stop_logging() {
    let (from, to) = (Mode::Record as u8, Mode::Solo as u8);
    thread::for_each(|thread| {
        let _ = thread.lock_mode.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        let _ = thread.call_mode.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    });
    if state::takes_live_turns() {
        recording::turn_order::nobody_waits();
    }
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
    if let Some(header) = state::header() {
        end_spare(header, cause, why);
        header.divergences.fetch_add(u32::from(cause == Cause::Diverged), Ordering::AcqRel);
        state::write_text(&header.why.0, cause as u32, why);
        family::break_up(why);
        header.dropped.0.store(cause as u32, Ordering::Release);
        state::attention();
    }
    end_astray(why)
}

/// Ends a copy that is not what its primary was. One that has taken over already is not to look like a program that has
/// ended well.
fn end_astray(why: &[&[u8]]) -> ! {
    if state::role() == Role::Primary {
        last_words(why);
    }
    loop {
        // SAFETY: the standby ends; it has no effects of its own to finish.
        unsafe { raw::call1(raw::nr::EXIT_GROUP, 0) };
    }
}

/// A spare that cannot go on ends, and says so where it sits: the heir follows.
fn end_spare(header: &us_abi::SegmentHeader, cause: Cause, why: &[&[u8]]) {
    if !seats::is_spare(header) {
        return;
    }
    if seats::drop_spare(header, seats::own(), cause, why) || seats::is_spare(header) {
        state::attention();
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
    let (slot, at) = (Decimal::new(thread.slot as u64), Decimal::new(thread.consumer.at));
    let mut parts: [&[u8]; 16] = [b""; 16];
    parts[..4].copy_from_slice(&[b"thread ", slot.bytes(), b" at ", at.bytes()]);
    parts[4] = b": ";
    for (place, part) in parts[5..].iter_mut().zip(what) {
        *place = part;
    }
    if let Some(header) = state::header() {
        header.diverged_slot.store(thread.slot, Ordering::Relaxed);
        header.diverged_at.store(thread.consumer.at, Ordering::Relaxed);
        header.divergences.fetch_add(1, Ordering::AcqRel);
        end_spare(header, Cause::Diverged, &parts);
        state::write_text(&header.why.0, Cause::Diverged as u32, &parts);
        family::break_up(&parts);
        header.dropped.0.store(Cause::Diverged as u32, Ordering::Release);
        header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
        state::attention();
    }
    end_astray(&parts)
}

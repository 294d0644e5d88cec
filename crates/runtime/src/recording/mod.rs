//! Recording a process, and replaying a recording without it.
//!
//! A recorded process is a primary whose log the supervisor takes: it logs from its first instruction, and so do its
//! children and whatever they become, each into a segment of its own. It may have a standby besides, which reads the same
//! rings at its own pace, is lost and made again, and takes over; the log goes on ([`crate::recorder`]). A replay is a standby that was not forked: it
//! is the same program started again in the same layout, fed from the file. It has no kernel object of the
//! original; descriptors are numbers, forks fork, and what went to the standard descriptors goes there again.

pub mod image;
pub mod replay;

use core::sync::atomic::Ordering;

use us_abi::{Cause, GroupState, SegmentHeader, leaving};

use crate::clock::{self};
use crate::door::output;
use crate::state::{self, Role};
use crate::thread::{self, Mode, Thread};
use crate::{begin, join, members, real, turns};

/// In the constructor of a recorded image that has its segment: the program itself, or a member after its exec.
/// `is_supervised` if the supervisor is its parent.
pub fn begin(header: &'static SegmentHeader, how: u32, is_supervised: bool) {
    state::set_role(Role::Primary);
    crate::members::has_relatives();
    if !thread::map_ring(0) {
        crate::verdict::last_words(&[b"the rings could not be mapped"]);
    }
    header.primary_pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Release);
    // Nobody but the recorder reads what comes now.
    header.dropped.0.store(Cause::NotAsked as u32, Ordering::Release);
    let protected = header.config.standbys != 0;
    if !protected {
        begin::become_member(header, Mode::Record);
        header.leaving.0.store(leaving::NO, Ordering::SeqCst);
        header.state.0.store(GroupState::Unprotected as u32, Ordering::Release);
    } else {
        // Without a death notice for now: a standby that is forked with one would give it at its own death.
        begin::begin_log();
    }
    if how == us_abi::how::STARTED {
        output::remember_standard();
    }
    image::publish(begin::main_block(), how);
    if protected && is_supervised {
        header.dropped.0.store(0, Ordering::Release);
        begin::make_standby(header);
    } else if protected {
        begin::become_member(header, Mode::Record);
        join::be_newborn(header);
        // One of which the supervisor has not heard yet is still to show that it is worth a standby.
        let is_watched = members::own().is_some_and(|own| own.joined.load(Ordering::Acquire) != 0);
        begin::main_block().newborn = !is_watched;
        header.leaving.0.store(leaving::NO, Ordering::SeqCst);
        state::attention();
    }
    members::tell();
    turns::take(begin::main_block());
}

/// In a child that has just joined: it logs from here on.
pub fn begin_child(thread: &mut Thread, how: u32) {
    reset_clocks();
    thread.call_mode.store(Mode::Record as u8, Ordering::Relaxed);
    image::publish(thread, how);
    turns::take(thread);
}

/// A forked child's clocks begin again: in a replay the parent's other threads may be at another place.
pub fn reset_clocks() {
    clock::KERNEL.0.store(clock::FIRST, Ordering::Relaxed);
    (0..us_abi::CLOCKS).for_each(|number| clock::hashed(number as u16).store(0, Ordering::Relaxed));
}

/// glibc's allocator marks what is free with a number that it has drawn. A program that shows memory it has never
/// written would show it, and a replay another one.
pub fn settle_allocator((start, end): (u64, u64)) {
    const SETTLED: u64 = 0x7573_7469_6e67_6d61;
    const SMALL: usize = 24;
    // SAFETY: libc's malloc and free, or those that stand in front of them. The chunk is read after it was given back,
    // while no other thread exists; the range is libc's variables.
    unsafe {
        let malloc: extern "C" fn(usize) -> *mut u64 = core::mem::transmute(real::malloc());
        let free: extern "C" fn(*mut u64) = core::mem::transmute(real::free());
        let chunk = malloc(SMALL);
        if chunk.is_null() {
            return;
        }
        chunk.add(1).write_volatile(0);
        free(chunk);
        let drawn = chunk.add(1).read_volatile();
        if drawn == 0 {
            return;
        }
        let mut at = start as *mut u64;
        while (at as u64) < end {
            if at.read_volatile() == drawn {
                at.write_volatile(SETTLED);
            }
            at = at.add(1);
        }
        chunk.add(1).write_volatile(SETTLED);
    }
}

/// In a group that is recorded every child joins at once: a replay needs all that it does. Whether it is worth a standby
/// shows later, as with any other.
pub fn join_recorded(thread: &mut Thread, how: u32) {
    const TRIES: u32 = 2_000;
    if join::own_within(TRIES).is_none() {
        let parent = crate::members::kernels_parent();
        crate::members::born(parent, parent);
    }
    join::join(thread);
    if state::role() == Role::Primary {
        // The supervisor hears of it when it asks for a standby.
        crate::inquiry::keep_silent(true);
        begin_child(thread, how);
        crate::inquiry::keep_silent(false);
        thread.newborn = crate::members::config::get().is_some_and(|config| config.standbys != 0);
    }
}

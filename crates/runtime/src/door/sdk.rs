//! What a program tells the runtime about the order of its threads: the functions behind `sdk/understudy.h`.
//!
//! They do something where the order is computed, and nothing anywhere else.

use crate::thread::Thread;
use crate::tls;
use crate::turns::{self, logical};

/// The header's `struct us_sdk`. New functions come at the end.
#[repr(C)]
pub struct Sdk {
    bytes: u64,
    det_start: extern "C" fn(),
    det_end: extern "C" fn(),
    det_tick: extern "C" fn(u64),
    critical_begin: extern "C" fn(),
    critical_end: extern "C" fn(),
}

/// What the header looks up.
#[allow(non_upper_case_globals, reason = "the name that a C program knows")]
#[unsafe(no_mangle)]
pub static understudy_sdk: Sdk =
    Sdk { bytes: size_of::<Sdk>() as u64, det_start, det_end, det_tick, critical_begin, critical_end };

/// The calling thread, if there is an order for it.
fn ordered() -> Option<&'static mut Thread> {
    // SAFETY: the calling thread's own block; the functions of this file hold no other reference to it.
    unsafe { tls::current().as_mut() }.filter(|thread| logical::applies(thread))
}

extern "C" fn det_start() {
    if let Some(thread) = ordered()
        && turns::doors::enter(thread)
    {
        thread.turn.set_section(true);
    }
}

extern "C" fn det_end() {
    if let Some(thread) = ordered()
        && thread.turn.is_section()
    {
        thread.turn.set_section(false);
        turns::doors::leave(thread);
    }
}

extern "C" fn det_tick(ticks: u64) {
    if let Some(thread) = ordered() {
        logical::tick_by(thread, ticks);
    }
}

extern "C" fn critical_begin() {
    if let Some(thread) = ordered() {
        turns::begin_apart(thread);
    }
}

extern "C" fn critical_end() {
    if let Some(thread) = ordered() {
        turns::end_apart(thread);
    }
}

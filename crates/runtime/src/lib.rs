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

pub mod above;
pub mod aside;
pub mod backlog;
pub mod begin;
pub mod bound;
pub mod call;
pub mod clock;
pub mod clone;
pub mod connections;
pub mod context;
pub mod dispatch;
pub mod door;
pub mod entry;
pub mod event;
pub mod family;
pub mod fault;
pub mod fdtable;
pub mod guest;
pub mod handout;
pub mod inquiry;
pub mod invariant;
pub mod join;
pub mod kernel;
pub mod lock;
pub mod log;
pub mod mapping;
pub mod mem;
pub mod members;
pub mod milestones;
pub mod mirror;
pub mod missing;
pub mod notice;
pub mod own_file;
pub mod pace;
pub mod paths;
pub mod proc;
pub mod raw;
pub mod real;
pub mod recorder;
pub mod recording;
pub mod seats;
pub mod siginfo;
pub mod signal;
pub mod standby;
pub mod state;
pub mod sys;
pub mod thread;
pub mod tls;
pub mod turns;
pub mod twins;
pub mod verdict;
pub mod wiring;

use crate::state::Decimal;

#[panic_handler]
fn panic(info: &core::panic::PanicInfo) -> ! {
    let line = info.location().map_or(0, |place| place.line());
    let file = info.location().map_or("?", |place| place.file());
    let message = info.message().as_str().unwrap_or("");
    verdict::last_words(&[file.as_bytes(), b":", Decimal::new(line as u64).bytes(), b" ", message.as_bytes()])
}

//! The supervisor: starts a group, watches it, fences and promotes, and says what happened.
//!
//! One `understudy run` is one supervisor of one group. It makes the segment, starts the program with the
//! runtime preloaded, and then lives in [`watch`]: two threads, one that blocks on futexes in the segment
//! ([`sentry`]) and one that handles signals and the ends of processes. Everything a person or a script
//! learns about a group comes from its folder ([`folder`]), which is gone when the group is.
//!
//! `unsafe` lives in [`segment`] (shared memory) and [`spawn`] (fork, signals, wait) only.
#![deny(unsafe_code)]

pub mod child;
pub mod clock;
pub mod control;
pub mod doctor;
pub mod elf;
pub mod error;
pub mod events;
pub mod folder;
pub mod history;
pub mod options;
pub mod probe;
pub mod proc;
pub mod program;
pub mod reprotect;
pub mod request;
pub mod run;
#[allow(unsafe_code)]
pub mod segment;
pub mod sentry;
pub mod signals;
pub mod snapshot;
#[allow(unsafe_code)]
pub mod spawn;
pub mod status;
pub mod watch;

pub use error::Error;
pub use options::{CpuPair, Options, Verbosity};

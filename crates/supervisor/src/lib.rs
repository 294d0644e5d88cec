//! The supervisor: starts a group, watches it, fences and promotes, and says what happened.
//!
//! One `understudy run` is one supervisor of one group. It makes the segment and the roster, starts the program with
//! the runtime preloaded, and then lives in `group`: a thread that handles signals and the ends of processes, one
//! more for each process, which blocks on futexes in its segment ([`sentry`]), one that waits for news in the
//! roster ([`roster`]), one that gives files to those that cannot open them (`handout`), and, where there was a failover, one that
//! reaps (`undertaker`). Everything a person or a script learns about a group comes from its folder ([`folder`]),
//! which is gone when the group is.
//!
//! `unsafe` lives in [`segment`], [`roster`] and `mapping` (shared memory), [`spawn`] (fork, signals), [`reap`] (wait),
//! [`machine`] (trying what it offers), [`identity`] (other users), [`gate::kernel`] (sockets and devices) and parts of
//! [`checkpoint`] (becoming another program) only.
#![deny(unsafe_code)]

mod book;
pub mod checkpoint;
pub mod child;
pub mod clock;
pub mod computed;
pub mod control;
pub mod dir;
pub mod doctor;
pub mod elf;
pub mod ended;
pub mod error;
pub mod events;
pub mod explain;
pub mod family;
#[allow(unsafe_code)]
pub mod filter;
pub mod folder;
pub mod gate;
mod group;
mod handout;
pub mod history;
#[allow(unsafe_code)]
pub mod identity;
mod inquiry;
mod knock;
mod limit;
#[allow(unsafe_code)]
pub mod machine;
#[allow(unsafe_code)]
mod mapping;
pub mod memory;
pub mod options;
pub mod place;
pub mod probe;
pub mod proc;
pub mod program;
pub mod races;
#[allow(unsafe_code)]
pub mod reap;
pub mod recorder;
pub mod reprotect;
pub mod request;
#[allow(unsafe_code)]
pub mod roster;
pub mod run;
#[allow(unsafe_code)]
pub mod segment;
pub mod sentry;
mod service;
pub mod signals;
pub mod snapshot;
#[allow(unsafe_code)]
pub mod spawn;
pub mod status;
mod symbols;
pub mod terminal;
mod undertaker;
mod unwind;
pub mod upgrade;
mod verdict;
pub mod watch;

pub use error::Error;
pub use node::Seen as Machine;
pub use options::{CpuPair, Options, Verbosity};

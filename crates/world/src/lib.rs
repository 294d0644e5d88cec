#![no_std]
#![forbid(unsafe_code)]
//! What a copy knows of the group's kernel objects, and what follows from it for a call in doubt.
//!
//! A call is *in doubt* when the primary began it and died before the log said how it ended. Two numbers decide about a stream:
//! what the kernel has moved in total, and what the log accounts for. The difference belongs to the calls in doubt on that
//! stream. Where the kernel keeps no total, the primary prepared *evidence* before the call.
//!
//! Every kind of object is one file in [`object`]. It says which evidence a primary prepares before a call ([`Evidence`]), what the
//! log counts of a transfer ([`Count`]), where counting begins ([`Counts`]), and how far the calls in doubt came ([`judge()`]).
//! Nothing else in the project asks what kind an object is in order to settle a call.
//!
//! Calls that make descriptors are judged in [`maker`], changes of epoll sets in [`set`], and calls on names, which are made again,
//! in [`repeat`]. What dies with a process, and is set or raised again, is in [`timer`] and [`pending`], what
//! remains of a wait in [`patience`], and what is told of children in [`child`].
//!
//! Nothing here asks the kernel by itself: [`Kernel`] is what the caller lends. So the same rules run in the runtime and in the
//! model. All figures must be read after the primary was fenced, while no thread acts.
//!
//! What nobody can tell is [`Verdict::Unknown`]. It is the default, and the caller counts it.

pub mod child;
mod count;
mod judge;
mod kernel;
mod kind;
pub mod maker;
pub mod object;
mod part;
pub mod patience;
pub mod pending;
pub mod repeat;
pub mod set;
pub mod timer;
mod transfer;
mod verdict;

pub use count::{Count, Counts, Transfer};
pub use judge::judge;
pub use kernel::{Kernel, TcpFigures, Touched};
pub use kind::{Direction, Evidence, Kind};
pub use part::{Copy, Part, Sharers, Stream, Told};
pub use transfer::{Identity, Settled, close, write};
pub use verdict::{Verdict, Verdicts};

//! Checkpoints: a program is written into a file, and put together again from one.
//!
//! *Taking* one ([`take`]): the program parks and forks a copy that stands still; while the program waits, what it shares with the
//! copy is [described](describe); the copy's memory is written when the program has gone on. *Restoring* one ([`restore`]): a new
//! process makes the [descriptors](objects) and becomes that copy by [`steps`], system calls that are made while there is no memory
//! but their own list. Then it goes on.

mod describe;
pub mod key;
mod objects;
pub(crate) mod output;
#[allow(unsafe_code)]
mod raw;
#[allow(unsafe_code)]
pub mod restore;
#[allow(unsafe_code)]
mod steps;
pub mod take;

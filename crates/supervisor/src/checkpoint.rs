//! Checkpoints: a program is written into a file, and put together again from one.
//!
//! *Taking* one ([`take`]): all processes of the program park, and each forks a copy that stands still; while they wait, what they
//! share with the copies is [described](describe): [descriptors], [sockets], [rights], [memory] that several have, and [files] if they are wanted. The
//! copies' own memory is written when the program has gone on. *Restoring* one ([`restore`]): new processes make the [objects] behind the descriptors, and each
//! [becomes](image) such a copy by [`steps`], system calls that are made while there is no memory but their own list. When all
//! have, they go on.

pub(crate) mod bases;
mod describe;
mod descriptors;
pub mod files;
mod fit;
mod followed;
#[allow(unsafe_code)]
mod image;
pub(crate) mod kept;
pub mod key;
mod memory;
mod objects;
pub(crate) mod output;
pub(crate) mod pages;
#[allow(unsafe_code)]
mod raw;
#[allow(unsafe_code)]
pub mod restore;
mod rights;
mod runs;
mod sockets;
#[allow(unsafe_code)]
mod steps;
pub mod take;

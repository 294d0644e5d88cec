#![forbid(unsafe_code)]
//! A model of replay and promotion, explored exhaustively.
//!
//! Small programs run as a primary in every possible interleaving of protocol steps; the primary is killed between
//! any two of them; a standby replays the log that is left, is promoted by the rules of `us-order`, and runs on, again
//! in every interleaving. A run is right if it never gets stuck, never breaks a critical section, never
//! touches a descriptor that is not its own, and ends as the program could have ended natively, the bytes that an
//! outside observer has received included.
//!
//! The rules must also be needed: [`mutation::Mutation`] lists broken ones, and each is caught by some program.
//! `FINDINGS.md` says what the model taught.

pub mod atomics;
pub mod calls;
pub mod copies;
pub mod explore;
pub mod family;
pub mod hash;
pub mod library;
pub mod live;
pub mod local;
pub mod logical;
pub mod mutation;
pub mod primary;
pub mod program;
pub mod promote;
pub mod queue;
pub mod ring;
pub mod settle;
pub mod standby;
pub mod stranger;
pub mod trace;
pub mod walk;
pub mod words;
pub mod world;

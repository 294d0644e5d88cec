//! Logs between machines. The rules are `crates/ship`'s; here are the clock, the sockets and the files.
//!
//! A peer is one that holds a certificate of the cluster's own authority and is named in the configuration: both sides
//! look at the other's (mutual TLS 1.3). Until then nothing of it is believed, and little is kept: a message of 64 KiB at
//! the most, for five seconds. Nothing here waits for a peer longer than `silence`, and nothing is kept for one in memory
//! but one message each way.
#![forbid(unsafe_code)]

pub mod config;
mod kept;
mod link;
mod serve;
mod shipper;
mod tls;

use std::fmt;
use std::sync::LazyLock;
use std::time::Instant;

pub use config::Config;
pub use kept::{FENCED, OBSTACLE, WANTED};
pub use serve::{Log, Node, Stop};
pub use shipper::{Seen, Shipper, Watch};

/// What cannot be begun, in one sentence.
#[derive(Debug)]
pub struct Error(String);

impl Error {
    fn new(what: impl fmt::Display) -> Error {
        Error(what.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Nanoseconds, never 0 and never back.
fn now() -> u64 {
    1 + BEGIN.elapsed().as_nanos() as u64
}

//! The test kit: runs the guests and real servers natively, under protection, and under protection with their
//! copies killed at random moments, and compares what the outside saw.
//!
//! The kit knows Understudy only by its command line contract: `understudy run`, its exit codes, the lifecycle
//! events and `status --json`. It never looks inside.

pub mod battery;
pub mod checkpoint;
pub mod events;
pub mod foreign;
pub mod guest;
pub mod judge;
pub mod middle;
pub mod place;
pub mod process;
pub mod report;
pub mod rng;
pub mod servers;
pub mod strike;
pub mod track;
pub mod trial;
pub mod upgraded;

//! The standby's side that is not a door: its birth, the poller, the promotion.

pub mod files;
pub mod kernel;
pub mod makers;
pub mod mirrored;
pub mod poll;
pub mod promote;
pub mod sets;
pub mod settle;
pub mod stall;
pub mod streams;
pub mod unsettled;

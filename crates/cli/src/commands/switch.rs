//! `failover`: a planned switch.

use us_supervisor::folder::Found;
use us_supervisor::{Error, request};

use super::print;
use crate::report;

/// Asks the group's supervisor for it.
pub fn switch(group: &Found, process: Option<u32>, json: bool) -> Result<i32, Error> {
    let whom = process.map_or(String::new(), |pid| format!(" {pid}"));
    let done = request::ask(group, &format!("{}{whom}", request::FAILOVER))?;
    let text = if json { report::json(&done) } else { report::failover(&group.name, &done) };
    Ok(print(text.as_bytes()))
}

//! `doctor`.

use us_abi::exit;
use us_supervisor::doctor;

use super::print;
use crate::report;

/// Shows what was found; the exit code says whether all is well.
pub fn show(json: bool, program: Option<&std::ffi::OsString>) -> i32 {
    let findings = doctor::examine(program);
    let text = if json { report::json(&findings) } else { report::doctor(&findings) };
    match print(text.as_bytes()) {
        0 if !findings.ok => exit::FAILED,
        code => code,
    }
}

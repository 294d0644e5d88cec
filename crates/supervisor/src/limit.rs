//! The limits of memory that the program is started under. What the loader maps of the runtime counts against them before the
//! runtime can raise them: a program that just fits would find no room for its own libraries.

use std::ffi::{OsStr, OsString};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, capabilities};
use us_abi::{ENV_LIMITS, LIBRARY_BYTES, LIBRARY_DATA_BYTES, SEGMENT_BYTES};

/// The library's tables, and all of its addresses: what the loader maps, and what the runtime hands on at an exec
/// (`door/limits.rs`).
const LOADED: [(Resource, u64); 2] = [(Resource::Data, LIBRARY_DATA_BYTES), (Resource::As, LIBRARY_BYTES)];

/// A limit that leaves a program no room with the runtime in it, in words. The loader would say so, and might not start it.
pub fn tight() -> Option<&'static str> {
    const DATA_MIN: u64 = LIBRARY_DATA_BYTES + (12 << 20);
    if getrlimit(Resource::Data).current.is_some_and(|bytes| bytes < DATA_MIN) {
        return Some("the limit of its data leaves no room for the runtime (ulimit -d)");
    }
    let space = getrlimit(Resource::As);
    let is_tight = space.current.is_some_and(|soft| {
        let whole = SEGMENT_BYTES as u64 + LOADED[1].1;
        soft < 2 * whole && raised(space, whole).is_none()
    });
    is_tight.then_some("the limit of its memory leaves no room for the runtime (ulimit -v)")
}

/// A limit with so much more in the soft one, and in the hard one where it must be and may be; and what was added to either.
fn raised(limit: Rlimit, more: u64) -> Option<(Rlimit, [u64; 2])> {
    let current = limit.current?.checked_add(more)?;
    let Some(hard) = limit.maximum.filter(|hard| *hard < current) else {
        return Some((Rlimit { current: Some(current), ..limit }, [more, 0]));
    };
    let may_raise = capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    may_raise
        .then_some((Rlimit { current: Some(current), maximum: Some(hard.checked_add(more)?) }, [more; 2]))
}

/// The variable that tells the runtime what it has to take out again.
pub fn variable() -> Option<(OsString, OsString)> {
    let [[data, hard_data], [space, hard_space]] =
        LOADED.map(|(which, more)| raised(getrlimit(which), more).map_or([0; 2], |(_, added)| added));
    let is_needed = data | space != 0;
    is_needed.then(|| (ENV_LIMITS.into(), format!("{data},{hard_data},{space},{hard_space}").into()))
}

/// In the process that is about to be the program, if it has the variable. Allocates nothing.
pub fn make_room() {
    for (which, more) in LOADED {
        if let Some((limit, _)) = raised(getrlimit(which), more) {
            let _ = setrlimit(which, limit);
        }
    }
}

/// Whether an environment has the variable.
pub fn is_told<'a>(mut environment: impl Iterator<Item = &'a OsStr>) -> bool {
    let is_ours = |entry: &OsStr| {
        entry
            .as_encoded_bytes()
            .strip_prefix(ENV_LIMITS.as_bytes())
            .is_some_and(|rest| rest.starts_with(b"="))
    };
    environment.any(is_ours)
}

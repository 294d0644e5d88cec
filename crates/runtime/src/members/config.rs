//! What the supervisor decided before the start, kept for segments that are still to be made.

use core::cell::UnsafeCell;

use us_abi::Config;

use crate::bound;

/// What the supervisor decided before the start, kept for a segment that is still to be made.
struct Kept(UnsafeCell<Option<Config>>);

// SAFETY: written once, before any thread exists.
unsafe impl Sync for Kept {}

static CONFIG: Kept = Kept(UnsafeCell::new(None));

/// Keeps what the group's first segment says.
///
/// # Safety
/// In the constructor, before any thread exists.
pub unsafe fn keep(config: &Config) {
    // SAFETY: plain data; nobody else looks at it yet.
    unsafe { *CONFIG.0.get() = Some(core::ptr::read(config)) };
}

/// What was kept.
pub fn get() -> Option<&'static Config> {
    // SAFETY: written once, before any thread exists.
    unsafe { (*CONFIG.0.get()).as_ref() }
}

/// Whether this process could have a standby of its own, and has none yet. It need not be listed: the parent of one that was made
/// by vfork lists it while that begins its new image, and may be slower.
pub fn is_possible() -> bool {
    get().is_some_and(|config| config.standbys != 0) && !bound::is_bound()
}

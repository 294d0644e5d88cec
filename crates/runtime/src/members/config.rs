//! What the supervisor decided before the start, kept for segments that are still to be made.

use core::cell::UnsafeCell;

use us_abi::Config;

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

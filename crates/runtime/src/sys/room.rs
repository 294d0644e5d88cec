//! A list that grows, without an allocator: for what is as many as the guest makes it.

use core::marker::PhantomData;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::raw::{self, failed, nr};

/// Values in memory of its own, which a forked copy has as well.
///
/// One thread at a time uses it: whoever does says so in its SAFETY comment.
pub struct Room<T: Copy> {
    at: AtomicUsize,
    fits: AtomicUsize,
    used: AtomicUsize,
    holds: PhantomData<T>,
}

// SAFETY: atomics, and values that are copied; see the type.
unsafe impl<T: Copy + Send> Sync for Room<T> {}

impl<T: Copy> Room<T> {
    /// Without memory.
    pub const fn new() -> Room<T> {
        assert!(size_of::<T>() != 0 && align_of::<T>() <= 16);
        Room {
            at: AtomicUsize::new(0),
            fits: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            holds: PhantomData,
        }
    }

    /// Empties it; the memory stays.
    pub fn clear(&self) {
        self.used.store(0, Ordering::Release);
    }

    /// Keeps the first values only.
    pub fn truncate(&self, len: usize) {
        self.used.fetch_min(len, Ordering::AcqRel);
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.used.load(Ordering::Acquire)
    }

    /// One more. False if there is no memory for it.
    pub fn push(&self, value: T) -> bool {
        let used = self.used.load(Ordering::Acquire);
        if used == self.fits.load(Ordering::Relaxed) && !self.grow() {
            return false;
        }
        // SAFETY: inside the memory, behind what is used; one thread uses the list.
        unsafe { (self.at.load(Ordering::Relaxed) as *mut T).add(used).write(value) };
        self.used.store(used + 1, Ordering::Release);
        true
    }

    #[cold]
    fn grow(&self) -> bool {
        const LEAST: usize = 64 << 10;
        const MAYMOVE: u64 = 1;
        const READ_WRITE: u64 = 3;
        const PRIVATE_ANONYMOUS: u64 = 0x22;
        let at = self.at.load(Ordering::Relaxed) as u64;
        let bytes = if at == 0 { LEAST } else { self.bytes() * 2 };
        // SAFETY: new memory, or the list's own, to which nobody has a reference now.
        let new = unsafe {
            match at {
                0 => {
                    let how = [0, bytes as u64, READ_WRITE, PRIVATE_ANONYMOUS, u64::MAX, 0];
                    raw::call6(nr::MMAP, how)
                }
                _ => raw::call6(nr::MREMAP, [at, self.bytes() as u64, bytes as u64, MAYMOVE, 0, 0]),
            }
        };
        if failed(new) {
            return false;
        }
        self.at.store(new as usize, Ordering::Relaxed);
        self.fits.store(bytes / size_of::<T>(), Ordering::Relaxed);

        true
    }

    /// Bytes of its memory: a power of two, and what fits was rounded down.
    fn bytes(&self) -> usize {
        (self.fits.load(Ordering::Relaxed) * size_of::<T>()).next_power_of_two()
    }

    /// What it holds.
    ///
    /// # Safety
    /// Nobody changes it meanwhile.
    pub unsafe fn all(&self) -> &[T] {
        match self.at.load(Ordering::Relaxed) {
            0 => &[],
            // SAFETY: filled by `push`; the caller's promise.
            at => unsafe { core::slice::from_raw_parts(at as *const T, self.used.load(Ordering::Acquire)) },
        }
    }

    /// The same, to change.
    ///
    /// # Safety
    /// Nobody else uses it meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn all_mut(&self) -> &mut [T] {
        match self.at.load(Ordering::Relaxed) {
            0 => &mut [],
            // SAFETY: as above.
            at => unsafe { core::slice::from_raw_parts_mut(at as *mut T, self.used.load(Ordering::Acquire)) },
        }
    }
}

//! The vDSO's functions become ours.
//!
//! The kernel's pages (data and text together: the text finds the data by distance) are moved elsewhere,
//! where the runtime calls them; a copy of the image takes their old place with every function turned
//! into a jump. Where a newer kernel has sealed them, nothing is changed and the exported functions have to do.

use core::sync::atomic::{AtomicU64, Ordering};

use us_sites::vdso;

use crate::raw;
use crate::sys::patch::Maps;
use crate::sys::text;

/// Where the kernel's own `clock_gettime` is now; 0 if it could not be moved.
static CLOCK_GETTIME: AtomicU64 = AtomicU64::new(0);

/// Reads a clock as the kernel's vDSO does, without logging.
#[inline(always)]
pub fn clock_gettime(clock: i32, time: &mut raw::Timespec) -> i64 {
    // Clocks that the kernel computes from pages it shares. For others (CPU time) its function makes the
    // system call, from a place that is not the runtime's text.
    const SHARED: u32 = 1 | 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 7 | 1 << 11;
    let function = CLOCK_GETTIME.load(Ordering::Relaxed);
    if function != 0 && (clock as u32) < 12 && SHARED >> clock & 1 != 0 {
        // SAFETY: the kernel's function, at the place it was moved to together with its data.
        let function: extern "C" fn(i32, *mut raw::Timespec) -> i32 =
            unsafe { core::mem::transmute(function) };
        return i64::from(function(clock, time));
    }
    // SAFETY: the kernel writes one timespec.
    unsafe { raw::call2(raw::nr::CLOCK_GETTIME, clock as u64, &raw mut *time as u64) }
}

/// Where the kernel's own pages are now: start and end.
static MOVED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether an address lies in the moved vDSO. Its functions make a system call themselves where the machine's
/// clock cannot be read from user space.
pub fn is_inside(address: u64) -> bool {
    address >= MOVED[0].load(Ordering::Relaxed) && address < MOVED[1].load(Ordering::Relaxed)
}

/// Takes the vDSO over. Before any thread exists.
pub fn take_over(maps: &Maps, doors: &[(&[u8], u64)]) {
    let (start, end) = (maps.vvar_start, maps.vdso_end);
    if start == 0 || end <= maps.vdso_start || start > maps.vdso_start {
        return;
    }
    let bytes = (end - start) as usize;
    // SAFETY: an address range of our own to move into.
    let target = unsafe {
        raw::call6(raw::nr::MMAP, [0, bytes as u64, 0, 0x22 /* PRIVATE|ANONYMOUS */, u64::MAX, 0])
    };
    if raw::failed(target) {
        return;
    }
    if !move_pages(maps, target as u64) {
        return;
    }
    let image_bytes = (end - maps.vdso_start) as usize;
    let moved = target as u64 + (maps.vdso_start - start);
    MOVED[0].store(moved, Ordering::Relaxed);
    MOVED[1].store(moved + image_bytes as u64, Ordering::Relaxed);
    // SAFETY: the kernel's image at its new place is readable, and of that size.
    let image = unsafe { core::slice::from_raw_parts(moved as *const u8, image_bytes) };
    for function in vdso::functions(image) {
        if function.name == b"__vdso_clock_gettime" {
            CLOCK_GETTIME.store(moved + function.offset as u64, Ordering::Release);
        }
        if function.name == b"__vdso_getrandom" {
            forget_getrandom(moved + function.offset as u64, maps.libc_data);
        }
    }
    place_copy(maps.vdso_start, image, moved, doors);
}

/// Has the C library make the system call where it would call the vDSO's `getrandom`. Before that call a thread takes a state
/// from a common store, whose first user maps it: which thread that is would be the copies' own business, and show in
/// their calls. The library has asked for the state's size in its first instructions, and makes system calls where it is
/// zero; it keeps the four numbers of the answer side by side. Where they are not found, the function is a door all the same.
fn forget_getrandom(function: u64, (start, end): (u64, u64)) {
    // Size, protection and flags of its mapping, and room for more.
    let mut answer = [0u32; 16];
    // SAFETY: the kernel's function, at the place it was moved to, asked as a C library asks.
    let function: extern "C" fn(*mut u8, usize, u32, *mut u32, usize) -> isize =
        unsafe { core::mem::transmute(function) };
    if function(core::ptr::null_mut(), 0, 0, answer.as_mut_ptr(), usize::MAX) != 0 || end <= start {
        return;
    }
    let [size, protection, flags, ..] = answer;
    // SAFETY: the C library's variables; no other thread exists.
    let variables = unsafe {
        core::slice::from_raw_parts_mut(start as *mut u32, (end - start) as usize / size_of::<u32>())
    };
    let kept = variables.windows(4).position(|four| {
        let whole_lines = four[2] >= size && four[2] < size + 4096;
        four[0] == flags && four[1] == protection && whole_lines && four[3] == size
    });
    if let Some(kept) = kept {
        variables[kept + 3] = 0;
    }
}

/// Moves the kernel's mappings one by one; all or, where the first is sealed, none.
fn move_pages(maps: &Maps, target: u64) -> bool {
    const MAYMOVE_FIXED: u64 = 3;
    let base = maps.vvar_start;
    for (from, to) in maps.vdso_parts() {
        let bytes = to - from;
        // SAFETY: kernel mappings that only the vDSO's own functions use, moved as a whole.
        let result = unsafe {
            raw::call6(raw::nr::MREMAP, [from, bytes, bytes, MAYMOVE_FIXED, target + (from - base), 0])
        };
        if raw::failed(result) {
            return false;
        }
    }
    true
}

/// Puts a copy of the image at its old place, each exported function a jump to ours, or to the kernel's own where there is
/// none of ours: beside the copy there is no data.
fn place_copy(at: u64, image: &[u8], moved: u64, doors: &[(&[u8], u64)]) {
    const FIXED: u64 = 0x32; // PRIVATE|ANONYMOUS|FIXED
    // SAFETY: the place that the kernel's pages have just left.
    unsafe {
        raw::call6(raw::nr::MMAP, [at, image.len() as u64, 3, FIXED, u64::MAX, 0]);
        core::ptr::copy_nonoverlapping(image.as_ptr(), at as *mut u8, image.len());
    }
    for function in vdso::functions(image) {
        // One function often has two names: `getrandom` and `__vdso_getrandom`.
        let name = function.name.strip_prefix(b"__vdso_").unwrap_or(function.name);
        let door = doors.iter().find(|(of, _)| *of == name);
        let target = door.map_or(moved + function.offset as u64, |(_, door)| *door);
        // `jmp *0(%rip)` and the address behind it.
        let mut jump = [0xff, 0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        jump[6..].copy_from_slice(&target.to_le_bytes());
        if function.size >= jump.len() || function.offset + jump.len() <= image.len() {
            // SAFETY: inside the writable copy.
            unsafe {
                core::ptr::copy_nonoverlapping(
                    jump.as_ptr(),
                    (at as *mut u8).add(function.offset),
                    jump.len(),
                );
            }
        }
    }
    text::finish(at, image.len() as u64);
}

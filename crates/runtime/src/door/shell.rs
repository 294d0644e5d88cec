//! `popen`, `pclose` and `system`: made here, of libc's parts.
//!
//! libc holds a lock of its own over the making of such a process, and no log has an event for that lock. A standby's thread that
//! came to it first waited with it for a turn that was another's, who waited for the lock: the program was lost at a kill, and
//! with two threads that call `popen` at nearly each. Here what they have in common is a domain in the order of the log, entered to
//! make the process and left before anybody waits for it. A list of the streams has a lock beside that, since every `fclose` looks.

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use super::forward;
use super::libc_state::Family;
use super::sync::Caller;
use super::unwind;
use crate::lock::Lock;
use crate::real;

/// A stream of libc's.
type Stream = *mut c_void;
type Close = unsafe extern "C" fn(Stream) -> c_int;

/// Of `c/shell.c`: a child of `popen`.
#[repr(C)]
struct Child([u8; 0]);

/// Of `c/shell.c`: a call of `system`, which begins with its line.
#[repr(C, align(8))]
struct System {
    line: *const c_char,
    rest: [u64; 31],
}

unsafe extern "C" {
    fn us_shell_find();
    fn us_child_new(command: *const c_char, mode: *const c_char) -> *mut Child;
    fn us_child_spawn(child: *mut Child) -> c_int;
    fn us_child_list(child: *mut Child) -> Stream;
    fn us_child_undo(child: *mut Child, error: c_int, close: Close) -> Stream;
    fn us_child_is(stream: Stream) -> c_int;
    fn us_child_take(stream: Stream) -> *mut Child;
    fn us_child_close(child: *mut Child, close: Close) -> c_int;
    fn us_system_begin();
    fn us_system_end();
    fn us_system_spawn(call: *mut System);
    fn us_system_wait(call: *mut System);
    fn us_system_kill(call: *mut System);
    fn us_system_answer(call: *mut System) -> c_int;
}

/// What these functions have in common.
static SHELL: Family = Family::new();
/// Over the list of children. Nothing waits with it.
static LIST: Lock = Lock::new();
/// Whether there has ever been one: before that `fclose` is libc's.
static IS_USED: AtomicBool = AtomicBool::new(false);

/// In the constructor: looks libc's parts up.
pub fn find() {
    // SAFETY: the loader is in a state to answer, and nobody else is there.
    unsafe { us_shell_find() };
}

/// Calls `f` in the domain, in the order of the log.
fn inside<R>(f: impl FnOnce() -> R) -> R {
    forward::within(Caller::get(), &&SHELL, f)
}

/// libc's own.
fn close() -> Close {
    // SAFETY: libc's `fclose` has this type.
    unsafe { core::mem::transmute::<*mut c_void, Close>(real::FCLOSE.get()) }
}

/// `popen(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> Stream {
    // SAFETY: the caller's promise; the child is this call's until it is listed.
    unsafe {
        let child = us_child_new(command, mode);
        if child.is_null() {
            return core::ptr::null_mut();
        }
        IS_USED.store(true, Ordering::Release);
        let made = inside(|| match us_child_spawn(child) {
            0 => Ok(LIST.with(|| us_child_list(child))),
            error => Err(error),
        });
        made.unwrap_or_else(|error| us_child_undo(child, error, close()))
    }
}

/// The child of a stream, off the list.
fn taken(stream: Stream) -> Option<*mut Child> {
    // SAFETY: with the list; of a stream only its address is looked at.
    let is_one = IS_USED.load(Ordering::Acquire) && LIST.with(|| unsafe { us_child_is(stream) } != 0);
    if !is_one {
        return None;
    }
    // SAFETY: as above, and in the domain.
    let child = inside(|| LIST.with(|| unsafe { us_child_take(stream) }));
    (!child.is_null()).then_some(child)
}

/// `pclose(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pclose(stream: Stream) -> c_int {
    // SAFETY: the caller's promise: `fclose` answers for a child as this does, and libc's for any other stream.
    unsafe { fclose(stream) }
}

/// `fclose(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fclose(stream: Stream) -> c_int {
    // SAFETY: the caller's promise; a child that has been taken is this call's.
    unsafe {
        match taken(stream) {
            Some(child) => us_child_close(child, close()),
            None => close()(stream),
        }
    }
}

unsafe extern "C" fn await_shell(call: *mut c_void) {
    // SAFETY: `run` passes its own.
    unsafe { us_system_wait(call.cast()) };
}

unsafe extern "C" fn give_up(call: *mut c_void) {
    // SAFETY: `run` passes its own.
    unsafe {
        us_system_kill(call.cast());
        inside(|| us_system_end());
    }
}

/// Has a line executed.
///
/// # Safety
/// A string that ends with NUL.
unsafe fn run(line: *const c_char) -> c_int {
    let mut call = System { line, rest: [0; 31] };
    let at = &raw mut call;
    // SAFETY: the caller's promise; the call is this one's own, and outlives the wait for the shell.
    unsafe {
        inside(|| us_system_begin());
        us_system_spawn(at);
        unwind::guarded(await_shell, give_up, at.cast());
        inside(|| us_system_end());
        us_system_answer(at)
    }
}

/// `system(3)`.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(line: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        match line.is_null() {
            // Whether there is a shell.
            true => c_int::from(run(c"exit 0".as_ptr()) == 0),
            false => run(line),
        }
    }
}

old_names! {
    _IO_popen = popen;
    _IO_fclose = fclose;
}

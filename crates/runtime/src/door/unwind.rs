//! Clean-up when guest code unwinds through a door: cancellation, `pthread_exit`, a C++ exception.
//!
//! A Rust frame cannot have a landing pad here (panics abort), and borrowing the compiler's would tie the
//! library to one unwinder. So the guest is called through one small frame with a personality of our own,
//! which does the clean-up itself when the unwinder asks for it and lets the unwinding go on. What is to be
//! done hangs on a chain of this thread; a chain, because doors nest in signal handlers and initialisers.

use core::arch::{asm, global_asm};
use core::ffi::{c_int, c_void};

use crate::real;
use crate::sys::versions;

/// A function that gets the data of the call it belongs to.
pub type Step = unsafe extern "C" fn(*mut c_void);

#[repr(C)]
struct Record {
    outer: *mut Record,
    cleanup: Step,
    data: *mut c_void,
}

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl us_cleanups",
    ".hidden us_cleanups",
    ".type us_cleanups, @object",
    ".size us_cleanups, 8",
    ".balign 8",
    "us_cleanups: .zero 8",
    ".text",
    // us_guarded(body, data): calls body(data). The frame does nothing but carry the personality.
    ".globl us_guarded",
    ".hidden us_guarded",
    ".type us_guarded, @function",
    "us_guarded:",
    ".cfi_startproc",
    // pcrel | sdata4: a hidden symbol in this library.
    ".cfi_personality 0x1b, us_personality",
    "sub rsp, 8",
    ".cfi_adjust_cfa_offset 8",
    "mov rax, rdi",
    "mov rdi, rsi",
    "call rax",
    "add rsp, 8",
    ".cfi_adjust_cfa_offset -8",
    "ret",
    ".cfi_endproc",
    ".size us_guarded, . - us_guarded",
    ".hidden us_personality",
);

unsafe extern "C" {
    fn us_guarded(body: Step, data: *mut c_void);
}

fn top() -> *mut Record {
    let record: *mut Record;
    // SAFETY: reads the slot that this library's TLS segment reserves in every thread. Not `pure`: it is
    // changed behind the compiler's back.
    unsafe {
        asm!("mov {0}, qword ptr [rip + us_cleanups@GOTTPOFF]", "mov {0}, qword ptr fs:[{0}]", out(reg) record,
            options(readonly, nostack, preserves_flags));
    }
    record
}

fn set_top(record: *mut Record) {
    // SAFETY: writes the slot that this library's TLS segment reserves in every thread.
    unsafe {
        asm!("mov {1}, qword ptr [rip + us_cleanups@GOTTPOFF]", "mov qword ptr fs:[{1}], {0}", in(reg) record,
            out(reg) _, options(nostack, preserves_flags));
    }
}

/// Calls `body(data)`; if it is left by unwinding, calls `cleanup(data)` on the way.
///
/// # Safety
/// Both functions must be sound with `data`, which outlives the call.
pub unsafe fn guarded(body: Step, cleanup: Step, data: *mut c_void) {
    let mut record = Record { outer: top(), cleanup, data };
    set_top(&raw mut record);
    // SAFETY: the caller's promise.
    unsafe { us_guarded(body, data) };
    // Not the top's outer one: a handler that left by longjmp may have left records above ours.
    set_top(record.outer);
}

const CLEANUP_PHASE: c_int = 2;
const CONTINUE_UNWIND: c_int = 8;

/// Asked by the unwinder at every frame of `us_guarded`, innermost first.
#[unsafe(no_mangle)]
unsafe extern "C" fn us_personality(
    _version: c_int,
    actions: c_int,
    _class: u64,
    _exception: *mut c_void,
    _context: *mut c_void,
) -> c_int {
    let record = top();
    if actions & CLEANUP_PHASE != 0 && !record.is_null() {
        // SAFETY: the record lies in a frame just outside the one being unwound.
        unsafe {
            set_top((*record).outer);
            ((*record).cleanup)((*record).data);
        }
    }
    CONTINUE_UNWIND
}

/// Where an unwinder finds the tables of a text, as libc tells it.
#[repr(C)]
pub struct Found {
    flags: u64,
    start: u64,
    end: u64,
    map: u64,
    tables: u64,
    reserved: [u64; 7],
}

/// libc's `_dl_find_object`, which knows nothing of a version of the runtime that an upgrade has put into the process.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn _dl_find_object(address: *mut c_void, found: *mut Found) -> c_int {
    type Function = unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int;
    if let Some((start, end, tables)) = versions::later_at(address as u64) {
        // SAFETY: the caller's promise.
        unsafe { found.write(Found { flags: 0, start, end, map: 0, tables, reserved: [0; 7] }) };
        return 0;
    }
    let real = real::DL_FIND_OBJECT.get();
    if real.is_null() {
        return -1;
    }
    // SAFETY: libc's function of this name, with the caller's arguments.
    unsafe { core::mem::transmute::<*mut c_void, Function>(real)(address, found) }
}

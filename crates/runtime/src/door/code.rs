//! Memory that becomes text: who may enter the kernel from it, and that a program makes code at all.

use crate::call::Call;
use crate::door::memory::is_shared;
use crate::kernel::{MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, PROT_EXEC, PROT_WRITE};
use crate::raw::{self, failed};
use crate::sys::wall;
use crate::thread::Thread;
use crate::turns::live_turns;

/// Memory has been made executable, or mapped so. What comes from a file is no code of the program's own making, unless it is
/// shared: a library is mapped privately, and code that is written elsewhere is mapped twice.
pub fn note(thread: &Thread, call: &Call, result: i64) -> i64 {
    if call.args[2] & PROT_EXEC != 0 && !failed(result) {
        if is_private_file(call) {
            wall::mapped(result as u64, call.args[1], call.args[5]);
        } else {
            live_turns::made_code(thread, call.args[1]);
        }
    }
    result
}

/// Whether a call maps a file for this process alone.
fn is_private_file(call: &Call) -> bool {
    let flags = call.args[3];
    call.nr == raw::nr::MMAP && flags & MAP_ANONYMOUS == 0 && !is_shared(flags)
}

/// Before the memory of a range is mapped, or protected anew: if its bytes may become text, and be anything.
pub fn before(call: &Call) {
    let [start, bytes, protection, flags, ..] = call.args;
    let is_mmap = call.nr == raw::nr::MMAP;
    if !is_mmap || flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == MAP_FIXED {
        wall::forget(start, bytes);
    }
    let is_text = is_private_file(call) && protection & PROT_WRITE == 0;
    if protection & PROT_EXEC != 0 && !is_text {
        wall::before_code();
    }
}

/// Before a call that makes memory executable in another way: shmat, personality.
pub fn before_by(call: &Call) {
    const SHM_EXEC: u64 = 0o100_000;
    let makes = match call.nr {
        raw::nr::SHMAT => call.args[2] & SHM_EXEC != 0,
        raw::nr::PERSONALITY => wall::reading_executes(call.args[0]),
        _ => false,
    };
    if makes {
        wall::before_code();
    }
}

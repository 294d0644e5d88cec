//! Where the kernel comes in with a signal: the version of the runtime handles it in whose text it has found the thread.
//!
//! In that text another version would not know a window from a door. Everybody else, guest code first of all, is the newest
//! version's: an upgrade leads the older ones' entries to its own.

use core::arch::naked_asm;
use core::mem::offset_of;

use crate::context::{Context, reg};
use crate::siginfo::Info;
use crate::signal::arrive::{on_fault, on_signal};
use crate::signal::sigsys::on_sigsys;
use crate::sys::{trap, versions};

const RIP_AT: usize = offset_of!(Context, regs) + 8 * reg::RIP;

/// Goes to the handler of the version whose text the interrupted instruction is in, or to this one's.
macro_rules! entry {
    ($(#[$text:meta])* $name:ident, $handler:path, $place:literal) => {
        $(#[$text])*
        ///
        /// # Safety
        /// Called by the kernel.
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name(_signal: i32, _info: *const Info, _context: *mut Context) {
            naked_asm!(
                "mov ecx, dword ptr [rip + {count}]",
                "dec ecx",
                "jle {handler}",
                "inc ecx",
                "lea r8, [rip + {versions}]",
                "mov rax, [rdx + {rip}]",
                "2: mov r9, rax",
                "sub r9, [r8]",
                "cmp r9, [r8 + {len}]",
                "jb 3f",
                "add r8, {stride}",
                "dec ecx",
                "jnz 2b",
                "jmp {handler}",
                "3: jmp qword ptr [r8 + {handlers} + 8 * {place}]",
                count = sym versions::COUNT,
                versions = sym versions::VERSIONS,
                handler = sym $handler,
                rip = const RIP_AT,
                len = const versions::LEN_AT,
                stride = const versions::STRIDE,
                handlers = const versions::HANDLERS_AT,
                place = const $place,
            )
        }
    };
}

entry!(
    /// For asynchronous signals.
    signal_entry, on_signal, 0
);
entry!(
    /// For SIGSYS.
    trap_entry, on_sigsys, 1
);
entry!(
    /// For faults.
    fault_entry, on_fault, 2
);

/// This version of the runtime is there; see [`versions::add`].
pub fn add_version() {
    let handlers =
        [on_signal as *const () as u64, on_sigsys as *const () as u64, on_fault as *const () as u64];
    versions::add(trap::text_range(), handlers);
}

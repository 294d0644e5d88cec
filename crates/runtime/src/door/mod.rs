//! The doors: what the primary does and what the standby does, side by side, one man-page family a file.

/// Other names under which old programs and libraries know a function: jumps to it.
macro_rules! old_names {
    ($($old:ident = $new:ident;)*) => { $(
        /// An old name of a function.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $old() {
            core::arch::naked_asm!("jmp {}", sym $new)
        }
    )* };
}

pub mod again;
pub mod answer;
pub mod atomics;
pub mod barrier;
pub mod batch;
pub mod block;
pub mod buffers;
pub mod c11;
pub mod cancel;
pub mod carry;
pub mod child;
pub mod code;
pub mod common;
pub mod compat;
pub mod cond;
pub mod copies;
pub mod epoll;
pub mod exec;
pub mod folder;
pub mod forward;
pub mod futex;
pub mod heaps;
pub mod held;
pub mod huge;
pub mod identity;
pub mod io;
pub mod kept;
pub mod leave;
pub mod libc_state;
pub mod limits;
pub mod mapped;
pub mod memory;
pub mod message;
pub mod mutex;
mod mutex_name;
mod mutex_object;
pub mod numbers;
pub mod numbers_again;
pub mod observe;
pub mod once;
pub mod output;
pub mod own_addresses;
pub mod own_files;
pub mod owner;
pub mod patience;
pub mod pattern;
pub mod pending;
pub mod pidfd;
pub mod pipe;
pub mod process;
pub mod queue;
pub mod quiet;
pub mod random;
pub mod read;
pub mod recorded;
pub mod refused;
pub mod remap;
pub mod robust;
pub mod rwlock;
pub mod sdk;
pub mod sem;
pub mod shared;
pub mod shell;
pub mod sigchld;
pub mod signals;
pub mod spawn;
pub mod spin;
pub mod stdio;
pub mod stored;
pub mod sync;
pub mod table;
pub mod taken;
pub mod taken_away;
pub mod thread;
pub mod thread_c11;
pub mod thread_create;
mod thread_join;
pub mod thread_place;
mod thread_schedule;
mod thread_stack;
mod thread_target;
pub mod time;
pub mod timer;
pub mod timer_notify;
pub mod transfer;
pub mod turn_waits;
mod unlisted;
pub mod unwind;
pub mod usage;
pub mod wait;
pub mod waiters;
pub mod witness;

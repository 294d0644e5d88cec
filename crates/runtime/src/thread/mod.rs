//! One block per guest thread: its modes, its ring, what it waits for.
//!
//! A block has two parts. The *shared* one ([`Shared`]) is made of atomics, and any thread of the copy may reach it. The *own*
//! one ([`Thread`]) is the owner's alone: its doors hold a `&mut Thread` across waits and guest code, so nobody else may make
//! any reference to it meanwhile. A door reaches the shared part of its own block through the owner's.
//!
//! # Safety
//! The owner's part is reached through the pointer in the thread's TLS slot, which no other thread has. Where another thread has
//! to touch it all the same, the owner does not run: [`standing`] says when.

pub mod atomics;
pub mod call;
pub mod doubt;
pub mod ends;
pub mod gate_stack;
pub mod milestones;
pub mod own_turns;
pub mod place;
pub mod queue;
pub mod ring;
pub mod shared;
pub mod signal;
pub mod spawn;
pub mod table;
pub mod turn;
pub mod used;
pub mod waiter;

use core::cell::UnsafeCell;
use core::ops::Deref;
use core::sync::atomic::Ordering;

use crate::guest::GuestMut;
use crate::thread::atomics::Atomics;
use crate::thread::call::Shown;
use crate::thread::doubt::Begun;
use crate::thread::ends::Ends;
use crate::thread::gate_stack::GateStack;
pub use crate::thread::ring::{RingMemory, map_ring};
pub use crate::thread::shared::Shared;
use crate::thread::signal::Signals;
use crate::thread::spawn::Spawn;
pub use crate::thread::table::*;

/// The stack of a thread of the runtime's own.
#[repr(align(4096))]
pub struct Stack(UnsafeCell<[u8; Stack::BYTES]>);
// SAFETY: used by one thread at a time.
unsafe impl Sync for Stack {}

impl Stack {
    const BYTES: usize = 64 << 10;

    /// A stack, all zero.
    pub const fn new() -> Stack {
        Stack(UnsafeCell::new([0; Stack::BYTES]))
    }

    /// Its upper end, where the thread begins.
    pub fn top(&self) -> *mut u8 {
        // SAFETY: one past the end of the array.
        unsafe { self.0.get().cast::<u8>().add(Stack::BYTES) }
    }
}

/// What a door does with the log.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Acts and logs nothing: no standby, or nothing to order yet.
    Solo = 0,
    /// Acts and logs.
    Record = 1,
    /// Waits for the log and applies it.
    Replay = 2,
}

/// A guest thread as the runtime sees it: the owner's part of its block.
#[repr(C, align(128))]
pub struct Thread {
    /// Its ends of the ring.
    pub ends: Ends,
    /// Its mask and what goes with it.
    pub signals: Signals,
    /// The system call whose door it is in.
    pub shown: Shown,
    /// What the gate has to know of this thread's stacks.
    pub gate_stack: GateStack,
    /// The atomic instruction that it is at.
    pub atomics: Atomics,
    /// A child made by vfork that borrows this block.
    pub spawn: Spawn,
    /// What it has done lately.
    pub lately: Lately,
    /// Whether digests are compared.
    pub verify: bool,
    /// Whether its process could have a standby of its own and has not asked for one yet.
    pub newborn: bool,
    /// Whether this thread is inside libc's `pthread_create`.
    pub making: bool,
    /// The thread that it makes, as the log says, and the number of that log; 0 for none.
    pub creation: (u64, u32),
    /// It takes a lock of libc's in a door that orders it: whether it waits for that is no event, but a moment's.
    pub takes_libc_lock: bool,
    /// How often it has been parked.
    pub stops: u32,
    /// The word that the guest wants cleared at this thread's end, 0 for libc's.
    pub clears: GuestMut<u32>,
    /// Lowest address of the stack on which the thread begins, as its maker knows it.
    pub born_on: u64,
}

/// What a door remembers for the next one of its kind.
pub struct Lately {
    /// Start and end of what the thread has unmapped last, of the guest's own; zeros for nothing.
    pub unmapped: (u64, u64),
    /// The number behind that of the page into which it has read last: that can be written.
    pub read_into: u64,
    /// The same of that with the buffer's last byte.
    pub read_up_to: u64,
    /// Whether its last question was for the number of processors.
    pub counts_processors: bool,
    /// The condition variable at which its last wait ended by its time while others computed, and the ticket by which it got the mutex.
    pub asked: (usize, u64),
    /// Whether it is in libc's fork, where that takes its locks, and the call is still to come.
    pub is_before_fork: bool,
    /// With `--seed`: the key of its stream, and how many words it has drawn.
    pub stream: u64,
    /// See [`stream`](Lately::stream).
    pub drawn: u64,
    /// With `--seed`: the key of the thread or child that it makes, or of the image that it executes.
    pub next_key: u64,
}

impl Deref for Thread {
    type Target = Shared;

    #[inline(always)]
    fn deref(&self) -> &Shared {
        self.shared()
    }
}

impl Thread {
    /// The shared part of this block, for longer than the owner's part is borrowed.
    #[inline(always)]
    pub fn shared(&self) -> &'static Shared {
        // SAFETY: there is no `Thread` outside of a block.
        unsafe { shared_of(self) }
    }

    /// What this thread has begun.
    #[inline(always)]
    pub fn begun(&self) -> &Begun {
        // SAFETY: this thread's own, and nobody writes it while this part of the block is borrowed.
        unsafe { &*self.shared().doubt.begun() }
    }

    /// The same, to be changed.
    #[inline(always)]
    pub fn begun_mut(&mut self) -> &mut Begun {
        // SAFETY: as above; others read it only while this thread waits, which it cannot with this reference.
        unsafe { &mut *self.shared().doubt.begun() }
    }

    /// All zero, so that the table costs no bytes in the library's file and no memory before it is used.
    const fn unused() -> Thread {
        Thread {
            ends: Ends::unused(),
            signals: Signals::unused(),
            shown: Shown::unused(),
            gate_stack: GateStack::new(),
            atomics: Atomics::unused(),
            spawn: Spawn::unused(),
            lately: Lately {
                unmapped: (0, 0),
                read_into: 0,
                read_up_to: 0,
                counts_processors: false,
                asked: (0, 0),
                is_before_fork: false,
                stream: 0,
                drawn: 0,
                next_key: 0,
            },
            verify: false,
            newborn: false,
            making: false,
            creation: (0, 0),
            takes_libc_lock: false,
            stops: 0,
            clears: GuestMut::at(0),
            born_on: 0,
        }
    }

    /// Points the ring's ends at the slot's ring, at the positions where its last user left them.
    pub fn attach_ring(&mut self) {
        let slot = self.slot();
        self.ends.attach(slot);
        self.atomics.tail = &raw const self.entry().tail.0 as u64;
        self.set_ring(true);
        self.lately.unmapped = (0, 0);
    }

    /// Whether a call that begins now is the program's own, and not one that libc makes in the middle of a door: in that of making
    /// a thread, say, where a copy would have half of one.
    pub fn is_between_calls(&self) -> bool {
        !self.making && !self.doubt.is_open()
    }

    /// For the slot's next thread: the last one may have been left behind by a fork in the middle of anything, and what a
    /// copy of it was in the middle of differs.
    pub fn stop_short(&mut self) {
        self.making = false;
        self.creation = (0, 0);
        self.creation_in_doubt.store(0, Ordering::Relaxed);
        self.takes_libc_lock = false;
        self.lately.counts_processors = false;
        self.shown.stop_short();
        self.turn.begin_anew();
        self.signals.stop_short();
        (self.begun_mut().pieces, self.begun_mut().is_in_pieces) = (0, false);
        self.ends.open = 0;
        (self.atomics.held, self.atomics.follows) = (0, false);
        self.parked.store(false, Ordering::Relaxed);
        self.awaited.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// To be called before and after guest code runs below a door that holds this reference: the guest's own
    /// doors reach the same block through the TLS slot, and without this the compiler keeps fields in
    /// registers across the call, or drops a store that "nobody" reads.
    #[inline(always)]
    pub fn shared_with_guest(&mut self) {
        // SAFETY: no instruction; the compiler must assume that the block has been read and changed.
        unsafe { core::arch::asm!("/* {0} */", in(reg) &raw mut *self, options(nostack, preserves_flags)) };
    }
}

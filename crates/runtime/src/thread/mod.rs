//! One block per guest thread: its modes, its ring, what it waits for.
//!
//! # Safety
//! A block belongs to its thread. Other threads touch only its atomics; the rest is read and written
//! through the pointer in the thread's TLS slot, which no other thread has.

pub mod gate_stack;
pub mod own_turns;
pub mod queue;
pub mod used;
pub mod waiter;

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, Ordering};

use us_abi::{RING_BYTES, RINGS_ADDRESS, RINGS_OFFSET, SEGMENT_ADDRESS, THREADS_MAX};
use us_ring::{Consumer, Memory, Position, Producer};

use crate::pace::Pace;
use crate::raw::{self, Look};
use crate::thread::gate_stack::GateStack;
use crate::thread::queue::Queue;
use crate::thread::used::Used;
use crate::thread::waiter::Waiter;
use crate::{seats, state};

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

/// The bytes of this thread's ring, mapped twice in a row.
#[derive(Clone, Copy, Debug)]
pub struct RingMemory(pub *mut u8);

impl RingMemory {
    /// The address of a position.
    #[inline(always)]
    pub fn at(self, position: u64) -> *mut u8 {
        // SAFETY: masked into the first of the two mappings.
        unsafe { self.0.add(position as usize & (RING_BYTES - 1)) }
    }
}

impl Memory for RingMemory {
    #[inline(always)]
    fn put(&mut self, at: u64, value: u64) {
        // SAFETY: inside the doubled mapping, eight-byte aligned; the consumer does not read past the tail.
        unsafe { self.at(at).cast::<u64>().write(value) }
    }
    #[inline(always)]
    fn get(&self, at: u64) -> u64 {
        // SAFETY: inside the doubled mapping, below the acquired tail.
        unsafe { self.at(at).cast::<u64>().read() }
    }
}

/// A guest thread as the runtime sees it.
#[repr(C, align(128))]
pub struct Thread {
    /// Mode of the doors that order (locks, semaphores, streams). Solo until the program is multithreaded.
    pub lock_mode: AtomicU8,
    /// Mode of the doors that input and output pass.
    pub call_mode: AtomicU8,
    /// Not zero while a child made by vfork borrows this block: its calls are nobody's but its own.
    pub borrowed: AtomicU8,
    /// Whether that child has set its mask, which it shares with nobody.
    pub has_own_mask: bool,
    /// Whether this thread is inside libc's `pthread_create`.
    pub making: bool,
    /// Whether its process could have a standby of its own and has not asked for one yet.
    pub newborn: bool,
    /// Memory that a child on this block was given for its exec.
    pub lent: Lent,
    /// Start and end of what it has unmapped last, of the guest's own; zeros for nothing.
    pub spare: (u64, u64),
    /// The number behind that of the page into which it has read last: that can be written.
    pub read_into: u64,
    /// Whether its last question was for the number of processors.
    pub counts_processors: bool,
    /// It takes a lock of libc's in a door that orders it: whether it waits for that is no event, but a moment's.
    pub takes_libc_lock: bool,
    /// With `--order serial`: whether it is its turn, the number of that, and doors passed meanwhile.
    pub has_turn: bool,
    /// See `has_turn`: to be given back once the call that begins has been logged, or found in the log.
    pub gives_turn: bool,
    /// See `has_turn`.
    pub turn: u64,
    /// See `has_turn`.
    pub doors: u32,
    /// How often it has been parked.
    pub stops: u32,
    /// Its maker could not make it as asked: it ends before it begins.
    pub is_stillborn: AtomicBool,
    /// The call that made it.
    pub vfork_call: u16,
    /// Where the child's argument lies, and what was there before the child ran.
    pub child_argument: u64,
    /// See `child_argument`.
    pub child_words: ChildWords,
    /// What the kernel reads of a clone3 in the guest's place.
    pub clone_args: CloneArgs,
    /// The kernel's number of the thread that runs on this block now, 0 for none.
    pub runs_as: AtomicU32,
    /// Kernel's thread id in a promoted copy, 0 where it equals the guest's.
    pub real_tid: AtomicU32,
    /// Whether digests are compared.
    pub verify: bool,
    /// Slot number.
    pub slot: u32,
    /// Thread id the guest sees.
    pub guest_tid: u32,
    /// The word that the guest wants cleared at this thread's end, 0 for libc's.
    pub clears: u64,
    /// Whether signals are queued for this thread's next door.
    pub pending: Look,
    /// Handlers have run before the call that this thread is in, for signals that had come earlier: natively they may as well
    /// have come while it waited, and ended it. So the first interruption of a wait in it counts as that.
    pub late: bool,
    /// Processor time of this thread when the oldest of its waiting signals came, ns.
    pub due_cpu_ns: u64,
    /// Whether the call that it is in waits under a mask of its own.
    pub own_mask: bool,
    /// Somebody has asked for this thread's cancellation.
    pub cancel: AtomicU32,
    /// Whether it is in a door whose outcome says in the log that it was cancelled there.
    pub outcome_says: bool,
    /// The kernel clock's ticket that this thread took last, as a standby.
    pub ticket: u64,
    /// The ring's writing end.
    pub producer: Producer,
    /// How far it is ahead of its standby.
    pub pace: Pace,
    /// The ring's reading end.
    pub consumer: Consumer,
    /// What it publishes there: how far this copy has come.
    pub head: *const AtomicU64,
    /// The ring's bytes.
    pub ring: RingMemory,
    /// Bytes of the ring's memory that are known to exist.
    pub populated: usize,

    /// Futex on which this thread sleeps as a standby; counts the reasons to look again.
    pub bell: AtomicU32,
    /// Whether it sleeps for an event of its ring.
    pub parked: AtomicBool,
    /// The clock it sleeps for, null for none, and the ticket.
    pub awaited: AtomicPtr<AtomicU64>,
    /// See `awaited`.
    pub awaited_ticket: AtomicU64,
    /// The event kind that was last taken, for reports: `position << 8 | kind`.
    pub last: u64,
    /// Bytes of the event handed out by `next` and not yet given back.
    pub open: usize,
    /// Position of the `Enter` that has been taken and whose `Return` has not; `u64::MAX` for none.
    pub in_doubt: u64,
    /// Whether the dead primary had entered the kernel with that call, in a copy that has gone live.
    pub entered_in_doubt: bool,
    /// Whether that is the `Enter` of a fork whose own door is still to come.
    pub forking: bool,
    /// The call of that `Enter`: a long read fills the ring several times over before it returns.
    pub doubted: (u16, us_abi::event::CallArgs),
    /// Arguments of the call whose door this thread is in: what settling asks the kernel about.
    pub asked: [u64; 6],
    /// The guest's registers at the system call whose door this thread is in, null outside: what a handler is shown.
    pub at_gate: *mut crate::call::Entry,
    /// Whether a filter of the guest's has trapped that call, and what the kernel said of it.
    pub is_trapped: bool,
    /// See `is_trapped`.
    pub trapped: crate::siginfo::Info,
    /// The result of the call that a handler has interrupted, or that has ended before it.
    pub shown_result: i64,
    /// Signals that come behind the `Return` which was taken last, as a standby.
    pub announced: u8,
    /// Bytes of a read in pieces that have been applied so far.
    pub pieces: u64,
    /// Whether this thread has taken its place among the living after a promotion.
    pub live: bool,
    /// Whether it has done so in the door where it stands: what is due came during that.
    pub resumed: bool,
    /// Whether a handler has run in the wait where it stands, and whether one without SA_RESTART has: with the wait's
    /// outcome not in the log, whoever goes on with it ends it with EINTR.
    pub broken_off: (bool, bool),

    /// How often the slot has been used.
    pub generation: u32,
    /// The thread's entry point and argument, until it runs.
    pub start: AtomicPtr<u8>,
    /// See `start`.
    pub argument: AtomicPtr<u8>,
    /// See `start`: the routine of a C11 thread.
    pub start_c11: AtomicPtr<u8>,
    /// The affinity that the guest knows.
    pub affinity: [u64; 16],
    /// The priority ("nice") that the guest has given it, if it has.
    pub nice: Option<i8>,
    /// The policy that the guest has given it, if it has, as a `sched_attr`.
    pub scheduling: Option<[u32; 12]>,
    /// Whether the kernel has been told of these, and of its number here: at a promotion, before anybody is live.
    pub placed: AtomicBool,
    /// The thread's name as the guest has set it, in a standby.
    pub name: [u8; 16],
    /// glibc's handle of the thread: the address of its control block.
    pub handle: AtomicU64,
    /// See the door of threads.
    pub fate: AtomicI32,
    /// Whether its maker, in this copy, is still inside `pthread_create`: until then the slot is nobody else's, whatever has
    /// become of the thread.
    pub is_being_made: AtomicBool,
    /// Bytes of the slot's own stack, 0 if it has none yet.
    pub stack_bytes: AtomicU64,
    /// Bytes below it that nobody may touch.
    pub guard_bytes: AtomicU64,

    /// Whether what waits behind the next handler is delivered by its caller, in rounds.
    pub in_rounds: bool,
    /// The guest's signal mask of this thread.
    pub mask: u64,
    /// What it was before it was set last.
    pub mask_before: u64,
    /// Its place among those who wait on a condition variable.
    pub waiter: Waiter,
    /// Signals that wait for a door.
    pub queue: Queue,
    /// The alternate stack that the guest has set: address, flags, size.
    pub alt_stack: [u64; 3],
    /// What the gate has to know of this thread's stacks.
    pub gate_stack: GateStack,
    /// Lowest address of the stack on which the thread begins, as its maker knows it.
    pub born_on: u64,
    /// The runtime's own signal stack of the slot, 0 if it has none yet.
    pub signal_stack: AtomicU64,
    /// The processor time that it has been told of.
    pub used: Used,
    /// The selector byte of syscall user dispatch: always BLOCK.
    pub selector: u8,
}

impl Thread {
    /// All zero, so that the table costs no bytes in the library's file and no memory before it is used.
    const fn unused() -> Thread {
        Thread {
            lock_mode: AtomicU8::new(0),
            call_mode: AtomicU8::new(0),
            borrowed: AtomicU8::new(0),
            has_own_mask: false,
            making: false,
            newborn: false,
            lent: [0; 2],
            spare: (0, 0),
            read_into: 0,
            counts_processors: false,
            takes_libc_lock: false,
            has_turn: false,
            gives_turn: false,
            turn: 0,
            doors: 0,
            stops: 0,
            is_stillborn: AtomicBool::new(false),
            vfork_call: 0,
            child_argument: 0,
            child_words: [0; 32],
            clone_args: [0; 11],
            runs_as: AtomicU32::new(0),
            real_tid: AtomicU32::new(0),
            verify: false,
            slot: 0,
            guest_tid: 0,
            clears: 0,
            pending: Look::new(),
            late: false,
            due_cpu_ns: 0,
            own_mask: false,
            cancel: AtomicU32::new(0),
            outcome_says: false,
            ticket: 0,
            producer: Producer { at: 0, limit: 0, window: 0, events: 0 },
            pace: Pace::new(),
            consumer: Consumer { at: 0, known: 0 },
            head: core::ptr::null(),
            ring: RingMemory(core::ptr::null_mut()),
            populated: 0,
            bell: AtomicU32::new(0),
            parked: AtomicBool::new(false),
            awaited: AtomicPtr::new(core::ptr::null_mut()),
            awaited_ticket: AtomicU64::new(0),
            last: 0,
            open: 0,
            in_doubt: 0,
            forking: false,
            entered_in_doubt: false,
            doubted: (0, us_abi::event::CallArgs { fd: 0, digest: 0, len: 0 }),
            asked: [0; 6],
            at_gate: core::ptr::null_mut(),
            is_trapped: false,
            trapped: crate::siginfo::Info([0; 16]),
            shown_result: 0,
            announced: 0,
            pieces: 0,
            live: false,
            resumed: false,
            broken_off: (false, false),
            generation: 0,
            start: AtomicPtr::new(core::ptr::null_mut()),
            argument: AtomicPtr::new(core::ptr::null_mut()),
            start_c11: AtomicPtr::new(core::ptr::null_mut()),
            affinity: [0; 16],
            nice: None,
            scheduling: None,
            placed: AtomicBool::new(false),
            name: [0; 16],
            handle: AtomicU64::new(0),
            fate: AtomicI32::new(0),
            is_being_made: AtomicBool::new(false),
            stack_bytes: AtomicU64::new(0),
            guard_bytes: AtomicU64::new(0),
            in_rounds: false,
            mask: 0,
            mask_before: 0,
            waiter: Waiter::new(),
            queue: Queue::new(),
            alt_stack: [0; 3],
            gate_stack: GateStack::new(),
            born_on: 0,
            signal_stack: AtomicU64::new(0),
            used: Used::new(),
            selector: 0,
        }
    }

    /// Mode of the ordering doors.
    #[inline(always)]
    pub fn locks(&self) -> Mode {
        mode(self.lock_mode.load(Ordering::Relaxed))
    }

    /// Mode of the input and output doors.
    #[inline(always)]
    pub fn calls(&self) -> Mode {
        mode(self.call_mode.load(Ordering::Relaxed))
    }

    /// The shared entry of this slot.
    #[inline(always)]
    pub fn entry(&self) -> &'static us_abi::ThreadEntry {
        state::entry(self.slot)
    }

    /// Notes the kernel's number of this thread, behind the guest's.
    pub fn set_kernel_tid(&self, tid: u32) {
        self.real_tid.store(if self.guest_tid == tid { 0 } else { tid }, Ordering::Release);
    }

    /// The kernel's number of this thread.
    pub fn kernel_tid(&self) -> u32 {
        match self.real_tid.load(Ordering::Relaxed) {
            0 => self.guest_tid,
            tid => tid,
        }
    }

    /// Points the ring's ends at the slot's ring, at the positions where its last user left them.
    pub fn attach_ring(&mut self) {
        use us_ring::Position;
        self.ring = RingMemory((RINGS_ADDRESS + self.slot as usize * 2 * RING_BYTES) as *mut u8);
        let own = seats::head(self.slot);
        let (tail, head) = (self.entry().tail.0.acquire(), own.acquire());
        self.head = own;
        self.producer = Producer::new(tail, head);
        self.producer.window = state::LAG_LIMIT.load(Ordering::Relaxed).min(RING_BYTES as u64);
        // The first event asks for room: memory is made ready piece by piece.
        self.producer.limit = tail;
        self.pace = Pace::at(tail);
        self.populated = 0;
        self.spare = (0, 0);
        self.consumer = Consumer::new(head);
    }

    /// For the slot's next thread: the last one may have been left behind by a fork in the middle of anything, and what a
    /// copy of it was in the middle of differs.
    pub fn stop_short(&mut self) {
        self.making = false;
        self.at_gate = core::ptr::null_mut();
        self.is_trapped = false;
        self.counts_processors = false;
        self.takes_libc_lock = false;
        self.has_turn = false;
        self.gives_turn = false;
        self.in_rounds = false;
        self.late = false;
        self.own_mask = false;
        self.resumed = false;
        self.broken_off = (false, false);
        self.pieces = 0;
        self.open = 0;
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

    /// Wakes the thread if it sleeps as a standby.
    pub fn ring_bell(&self) {
        self.bell.fetch_add(1, Ordering::AcqRel);
        raw::futex_wake(&self.bell, 1);
        if let Some(kick) = crate::members::of_family::own_kick() {
            kick.fetch_add(1, Ordering::AcqRel);
            raw::futex_wake_shared(kick);
        }
    }
}

#[inline(always)]
fn mode(value: u8) -> Mode {
    match value {
        1 => Mode::Record,
        2 => Mode::Replay,
        _ => Mode::Solo,
    }
}

struct Table(UnsafeCell<[Thread; THREADS_MAX]>);
// SAFETY: each block is used by its own thread; others go through `block`, and touch atomics only.
unsafe impl Sync for Table {}

static TABLE: Table = Table(UnsafeCell::new([const { Thread::unused() }; THREADS_MAX]));

/// Threads that can have a block beyond the slots. They have no ring: with one of them there is no log. More than a kernel
/// allows, in a table of pieces, each of which is memory only once it is used.
pub const BEYOND_MAX: usize = PIECES * IN_A_PIECE;
const PIECES: usize = 1024;
const IN_A_PIECE: usize = 128;
static BEYOND_THE_SLOTS: [AtomicPtr<Thread>; PIECES] =
    [const { AtomicPtr::new(core::ptr::null_mut()) }; PIECES];
/// Why there is no log then.
pub const BEYOND: &[u8] = b"the program has more threads at once than can be followed, 1023";

/// Whether a slot is none of those with a ring.
pub fn is_beyond(slot: u32) -> bool {
    slot as usize >= THREADS_MAX
}

/// The block of a slot, to be touched through its atomics unless the caller is its thread or prepares it.
pub fn block(slot: u32) -> *mut Thread {
    if is_beyond(slot) {
        let at = slot as usize - THREADS_MAX;
        let piece = BEYOND_THE_SLOTS[at / IN_A_PIECE].load(Ordering::Acquire);
        // SAFETY: an address inside the piece, which exists once a slot in it has been claimed; nothing is read.
        return unsafe { piece.add(at % IN_A_PIECE) };
    }
    // SAFETY: an address inside the table; nothing is read.
    unsafe { TABLE.0.get().cast::<Thread>().add(slot as usize) }
}

/// Makes the block of a place beyond the slots, if it does not exist. By one thread at a time. False without memory.
pub fn exists(slot: u32) -> bool {
    let at = slot as usize - THREADS_MAX;
    let piece = &BEYOND_THE_SLOTS[at / IN_A_PIECE];
    if !piece.load(Ordering::Acquire).is_null() {
        return true;
    }
    let bytes = size_of::<Thread>() * IN_A_PIECE;
    // SAFETY: new memory, all zero, as an unused block is; page-aligned, as a block must be to 128 bytes.
    let memory = unsafe { raw::call6(raw::nr::MMAP, [0, bytes as u64, 3, 0x4022, u64::MAX, 0]) };
    if raw::failed(memory) {
        return false;
    }
    piece.store(memory as *mut Thread, Ordering::Release);
    true
}

/// One past the highest slot that has ever been used in this copy.
pub static SLOTS: AtomicU32 = AtomicU32::new(1);

/// Whether a running thread logs nothing. While every thread stands still.
pub fn is_any_silent() -> bool {
    let mut any = false;
    for_each(|thread| {
        let runs =
            !thread.ring.0.is_null() && thread.entry().state.load(Ordering::Acquire) == us_abi::slot::RUNNING;
        any |= runs && thread.calls() == Mode::Solo;
    });
    any
}

/// Runs `f` on the block of every slot that has ever been used. `f` may touch atomics only.
pub fn for_each(mut f: impl FnMut(&Thread)) {
    for slot in 0..SLOTS.load(Ordering::Acquire) {
        // SAFETY: blocks are never freed; the callee keeps to the atomics.
        f(unsafe { &*block(slot) });
    }
}

/// Rings the bell of every thread that sleeps although its ring has an event. Returns how far the furthest of
/// them is behind, bytes; 0 if there was none.
pub fn wake_sleepers() -> u64 {
    let mut woken = 0;
    for_each(|thread| {
        if thread.parked.load(Ordering::Acquire) {
            let entry = thread.entry();
            let (tail, head) = (entry.tail.0.acquire(), seats::head(thread.slot).acquire());
            if tail > head {
                thread.parked.store(false, Ordering::Relaxed);
                thread.ring_bell();
                woken = woken.max(tail - head);
            }
        }
    });
    woken
}

/// Rings every bell.
pub fn wake_all() {
    for_each(|thread| thread.ring_bell());
}

/// Memory of an environment with our variables: address and bytes, zeros for none.
pub type Lent = [u64; 2];

/// The first words of what a child that borrows our memory was given: glibc's `posix_spawn` has its child put
/// the error there.
pub type ChildWords = [u64; 32];

/// The structure of a clone3, with an address of ours in it.
pub type CloneArgs = [u64; CLONE_ARGS_BYTES / 8];

/// Bytes of the kernel's `struct clone_args`, as far as it is known here.
pub const CLONE_ARGS_BYTES: usize = 88;

/// Puts every thread that records into solo mode. Others are left alone: one that was promoted and is not yet live
/// has something to do first.
pub fn stop_logging() {
    let (from, to) = (Mode::Record as u8, Mode::Solo as u8);
    for_each(|thread| {
        let _ = thread.lock_mode.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
        let _ = thread.call_mode.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed);
    });
    if state::takes_live_turns() {
        own_turns::nobody_waits();
    }
}

/// Maps a slot's ring twice in a row. In a group only.
pub fn map_ring(slot: u32) -> bool {
    let Some(header) = state::header() else { return true };
    let base = (SEGMENT_ADDRESS + RINGS_OFFSET + slot as usize * RING_BYTES) as u64;
    let target = (RINGS_ADDRESS + slot as usize * 2 * RING_BYTES) as u64;
    header.slots.fetch_max(slot + 1, Ordering::AcqRel);
    // SAFETY: an old size of zero makes a second mapping of shared pages; both targets lie in our own range. The
    // memory of a ring that already has both is simply mapped again.
    unsafe {
        for half in 0..2 {
            const MAYMOVE_FIXED: u64 = 3;
            let at = target + half * RING_BYTES as u64;
            let result = raw::call6(raw::nr::MREMAP, [base, 0, RING_BYTES as u64, MAYMOVE_FIXED, at, 0]);
            if raw::failed(result) {
                return false;
            }
        }
    }
    true
}

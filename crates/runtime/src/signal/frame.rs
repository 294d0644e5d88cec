//! The frame that a handler finds: siginfo, registers and vector state, laid out as the kernel lays them out.
//!
//! A signal that interrupts guest code is [pushed](push): the kernel's own frame is copied to the stack that the handler is
//! to run on, and the thread goes on in the handler with nothing of the runtime's on any stack. The handler's return
//! traps, and [`returned`] does what `rt_sigreturn` does. A signal that is delivered in a door gets a frame that is
//! [made](lay) from what is known of the guest's registers there.

use core::arch::asm;

use super::arrive::die_of_fault;
use super::doors::{held, kernel_mask};
use super::run::{self, goes_to_alt_stack};
use super::*;
use crate::call::Entry;
use crate::sys::milestones;

/// The kernel's `struct rt_sigframe`, without the vector state above it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Frame {
    restorer: u64,
    context: Context,
    info: [u64; 16],
}

/// Where the siginfo lies in a frame.
pub(super) const INFO_AT: usize = size_of::<Frame>() - size_of::<Info>();
const RED_ZONE: u64 = 128;
/// Bytes of the part of the vector state that every processor has: x87 and xmm.
const LEGACY_BYTES: u64 = 512;
/// Where xmm0 lies in it, and how much all sixteen take.
const XMM: (u64, usize) = (160, 256);
/// Where the kernel says what else there is: two marks, sizes, features.
const SAID: u64 = 464;
const MARK_BEFORE: u32 = 0x4650_5853;
const MARK_BEHIND: u32 = 0x4650_5845;
/// x87, SSE, AVX, bounds, AVX-512 and protection keys: what fits into [`STATE_BYTES_MAX`].
const FEATURES_MAX: u64 = 0x2ff;
/// Room for the state of these features.
const STATE_BYTES_MAX: usize = 3072;
static ZEROS: [u8; STATE_BYTES_MAX] = [0; STATE_BYTES_MAX];

/// `uc_flags`: there is extended state, and the segments are to be restored as they are.
const UC_FLAGS: u64 = 7;
/// Of eflags, what a handler does not begin with: trap, direction and resume.
const NOT_IN_HANDLERS: u64 = 0x100 | 0x400 | 0x1_0000;

/// Room for a frame in a frame of the runtime's own.
#[repr(C, align(64))]
pub(super) struct Room([core::mem::MaybeUninit<u8>; STATE_BYTES_MAX + 64 + size_of::<Frame>() + 64]);

impl Room {
    /// Nothing yet.
    #[inline(always)]
    pub(super) const fn new() -> Room {
        Room([core::mem::MaybeUninit::uninit(); STATE_BYTES_MAX + 64 + size_of::<Frame>() + 64])
    }

    /// Its upper end.
    pub(super) fn top(&mut self) -> u64 {
        &raw mut *self as u64 + size_of::<Room>() as u64
    }
}

/// Where state of `bytes` bytes and the frame lie below `top`: a handler begins with a stack as behind a call.
const fn below(top: u64, bytes: u64) -> (u64, u64) {
    let state = top.wrapping_sub(bytes) & !63;
    (state, (state.wrapping_sub(size_of::<Frame>() as u64) & !15).wrapping_sub(8))
}

/// The features that are saved, 0 where there is only the oldest instruction; and bytes of their state.
fn state_size() -> (u64, u64) {
    static FEATURES: AtomicU64 = AtomicU64::new(0);
    static BYTES: AtomicU64 = AtomicU64::new(0);
    const OSXSAVE: u32 = 1 << 27;
    const HEADER_BYTES: u64 = 64;
    let known = BYTES.load(Ordering::Acquire);
    if known != 0 {
        return (FEATURES.load(Ordering::Relaxed), known);
    }
    let cpuid = core::arch::x86_64::__cpuid_count;
    let (mut features, mut bytes) = (0u64, LEGACY_BYTES);
    if cpuid(1, 0).ecx & OSXSAVE != 0 {
        let (low, high): (u32, u32);
        // SAFETY: reads a register that the flag says is there.
        unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack)) };
        features = (u64::from(high) << 32 | u64::from(low)) & FEATURES_MAX;
        bytes = LEGACY_BYTES + HEADER_BYTES;
        for feature in (2..10).filter(|feature| features >> feature & 1 != 0) {
            let place = cpuid(13, feature);
            bytes = bytes.max(u64::from(place.eax) + u64::from(place.ebx));
        }
        if bytes + 4 > STATE_BYTES_MAX as u64 {
            (features, bytes) = (3, LEGACY_BYTES + HEADER_BYTES);
        }
    }
    FEATURES.store(features, Ordering::Relaxed);
    BYTES.store(bytes, Ordering::Release);
    (features, bytes)
}

/// Saves the thread's x87 and vector state.
///
/// # Safety
/// Zeroed memory for it at `at`, and four bytes more.
unsafe fn save(at: u64, features: u64, bytes: u64) {
    if features == 0 {
        // SAFETY: the caller's promise.
        unsafe { asm!("fxsave64 [{0}]", in(reg) at, options(nostack, preserves_flags)) };
        return;
    }
    // SAFETY: the caller's promise; the marks lie in bytes that the instruction leaves alone, and behind its own.
    unsafe {
        asm!("xsave64 [{0}]", in(reg) at, in("eax") features as u32, in("edx") 0, options(nostack, preserves_flags));
        let said = (at + SAID) as *mut u32;
        said.write(MARK_BEFORE);
        said.add(1).write(bytes as u32 + 4);
        said.add(2).cast::<u64>().write(features);
        said.add(4).write(bytes as u32);
        ((at + bytes) as *mut u32).write_unaligned(MARK_BEHIND);
    }
}

/// Sets the thread's x87 and vector state as it lies there; without any, as a program begins with it.
///
/// # Safety
/// State as [`save`] has left it, or a handler.
unsafe fn load(at: u64) {
    static MXCSR: u32 = 0x1f80;
    let (features, _) = state_size();
    // SAFETY: the caller's promise.
    unsafe {
        if at == 0 {
            asm!("fninit", "ldmxcsr [{0}]", in(reg) &raw const MXCSR, options(nostack, preserves_flags));
        } else if features == 0 || ((at + SAID) as *const u32).read() != MARK_BEFORE {
            asm!("fxrstor64 [{0}]", in(reg) at, options(nostack, preserves_flags));
        } else {
            asm!("xrstor64 [{0}]", in(reg) at, in("eax") features as u32, in("edx") 0, options(nostack, preserves_flags));
        }
    }
}

/// Bytes of the state that the kernel has saved at `at`.
///
/// # Safety
/// State in a frame of the kernel's.
unsafe fn saved_bytes(at: u64) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        let said = (at + SAID) as *const u32;
        if said.read() == MARK_BEFORE { u64::from(said.add(1).read()) } else { LEGACY_BYTES }
    }
}

/// The interrupted guest code goes on in its handler, on the stack that the handler asks for. False if there is no room for the
/// frame there, or nowhere to return to: nothing has then been changed.
///
/// # Safety
/// In a signal handler, with the kernel's own frame, of guest code.
pub(super) unsafe fn push(thread: &mut Thread, action: &Action, info: &Info, context: &mut Context) -> bool {
    milestones::interrupted(context);
    let sp = context.regs[reg::RSP];
    let [address, flags, bytes] = thread.signals.alt_stack;
    let switches = goes_to_alt_stack(thread, action, sp);
    let top = if switches { (address + bytes) & !15 } else { sp.wrapping_sub(RED_ZONE) };
    // SAFETY: the kernel's own frame.
    let state_bytes = unsafe { saved_bytes(context.fpstate) };
    let (state, at) = below(top, state_bytes);
    if action.flags & SA_RESTORER == 0 || (switches || is_on_alt_stack(thread, sp)) && at <= address {
        return false;
    }
    let mut shown = *context;
    (shown.link, shown.stack, shown.mask, shown.fpstate) =
        (0, thread.signals.alt_stack, thread.signals.mask, state);
    let frame = Frame { restorer: action.restorer, context: shown, info: info.0 };
    let is_there = guest::write(state, context.fpstate as *const u8, state_bytes as usize)
        && guest::write(at, (&raw const frame).cast(), size_of::<Frame>());
    if !is_there {
        return false;
    }
    if switches && flags & SS_AUTODISARM != 0 {
        // The handler may leave this stack for another one, and the next signal may then come here.
        thread.signals.alt_stack = NO_STACK;
    }
    begin(thread, action, info.signal());
    // SAFETY: the kernel's own frame: a handler begins with the state that a program begins with.
    unsafe { clear(context.fpstate) };
    context.mask = kernel_mask(thread.signals.mask | held(thread));
    let regs = &mut context.regs;
    regs[reg::RDI] = info.signal() as u64;
    regs[reg::RSI] = at + INFO_AT as u64;
    regs[reg::RDX] = at + 8;
    regs[reg::RAX] = 0;
    regs[reg::RIP] = action.handler;
    regs[reg::RSP] = at;
    regs[reg::EFLAGS] &= !NOT_IN_HANDLERS;
    wall::enter_handler(thread);
    true
}

/// What changes with the beginning of a handler, in shadow: the mask, and the disposition if that is for once.
pub(super) fn begin(thread: &mut Thread, action: &Action, signal: i32) {
    if action.flags & SA_RESETHAND != 0 {
        DISPOSITIONS[signal as usize].handler.store(SIG_DFL, Ordering::Release);
    }
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
    thread.signals.mask = blockable(thread.signals.mask | action.mask | own);
}

/// # Safety
/// State in a frame of the kernel's.
unsafe fn clear(at: u64) {
    const PROTECTION_KEYS: u64 = 1 << 9;
    // SAFETY: the caller's promise: control words, and what of the extended state is not as at the beginning.
    unsafe {
        (at as *mut u16).write(0x37f);
        ((at + 4) as *mut u8).write(0);
        ((at + 24) as *mut u32).write(0x1f80);
        if ((at + SAID) as *const u32).read() == MARK_BEFORE {
            *((at + LEGACY_BYTES) as *mut u64) &= PROTECTION_KEYS;
        } else {
            core::ptr::write_bytes((at + 32) as *mut u8, 0, 128 + XMM.1);
        }
    }
}

/// `rt_sigreturn` of the guest's, as the handler of its trap: what the frame says is put into the kernel's own frame. False for
/// a thread that the runtime does not know.
///
/// # Safety
/// In a signal handler, with the kernel's own frame.
pub unsafe fn returned(context: &mut Context) -> bool {
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return false };
    let at = context.regs[reg::RSP];
    let mut frame = Context::default();
    if !guest::read((&raw mut frame).cast(), at, size_of::<Context>()) {
        die_of_fault(SIGSEGV);
        return true;
    }
    let state = context.fpstate;
    context.regs = frame.regs;
    // SAFETY: the kernel's own frame, of which no more is written than there is.
    unsafe {
        clear(state);
        let ours = saved_bytes(state);
        let given = guest::load::<[u32; 2]>(frame.fpstate.wrapping_add(SAID)).unwrap_or_default();
        if frame.fpstate == 0 {
        } else if given == [MARK_BEFORE, ours as u32] {
            guest::read(state as *mut u8, frame.fpstate, ours as usize);
        } else {
            guest::read(state as *mut u8, frame.fpstate, SAID as usize);
            if ours > LEGACY_BYTES {
                *((state + LEGACY_BYTES) as *mut u64) |= 3;
            }
        }
    }
    restore(thread, &frame);
    wall::leave_handler(thread);
    context.mask = kernel_mask(thread.signals.mask | held(thread));
    if thread.queue.deliverable(thread.signals.mask) > 0 {
        thread.pending.store(1, Ordering::SeqCst);
        if thread.calls() == Mode::Solo && thread.borrowed.load(Ordering::Relaxed) == 0 {
            // SAFETY: the kernel's own frame, of guest code.
            unsafe { interrupt::deliver_in_place(thread, context) };
        }
    }
    true
}

/// The mask and the alternate stack that a frame restores, in shadow.
pub(super) fn restore(thread: &mut Thread, frame: &Context) {
    const MODES: u64 = 0xffff_ffff & !SS_AUTODISARM;
    thread.signals.mask = blockable(frame.mask);
    if matches!(frame.stack[1] & MODES, 0 | SS_DISABLE) {
        thread.signals.alt_stack = frame.stack;
    }
}

/// The registers of the guest code that called the door: at a system call what they were there; where the door is a
/// function of libc's, those of the function itself.
pub(super) fn interrupted(entry: *mut Entry, result: i64) -> [u64; 23] {
    const FLAGS: u64 = 0x246;
    const SEGMENTS: u64 = 0x2b << 48 | 0x33;
    let mut regs = [0u64; 23];
    // SAFETY: an entry of this thread's that has not returned, and the call in the gate's frame above it.
    if let Some(entry) = unsafe { entry.as_ref() } {
        // SAFETY: as above.
        let (call, [rip, rsp, rbp]) = unsafe { (*entry.call, gate::guest_position(entry.gate_frame)) };
        let [rdi, rsi, rdx, r10, r8, r9] = call.args;
        let [rbx, r12, r13, r14, r15] = entry.kept;
        regs[..17].copy_from_slice(&[
            r8,
            r9,
            r10,
            FLAGS,
            r12,
            r13,
            r14,
            r15,
            rdi,
            rsi,
            rbp,
            rbx,
            rdx,
            result as u64,
            rip,
            rsp,
            rip,
        ]);
    } else {
        // SAFETY: the array is large enough.
        unsafe { run::own_registers(regs.as_mut_ptr()) };
    }
    (regs[reg::EFLAGS], regs[reg::SEGMENTS]) = (FLAGS, SEGMENTS);
    regs
}

/// Lays a frame below `top`, with the state that the thread has now: at a system call the one that the gate has kept.
/// Its address, `None` if there is no room.
pub(super) fn lay(
    thread: &Thread,
    top: u64,
    lowest: u64,
    regs: &[u64; 23],
    info: &Info,
    before: u64,
    entry: *mut Entry,
) -> Option<u64> {
    let (features, bytes) = state_size();
    let (state, at) = below(top, bytes + 4);
    let mut context = Context {
        flags: UC_FLAGS,
        stack: thread.signals.alt_stack,
        fpstate: state,
        mask: before,
        ..Default::default()
    };
    context.regs = *regs;
    let frame = Frame { restorer: gate::restorer as *const () as u64, context, info: info.0 };
    let is_there = at > lowest
        && guest::write(state, ZEROS.as_ptr(), bytes as usize + 4)
        && guest::write(at, (&raw const frame).cast(), size_of::<Frame>());
    if !is_there {
        return None;
    }
    // SAFETY: memory that has just been written; the gate's frame, with the vector registers behind the call.
    unsafe {
        save(state, features, bytes);
        if let Some(entry) = entry.as_ref() {
            let kept = entry.call.add(1).cast::<u8>();
            core::ptr::copy_nonoverlapping(kept, (state + XMM.0) as *mut u8, XMM.1);
            if features != 0 {
                *((state + LEGACY_BYTES) as *mut u64) |= 2;
            }
        }
        load(0);
    }
    Some(at)
}

/// What a handler has left of the frame at `at`. What it has changed of the vector state, and of the registers that a
/// function keeps, counts from here on.
///
/// # Safety
/// A frame that [`lay`] has made, and an entry of this thread's that has not returned.
pub(super) unsafe fn take_back(at: u64, entry: *mut Entry) -> Context {
    // SAFETY: the caller's promise.
    unsafe {
        let context = ((at + 8) as *const Context).read();
        load(context.fpstate);
        if let Some(entry) = entry.as_mut() {
            if context.fpstate != 0 {
                let kept = entry.call.add(1).cast::<u8>();
                core::ptr::copy_nonoverlapping((context.fpstate + XMM.0) as *const u8, kept, XMM.1);
            }
            let regs = &context.regs;
            let [r12, r13, r14, r15] = [4, 5, 6, 7].map(|at| regs[at]);
            entry.kept = [regs[reg::RBX], r12, r13, r14, r15];
            (entry.gate_frame as *mut u64).write(regs[reg::RBP]);
        }
        context
    }
}

/// A handler has changed where the thread is to go on: it goes on there, and the door that it came from is left behind, as
/// behind a siglongjmp.
///
/// # Safety
/// As for [`take_back`].
pub(super) unsafe fn go_on_at(thread: &mut Thread, at: u64, frame: &Context) -> ! {
    restore(thread, frame);
    if thread.queue.deliverable(thread.signals.mask) > 0 {
        thread.pending.store(1, Ordering::SeqCst);
    }
    let context = (at + 8) as *mut Context;
    // SAFETY: the frame is the kernel's in all that it looks at; its return is the runtime's own.
    unsafe {
        (*context).mask = kernel_mask(thread.signals.mask | held(thread));
        raw::call2(raw::nr::SIGALTSTACK, 0, &raw mut (*context).stack as u64);
        thread.shared_with_guest();
        asm!("mov rsp, {0}", "jmp {1}", in(reg) context, sym gate::restorer, options(noreturn));
    }
}

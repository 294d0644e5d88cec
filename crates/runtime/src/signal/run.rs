//! Running the guest's handlers in a door, as the kernel would.

use super::arrive::die_of_fault;
use super::frame::{self, Room};
use super::*;
use crate::call::Entry;

/// Calls the guest's handler as the kernel would.
pub(super) fn handle(thread: &mut Thread, info: &Info) {
    let in_rounds = core::mem::take(&mut thread.signals.in_rounds);
    let signal = info.signal();
    let action = disposition(signal);
    if action.handler == SIG_DFL && ENDING & bit(signal) != 0 && !state::is_standby() {
        end_by(signal);
    }
    if action.handler == SIG_DFL && FAULTS & bit(signal) != 0 && !state::is_standby() {
        // Sent, and blocked until now.
        die_of_fault(signal);
    }
    if action.handler <= SIG_IGN {
        if !state::is_standby() {
            // The kernel need not keep the next one any more.
            set_mask(thread, thread.signals.mask);
        }
        return;
    }
    let (during, _) = run(thread, &action, info);
    if during & !thread.signals.mask != 0 && !in_rounds {
        // What came while the handler ran is due now, as in the kernel: the next door with an event may be far away.
        deliver_announced(thread);
    }
}

/// A filter of the guest's has trapped the call at whose door this is: its handler says what the result is.
pub fn deliver_trapped(thread: &mut Thread) -> i64 {
    thread.shown.is_trapped = false;
    let action = disposition(SIGSYS);
    if action.handler <= SIG_IGN || thread.signals.mask & bit(SIGSYS) != 0 {
        end_by(SIGSYS);
    }
    let mut info = thread.shown.trap;
    // SAFETY: inside the gate, which has not returned.
    unsafe {
        thread.shown.result = (*(*thread.shown.entry).call).nr as i64;
        info.set_address(gate::guest_position((*thread.shown.entry).gate_frame)[0]);
    }
    run(thread, &action, &info).1
}

/// Runs a handler. The mask that was in force when it returned, and what it has put into rax.
fn run(thread: &mut Thread, action: &Action, info: &Info) -> (u64, i64) {
    let before = thread.signals.mask;
    frame::begin(thread, action, info.signal());
    set_mask(thread, thread.signals.mask);
    // The handler's own calls come in between.
    let asked = thread.begun().asked;
    let late = core::mem::take(&mut thread.signals.late);
    let own_mask = core::mem::take(&mut thread.signals.is_of_call);
    let entry = core::mem::replace(&mut thread.shown.entry, core::ptr::null_mut());
    let regs = frame::interrupted(entry, thread.shown.result);
    // In the middle of a call that waits, others have their turn.
    let in_turn = thread.turn.is_own();
    // A standby meets the signal inside the call, its primary met it before: the handler's calls give nothing back for it.
    let gives_turn = thread.turn.gives();
    thread.turn.set_gives(false);
    // Its doors are its own, unless all of it is in this one's turn.
    let in_door = thread.turn.is_in_door();
    thread.turn.set_in_door(in_turn);
    turns::take_for_guest(thread);
    // SAFETY: the guest's handler, called as the kernel would call it; on the stack that it asked for.
    let (at, left) = unsafe { invoke(thread, action, info, &regs, before, entry) };
    if !in_turn {
        turns::give(thread);
    }
    thread.turn.set_gives(gives_turn);
    thread.turn.set_in_door(in_door);
    thread.begun_mut().asked = asked;
    (thread.signals.late, thread.signals.is_of_call) = (late, own_mask);
    if left.regs[reg::RIP] != regs[reg::RIP] || left.regs[reg::RSP] != regs[reg::RSP] {
        // SAFETY: the frame that the handler has had.
        unsafe { frame::go_on_at(thread, at, &left) };
    }
    thread.shown.entry = entry;
    let during = thread.signals.mask;
    // A handler may have changed the mask that its return restores.
    frame::restore(thread, &left);
    set_mask(thread, thread.signals.mask);
    (during, left.regs[reg::RAX] as i64)
}

/// Whether a handler runs on the guest's alternate stack, and not on that of the code which it interrupts.
pub(super) fn goes_to_alt_stack(thread: &Thread, action: &Action, sp: u64) -> bool {
    let [_, flags, bytes] = thread.signals.alt_stack;
    action.flags & SA_ONSTACK != 0 && flags & SS_DISABLE == 0 && bytes > 0 && !is_on_alt_stack(thread, sp)
}

/// Calls the handler with a frame: where it lies, and what the handler has left of it.
///
/// # Safety
/// `action` is the guest's, `entry` the thread's.
unsafe fn invoke(
    thread: &mut Thread,
    action: &Action,
    info: &Info,
    regs: &[u64; 23],
    before: u64,
    entry: *mut Entry,
) -> (u64, Context) {
    let here = regs.as_ptr() as u64;
    let [address, flags, bytes] = thread.signals.alt_stack;
    let switches = goes_to_alt_stack(thread, action, gate_stack::guests_at(thread, regs[reg::RSP]));
    let alternate = switches.then_some(address + bytes);
    let waiting = gate_stack::wait_for_handler(thread, here, alternate);
    let lowest = if switches { address } else { 0 };
    let mut room = Room::new();
    let top = waiting.as_ref().map(|waiting| waiting.top).or(alternate);
    let laid = frame::lay(thread, top.unwrap_or_else(|| room.top()), lowest, regs, info, before, entry);
    let Some(at) = laid else { no_room() };
    if switches && flags & SS_AUTODISARM != 0 {
        // The handler may leave this stack for another one, and the next signal may then come here.
        thread.signals.alt_stack = NO_STACK;
    }
    thread.shared_with_guest();
    // SAFETY: the frame lies in this one, or at the end of the stack to change to.
    unsafe { call_on(info.signal(), at, action.handler, if top.is_some() { at + 8 } else { 0 }) };
    thread.shared_with_guest();
    // SAFETY: the frame that has been laid there.
    let left = unsafe { frame::take_back(at, entry) };
    if let Some(waiting) = &waiting {
        gate_stack::came_back(thread, waiting);
    }
    (at, left)
}

/// The kernel ends a program that has no room for a handler's frame.
fn no_room() -> ! {
    die_of_fault(SIGSEGV);
    crate::verdict::last_words(&[b"a fatal signal did not end the program"])
}

/// Calls `handler(signal, info, context)` with the frame at `at`, on the stack that ends there; 0 for this one. Not
/// as a Rust function: a handler that ends its thread unwinds through here.
#[unsafe(naked)]
unsafe extern "C" fn call_on(_signal: i32, _at: u64, _handler: u64, _top: u64) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "test rcx, rcx",
        "cmovnz rsp, rcx",
        "mov r8, rdx",
        "lea rdx, [rsi + 8]",
        "lea rsi, [rsi + {info}]",
        "xor eax, eax",
        "call r8",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        info = const frame::INFO_AT,
    )
}

/// The registers of the function that calls this: what is to be kept, the stack pointer and the instruction.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn own_registers(_to: *mut u64) {
    core::arch::naked_asm!(
        "mov [rdi + 32], r12",
        "mov [rdi + 40], r13",
        "mov [rdi + 48], r14",
        "mov [rdi + 56], r15",
        "mov [rdi + 80], rbp",
        "mov [rdi + 88], rbx",
        "lea rax, [rsp + 8]",
        "mov [rdi + 120], rax",
        "mov rax, [rsp]",
        "mov [rdi + 128], rax",
        "ret",
    )
}

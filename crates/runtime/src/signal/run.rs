//! Running the guest's handlers, as the kernel would.

use super::*;

/// Calls the guest's handler as the kernel would.
pub(super) fn handle(thread: &mut Thread, info: &Info) {
    let in_rounds = core::mem::take(&mut thread.in_rounds);
    let signal = info.signal();
    let action = disposition(signal);
    if action.handler == SIG_DFL && ENDING & bit(signal) != 0 && !state::is_standby() {
        end_by(signal);
    }
    if action.handler <= SIG_IGN {
        if !state::is_standby() {
            // The kernel need not keep the next one any more.
            set_mask(thread, thread.mask);
        }
        return;
    }
    if action.flags & SA_RESETHAND != 0 {
        DISPOSITIONS[signal as usize].handler.store(SIG_DFL, Ordering::Release);
    }
    let before = thread.mask;
    let own = if action.flags & SA_NODEFER != 0 { 0 } else { bit(signal) };
    set_mask(thread, before | action.mask | own);
    let mut context = [0u64; 128];
    context[37] = before;
    // A door runs on the stack of the guest's code that it was called from.
    let sp = context.as_ptr() as u64;
    // The handler's own calls come in between.
    let asked = thread.asked;
    // SAFETY: the guest's handler, called as the kernel would call it; on the stack that it asked for.
    unsafe { invoke(thread, &action, signal, info, context.as_mut_ptr(), sp) };
    thread.asked = asked;
    let during = thread.mask;
    // A handler may have changed the mask that its return restores.
    set_mask(thread, context[37]);
    if during & !thread.mask != 0 && !in_rounds {
        // What came while the handler ran is due now, as in the kernel: the next door with an event may be far away.
        unblocked(thread);
    }
}

/// # Safety
/// `action` is the guest's; `sp` is the stack pointer of the code that is interrupted.
pub(super) unsafe fn invoke(
    thread: &mut Thread,
    action: &Action,
    signal: i32,
    info: &Info,
    context: *mut u64,
    sp: u64,
) {
    let given = thread.alt_stack;
    let [address, flags, bytes] = given;
    let switch = action.flags & SA_ONSTACK != 0
        && flags & SS_DISABLE == 0
        && bytes > 0
        && !is_on_alt_stack(thread, gate_stack::guests_at(thread, sp));
    let disarms = switch && flags & SS_AUTODISARM != 0;
    if disarms {
        // The handler may leave this stack for another one, and the next signal may then come here.
        thread.alt_stack = NO_STACK;
    }
    let info = if action.flags & SA_SIGINFO != 0 { &raw const *info } else { core::ptr::null() };
    // In the middle of a call that waits, others have their turn.
    let in_turn = thread.has_turn;
    // A standby meets the signal inside the call, its primary met it before: the handler's calls give nothing back for it.
    let gives_turn = core::mem::take(&mut thread.gives_turn);
    turns::take(thread);
    let alternate = switch.then_some(address + bytes);
    let waiting = gate_stack::wait_for_handler(thread, sp, alternate);
    let top = waiting.as_ref().map(|waiting| waiting.top).or(alternate);
    // SAFETY: the caller's promise.
    unsafe { invoke_on(thread, action, signal, info, context, top) };
    if let Some(waiting) = &waiting {
        gate_stack::came_back(thread, waiting);
    }
    if disarms {
        thread.alt_stack = given;
    }
    if !in_turn {
        turns::give(thread);
    }
    thread.gives_turn = gives_turn;
}

/// # Safety
/// As [`invoke`]; `top` is the end of the stack to switch to, if it is another.
unsafe fn invoke_on(
    thread: &mut Thread,
    action: &Action,
    signal: i32,
    info: *const Info,
    context: *mut u64,
    top: Option<u64>,
) {
    let Some(top) = top else {
        // SAFETY: the C ABI of a handler. Not "C-unwind": a handler that ends its thread unwinds through these frames,
        // which have nothing to clean up, and the compiler would put an abort in its way.
        let handler: extern "C" fn(i32, *const Info, *mut u64) =
            unsafe { core::mem::transmute(action.handler) };
        thread.shared_with_guest();
        handler(signal, info, context);
        thread.shared_with_guest();
        return;
    };
    thread.shared_with_guest();
    // SAFETY: the guest's own stack, unused until now.
    unsafe { gate_on_stack(signal, info, context, action.handler, top & !15) };
    thread.shared_with_guest();
}

/// Calls `handler(signal, info, context)` on another stack.
#[unsafe(naked)]
unsafe extern "C" fn gate_on_stack(
    _signal: i32,
    _info: *const Info,
    _context: *mut u64,
    _handler: u64,
    _top: u64,
) {
    core::arch::naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, r8",
        "call rcx",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

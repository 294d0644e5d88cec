//! The system calls about signals: masks, dispositions, stacks, and the calls that wait for one.

use super::entries::{fault_entry, signal_entry, trap_entry};
use super::*;

/// The mask that the kernel gets for a guest's mask: SIGSYS, faults and the two that cannot be blocked are
/// left out. A standby's kernel mask blocks every asynchronous signal: it lives by the log.
pub fn kernel_mask(guest: u64) -> u64 {
    if state::is_standby() { mask_of_faults() } else { guest & mask_of_faults() }
}

/// Everything blocked but SIGSYS and faults.
pub fn mask_of_faults() -> u64 {
    !(bit(SIGSYS) | FAULTS)
}

/// What of a mask can be blocked.
pub fn blockable(mask: u64) -> u64 {
    mask & !(bit(SIGKILL) | bit(SIGSTOP))
}

/// Sets the guest's mask of the calling thread, in shadow and, in a copy that acts, in the kernel.
pub fn set_mask(thread: &mut Thread, mask: u64) {
    let mask = blockable(mask);
    thread.signals.mask = mask;
    apply_mask(mask | held(thread));
    if thread.queue.deliverable(mask) > 0 {
        thread.pending.store(1, Ordering::SeqCst);
    }
}

/// The signals that the kernel is to keep because one of each waits in the queue. Natively the next one of a fast timer is made
/// when a handler has taken the last; taken off the kernel's hands at once, they would come faster than a thread can pass
/// its next door, and it would never pass it.
pub fn held(thread: &Thread) -> u64 {
    thread.queue.waiting() & !bit(SIGCANCEL) & mask_of_faults()
}

/// Puts a guest's mask into the kernel.
pub fn apply_mask(mask: u64) {
    let kernel = kernel_mask(mask);
    // SAFETY: the mask of the calling thread.
    unsafe { call4(raw::nr::RT_SIGPROCMASK, 2, &raw const kernel as u64, 0, 8) };
}

/// Before an exec, and after one that has failed: a new image begins with what its predecessor blocked, and that has
/// what the runtime keeps open in shadow only.
pub fn hand_on_mask(thread: &Thread, to_new_image: bool) {
    use crate::kernel::{SIG_BLOCK, SIG_UNBLOCK};
    let hidden = thread.signals.mask & !mask_of_faults();
    if hidden != 0 {
        let how = if to_new_image { SIG_BLOCK } else { SIG_UNBLOCK };
        // SAFETY: the mask of the calling thread.
        unsafe { call4(raw::nr::RT_SIGPROCMASK, how, &raw const hidden as u64, 0, 8) };
    }
}

/// Before an exec, behind [`hand_on_mask`]: what waits here and is blocked waits in the kernel, which keeps it for the new image. These
/// are signals that the kernel never blocks for us.
pub fn hand_on_waiting(thread: &mut Thread) {
    while let Some(info) = thread.queue.take(!thread.signals.mask) {
        info.send(Some(raw::gettid()));
    }
    if thread.queue.waiting() == 0 {
        thread.pending.store(0, Ordering::SeqCst);
    }
}

/// Before an exec, and after one that has failed: a new image ignores what its predecessor ignored, and of some of these signals
/// the kernel has the runtime's handler all the same. SIGSYS is none of them: other threads live by it until the exec is through.
pub fn hand_on_ignored(to_new_image: bool) {
    let ignored = Action { handler: SIG_IGN, ..Action::default() };
    for signal in [SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGCANCEL] {
        if disposition(signal).handler != SIG_IGN {
            continue;
        }
        if to_new_image {
            // SAFETY: the guest's own disposition.
            unsafe { call4(raw::nr::RT_SIGACTION, signal as u64, &raw const ignored as u64, 0, 8) };
        } else {
            install(signal, disposition(signal));
        }
    }
}

/// A mask after a call of rt_sigprocmask with these arguments.
pub(super) fn changed(before: u64, how: u64, set: GuestPtr<u64>) -> Result<u64, i64> {
    let Some(given) = set.given()? else { return Ok(before) };
    match how as u32 {
        0 => Ok(before | given),
        1 => Ok(before & !given),
        2 => Ok(given),
        _ => Err(err::EINVAL),
    }
}

/// rt_sigprocmask: the guest's mask is the shadow; both copies compute it. Where something is unblocked, what
/// waited is delivered before the return, and where something is blocked, before that; the log says how many that were. Without the
/// second a signal that has reached this thread, which has computed since, would wait here while it is blocked, and no other
/// thread could have it.
pub fn mask(thread: &mut Thread, call: &Call) -> i64 {
    let [how, set, old, size, ..] = call.args;
    if size != 8 {
        return err::EINVAL;
    }
    let set = GuestPtr::at(set);
    if changed(thread.signals.mask, how, set).is_ok_and(|after| after & !thread.signals.mask != 0) {
        deliver_announced(thread);
    }
    let before = thread.signals.mask;
    thread.signals.mask_before = before;
    let after = match changed(before, how, set) {
        Ok(after) => after,
        Err(error) => return error,
    };
    let told = GuestMut::at(old).tell(&before);
    if told != 0 {
        return told;
    }
    if after != before {
        set_mask(thread, after);
    }
    if before & !thread.signals.mask != 0 {
        deliver_announced(thread);
    }
    0
}

/// Delivers what waits and is not blocked, where the mask changes: every copy comes by here, and the log says what there was.
pub fn deliver_announced(thread: &mut Thread) {
    if thread.making {
        // glibc blocks everything around a thread's creation. The primary makes the thread between two events
        // and the standby behind both: what waited is delivered at the next door instead.
        return;
    }
    let nothing = ReturnHead::default();
    let call = raw::nr::RT_SIGPROCMASK as u16;
    // Until nothing waits any more: what comes while one of these handlers runs is delivered by the next round and not at
    // that handler's end, which would be a frame deeper with every signal.
    loop {
        match thread.calls() {
            Mode::Solo => {
                thread.signals.in_rounds = true;
                let delivered = thread.pending.load(Ordering::Relaxed) != 0 && deliver_one(thread);
                thread.signals.in_rounds = false;
                if !delivered {
                    return;
                }
            }
            Mode::Record => {
                let signals = thread.queue.deliverable(thread.signals.mask).min(15) as u8;
                let plan = Plan::delivering(signals);
                thread.append(EventKind::Call, plan.flags(), call, NO_TICKET, &nothing);
                plan.each(thread, true);
                if signals == 0 {
                    return;
                }
            }
            Mode::Replay => match thread.expect(EventKind::Call, call) {
                Next::Live => continue,
                Next::Event(event) => {
                    thread.close();
                    let flags = event.header.flags;
                    if flags >> 4 == 0 {
                        return;
                    }
                    plan::take_announced(thread, flags, true);
                }
            },
        }
    }
}

/// rt_sigaction: the guest's disposition is kept here; the kernel gets the runtime's handler. `note` hears of a change: the
/// signal, and whether it is ignored, and was.
pub fn action(thread: &mut Thread, call: &Call, note: impl FnOnce(i32, bool, bool)) -> i64 {
    let [signal, new, old, size, ..] = call.args;
    let (new, old) = (GuestPtr::<Action>::at(new), GuestMut::<Action>::at(old));
    let signal = signal as u32 as i32;
    if size != 8 || signal < 1 || signal as usize >= SIGNALS {
        return err::EINVAL;
    }
    let mut before = disposition(signal);
    if !new.is_nowhere() && (signal == SIGKILL || signal == SIGSTOP) {
        return err::EINVAL;
    }
    let given = match new.given() {
        Ok(given) => given,
        Err(error) => return error,
    };
    if let Some(Action { handler, flags, restorer, mask }) = given {
        let place = &DISPOSITIONS[signal as usize];
        place.flags.store(flags, Ordering::Relaxed);
        place.restorer.store(restorer, Ordering::Relaxed);
        place.mask.store(mask, Ordering::Relaxed);
        place.handler.store(handler, Ordering::Release);
        let is_ignored = super::is_ignored(signal, handler);
        if is_ignored && mask_of_faults() & bit(signal) == 0 {
            // What the kernel would throw away waits here: it keeps none of these for us.
            while thread.queue.take(!bit(signal)).is_some() {}
        }
        note(signal, is_ignored, super::is_ignored(signal, before.handler));
        install(signal, Action { handler, flags, restorer, mask });
    }
    before.restorer = 0;
    old.tell(&before)
}

/// Puts what belongs into the kernel for a guest's disposition.
fn install(signal: i32, action: Action) {
    use crate::kernel::{SA_NOCLDSTOP, SA_NOCLDWAIT};
    let ours = |handler: u64, extra: u64| Action {
        handler,
        flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER | extra,
        restorer: gate::restorer as *const () as u64,
        mask: !0,
    };
    let child = action.flags & (SA_NOCLDSTOP | SA_NOCLDWAIT);
    let kernel = match signal {
        // Always ours, see `take_over`.
        SIGSYS => return,
        // Always ours: it says that a thread is to look whether it has been cancelled.
        SIGCANCEL => ours(signal_entry as *const () as u64, 0),
        SIGSEGV | SIGBUS | SIGILL | SIGFPE | SIGTRAP => {
            // The handler itself may fault while it probes guest memory, so it does not defer its own signal.
            Action { mask: 0, ..ours(fault_entry as *const () as u64, SA_NODEFER) }
        }
        _ if action.handler == SIG_IGN => Action { handler: SIG_IGN, flags: child, ..Action::default() },
        _ if action.handler == SIG_DFL && (ENDING & bit(signal) == 0 || is_first()) => {
            Action { handler: SIG_DFL, flags: child, ..Action::default() }
        }
        _ => ours(signal_entry as *const () as u64, child),
    };
    // SAFETY: the runtime's handlers and restorer.
    unsafe { call4(raw::nr::RT_SIGACTION, signal as u64, &raw const kernel as u64, 0, 8) };
}

/// Whether this is the first process of a pid namespace: the kernel sends no signal there whose action is the default.
fn is_first() -> bool {
    state::REAL_PID.load(Ordering::Relaxed) == 1
}

/// In a forked child with this number: as the first of a pid namespace it is not ended by signals that it does not handle.
pub fn born_first(pid: u32) {
    if pid == 1 {
        (1..SIGNALS as i32)
            .filter(|signal| ENDING & bit(*signal) != 0 && disposition(*signal).handler == SIG_DFL)
            .for_each(|signal| install(signal, Action::default()));
    }
}

/// Takes the signals over. In the constructor, before the standby is made.
pub fn take_over() {
    for signal in 1..SIGNALS as i32 {
        let mut kernel = Action::default();
        // SAFETY: asks for the disposition that the program was started with.
        unsafe { call4(raw::nr::RT_SIGACTION, signal as u64, 0, &raw mut kernel as u64, 8) };
        if kernel.handler == SIG_IGN {
            DISPOSITIONS[signal as usize].handler.store(SIG_IGN, Ordering::Relaxed);
        }
        let given = disposition(signal);
        let fault = matches!(signal, SIGSEGV | SIGBUS | SIGILL | SIGFPE | SIGTRAP);
        if fault || signal == SIGCANCEL || (given.handler == SIG_DFL && ENDING & bit(signal) != 0) {
            install(signal, given);
        }
    }
    install_trap();
}

pub(super) fn install_trap() {
    let trap = Action {
        handler: trap_entry as *const () as u64,
        flags: SA_SIGINFO | SA_ONSTACK | SA_RESTORER | SA_NODEFER,
        restorer: gate::restorer as *const () as u64,
        // No other handler runs on top of this one: it may put a signal into the queue.
        mask: mask_of_faults(),
    };
    // SAFETY: the runtime's handler and restorer.
    unsafe { call4(raw::nr::RT_SIGACTION, SIGSYS as u64, &raw const trap as u64, 0, 8) };
}

/// The kernel gets what the guest has set: dispositions, the signal stack and the mask of the calling thread. What waits here waits
/// there. The runtime makes no use of signals from here on.
pub fn hand_over(thread: &mut Thread) {
    let (all, ignored) = (!0u64, Action { handler: SIG_IGN, ..Action::default() });
    // SAFETY: the guest's own dispositions, stack and mask; nothing can come in between.
    unsafe {
        call4(raw::nr::RT_SIGPROCMASK, 2, &raw const all as u64, 0, 8);
        // What somebody has asked for and nobody has noticed is forgotten: the guest need not have a handler for it.
        call4(raw::nr::RT_SIGACTION, SIGSYS as u64, &raw const ignored as u64, 0, 8);
        // The signal that cancels threads stays ours: libc has no handler for it, since it has never cancelled any.
        for signal in (1..SIGNALS as i32).filter(|signal| !matches!(*signal, SIGKILL | SIGSTOP | SIGCANCEL)) {
            let given = disposition(signal);
            call4(raw::nr::RT_SIGACTION, signal as u64, &raw const given as u64, 0, 8);
        }
        while let Some(info) = thread.queue.take(0) {
            info.send(Some(raw::gettid()));
        }
        raw::call2(raw::nr::SIGALTSTACK, thread.signals.alt_stack.as_ptr() as u64, 0);
        call4(raw::nr::RT_SIGPROCMASK, 2, &raw const thread.signals.mask as u64, 0, 8);
    }
}

/// Takes that back.
pub fn take_back(thread: &mut Thread) {
    install_trap();
    for signal in (1..SIGNALS as i32).filter(|signal| !matches!(*signal, SIGKILL | SIGSTOP)) {
        install(signal, disposition(signal));
    }
    set_stack(thread);
    set_mask(thread, thread.signals.mask);
}

pub(super) use crate::kernel::SS_DISABLE;
/// The stack is given up while a handler runs on it.
pub(super) const SS_AUTODISARM: u64 = crate::kernel::SS_AUTODISARM;
/// What a thread begins with.
pub(super) const NO_STACK: Stack = [0, SS_DISABLE, 0];

/// Whether `sp` lies on the stack that the guest has set. Asked of the stack pointer, as the kernel does: a handler that
/// leaves by longjmp tells nobody, and the next one must find its stack free.
pub(super) fn is_on_alt_stack(thread: &Thread, sp: u64) -> bool {
    let [address, flags, bytes] = thread.signals.alt_stack;
    flags & (SS_DISABLE | SS_AUTODISARM) == 0 && sp > address && sp - address <= bytes
}

/// sigaltstack: the kernel keeps the runtime's; the guest's is a shadow, used when a handler asks for it.
pub fn stack(thread: &mut Thread, call: &Call) -> i64 {
    use crate::kernel::SS_ONSTACK;
    const BYTES_MIN: u64 = 2048;
    let [new, old, ..] = call.args;
    let (new, old) = (GuestPtr::<Stack>::at(new), GuestMut::<Stack>::at(old));
    let mut shown = thread.signals.alt_stack;
    let is_on = is_on_alt_stack(thread, gate_stack::guests(thread));
    if is_on {
        shown[1] |= SS_ONSTACK;
    }
    let given = match new.given() {
        Ok(given) => given,
        Err(error) => return error,
    };
    if let Some(given) = given {
        if is_on {
            return err::EPERM;
        }
        let disarms = given[1] & SS_AUTODISARM;
        let mode = given[1] & 0xffff_ffff & !SS_AUTODISARM;
        thread.signals.alt_stack = match mode {
            SS_DISABLE => [0, SS_DISABLE | disarms, 0],
            0 | SS_ONSTACK if given[2] < BYTES_MIN => return err::ENOMEM,
            0 | SS_ONSTACK => [given[0], disarms, given[2]],
            _ => return err::EINVAL,
        };
    }
    old.tell(&shown)
}

/// Bytes of the runtime's own signal stack of a thread: the kernel's frame with the widest vector registers,
/// twice, the handlers above, and the guest's where they are run in place. Memory is used when it is touched.
const STACK_BYTES: u64 = 256 << 10;

/// Gives the calling thread a signal stack of the runtime's own: coroutine stacks are tiny, and a stack
/// that has overflowed has no room for a frame.
pub fn set_stack(thread: &Thread) {
    let place = &thread.signal_stack;
    if place.load(Ordering::Relaxed) == 0 {
        // SAFETY: new memory.
        let memory = unsafe { raw::call6(raw::nr::MMAP, [0, STACK_BYTES, 3, 0x22, u64::MAX, 0]) };
        if raw::failed(memory) {
            return;
        }
        place.store(memory as u64, Ordering::Relaxed);
    }
    let stack = [place.load(Ordering::Relaxed), 0, STACK_BYTES];
    // SAFETY: memory that lives as long as the process.
    unsafe { raw::call2(raw::nr::SIGALTSTACK, &raw const stack as u64, 0) };
}

//! Children that are made from sites of their own (threads apart): vfork, posix_spawn, and whoever calls `clone` by
//! its name; and how a promoted copy finds the child of a fork, of any kind, that its primary had not told of.

use core::sync::atomic::{AtomicBool, Ordering};

use linux_raw_sys::general::clone_args;
use us_abi::event::{CallArgs, EventKind, NO_TICKET, ReturnHead};
use us_abi::{Cause, Header, kin};
use us_calls::{Row, Sharing};

use super::process::become_child;
use crate::call::{self, Call};
use crate::clock::kernel_ticket;
use crate::context::{Context, reg};
use crate::door::kept::{self, Kept};
use crate::door::recorded::{begin, take_begin, take_end};
use crate::door::{child, limits, numbers_again, random, refused, stored, witness};
use crate::fdtable::{AT_FDCWD, Stat};
use crate::guest::{GuestMut, GuestPtr, part};
use crate::kernel::{CLONE_VFORK, SIGCHLD};
use crate::raw::{self, err, failed};
use crate::state::{self, Role};
use crate::sys::{atomics, gate_stack, patch};
use crate::thread::spawn::{CHILD_WORDS, ChildWords, NO_CLONE, Stored};
use crate::thread::{Mode, Thread};
use crate::verdict::give_up_log;
use crate::{bound, members, signal, tls};

const GETPID: u64 = raw::nr::GETPID;
/// System call number.
pub const FORK: u64 = crate::raw::nr::FORK;
/// The child shares the memory.
pub const CLONE_VM: u64 = crate::kernel::CLONE_VM;
/// The child is a thread.
pub const CLONE_THREAD: u64 = crate::kernel::CLONE_THREAD;
/// The child has a thread pointer of its own.
pub const CLONE_SETTLS: u64 = crate::kernel::CLONE_SETTLS;
/// The kernel stores the child's number in its parent's memory.
pub const PARENT_SETTID: u64 = linux_raw_sys::general::CLONE_PARENT_SETTID as u64;
/// It stores a descriptor of the child there.
pub const PIDFD: u64 = linux_raw_sys::general::CLONE_PIDFD as u64;

/// Flags of a clone in any of its forms.
pub fn clone_flags(call: &Call) -> u64 {
    match call.nr {
        FORK => SIGCHLD,
        call::VFORK => CLONE_VM | CLONE_VFORK | SIGCHLD,
        call::CLONE3 => part!(given(call), clone_args, flags).load().unwrap_or(0),
        _ => call.args[0],
    }
}

/// What a clone3 is given.
fn given(call: &Call) -> GuestPtr<clone_args> {
    GuestPtr::at(call.args[0])
}

/// Whether the child of a clone has another stack than its parent.
pub fn has_own_stack(call: &Call) -> bool {
    match call.nr {
        call::VFORK => false,
        call::CLONE3 => part!(given(call), clone_args, stack).load().is_some_and(|stack| stack != 0),
        _ => call.args[1] != 0,
    }
}

// ---- The child of a call in doubt ----

/// In the first word of a slot that holds a child's number.
const FORK_MARK: u64 = 0x7573_666f_726b_2121;
/// Where the number lies behind the slot's header: behind whatever the call's `Return` may carry.
const WITNESS_AT: usize = size_of::<ReturnHead>() + 2 * size_of::<ChildWords>() + kept::BYTES;

/// Where the kernel is to put the number of a child. `None` if there is no room in the log.
fn prepare_slot(thread: &mut Thread) -> Option<u64> {
    let place = thread.reserve(WITNESS_AT + 8)?;
    // SAFETY: reserved: the event's head comes before its payload.
    let child = unsafe {
        let child = place.add(WITNESS_AT).cast::<u64>();
        child.write_volatile(0);
        place.sub(size_of::<Header>()).cast::<u64>().write_volatile(FORK_MARK);
        child
    };
    witness::is_laid_out(thread);
    Some(child as u64)
}

/// Makes a fork, by `make`, so that the kernel puts the child's number into the slot of the call's `Return` before the child
/// runs: a promoted copy must not make a second one.
pub fn make_witnessed(thread: &mut Thread, call: &Call, make: impl Fn(&mut Thread, &Call) -> i64) -> i64 {
    if limits::allows_no_child() {
        return err::EAGAIN;
    }
    let mut made = *call;
    if call.nr == FORK {
        (made.nr, made.args) = (raw::nr::CLONE, [SIGCHLD, 0, 0, 0, 0, 0]);
    }
    witness(thread, &mut made);
    let result = make(thread, &made);
    // As the guest has it where a filter does not let the other call through.
    let is_refused = made.nr != call.nr && matches!(result, err::ENOSYS | err::EPERM);
    if is_refused { make(thread, call) } else { result }
}

/// Changes a call to that end.
fn witness(thread: &mut Thread, call: &mut Call) {
    if call.nr == call::VFORK {
        (call.nr, call.args) = (raw::nr::CLONE, [CLONE_VM | CLONE_VFORK | SIGCHLD, 0, 0, 0, 0, 0]);
    }
    let flags = clone_flags(call);
    // A guest that wants the number in a place of its own gets it there.
    if flags & PARENT_SETTID != 0 {
        return;
    }
    if call.nr == raw::nr::CLONE && flags & PIDFD != 0 {
        // It has one argument for both: only the other call has a place for each.
        if call.args[1] == 0
            && let Some(slot) = prepare_slot(thread)
        {
            let [_, _, descriptor, child, pointer, _] = call.args;
            thread.spawn.clone_args = clone_args {
                flags: flags & !0xff | PARENT_SETTID,
                pidfd: descriptor,
                child_tid: child,
                parent_tid: slot,
                exit_signal: flags & 0xff,
                tls: pointer,
                ..NO_CLONE
            };
            (call.nr, call.args[0]) = (call::CLONE3, &raw const thread.spawn.clone_args as u64);
            call.args[1] = CLONE3_BYTES;
        }
        return;
    }
    if call.nr == call::CLONE3 {
        let bytes = call.args[1] as usize;
        let fits = (CLONE3_BYTES as usize..=size_of::<clone_args>()).contains(&bytes);
        if fits && given(call).bytes().copy_to((&raw mut thread.spawn.clone_args).cast(), bytes) {
            let Some(slot) = prepare_slot(thread) else { return };
            thread.spawn.clone_args.flags |= PARENT_SETTID;
            thread.spawn.clone_args.parent_tid = slot;
            call.args[0] = &raw const thread.spawn.clone_args as u64;
        }
    } else if let Some(slot) = prepare_slot(thread) {
        call.args[0] |= PARENT_SETTID;
        call.args[2] = slot;
    }
}

/// Bytes of the first `struct clone_args` that the kernel has had.
const CLONE3_BYTES: u64 = linux_raw_sys::general::CLONE_ARGS_SIZE_VER0 as u64;

/// The number that the kernel has put into the slot of a dead primary's fork: 0 if there is no child. `None` if the slot is not
/// prepared for one.
fn child_in(slot: *const u8) -> Option<u64> {
    // SAFETY: the slot of a dead primary's call, as `prepare_slot` has laid it out.
    unsafe {
        let is_prepared = slot.cast::<u64>().read() == FORK_MARK;
        is_prepared.then(|| slot.add(size_of::<Header>() + WITNESS_AT).cast::<u64>().read())
    }
}

/// Whether a dead primary's fork in doubt may have made a child.
pub fn may_have_forked(slot: *const u8) -> bool {
    child_in(slot) != Some(0)
}

/// The child of a dead primary's fork in doubt. One that shared memory has not come to list itself.
pub fn forked(slot: *const u8, flags: u32) -> Option<ReturnHead> {
    let child = child_in(slot).filter(|child| *child != 0)?;
    if u64::from(flags) & CLONE_VM != 0 || is_elsewhere(flags.into()) {
        claim(child as u32);
    }
    let wants = u64::from(flags) & PIDFD != 0;
    let fd = if wants { stored::descriptor_of(child as i64) } else { None };
    Some(ReturnHead { result: child as i64, identity: fd.map_or(0, |fd| fd as u64 + 1) })
}

/// Whether the process has asked for its next children to be in another pid namespace.
static ARE_ELSEWHERE: AtomicBool = AtomicBool::new(false);

/// After a call that may have changed that.
pub fn note_namespace(call: &Call) {
    use crate::raw::nr::{SETNS, UNSHARE};
    if !matches!(call.nr, UNSHARE | SETNS) {
        return;
    }
    state::comes_apart();
    let link = |path: &core::ffi::CStr| Stat::at(AT_FDCWD, path.as_ptr() as u64, 0);
    let ours = link(c"/proc/self/ns/pid").zip(link(c"/proc/self/ns/pid_for_children"));
    ARE_ELSEWHERE.store(ours.is_some_and(|(own, next)| !own.is_same(&next)), Ordering::Relaxed);
}

/// Whether a child made with these flags is in another pid namespace. Such a child has other numbers than the group and cannot list
/// itself: its maker does, or the maker's successor would have no child to wait for.
pub fn is_elsewhere(flags: u64) -> bool {
    use crate::kernel::CLONE_NEWPID;
    flags & CLONE_NEWPID != 0 || ARE_ELSEWHERE.load(Ordering::Relaxed)
}

/// After a fork with memory of its own has returned this, in the copy that made it, and before the log says so.
pub fn made(flags: u64, result: i64) {
    if result > 0 && is_elsewhere(flags) && state::role() != Role::Outside {
        // Nothing that it makes is of the group.
        members::list(result as u32, state::GUEST_PID.load(Ordering::Relaxed), raw::now_ns());
    }
}

/// Lists a child of the dead primary's that could not list itself, as one of which the supervisor tells. It may have ended,
/// of which the supervisor then has said so.
fn claim(child: u32) {
    const LOOKS: u32 = 500;
    /// How long ago it was made at most, ns, as far as that matters for a number that has come again.
    const AGE_NS: u64 = 100_000_000;
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    let since_ns = raw::now_ns().saturating_sub(AGE_NS);
    for _ in 0..LOOKS {
        if members::claim_end(child, own) {
            return;
        }
        if let Some(entry) = members::find(child) {
            entry.kin.store(kin::ADOPTED, Ordering::SeqCst);
            return;
        }
        if members::exists(child) {
            let Some(entry) = members::list(child, own, since_ns) else { return };
            entry.kin.store(kin::ADOPTED, Ordering::SeqCst);
            // Whoever reaps it from now on finds it on the list.
            if members::exists(child) {
                return;
            }
            members::strike_off(entry);
        }
        raw::nap(200_000);
    }
}

// ---- Sites of their own ----

/// Before the system call of a clone-like site. Returns 1, with the result in `call.nr`, when the call is not to
/// be made.
///
/// # Safety
/// `call` is the frame that the site's entry has built.
pub unsafe extern "C" fn before_clone(call: *mut Call) -> u64 {
    // SAFETY: the entry's own frame.
    let call = unsafe { &mut *call };
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return 0 };
    if bound::has_left() {
        return 0;
    }
    let flags = clone_flags(call);
    if flags & CLONE_THREAD != 0 {
        if !thread.making && !tls::is_libc(thread_pointer_given(call)) {
            make_outside(thread);
        }
        return 0;
    }
    if thread.borrowed.load(Ordering::Relaxed) != 0 {
        return 0;
    }
    let Some(row) = us_calls::row(call.nr) else { return 0 };
    about_to_make(thread, flags);
    let arguments = CallArgs { fd: -1, digest: flags as u32, len: 0 };
    let stored = Stored::by(call);
    loop {
        match thread.calls() {
            Mode::Solo => break,
            Mode::Record => {
                begin(thread, row, arguments);
                witness(thread, call);
                break;
            }
            Mode::Replay => {
                if take_begin(thread, row, &arguments).is_none() {
                    continue;
                }
                let Some(result) = take_end(thread, row, |thread, head, words, _| {
                    apply_child_words(GuestMut::at(child_argument(call).address()), words);
                    stored.follow(thread, head)
                }) else {
                    continue;
                };
                call.nr = result as u64;
                lends_what_is_open(flags);
                return 1;
            }
        }
    }
    let is_foreign = us_calls::clone_sharing(flags) == Sharing::Foreign;
    if is_foreign {
        // It runs beside its maker, with the same thread pointer: it is told apart by its number, and nothing of it is ours.
        atomics::are_foreign();
        give_up_log(Cause::CannotReplay, &[b"a process with shared memory was made"]);
    }
    thread.spawn.call = row.nr;
    thread.spawn.since_ns = raw::now_ns();
    thread.spawn.lends = is_like_vfork(flags);
    thread.spawn.stored = stored;
    thread.spawn.argument = child_argument(call);
    if let Some(words) = thread.spawn.argument.load() {
        thread.spawn.words = words;
    }
    if is_foreign {
        thread.borrowed.store(tls::SIDE_BY_SIDE, Ordering::Relaxed);
    } else if flags & CLONE_VM != 0 {
        // The child runs in our memory, on our block, until it execs or exits; the parent sleeps meanwhile.
        child::borrows(thread);
    } else {
        thread.borrowed.store(OWN_MEMORY, Ordering::Relaxed);
    }
    0
}

/// The thread pointer that a new thread is given; 0 if it has its maker's.
fn thread_pointer_given(call: &Call) -> u64 {
    match call.nr {
        _ if clone_flags(call) & CLONE_SETTLS == 0 => 0,
        call::CLONE3 => part!(given(call), clone_args, tls).load().unwrap_or(0),
        _ => call.args[4],
    }
}

/// Before the guest makes a thread behind libc's back, by a clone of its own. It runs as it does natively, with nothing of
/// ours: there is no log, and no clone, as long as it does.
pub fn make_outside(thread: &mut Thread) {
    refused::await_live(thread, &[b"a thread of the guest's own where the log has an event"]);
    atomics::are_foreign();
    give_up_log(Cause::CannotReplay, &[OUTSIDE]);
}

/// Why there is no log then, and no clone.
pub const OUTSIDE: &[u8] = b"the program makes threads that the C library does not know";

/// Whether the caller, on a borrowed block, is a child with memory of its own: then it goes its own way from here on.
pub fn is_own_again(thread: &mut Thread) -> bool {
    // SAFETY: asks for a number.
    let is_child = || unsafe { raw::call1(GETPID, 0) } as u32 != state::REAL_PID.load(Ordering::Relaxed);
    if thread.borrowed.load(Ordering::Relaxed) != OWN_MEMORY || !is_child() {
        return false;
    }
    thread.borrowed.store(0, Ordering::Relaxed);
    become_child(thread);
    true
}

/// Whether this call makes one.
pub fn lends(call: &Call) -> bool {
    call::may_lend(call.nr) && !has_own_stack(call) && is_like_vfork(clone_flags(call))
}

/// A trapped call that [lends](lends) the stack, as every copy passes it. Its child returns from here first, and nothing behind
/// this may touch what is its parent's.
pub fn vfork(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let flags = clone_flags(call);
    let arguments = CallArgs { fd: -1, digest: flags as u32, len: 0 };
    let stored = Stored::by(call);
    about_to_make(thread, flags);
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => {
            let result = lend(thread, call);
            if result != 0 {
                stored.made(thread, result);
                kept_by(result);
            }
            Some(result)
        }
        Mode::Record => {
            begin(thread, row, arguments);
            let result = make_witnessed(thread, call, lend);
            if result != 0 {
                (thread.spawn.call, thread.spawn.argument) = (row.nr, GuestPtr::at(0));
                (thread.spawn.lends, thread.spawn.stored) = (true, stored);
                log_made(thread, result);
            }
            Some(result)
        }
        Mode::Replay => {
            take_begin(thread, row, &arguments)?;
            take_end(thread, row, |thread, head, words, _| {
                apply_child_words(GuestMut::at(0), words);
                stored.follow(thread, head)
            })
        }
    })
}

/// Whether the child runs on its parent's memory while that waits.
pub fn is_like_vfork(flags: u64) -> bool {
    const BOTH: u64 = CLONE_VM | CLONE_VFORK;
    flags & BOTH == BOTH
}

/// Before the making of a child, in every copy.
pub fn about_to_make(thread: &mut Thread, flags: u64) {
    lends_what_is_open(flags);
    numbers_again::pass_kept(thread);
    random::about_to_make_another(thread);
}

/// Before and behind the making of a child: one with a copy of the memory has whatever is open, any other what it [keeps](Kept).
fn lends_what_is_open(flags: u64) {
    if is_like_vfork(flags) {
        members::has_relatives();
    } else {
        super::numbers::child_made();
    }
}

/// What the child of a call with this result has kept, in its parent, when that goes on.
fn kept_by(result: i64) -> Kept {
    if failed(result) { Kept::NOTHING } else { Kept::by(result) }
}

/// A trapped call that [lends](lends) the stack. The child's own calls, those through libc, are not its parent's: two
/// such children at a time, of different threads, and Go's clear their handlers by libc's `sigaction`.
fn lend(thread: &mut Thread, call: &Call) -> i64 {
    child::borrows(thread);
    thread.shared_with_guest();
    let since_ns = raw::now_ns();
    // SAFETY: the guest's own call, and of that kind.
    let result = unsafe { gate_stack::lend(thread, call.nr, &call.args) };
    if result == 0 {
        child::begin(thread, clone_flags(call));
    } else {
        thread.shared_with_guest();
        child::ended(thread);
        if !failed(result) && state::role() != Role::Outside {
            members::list(result as u32, state::GUEST_PID.load(Ordering::Relaxed), since_ns);
        }
    }
    result
}

/// Values of [`Thread::borrowed`]: by a child that runs in our memory, or in a copy of it.
pub const OUR_MEMORY: u8 = 1;
const OWN_MEMORY: u8 = 2;

/// After it, in the parent.
pub extern "C" fn after_clone(result: i64) {
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }) else { return };
    if bound::has_left() {
        return;
    }
    let borrowed = thread.borrowed.load(Ordering::Relaxed);
    child::ended(thread);
    if matches!(borrowed, OUR_MEMORY | tls::SIDE_BY_SIDE) && !failed(result) && state::role() != Role::Outside
    {
        // It may have ended already; then nobody else has listed it.
        members::list(result as u32, state::GUEST_PID.load(Ordering::Relaxed), thread.spawn.since_ns);
        if borrowed == tls::SIDE_BY_SIDE {
            bound::shares_memory_with(result as u32);
        }
    }
    if borrowed != 0 {
        log_made(thread, result);
    }
}

/// Where the argument of such a child lies. glibc's `__clone` has put it on the child's stack, behind the
/// function; its `__clone3` keeps it in a register.
fn child_argument(call: &Call) -> GuestPtr<ChildWords> {
    GuestPtr::at(match call.nr {
        raw::nr::CLONE if call.args[1] != 0 => {
            let [_function, argument] = GuestPtr::<[u64; 2]>::at(call.args[1]).load().unwrap_or_default();
            argument
        }
        call::CLONE3 => call.args[4],
        _ => 0,
    })
}

/// Publishes the result, the words that the child has changed, since a standby has no child that could, and what the child has
/// kept. Without a log the latter is noted all the same.
fn log_made(thread: &mut Thread, result: i64) {
    let kept = if thread.spawn.lends { kept_by(result) } else { Kept::NOTHING };
    let stored = core::mem::replace(&mut thread.spawn.stored, Stored::NOTHING);
    let (head, mut ticket) = stored.made(thread, result);
    if thread.calls() != Mode::Record {
        return;
    }
    if ticket == NO_TICKET && !kept.pairs().is_empty() {
        ticket = kernel_ticket();
    }
    let now = thread.spawn.argument.given().ok().flatten();
    let (now, readable) = (now.unwrap_or([0; _]), now.is_some());
    let Some(place) = thread.reserve(WITNESS_AT + 8) else { return };
    let mut bytes = size_of::<ReturnHead>();
    let words = thread.spawn.words.iter().zip(&now).enumerate();
    let changed = words.filter(|(_, (before, after))| readable && before != after);
    let pairs = changed.map(|(index, (_, after))| [index as u64, *after]).chain(kept.pairs().iter().copied());
    // SAFETY: reserved; behind the head there is room for a pair for each word, and for what was kept.
    unsafe {
        place.cast::<ReturnHead>().write(head);
        for pair in pairs {
            place.add(bytes).cast::<[u64; 2]>().write(pair);
            bytes += size_of_val(&pair);
        }
    }
    let number = thread.spawn.call;
    thread.publish(EventKind::Return, 0, number, ticket, bytes);
}

/// Does to this copy's memory what the primary's child did, and notes what it has kept.
fn apply_child_words(argument: GuestMut<ChildWords>, words: &[u8]) {
    for pair in words.chunks_exact(16) {
        let word = |at: usize| pair[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        if word(0) < CHILD_WORDS as u64 && !argument.is_nowhere() {
            argument.item(word(0)).store(&word(8));
        }
        kept::follow([word(0), word(8)]);
    }
}

/// A trapped clone that shares the memory goes on behind its `syscall` instruction on another stack: it is
/// made from an entry like those of libc's sites, with all registers as the guest had them. False for any other call, and
/// where there is no entry left.
pub fn redirect_clone(context: &mut Context) -> bool {
    let regs = &context.regs;
    let args = [regs[reg::RDI], regs[reg::RSI], regs[reg::RDX], regs[reg::R10], regs[reg::R8], regs[reg::R9]];
    let call = Call { nr: regs[reg::RAX], args, caller: 0 };
    if !matches!(call.nr, raw::nr::CLONE | call::CLONE3) || !has_own_stack(&call) {
        return false;
    }
    let flags = clone_flags(&call);
    // SAFETY: the calling thread's own block.
    let Some(thread) = (unsafe { tls::current().as_mut() }).filter(|_| flags & CLONE_VM != 0) else {
        return false;
    };
    let Some(index) = patch::entry_behind(regs[reg::RIP]) else { return false };
    if flags & CLONE_THREAD != 0 {
        let followed = thread.calls() == Mode::Replay;
        make_outside(thread);
        if followed {
            // It has taken over here: it blocks nothing any more.
            context.mask = signal::kernel_mask(thread.signals.mask);
        }
        context.regs[reg::RIP] = patch::thread_entry(index);
    } else {
        context.regs[reg::RIP] = patch::clone_entry(index);
    }
    true
}

// By these names the entries of clone-like sites call them.
core::arch::global_asm!(
    ".globl us_before_clone",
    ".hidden us_before_clone",
    "us_before_clone: jmp {before}",
    ".globl us_after_clone",
    ".hidden us_after_clone",
    "us_after_clone: jmp {after}",
    before = sym before_clone,
    after = sym after_clone,
);

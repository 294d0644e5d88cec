//! From a system call number to its door.

use us_calls::{Door, EpollDoor, Policy, Row, SignalDoor};

use crate::call::{Call, Entry};
use crate::clone::{self, park};
use crate::door::observe::observe;
use crate::door::patience::Patience;
use crate::door::recorded::recorded;
use crate::door::{
    batch, child, common, epoll, exec, folder, futex, identity, io, leave, memory, message, numbers, pending,
    process, random, read, refused, remap, shared, signals, spawn, table, thread_place, time, timer,
    turn_waits,
};
use crate::members::{config, registry};
use crate::raw::{self, call6};
use crate::signal::{self, cancellation};
use crate::sys::{allocator, gate_stack, libc_text, point};
use crate::thread::Thread;
use crate::{bound, family, fdtable, join, log, state, tls, turns};

/// Entry from the gate: an [`Entry`] is made on the stack, and what stands there is loaded again on the way out.
///
/// # Safety
/// `call` points at the frame that the gate has built; rbp is the gate's.
#[unsafe(naked)]
pub unsafe extern "C" fn enter(_call: *mut Call) -> i64 {
    core::arch::naked_asm!(
        // The gate calls it by this name: it lies below the doors.
        ".globl us_enter",
        ".hidden us_enter",
        "us_enter:",
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "push r15",
        ".cfi_def_cfa_offset 24",
        ".cfi_offset r15, -24",
        "push r14",
        ".cfi_def_cfa_offset 32",
        ".cfi_offset r14, -32",
        "push r13",
        ".cfi_def_cfa_offset 40",
        ".cfi_offset r13, -40",
        "push r12",
        ".cfi_def_cfa_offset 48",
        ".cfi_offset r12, -48",
        "push rbx",
        ".cfi_def_cfa_offset 56",
        ".cfi_offset rbx, -56",
        "push rdi",
        ".cfi_def_cfa_offset 64",
        "mov rsi, rsp",
        // An unwinder finds it called from here. It comes back by `leave`, so there is no `call` to pair with a return.
        "lea rax, [rip + 2f]",
        "push rax",
        ".cfi_def_cfa_offset 72",
        "jmp {entered}",
        // Unwinders look up the byte before a return address.
        ".cfi_def_cfa_offset 64",
        "nop",
        "2: ud2",
        ".cfi_endproc",
        entered = sym entered,
    )
}

/// What [`enter`] has saved is loaded again, and the gate goes on with `$result`, behind the steps that come first: see [`leave`].
macro_rules! back_to_gate {
    ($entry:ident, $result:ident $(; $($first:expr),+; $($operand:tt)+)?) => {
        core::arch::asm!(
            "mov rsp, {entry}",
            $($($first,)+)?
            "pop rdi",
            "pop rbx",
            "pop r12",
            "pop r13",
            "pop r14",
            "pop r15",
            "pop rbp",
            "pop rcx",
            "jmp rcx",
            entry = in(reg) $entry,
            in("rax") $result,
            $($($operand)+,)?
            options(noreturn),
        )
    };
}

/// Back to the gate, out of [`entered`], with what [`enter`] has saved. Not by returns, see `raw::blocking`.
///
/// # Safety
/// In the frame of `entered`, with what that was given; nothing in it has a destructor that is still to run.
#[inline(always)]
unsafe fn leave(entry: *mut Entry, result: i64) -> ! {
    // SAFETY: the stack is as `enter` has left it below the address of `entered`'s return, and the gate wants nothing in rcx.
    unsafe { back_to_gate!(entry, result) }
}

/// The same, and what lies below is cleared, see [`gate_stack::is_cleared`].
///
/// # Safety
/// The same.
#[cold]
unsafe fn leave_cleared(entry: *mut Entry, result: i64) -> ! {
    // SAFETY: as there; the calling thread's own block; nothing that is still to be read lies below the entry.
    unsafe {
        if !tls::current().as_ref().is_some_and(|thread| gate_stack::is_cleared(thread, entry as u64)) {
            leave(entry, result)
        }
        back_to_gate!(entry, result;
            gate_stack::clear_below!();
            bytes = const gate_stack::CLEARED, words = const gate_stack::CLEARED / 8)
    }
}

/// Nobody calls it by its name in this language.
#[used]
static ENTER: unsafe extern "C" fn(*mut Call) -> i64 = enter;

/// # Safety
/// Both point into frames of the gate and of [`enter`], which jumps here.
unsafe extern "C" fn entered(call: *mut Call, entry: *mut Entry) -> ! {
    // SAFETY: the gate's own frame, and the one that `enter` has made; the calling thread's own block.
    unsafe {
        let result = outcome(&*call, entry);
        if state::is_serial() {
            leave_cleared(entry, result)
        }
        leave(entry, result)
    }
}

#[inline(always)]
fn outcome(call: &Call, entry: *mut Entry) -> i64 {
    if bound::has_left() {
        return leave::pass(call);
    }
    let thread = tls::current();
    if thread.is_null() {
        return unknown_thread(call);
    }
    // SAFETY: the block of the calling thread, which nobody else uses.
    let thread = unsafe { &mut *thread };
    if is_lent(thread) && !spawn::is_own_again(thread) {
        // A child made by vfork: it shares our memory, not our log.
        return child::call(thread, call);
    }
    let outer = core::mem::replace(&mut thread.shown.entry, entry);
    let mut result = if point::is_point(call.caller) {
        cancellation::at_point(|| dispatch(thread, call))
    } else {
        serve(thread, call)
    };
    if is_lent(thread) {
        // The child of a vfork, on its parent's block.
        thread.shown.entry = outer;
        return result;
    }
    if thread.shown.is_trapped {
        result = signal::deliver_trapped(thread);
    }
    thread.shown.entry = outer;
    family::tidy_up();
    log::rouse();
    result
}

/// Whether this is a child on its parent's block: what the log has is not its own.
fn is_lent(thread: &Thread) -> bool {
    thread.borrowed.load(core::sync::atomic::Ordering::Relaxed) != 0
}

/// A call by a thread without a block: a new one in its first instructions, or one that an allocator has made
/// for itself behind our back. The latter is part of what an allocator is, opaque: each copy has its own.
fn unknown_thread(call: &Call) -> i64 {
    let is_standby = state::is_standby();
    if is_standby && call.nr == raw::nr::RT_SIGPROCMASK {
        // A thread of a standby must not unblock signals: it lives by the log.
        return 0;
    }
    if call.nr == raw::nr::RT_SIGPROCMASK && call.args[1] != 0 && call.args[3] == 8 {
        return mask_unknown(call);
    }
    if !us_calls::row(call.nr).is_some_and(|row| is_harmless(row, call)) {
        if is_standby {
            crate::verdict::last_words(&[
                b"a standby's thread unknown to the runtime made system call ",
                us_calls::name(call.nr).as_bytes(),
            ]);
        }
        fdtable::distrust();
    }
    // SAFETY: the guest's own call.
    let result = unsafe { call6(call.nr, call.args) };
    if call.nr == raw::nr::FUTEX && state::is_computed() && !raw::failed(result) {
        // Whom it wakes may sleep in logical time, and the kernel knows nothing of that.
        return result + i64::from(turn_waits::wake_in_time(call, result));
    }
    result
}

/// A thread that sets its mask before the runtime knows it, or that never will: SIGSYS and faults stay open. Blocked,
/// a trap would end the program, and the thread could not be parked.
fn mask_unknown(call: &Call) -> i64 {
    use crate::kernel::SIG_UNBLOCK;
    let Some(given) = crate::guest::load::<u64>(call.args[1]) else { return -14 };
    let set = if call.args[0] == SIG_UNBLOCK { given } else { given & signal::mask_of_faults() };
    let mut args = call.args;
    args[1] = &raw const set as u64;
    // SAFETY: the guest's own call, with our word in place of its set.
    unsafe { call6(call.nr, args) }
}

/// Whether a call touches neither the shared descriptor table nor the outside.
fn is_harmless(row: &Row, call: &Call) -> bool {
    use crate::kernel::MAP_ANONYMOUS;
    match row.policy {
        Policy::Local => true,
        Policy::Special(Door::Mmap) => call.args[3] & MAP_ANONYMOUS != 0,
        Policy::Special(Door::Prctl) => {
            !matches!(us_calls::prctl_shape(call.args[0] & 0xffff_ffff), us_calls::Prctl::Refused)
        }
        Policy::Special(door) => {
            door.both_execute() || matches!(door, Door::Sleep | Door::Thread | Door::Exit | Door::Mlock)
        }
        Policy::Recorded => row.observes,
        Policy::Refused | Policy::Denied(_) | Policy::Declined(_) => false,
    }
}

/// One call of a known thread.
pub fn dispatch(thread: &mut Thread, call: &Call) -> i64 {
    serve(thread, call)
}

/// The same, in the frame of its caller: behind a system call each return costs a misprediction, see `raw::blocking`.
#[inline(always)]
fn serve(thread: &mut Thread, call: &Call) -> i64 {
    let Some(row) = us_calls::row(call.nr) else {
        return declined(thread, call, "unknown", raw::err::ENOSYS);
    };
    if signal::is_due(thread) {
        thread.begun_mut().asked = call.args;
        if row.has_events {
            signal::deliver_at_call(thread, Some(row));
        } else {
            signal::deliver_late(thread);
        }
        // One that spins around a call without an event passes no other place to stand still at, or the kernel's signal would
        // have to find it between two calls.
        if clone::has_promised() || park::is_wanted() && thread.is_between_calls() {
            park::at_door(thread);
            // The call has not begun: what it does to memory is for the turn to order. One that its door takes is not had before it:
            // whoever stands still nowhere, as the copy that follows, would have given it back there, and this thread kept it.
            turns::take_for_guest(thread);
        }
        thread.turn.set_heard();
    }
    if thread.newborn {
        join::consider(thread, row, call);
    }
    // In every copy: it may be cloned while it waits in this call, and the standby's thread begins behind this line.
    thread.begun_mut().asked = call.args;
    if state::is_serial() {
        if random::is_seeded()
            && let Some(result) = random::seeded(thread, call)
        {
            return result;
        }
        if turns::applies(thread) {
            return in_turns_or_door(thread, row, call);
        }
    }
    let learns = row.has_events;
    if learns {
        common::before_call(thread, row);
    }
    // The most frequent ones in this frame, of which there is no return to the gate.
    let here = match row.policy {
        Policy::Recorded if row.observes => Some(observe(thread, row, call)),
        Policy::Special(Door::Read | Door::Recv) => {
            let result = read::read_here(thread, row, call);
            if let Some(result) = result {
                pending::after_read(thread, call.args[0] as i32, call.args[1], result);
            }
            result
        }
        Policy::Special(Door::Write | Door::Send) => io::write_here(thread, row, call),
        _ => None,
    };
    let result = match here {
        Some(result) => result,
        None => by_policy(thread, row, call),
    };
    if row.policy == Policy::Special(Door::Clone) && is_lent(thread) {
        return result;
    }
    if thread.signals.late {
        signal::is_late_no_more(thread);
    }
    if learns {
        common::after_call(thread, row);
    }
    if state::is_serial() {
        // It has stood still in this call, and the log that has begun meanwhile is one of turns.
        turns::begun(thread);
        turns::take_for_guest(thread);
    }
    result
}

/// Where threads take turns: the call in a turn of its own, if they have them in doors alone.
#[cold]
fn in_turns_or_door(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    // What a thread does for itself needs no order, and what an allocator asks of the kernel has none. Who waits, for a signal as
    // well, is in a door, and so is who lets others go first: they would wait for it.
    let lets_others =
        matches!(row.policy, Policy::Special(Door::Futex)) || u64::from(row.nr) == raw::nr::SCHED_YIELD;
    let is_door = row.has_events && !row.observes || row.blocks || lets_others;
    if is_door {
        thread.turn.set_door(turns::digest::of_call(row.nr));
    }
    if matches!(row.policy, Policy::Special(Door::Open)) && allocator::asks(thread, call) {
        // At a moment of its own in each copy, and with the allocator's lock: the turn stays where it is.
        return raw::err::ENOENT;
    }
    if waits_in_fork(thread, row, call) {
        return by_policy(thread, row, call);
    }
    let enters = is_door && !takes_lock_out_of_turn(thread, row, call) && turns::doors::enter(thread);
    if state::is_parallel() && !thread.turn.is_own() {
        let result = by_policy(thread, row, call);
        if thread.signals.late && !is_lent(thread) {
            signal::is_late_no_more(thread);
        }
        return result;
    }
    let result = in_turns(thread, row, call);
    if enters && !is_lent(thread) {
        turns::doors::leave(thread);
    }
    result
}

/// A wait for a lock below malloc, say: who has it needs no turn to give it back.
fn takes_lock_out_of_turn(thread: &Thread, row: &Row, call: &Call) -> bool {
    !thread.turn.is_own() && is_libcs_lock(row, call)
}

/// A futex call of libc's own.
fn is_libcs_lock(row: &Row, call: &Call) -> bool {
    matches!(row.policy, Policy::Special(Door::Futex)) && libc_text::is_own(call)
}

/// A wait for one of the locks that libc takes for a fork, where threads run in parallel between their turns: the turn that the fork
/// has is kept. Given back, it was taken anew with some of the locks in hand, and a copy whose thread had not to wait for any came
/// to that with all of them: the turn before it was one of a thread that needed memory.
fn waits_in_fork(thread: &Thread, row: &Row, call: &Call) -> bool {
    thread.lately.is_before_fork && state::is_parallel() && is_libcs_lock(row, call)
}

/// With `--order serial`: while a call may block, others have their turn.
#[cold]
fn in_turns(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    if matches!(row.policy, Policy::Special(Door::Futex)) {
        let mut patience = Patience::default();
        if let Some(result) = turn_waits::futex(thread, call, &mut patience) {
            return result;
        }
        // A wake waits for nobody, and libc's locks wake where another thread happened to wait.
        let result = futex::futex_with(thread, call, &mut patience);
        turns::take(thread);
        return result;
    }
    let paused = turns::before_call(thread, row, row.has_events);
    let result = by_policy(thread, row, call);
    if is_lent(thread) {
        return result;
    }
    if thread.signals.late {
        signal::is_late_no_more(thread);
    }
    if paused || state::takes_live_turns() {
        turns::after_call(thread);
    }
    result
}

/// In the caller's frame, as all of these that a plain call passes.
#[inline(always)]
fn by_policy(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    match row.policy {
        Policy::Local => memory::local_of(thread, call),
        Policy::Recorded => recorded(thread, row, call),
        Policy::Special(Door::Open) if allocator::asks(thread, call) => raw::err::ENOENT,
        Policy::Special(door) => special(thread, row, call, door),
        Policy::Refused => refused::refused(thread, call, row.name),
        Policy::Denied(errno) => -i64::from(errno),
        Policy::Declined(errno) => declined(thread, call, row.name, -i64::from(errno)),
    }
}

/// A call that a process with copies does without: none of them could have what it makes.
#[cold]
fn declined(thread: &mut Thread, call: &Call, name: &str, error: i64) -> i64 {
    // A child that has not joined yet is told what it will be told later: a program asks once, and relies on the answer.
    let is_declined = state::may_have_copies() || config::is_possible();
    if is_declined { error } else { refused::refused(thread, call, name) }
}

#[inline(never)]
fn read_in_any_mode(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let result = read::read(thread, row, call);
    pending::after_read(thread, call.args[0] as i32, call.args[1], result);
    result
}

#[inline(never)]
fn signal_descriptor(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let fd = signals::descriptor(thread, row, call);
    if fd >= 0 {
        pending::is_signalfd(fd as i32);
    }
    fd
}

#[inline(always)]
fn special(thread: &mut Thread, row: &'static Row, call: &Call, door: Door) -> i64 {
    match door {
        Door::Read | Door::Recv => read_in_any_mode(thread, row, call),
        Door::Readv => io::readv(thread, row, call),
        Door::Write | Door::Send => io::write(thread, row, call),
        Door::Writev => io::writev(thread, row, call),
        Door::RecvMsg => message::receive(thread, row, call),
        Door::SendMsg => message::send(thread, row, call),
        Door::RecvMmsg => batch::receive(thread, row, call),
        Door::SendMmsg => batch::send(thread, row, call),
        Door::Connect => recorded(thread, row, call),
        Door::Sendfile | Door::Splice | Door::Vmsplice | Door::Receive | Door::Getdents | Door::Semctl => {
            recorded(thread, row, call)
        }
        Door::Poll | Door::Select | Door::Wait | Door::Sleep => recorded(thread, row, call),
        Door::Open
        | Door::Close
        | Door::CloseRange
        | Door::Dup
        | Door::Pipe
        | Door::Socket
        | Door::Accept
        | Door::Object
        | Door::Fcntl => table::changing(thread, row, call),
        Door::Signalfd => signal_descriptor(thread, row, call),
        Door::Ioctl => table::ioctl(thread, row, call),
        Door::Epoll(EpollDoor::Create) => table::changing(thread, row, call),
        Door::Epoll(EpollDoor::Ctl) => epoll::control(thread, row, call),
        Door::Epoll(EpollDoor::Wait) => epoll::wait(thread, row, call),
        Door::Mmap => memory::mmap(thread, call),
        Door::Mremap => remap::remap(thread, call),
        Door::Munmap => memory::unmap(thread, call),
        Door::Brk => memory::heap(call),
        Door::Madvise => memory::advise(call),
        Door::Shm => shared::system_v(thread, row, call),
        Door::Mlock => memory::lock(thread, row, call),
        Door::Clone => process::clone(thread, row, call),
        Door::Exec => exec::exec(thread, call),
        Door::Exit => process::exit_thread(thread),
        Door::ExitGroup => process::exit_group(thread, call),
        Door::Identity => process::identity(thread, call),
        Door::Pid => numbers::named(thread, row, call),
        Door::Signal(SignalDoor::Action) => signals::action(thread, call),
        Door::Signal(SignalDoor::Mask) => signal::mask(thread, call),
        Door::Signal(SignalDoor::Stack) => signal::stack(thread, call),
        Door::Signal(SignalDoor::Return) => raw::err::ENOSYS,
        Door::Signal(SignalDoor::Send) => pending::send(thread, row, call),
        Door::Signal(SignalDoor::Suspend) => signals::suspend(thread, row, call),
        Door::Signal(SignalDoor::Wait) => signals::wait(thread, row, call),
        Door::Signal(SignalDoor::Pending) => signals::pending(thread, row, call),
        // SAFETY: a futex of the guest's own: both copies have their own memory and wake their own threads.
        Door::Futex => futex::futex(thread, call),
        Door::Time => time::by_call(thread, row, call),
        Door::Timer => timer::call(thread, row, call),
        Door::Chdir => {
            registry::before(call);
            folder::change(thread, row, call)
        }
        Door::Mirror if process::names_another(call) => recorded(thread, row, call),
        Door::Mirror => {
            registry::before(call);
            identity::change(thread, call)
        }
        Door::Thread => thread_place::thread_state(thread, row, call),
        Door::Prctl => process::prctl(thread, row, call),
        Door::ThreadArea => process::thread_area(thread, call),
    }
}

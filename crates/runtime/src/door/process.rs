//! Processes and threads as the kernel sees them: creation, exit, identity, and state that is not shared.

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, EventKind, NO_TICKET};
use us_abi::{Cause, WILL, leaving, slot};
use us_calls::{Prctl, Row};

use crate::above::above;
use crate::call::Call;
use crate::clock::kernel_ticket;
use crate::door::recorded::{begin, recorded, take_begin, take_begin_as_logged, take_end};
use crate::door::refused::refused;
use crate::door::{copies, limits, spawn};
use crate::guest::{GuestMut, GuestPtr};
use crate::log::Next;
use crate::raw::err::EFAULT;
use crate::raw::{self, call6};
use crate::state::{self, Role};
use crate::sys::{atomics, milestones, wall};
use crate::thread::spawn::Stored;
use crate::thread::{self, Mode, Thread};
use crate::verdict::{self, drop_standby};
use crate::{bound, connections, fdtable, members, mirror, seats, signal, tls, turns};

const GETPID: u64 = raw::nr::GETPID;

/// clone, fork: a child with its own memory. (Threads and vfork have sites of their own, see [`spawn`].)
pub fn clone(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let flags = spawn::clone_flags(call);
    if spawn::lends(call) {
        return spawn::vfork(thread, row, call);
    }
    if flags & spawn::CLONE_VM != 0 {
        let result = refused(thread, call, "clone with shared memory");
        if result > 0 {
            bound::shares_memory_with(result as u32);
        }
        return result;
    }
    thread.lately.is_before_fork = false;
    spawn::about_to_make(thread, flags);
    let arguments = CallArgs { fd: -1, digest: flags as u32, len: 0 };
    let is_begun = core::mem::take(&mut thread.begun_mut().is_fork) && thread.calls() == Mode::Replay;
    if is_begun && thread.begun().call.1 != arguments {
        crate::verdict::report_divergence(thread, &[b"another fork than the one that the log has"]);
    }
    let mut is_begun = is_begun;
    let stored = Stored::by(call);
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => {
            let result = make_child(thread, call);
            stored.made(thread, result);
            spawn::made(flags, result);
            super::unlisted::note_forked(result);
            Some(result)
        }
        Mode::Record => {
            super::memory::before_fork();
            if thread.calls() != Mode::Record {
                return None;
            }
            begin(thread, row, arguments);
            let result = spawn::make_witnessed(thread, call, make_child);
            if result == 0 {
                return Some(result);
            }
            super::numbers::child_made();
            spawn::made(flags, result);
            super::unlisted::note_forked(result);
            let (head, ticket) = stored.made(thread, result);
            thread.append(EventKind::Return, 0, row.nr, ticket, &head);
            await_heir(result);
            Some(result)
        }
        Mode::Replay => {
            if !core::mem::take(&mut is_begun) {
                take_begin(thread, row, &arguments)?;
            }
            // The number is the group's; no child is made here.
            let result = take_end(thread, row, |thread, head, _, _| stored.follow(thread, head))?;
            if state::is_detached() && result > 0 && above().fork_replay(thread, call, result as u32) {
                return Some(0);
            }
            super::numbers::child_made();
            super::unlisted::note_forked(result);
            Some(result)
        }
    })
}

/// Before a parent may close a connection of which a gate counts what has been read, its child is to say that it has it: what nobody
/// has open is taken for one that is over.
fn await_heir(result: i64) {
    const PATIENCE_NS: u64 = 50_000_000;
    if result <= 0 || !connections::is_kept() || !fdtable::has_connections() {
        return;
    }
    let (pid, until_ns) = (result as u32, raw::now_ns() + PATIENCE_NS);
    let has_said = || {
        members::find(pid).is_none_or(|child| child.has_inherited.load(Ordering::Acquire) != 0)
            || !members::exists(pid)
    };
    while !has_said() && raw::now_ns() < until_ns {
        raw::nap(50_000);
    }
}

/// As a standby, before libc's fork takes its locks: the call has begun, and [`clone`] need only see how it ended.
pub fn begin_fork(thread: &mut Thread) {
    if let Some(row) = us_calls::row(raw::nr::CLONE) {
        thread.begun_mut().is_fork = take_begin_as_logged(thread, row);
    }
}

/// Forks for real. In the child nothing of ours goes on but the doors themselves.
fn make_child(thread: &mut Thread, call: &Call) -> i64 {
    let flags = spawn::clone_flags(call);
    // What comes to the child before it is one would be its parent's, in that one's segment, or be forgotten with that one's.
    signal::apply_mask(!0);
    // SAFETY: the guest's own fork: no shared memory, so the child returns here on its own copy of the stack.
    let result = unsafe { call6(call.nr, call.args) };
    if result != 0 {
        signal::apply_mask(thread.signals.mask | signal::held(thread));
        return result;
    }
    if flags & spawn::CLONE_SETTLS != 0 {
        atomics::are_foreign();
    }
    become_child(thread);
    result
}

pub(super) fn become_child(thread: &mut Thread) {
    let parent = state::GUEST_PID.load(Ordering::Relaxed);
    let made_by = state::REAL_PID.load(Ordering::Relaxed);
    if !crate::recorder::is_recording() {
        // A replay has nobody who would fork here.
        state::is_not_recorded();
    }
    state::set_role(Role::Child);
    // SAFETY: asks for a number.
    let pid = unsafe { raw::call1(GETPID, 0) } as u32;
    forget_parent(thread, pid);
    super::random::become_child(thread);
    bound::in_child();
    members::born(parent, made_by);
    // What the parent had still to deliver is not the child's, and must not stay blocked here.
    signal::apply_mask(thread.signals.mask);
    if tls::may_be_foreign() {
        // Its thread pointer need not be libc's: it goes its own way, as it would natively.
        thread.runs_as.store(0, Ordering::Relaxed);
        return;
    }
    thread.newborn = members::config::is_possible() && !thread::is_beyond(thread.slot());
    wall::begin(thread);
    if state::is_recorded() && !thread::is_beyond(thread.slot()) {
        above().join_recorded(thread, us_abi::how::FORKED);
    }
    crate::family::is_born(thread);
    if thread.newborn {
        members::may_be_asked();
    }
}

/// In a forked child, of which the guest knows that number: what it has of its parent's in memory and is not its own.
pub fn forget_parent(thread: &mut Thread, pid: u32) {
    state::set_header(core::ptr::null_mut());
    crate::thread::stop_logging();
    crate::door::epoll::inherit();
    crate::lock::in_child();
    atomics::forget();
    milestones::forget();
    crate::door::waiters::reset();
    turns::logical::forget();
    crate::twins::choice::in_child();
    above().forget_clone();
    super::unlisted::forget();
    state::GUEST_PID.store(pid, Ordering::Relaxed);
    // SAFETY: asks for a number.
    let real = unsafe { raw::call1(GETPID, 0) } as u32;
    state::REAL_PID.store(real, Ordering::Relaxed);
    // The parent has it still.
    thread.turn.set_own(false);
    thread.signals.late = false;
    thread.set_guest_tid(pid);
    thread.clears = GuestMut::at(0);
    thread.set_kernel_tid(real);
    thread.runs_as.store(real, Ordering::Relaxed);
    crate::signal::reset(thread);
    crate::signal::forget_put_back();
    crate::door::sigchld::forget_owed();
    crate::signal::death::forget();
    crate::door::timer::forget();
    crate::door::timer_notify::forget();
    crate::door::usage::forget();
    super::thread::forget_relatives(thread);
    crate::signal::born_first(real);
}

/// exit: the end of one thread. Its last event is published before the kernel hears of it.
pub fn exit_thread(thread: &mut Thread) -> i64 {
    crate::signal::begin_last(thread);
    loop {
        let mode = thread.calls();
        if mode != Mode::Replay {
            crate::signal::deliver_last(thread);
            if thread.calls() != mode {
                // A handler has stood still.
                continue;
            }
        }
        match mode {
            Mode::Solo => break,
            Mode::Record => {
                thread.entry().state.store(slot::LEAVING, Ordering::Release);
                thread.push(EventKind::ThreadExit, 0, 0, NO_TICKET);
                break;
            }
            Mode::Replay => match thread.expect(EventKind::ThreadExit, 0) {
                Next::Live => continue,
                Next::Event(_) => {
                    thread.close();
                    super::pending::forget_thread(thread.slot());
                    crate::seats::tid(thread.slot()).store(0, Ordering::Relaxed);
                    break;
                }
            },
        }
    }
    let clears = core::mem::replace(&mut thread.clears, GuestMut::at(0));
    // Others look at this word without a door: it changes in turn.
    if !clears.is_nowhere() && clears.store(&0) {
        const WAKE: u64 = 1;
        // SAFETY: a wake touches no memory.
        unsafe { raw::call3(raw::nr::FUTEX, clears.address(), WAKE, 1) };
        turns::logical::wake(clears.address(), 1);
    }
    turns::end(thread, tls::end_word(tls::thread_pointer()).as_ptr() as u64);
    if state::header().is_some() && !state::is_standby() {
        thread.entry().state.store(slot::LEAVING, Ordering::Release);
    }
    let is_first = thread.slot() == 0;
    tls::set_current(core::ptr::null_mut());
    if is_first {
        // The kernel clears this word at the end of a thread; for a standby's first thread, which was made by a plain
        // clone, nobody has told it. Whoever joins that thread would wait for ever.
        use crate::raw::nr::SET_TID_ADDRESS;
        let word = tls::thread_pointer() + tls::END_OFFSET.load(Ordering::Relaxed);
        // SAFETY: the word of this thread's control block, as glibc itself has set it in the primary.
        unsafe { raw::call1(SET_TID_ADDRESS, word) };
    }
    // SAFETY: the guest's own thread ends itself.
    unsafe { raw::call1(raw::nr::EXIT, 0) }
}

/// exit_group: the standby is gone before the program is, or ports and pipes would stay open a moment longer.
pub fn exit_group(thread: &mut Thread, call: &Call) -> i64 {
    if state::is_detached() {
        replay_exit(thread, call);
    }
    while thread.calls() == Mode::Replay {
        if state::is_recorded()
            && let Some(row) = us_calls::row(call.nr)
        {
            // That it ends is in a recorded process's log. What comes next is the end, or a promotion.
            take_begin(thread, row, &exit_arguments(call));
        }
        turns::follow_last(thread);
        while thread.calls() == Mode::Replay {
            let Next::Event(event) = thread.next() else { continue };
            if event.header.kind != EventKind::Again as u8 {
                crate::verdict::diverge(thread, EventKind::ThreadExit, raw::nr::EXIT_GROUP as u16, &event);
            }
            // Another one was promoted here, and ends it in its own log.
            thread.doubt.set_open(false);
            thread.close();
            break;
        }
    }
    log_exit(thread, call.nr, call.args[0]);
    turns::give_last(thread);
    leave(leaving::EXIT, (call.args[0] as i32 & 0xff) << 8);
    // SAFETY: the guest's own end.
    unsafe { call6(call.nr, call.args) }
}

/// exit_group in a replay, which ends there as the recorded process did.
fn replay_exit(thread: &mut Thread, call: &Call) -> ! {
    if let Some(row) = us_calls::row(call.nr) {
        take_begin(thread, row, &exit_arguments(call));
    }
    turns::give(thread);
    mirror::ends();
    verdict::end_replay(call.args[0])
}

fn exit_arguments(call: &Call) -> CallArgs {
    CallArgs { fd: -1, digest: 0, len: call.args[0] & 0xff }
}

/// Announces that the program ends by its own will, with this status of `wait4`'s, and ends its standby first.
pub fn leave(how: u32, status: i32) {
    if state::role() != Role::Primary {
        return;
    }
    let Some(header) = state::header() else { return };
    // SAFETY: asks for a number.
    if unsafe { raw::call1(GETPID, 0) } as u32 != state::REAL_PID.load(Ordering::Relaxed) {
        // A child that has not become one yet, or runs in its parent's memory: that one does not end.
        return;
    }
    if header.config.verify == VERIFY_FULL {
        await_standby(header);
    }
    // SAFETY: the calling thread's own block.
    if let Some(thread) = unsafe { tls::current().as_ref() }
        && how == leaving::EXIT
    {
        crate::family::depart(thread);
    }
    if crate::members::of_family::is_member() {
        crate::members::of_family::fail(b"a process that shares memory was ended by a signal");
    }
    header.leaving.0.store(how, Ordering::SeqCst);
    // Behind it: until then a standby takes over.
    if let Some(own) = members::own() {
        own.will.store(status | WILL, Ordering::SeqCst);
    }
    end_standby();
}

/// `--verify full`: also the end of the program is compared.
const VERIFY_FULL: u32 = 2;

/// Waits, for at most some seconds, until the standby has applied everything or has been dropped.
fn await_standby(header: &us_abi::SegmentHeader) {
    for _ in 0..5000 {
        // With its supervisor a standby is gone as well, and nobody is left to say so.
        let is_behind = |seat: u32| seats::is_there(header, seat) && seats::unapplied_by(seat, header) != 0;
        if !seats::followers().any(is_behind) {
            return;
        }
        raw::nap(1_000_000);
    }
    drop_standby(Cause::Behind, &[b"the standby had not applied everything at the program's end"]);
}

/// Ends the standbys and waits until their processes are gone.
pub fn end_standby() {
    let Some(header) = state::header() else { return };
    let own = state::REAL_PID.load(Ordering::Relaxed);
    seats::copies().filter(|pid| *pid != own).for_each(copies::end);
    if header.standby_pid.load(Ordering::Acquire) != own {
        header.standby_pid.store(0, Ordering::Release);
    }
}

/// getpid, gettid, set_tid_address ...: the group's numbers, in every copy, also after a promotion.
pub fn identity(thread: &Thread, call: &Call) -> i64 {
    match call.nr {
        GETPID => i64::from(state::GUEST_PID.load(Ordering::Relaxed)),
        _ => i64::from(thread.guest_tid()),
    }
}

/// Credentials, limits, umask: state of the process that must be true in both copies, so both execute.
pub fn mirror(call: &Call) -> i64 {
    const PRLIMIT: u64 = crate::raw::nr::PRLIMIT64;
    let mut call = *call;
    if let Some(result) = limits::raised(&call) {
        return result;
    }
    if call.nr == PRLIMIT && call.args[0] as u32 == state::GUEST_PID.load(Ordering::Relaxed) {
        // By its number it would be the primary, for both.
        call.args[0] = 0;
    }
    // SAFETY: the guest's own call, on this copy's own process.
    unsafe { call6(call.nr, call.args) }
}

/// Whether such a call is about another process: then it is one for the primary alone. Made by a standby too it would
/// come late, and in a replay it would meet whoever has that number now.
pub fn names_another(call: &Call) -> bool {
    const PRLIMIT: u64 = crate::raw::nr::PRLIMIT64;
    let whom = call.args[0] as u32;
    call.nr == PRLIMIT && whom != 0 && whom != state::GUEST_PID.load(Ordering::Relaxed)
}

/// prctl and arch_prctl.
pub fn prctl(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    if bound::moves_thread_pointer(call) {
        atomics::are_foreign();
        return refused(thread, call, "arch_prctl");
    }
    if call.nr != raw::nr::PRCTL {
        return mirror(call);
    }
    let option = call.args[0] & 0xffff_ffff;
    match us_calls::prctl_shape(option) {
        Prctl::Local | Prctl::Mirror => {
            if changes_thread(option) {
                state::changes_alone();
            }
            mirror(call)
        }
        Prctl::Shadow => shadowed(thread, call),
        Prctl::Recorded { .. } => recorded(thread, row, call),
        Prctl::Refused => refused(thread, call, "prctl"),
        Prctl::Denied(errno) => -i64::from(errno),
    }
}

/// Whether an option changes what a new thread gets of its maker's: KEEPCAPS, CAPBSET_DROP, SECUREBITS, TIMERSLACK, NO_NEW_PRIVS,
/// CAP_AMBIENT.
fn changes_thread(option: u64) -> bool {
    matches!(option, 8 | 24 | 28 | 29 | 38 | 47)
}

/// Attributes that a standby only remembers: in `ps` its threads say what they are, and it must not outlive
/// the supervisor, until it is promoted.
fn shadowed(thread: &mut Thread, call: &Call) -> i64 {
    use crate::kernel::{
        PR_GET_CHILD_SUBREAPER, PR_GET_NAME, PR_GET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_SET_NAME,
        PR_SET_PDEATHSIG,
    };
    match call.args[0] & 0xffff_ffff {
        PR_SET_NAME => {
            let mut name = [0u8; 16];
            let given = GuestPtr::<u8>::at(call.args[1]);
            if given.load().is_none() {
                return EFAULT;
            }
            let len = given.string_len().min(name.len() - 1);
            given.fill(&mut name[..len]);
            thread.place.set_name(name);
            if state::is_standby() { 0 } else { mirror(call) }
        }
        PR_GET_NAME if state::is_standby() => {
            let is_told = GuestMut::at(call.args[1]).store(&thread.place.name());
            if is_told { 0 } else { EFAULT }
        }
        PR_SET_PDEATHSIG => crate::signal::death::set(call.args[1]),
        PR_GET_PDEATHSIG => crate::signal::death::get(call.args[1]),
        PR_SET_CHILD_SUBREAPER if members::own().is_some() => {
            let Some(own) = members::own().filter(|_| !state::is_standby()) else { return 0 };
            own.reaps_orphans.store(u32::from(call.args[1] != 0), Ordering::SeqCst);
            mirror(call)
        }
        PR_GET_CHILD_SUBREAPER if members::own().is_some() => {
            let reaps = members::own().map_or(0, |own| own.reaps_orphans.load(Ordering::SeqCst));
            if GuestMut::at(call.args[1]).store(&reaps) { 0 } else { EFAULT }
        }
        _ if state::is_standby() => 0,
        _ => mirror(call),
    }
}

/// At a promotion: what the kernel must know of this process and has known of the dead one.
pub fn take_over_attributes() {
    crate::signal::death::take_over();
    use crate::kernel::PR_SET_CHILD_SUBREAPER;
    if members::own().is_some_and(|own| own.reaps_orphans.load(Ordering::SeqCst) != 0) {
        // SAFETY: an attribute of our own process.
        unsafe { raw::call2(raw::nr::PRCTL, PR_SET_CHILD_SUBREAPER, 1) };
    }
}

/// set_robust_list, rseq, set_tid_address: of this copy's thread. The last one tells its number, which is the group's; the word is
/// cleared [at the end](exit_thread), since what the kernel clears is how the runtime, like libc, knows that a thread is gone.
pub fn thread_area(thread: &mut Thread, call: &Call) -> i64 {
    use crate::raw::nr::SET_TID_ADDRESS;
    if call.nr != SET_TID_ADDRESS {
        return mirror(call);
    }
    if tls::may_be_foreign() {
        mirror(call);
        return i64::from(thread.guest_tid());
    }
    let libcs = tls::thread_pointer() + tls::TID_OFFSET.load(Ordering::Relaxed);
    thread.clears = GuestMut::at(if call.args[0] == libcs { 0 } else { call.args[0] });
    i64::from(thread.guest_tid())
}

/// The end of a recorded process, as an event: what others did before is replayed before it.
pub fn log_exit(thread: &mut Thread, nr: u64, status: u64) {
    // Otherwise a standby ends with its primary, and does not look for its end in the log.
    if state::is_recorded() && thread.calls() == Mode::Record {
        let arguments = CallArgs { fd: -1, digest: 0, len: status & 0xff };
        let ticket = kernel_ticket();
        thread.append(EventKind::Enter, 0, nr as u16, ticket, &arguments);
    }
}

//! Signals that the guest has sent to itself and that nobody has taken yet.
//!
//! They wait in the primary's kernel, or in its runtime's queue, and die with it. What a standby knows of them, and what a promotion
//! raises again, is [`us_world::pending`]'s. A send in doubt needs no more than that: it is in the list if it has not been taken, and if
//! it has, it was made.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::event::{CallArgs, ReturnHead};
use us_calls::Row;
use us_world::pending::{
    self as rules, ANY, By, Known, Pending, RECORD_BYTES, Siginfo, SignalRecord, Taken, Target,
};

use crate::call::Call;
use crate::clock::KERNEL;
use crate::door::recorded::{begin, end, recorded, recorded_once, take_begin_with, take_end};
use crate::door::{identity, numbers, pidfd, sigchld};
use crate::fdtable::Kind;
use crate::guest::{GuestMut, GuestPtr, part};
use crate::kernel::MSG_NOSIGNAL;
use crate::lock::Lock;
use crate::members::{self, leader, mail};
use crate::raw::{self, failed, nr};
use crate::siginfo::{Info, SI_TKILL, SI_USER, bit};
use crate::signal::{self, Plan};
use crate::sys::spans;
use crate::thread::{self, Mode, Thread};
use crate::{fdtable, state};

/// System call number.
const TKILL: u64 = crate::raw::nr::TKILL;
/// Signals that can be remembered: as many as the kernel lets an ordinary user queue on a small machine. A standby that would
/// have to remember more cannot take over.
const WAITING_MAX: usize = 4096;

impl Siginfo for Info {
    fn signal(&self) -> i32 {
        self.signal()
    }
    fn code(&self) -> i32 {
        self.code()
    }
    fn value(&self) -> u64 {
        self.value()
    }
}

type Sent = rules::Sent<Info>;

struct Shadow {
    lock: Lock,
    sent: UnsafeCell<([Sent; WAITING_MAX], usize)>,
}
// SAFETY: touched under the lock only.
unsafe impl Sync for Shadow {}

const NOTHING: Sent = Sent { info: Info([0; 16]), target: Target::slot(0), at: 0, queued: false };
static SHADOW: Shadow = Shadow { lock: Lock::new(), sent: UnsafeCell::new(([NOTHING; WAITING_MAX], 0)) };

impl Shadow {
    fn with<R>(&self, f: impl FnOnce(Pending<Info>) -> R) -> R {
        self.lock.with(|| {
            // SAFETY: the lock is held; a standby's threads run no handler while they hold it.
            let (sent, count) = unsafe { &mut *self.sent.get() };
            f(Pending::new(sent, count))
        })
    }
}

/// Whether a call sends to a group of processes with the guest in it.
fn is_to_own_group(call: &Call) -> bool {
    use crate::raw::nr::GETPGID;
    let to = call.args[0] as u32 as i32;
    // SAFETY: asks for a number. A standby is where its primary is.
    call.nr == nr::KILL
        && to <= 0
        && (to == 0 || unsafe { raw::call1(GETPGID, 0) } == i64::from(leader::to_kernel(to.unsigned_abs())))
}

/// What a call sends to the guest itself; `None` for any other target, and for the signal that only asks.
fn sent_by(call: &Call) -> Option<Sent> {
    use crate::raw::nr::GETUID;
    let [a, b, c, d, ..] = call.args;
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    let (process, tid, signal, info) = match call.nr {
        nr::KILL => (a as u32, None, b, 0),
        nr::TGKILL => (a as u32, Some(b as u32), c, 0),
        TKILL => (own, Some(a as u32), b, 0),
        nr::RT_SIGQUEUEINFO => (a as u32, None, b, c),
        nr::RT_TGSIGQUEUEINFO => (a as u32, Some(b as u32), c, d),
        pidfd::SEND_SIGNAL if d == 0 => (numbers::meant_by(a as i32)?, None, b, c),
        _ => return None,
    };
    let process = if is_to_own_group(call) { own } else { process };
    if process != own || !signal::waits(signal as i32) {
        return None;
    }
    let target = match tid {
        None => Target::PROCESS,
        Some(tid) => Target::slot(slot_of(tid)?),
    };
    let mut full = Info([0; 16]);
    if info != 0 {
        full = GuestPtr::at(info).load()?;
    } else {
        let code = if tid.is_some() { SI_TKILL } else { SI_USER };
        full.set_code(code);
        full.set_sender(own);
        // SAFETY: asks for a number.
        full.set_user(unsafe { raw::call1(GETUID, 0) } as u32);
    }
    full.set_signal(signal as i32);
    full.set_tag(0);
    Some(Sent { info: full, target, at: 0, queued: false })
}

fn slot_of(tid: u32) -> Option<u32> {
    thread::called(tid).last().map(|thread| thread.slot())
}

/// Whether a thread sends itself the signal that the runtime uses.
fn sends_own_sigsys(thread: &Thread, call: &Call) -> bool {
    let [a, b, c, ..] = call.args;
    let (tid, signal) = match call.nr {
        nr::TGKILL | nr::RT_TGSIGQUEUEINFO => (b, c),
        TKILL => (a, b),
        _ => return false,
    };
    signal as u32 as i32 == signal::SIGSYS && tid as u32 == thread.guest_tid()
}

/// kill, tgkill, sigqueue and their kin.
pub fn send(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    if identity::is_of_libc(call) {
        return identity::note(thread, call);
    }
    signal::sends();
    loop {
        if thread.calls() != Mode::Replay {
            // Once: a thread that has stood still in this call may be a standby's when it goes on.
            if sends_own_sigsys(thread, call) {
                signal::awaits_own(thread);
            }
            let made = |thread: &mut Thread, result| {
                signal::has_sent_own(thread, result, || sent_by(call).map(|sent| sent.info));
            };
            match recorded_once(thread, row, call, made) {
                Some(result) => return result,
                None => continue,
            }
        }
        let Some(sent) = sent_by(call) else { return recorded(thread, row, call) };
        let arguments = spans::arguments(row, call, thread.verify);
        let mut at = 0;
        let apply = |thread: &mut Thread, _| {
            // At the send's turn the clock shows its ticket.
            at = KERNEL.0.load(Ordering::Relaxed);
            if !add(Sent { at, ..sent }) {
                crate::verdict::report_divergence(
                    thread,
                    &[b"more signals wait than a standby can remember"],
                );
            }
        };
        if take_begin_with(thread, row, arguments.fd, arguments.digest, apply).is_none() {
            continue;
        }
        let Some((result, flags)) = take_end(thread, row, |_, head, _, flags| (head.result, flags)) else {
            if is_to_own_group(call) && thread.calls() != Mode::Replay && !thread.begun().was_entered {
                // The others have nothing of it, and what was noted here is forgotten.
                continue;
            }
            return sent_once(thread, row, arguments);
        };
        if failed(result) {
            retract(at);
        }
        if !Plan::replay(thread, flags, result) {
            return result;
        }
    }
}

/// A send in doubt. It was taken, or the promotion has raised it: either way it has been sent once.
fn sent_once(thread: &mut Thread, row: &'static Row, arguments: CallArgs) -> i64 {
    thread.doubt.set_open(false);
    while thread.calls() == Mode::Replay {
        // Another copy has taken over, or this is a replay: in the log is the call as a whole, unless that one is dead as well.
        let begun = take_begin_with(thread, row, arguments.fd, arguments.digest, |_, _| ()).is_some();
        if let Some(flags) = begun.then(|| take_end(thread, row, |_, _, _, flags| flags)).flatten() {
            Plan::replay(thread, flags, 0);
            return 0;
        }
        thread.doubt.set_open(false);
    }
    if thread.calls() == Mode::Record {
        begin(thread, row, arguments);
        let plan = signal::plan(thread, row, 0);
        end(thread, row, plan.flags(), ReturnHead::default());
        plan.carry_out(thread);
        return 0;
    }
    // Its own handler finds a call that has returned.
    signal::solo_restart(thread, row, 0);
    0
}

/// A call has ended with this error, as the log has it: the kernel has sent its thread a signal with that, which waits where the
/// primary has it until the log says that it was taken. What its handler is to hear is announced with the call's end; whether
/// one that is blocked was sent is known of pipes and TCP.
#[cold]
pub fn sent_with(thread: &Thread, row: &Row, error: i64, announced: u8) {
    use us_calls::Class;
    const SIGPIPE: i32 = linux_raw_sys::general::SIGPIPE as i32;
    const SIGXFSZ: i32 = linux_raw_sys::general::SIGXFSZ as i32;
    let signal = match error {
        raw::err::EPIPE if row.class == Class::Write => SIGPIPE,
        raw::err::EFBIG => SIGXFSZ,
        _ => return,
    };
    let asked = &thread.begun().asked;
    let is_open = thread.signals.mask & bit(signal) == 0;
    let is_sent = if is_open { announced != 0 } else { signal == SIGPIPE && tells_of_nobody(row, asked) };
    if !is_sent || is_silent(row, asked) || !signal::waits(signal) {
        return;
    }
    let mut info = Info([0; 16]);
    // SAFETY: asks for a number.
    let user = unsafe { raw::call1(raw::nr::GETUID, 0) } as u64;
    (info.0[0], info.0[1]) = (signal as u64, SI_USER as u64);
    info.0[2] = u64::from(state::GUEST_PID.load(Ordering::Relaxed)) | user << 32;
    info.stamp();
    // Below any ticket that is to come. Its thread finds it in its queue: nobody else can send it such that it looks as it did.
    let at = KERNEL.0.load(Ordering::Relaxed).saturating_sub(1);
    add(Sent { info, target: Target::slot(thread.slot()), at, queued: true });
}

/// Whether what such a call puts bytes into tells with a signal that nobody takes them: a pipe, or a connection of TCP's.
fn tells_of_nobody(row: &Row, asked: &[u64; 6]) -> bool {
    let fd = match u64::from(row.nr) {
        nr::SPLICE => asked[2],
        nr::TEE => asked[1],
        _ => asked[0],
    };
    let kind = fdtable::get(fd as i32).map(fdtable::Shadow::kind);
    matches!(kind, Some(Kind::Pipe | Kind::Tcp | Kind::TcpAccepted))
}

/// Whether a call has asked for the error alone.
fn is_silent(row: &Row, asked: &[u64; 6]) -> bool {
    let flags = match u64::from(row.nr) {
        nr::SENDTO | nr::SENDMMSG => asked[3],
        nr::SENDMSG => asked[2],
        _ => 0,
    };
    flags & MSG_NOSIGNAL != 0
}

/// False if there is no room for it.
fn add(new: Sent) -> bool {
    SHADOW.with(|mut pending| pending.add(new))
}

/// Signals that waited in the kernel when this process was cloned last: bit n-1 for signal n.
static WAITED: AtomicU64 = AtomicU64::new(0);

/// What waits in the kernel for the calling thread and its process, of which the caller blocks everything.
pub fn waiting() -> u64 {
    use crate::raw::nr::RT_SIGPENDING;
    let mut waiting = 0u64;
    // SAFETY: the kernel writes one word.
    unsafe { raw::call2(RT_SIGPENDING, &raw mut waiting as u64, 8) };
    waiting
}

/// Before a fork, by the thread that makes it: what waits in the kernel for this process, blocked. A fork inherits none.
pub fn take_stock(waiting: u64) {
    WAITED.store(rules::known_by_number(waiting), Ordering::Relaxed);
}

/// In a copy that has just been forked, which is told by `each_sent` what the program has sent to itself: what waits in the threads'
/// queues waits in the shadow. The log says who takes it; if nobody has when this copy is promoted, it is sent again.
pub fn adopt_queues(each_sent: impl FnOnce(&mut dyn FnMut(Info, Target))) {
    // Below any ticket that is to come.
    let at = KERNEL.0.load(Ordering::Relaxed) - 1;
    let mut waited = WAITED.swap(0, Ordering::Relaxed);
    each_sent(&mut |info, target| {
        waited &= !(1 << (info.signal() - 1) as u32);
        add(Sent { info, target, at, queued: false });
    });
    // What others have sent: of those the number is all that counts.
    for signal in (1..32u64).filter(|signal| waited >> (signal - 1) & 1 != 0) {
        let info = Info::new(signal as i32, ANY);
        add(Sent { info, target: Target::PROCESS, at, queued: false });
    }
    for slot in thread::slots() {
        let block = thread::shared(slot);
        while let Some(info) = block.queue.take(0) {
            // What comes with a letter is sent again by that.
            if mail::letter_of(&info) != 0 {
                continue;
            }
            add(Sent { info, target: Target::slot(slot), at, queued: true });
        }
        block.pending.store(0, Ordering::Relaxed);
    }
}

/// A thread takes its place: what was sent to its number was sent to it.
pub fn has_begun(slot: u32, number: u32) {
    SHADOW.with(|mut pending| pending.has_begun(slot, number));
}

/// The send of this ticket has failed, or was never made.
pub fn retract(at: u64) {
    SHADOW.with(|mut pending| pending.retract(at));
}

/// A thread has taken a signal at `ticket`. `exact` if the whole siginfo is known, and not the number alone.
pub fn taken(slot: u32, info: &Info, exact: bool, ticket: u64) {
    SHADOW.with(|mut pending| pending.taken(Taken { slot, info, exact, ticket }));
}

/// A signal is ignored from now on: the kernel forgets what waits of it.
pub fn forget(signal: i32) {
    SHADOW.with(|mut pending| pending.forget(signal));
}

/// At a promotion, before any thread is live: sends for real what still waits.
pub fn raise_all() {
    let process = u64::from(state::REAL_PID.load(Ordering::Relaxed));
    let know = |sent: &Sent| Known {
        is_counted: sent.queued && members::is_raised_again(&sent.info),
        tid: sent.target.its_slot().map_or(0, tid_in),
    };
    SHADOW.with(|mut pending| pending.raise_all(know, |sent, tid| raise(process, sent, u64::from(tid))));
    mail::raise_all();
    let raise_again = |signal: u64| {
        // SAFETY: to our own process, whose threads block everything until they are live.
        unsafe { raw::call2(nr::KILL, process, signal) };
    };
    members::each_unseen(signal::waits, raise_again);
    if sigchld::is_due_again() {
        raise_again(17);
    }
}

/// The kernel's number of a slot's thread in this copy; 0 if that is not known. One that has been made and is not yet in its first
/// door is found by what its maker knows: were it left to raise them itself, what others send it meanwhile would come first.
fn tid_in(slot: u32) -> u32 {
    match crate::seats::tid(slot).load(Ordering::Relaxed) {
        0 if slot != 0 => thread::shared(slot).real_tid.load(Ordering::Acquire),
        tid => tid,
    }
}

/// A thread begins in a copy that acts: what was sent to it before the promotion comes now.
pub fn raise_for(slot: u32, tid: u32) {
    let process = u64::from(state::REAL_PID.load(Ordering::Relaxed));
    SHADOW.with(|mut pending| {
        while let Some(sent) = pending.take(|sent| !sent.queued && sent.target == Target::slot(slot)) {
            raise(process, &sent, u64::from(tid));
        }
    });
}

/// Sends for real: to the thread `tid`, or to the process where the target is that. The numbers are put right on arrival.
fn raise(process: u64, sent: &Sent, tid: u64) {
    let signal = sent.info.signal() as u64;
    let directed = sent.target != Target::PROCESS;
    match rules::sent_by(sent.info.code(), directed) {
        // SAFETY: to our own process, whose threads block everything until they are live.
        By::Kill => drop(unsafe { raw::call2(nr::KILL, process, signal) }),
        // SAFETY: as above.
        By::Tgkill => drop(unsafe { raw::call3(nr::TGKILL, process, tid, signal) }),
        By::Queue => sent.info.send(directed.then_some(tid as u32)),
    }
}

/// A standby's thread ends: nobody takes what waited for it.
pub fn forget_thread(slot: u32) {
    SHADOW.with(|mut pending| pending.forget_thread(slot));
}

/// A thread goes live: what waited in the queue of its predecessor, when this copy was made, waits in its own. The kernel would
/// not take most of it: a siginfo that says "by kill" or "of a child" can be sent by nobody but the one that gets it.
pub fn requeue(thread: &mut Thread) {
    let own = Target::slot(thread.slot());
    SHADOW.with(|mut pending| {
        while let Some(sent) = pending.take(|sent| sent.queued && sent.target == own) {
            signal::put_into_queue(thread, &sent.info);
        }
    });
}

/// At a promotion, before anything is raised: what came to this process because it was one of a group of processes, or a
/// terminal's, came to the primary as well.
pub fn forget_strays() {
    signal::forget_put_back();
    let (all, now) = (!0u64, [0u64; 2]);
    for _ in 0..WAITING_MAX {
        // SAFETY: takes what waits for this process, without waiting.
        let taken =
            unsafe { raw::call4(nr::RT_SIGTIMEDWAIT, &raw const all as u64, 0, now.as_ptr() as u64, 8) };
        if failed(taken) {
            return;
        }
    }
}

static SIGNALFDS: [AtomicU64; fdtable::SHADOWED / 64] = [const { AtomicU64::new(0) }; fdtable::SHADOWED / 64];

/// A descriptor number is a signalfd now.
pub fn is_signalfd(fd: i32) {
    if let Some(word) = SIGNALFDS.get(fd as u32 as usize / 64) {
        word.fetch_or(1 << (fd as u32 % 64), Ordering::Relaxed);
    }
}

/// Whether a descriptor number is, or has once been, a signalfd.
pub fn may_be_signalfd(fd: i32) -> bool {
    SIGNALFDS
        .get(fd as u32 as usize / 64)
        .is_some_and(|word| word.load(Ordering::Relaxed) & 1 << (fd as u32 % 64) != 0)
}

/// After a read, in every copy: if it was from a signalfd, the signals in it are taken, and their sender is the
/// group. The number may have become another file's meanwhile; what is then found here matches no signal.
#[inline(always)]
pub fn after_read(thread: &Thread, fd: i32, buffer: u64, result: i64) {
    let known = SIGNALFDS.get(fd as u32 as usize / 64).map_or(0, |word| word.load(Ordering::Relaxed));
    if known & 1 << (fd as u32 % 64) != 0 && result >= RECORD_BYTES as i64 {
        signals_read(thread, buffer, result);
    }
}

#[cold]
fn signals_read(thread: &Thread, buffer: u64, result: i64) {
    let records = GuestMut::<SignalRecord>::at(buffer);
    for record in (0..result as u64 / RECORD_BYTES).map(|index| records.nth(index)) {
        let mut info = Info([0; 16]);
        let word = |offset| GuestMut::<u32>::at(record.address().wrapping_add(offset)).written();
        let told = rules::of_record(|offset| word(offset).unwrap_or(0));
        info.0[..told.len()].copy_from_slice(&told);
        // The kernel's number of the copy that reads, which the log carries as it was read.
        let reader = match state::header() {
            Some(header) if state::is_standby() => header.primary_pid.load(Ordering::Relaxed),
            _ => state::REAL_PID.load(Ordering::Relaxed),
        };
        let renamed = info.adopt_from(reader);
        if !state::is_standby() {
            info.recall();
            if mail::arrived_by_descriptor(&info, true) {
                part!(record, SignalRecord, errno).store(&0);
            }
        } else {
            if mail::arrived_by_descriptor(&info, false) {
                part!(record, SignalRecord, errno).store(&0);
            }
            info.set_tag(0);
            signal::consumed(thread, &info, true, thread.begun().ticket);
        }
        if renamed {
            part!(record, SignalRecord, pid).store(&info.sender());
        }
    }
}

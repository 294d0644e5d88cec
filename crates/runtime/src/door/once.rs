//! Initialisers that run once: `pthread_once`, `call_once`, guarded function statics.
//!
//! Compilers inline the check whether one is done, so passing cannot be logged: only the runner logs. A
//! standby's thread at such an object does not know whether the run at its ring's head is for this object or
//! a later one; `us_order::once` decides. Completion logs nothing: it follows from the runner's own replay.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::event::{EventKind, Header};
use us_calls::Class;
use us_order::once::{Local, Once, OnceView, decide, is_own};

use super::sync::{self, ALL, Caller, call_of, clock_of, op};
use super::unwind;
use crate::above::above;
use crate::thread::{Mode, Thread};
use crate::turns::doors::Scope;
use crate::{backlog, clock, raw, real, signal, state, turns};

/// The states of one kind of object.
struct Kind {
    op: u16,
    /// Nobody has run it.
    idle: u32,
    running: u32,
    /// Running, and somebody sleeps for the end.
    awaited: u32,
    done: u32,
}

/// `pthread_once_t`, with glibc's values; 3 is ours.
const ONCE: Kind = Kind { op: op::ONCE, idle: 0, running: 1, awaited: 3, done: 2 };

/// A guard of the C++ ABI: the first byte says done, and compiled code reads it; the rest is the library's.
const GUARD: Kind = Kind { op: op::GUARD, idle: 0, running: 0x100, awaited: 0x1_0100, done: 1 };

/// How long a standby's thread leaves an initialiser on the heap to others, ns: 5 ms.
const DRIFT_NS: u64 = 5_000_000;

/// How long a replay waits for what others have run, ns: 50 ms.
const FED_NS: u64 = 50_000_000;

/// How the attempt to run an initialiser ended.
enum Begun {
    /// It has been run.
    Done,
    /// The caller is to run it.
    Run,
    /// The caller has become a standby's thread meanwhile.
    Follow,
}

impl Kind {
    fn local(&self, word: u32) -> Local {
        match word {
            word if word == self.running || word == self.awaited => Local::Running,
            word if word == self.idle => Local::Idle,
            _ => Local::Done,
        }
    }

    /// Whether the caller is to run the initialiser; if not, it is done.
    fn begin(&self, word: &AtomicU32) -> bool {
        if self.local(word.load(Ordering::Acquire)) == Local::Done {
            return false;
        }
        let caller = Caller::get();
        loop {
            if let Some(thread) = caller.replaying()
                && let Some(run) = self.begin_by_log(thread, word)
            {
                return run;
            }
            match self.begin_for_real(word, true) {
                Begun::Done => return false,
                Begun::Run => break,
                Begun::Follow => {}
            }
        }
        if let Some(thread) = caller.recording() {
            let call = call_of(self.op, word.as_ptr() as usize);
            let ticket = clock_of(call).fetch_add(1, Ordering::AcqRel);
            thread.push(EventKind::OnceRun, 0, call, ticket);
        }
        true
    }

    /// `in_turns`: whether others have theirs while it waits.
    fn begin_for_real(&self, word: &AtomicU32, in_turns: bool) -> Begun {
        loop {
            let now = word.load(Ordering::Acquire);
            let next = match self.local(now) {
                Local::Done => return Begun::Done,
                Local::Idle => self.running,
                Local::Running => self.awaited,
            };
            if now != next && word.compare_exchange(now, next, Ordering::AcqRel, Ordering::Acquire).is_err() {
                continue;
            }
            if next == self.running {
                return Begun::Run;
            }
            // Not through `Caller::sleep`: a signal delivered here would stand in the log before a run that
            // may be another thread's, and the standby looks at its ring without waiting.
            // SAFETY: the calling thread's own block; no reference to it is held here.
            let mut thread = unsafe { crate::tls::current().as_mut() };
            let followed = Caller::get().mode() == Mode::Replay;
            let on = turns::On::alike(word.as_ptr() as u64);
            if !in_turns {
                raw::futex_wait(word, self.awaited, 0);
            } else if thread.as_deref_mut().and_then(|thread| turns::sleep(thread, on, None)).is_none() {
                thread.as_deref_mut().map(turns::pause);
                raw::futex_wait(word, self.awaited, 0);
                thread.as_deref_mut().map(turns::take);
            }
            // Late, and then without a log; the wait may be for what a handler does.
            thread.filter(|thread| signal::is_due(thread)).map(signal::deliver_late);
            above().stand_still_spinning();
            // Here, or where it waited for its turn.
            if !followed && Caller::get().mode() == Mode::Replay {
                return Begun::Follow;
            }
        }
    }

    /// As [`Kind::begin`], for an initialiser that the log does not know.
    fn begin_unseen(&self, word: &AtomicU32) -> bool {
        loop {
            match self.begin_for_real(word, !state::is_parallel()) {
                Begun::Done => return false,
                Begun::Run => return true,
                Begun::Follow => {}
            }
        }
    }

    /// As a standby. `None`: this copy is live and nobody has begun.
    fn begin_by_log(&self, thread: &mut Thread, word: &AtomicU32) -> Option<bool> {
        let (mut pause_ns, mut waited_ns) = (20_000, 0);
        loop {
            let bell = thread.bell.load(Ordering::Acquire);
            thread.parked.store(true, Ordering::SeqCst);
            // Read before the ring: when the copy is live the ring can only have been drained.
            let live = state::LIVE.load(Ordering::Acquire);
            let head = thread.peek();
            if head.is_some_and(|head| head.kind == EventKind::Yield as u8) {
                turns::follow_pause(thread);
                continue;
            }
            let head = head.filter(|head| self.is_run(head));
            let view = self.view(word, head, live);
            let mut decision = decide(view);
            if let (Once::Wait, Some(run)) = (&decision, head) {
                let is_due = clock_of(run.call).load(Ordering::Acquire) == run.ticket;
                // A thread that has run something else may wait for this one: no longer than that.
                let others_run = || {
                    waited_ns < DRIFT_NS && backlog::is_unapplied(thread.slot(), |other| self.is_run(other))
                };
                // A guard is a static of a function: never on the heap. What a replay has not been fed yet is not seen here.
                let may_drift = self.op == op::ONCE && (waited_ns > FED_NS || !state::is_detached());
                if may_drift && is_own(view, is_due, false) && is_own(view, is_due, others_run()) {
                    decision = Once::Run;
                }
            }
            if matches!(decision, Once::Wait) {
                // What is awaited (object, clock, ring, promotion) has no common wake: short naps. It happens
                // once per initialiser.
                await_turn(thread, head);
                raw::futex_wait(&thread.bell, bell, pause_ns);
                waited_ns += pause_ns;
                pause_ns = (pause_ns * 2).min(1_000_000);
                continue;
            }
            thread.parked.store(false, Ordering::Relaxed);
            await_turn(thread, None);
            match (decision, head) {
                (Once::Run, Some(head)) => self.apply(thread, word, head),
                (Once::RunLive, _) => {
                    above().go_live(thread);
                    return None;
                }
                _ => return Some(false),
            }
            return Some(true);
        }
    }

    fn is_run(&self, head: &Header) -> bool {
        head.kind == EventKind::OnceRun as u8 && head.call >> 12 == self.op
    }

    fn view(&self, word: &AtomicU32, head: Option<Header>, live: bool) -> OnceView {
        let number = clock::number(word.as_ptr() as usize);
        OnceView {
            local: self.local(word.load(Ordering::Acquire)),
            object_clock: u32::from(number),
            clock_value: clock::hashed(number).load(Ordering::Acquire),
            run_at_head: head.map(|head| (u32::from(head.call & 0xfff), head.ticket)),
            live,
        }
    }

    /// Takes the run at the ring's head.
    fn apply(&self, thread: &mut Thread, word: &AtomicU32, head: Header) {
        word.store(self.running, Ordering::Release);
        let _ = thread.expect(EventKind::OnceRun, head.call);
        clock::pass(clock_of(head.call), head.ticket);
        thread.close();
        thread.count(Class::of_event(EventKind::OnceRun, head.call));
    }

    fn end(&self, word: &AtomicU32, state: u32) {
        let address = word.as_ptr();
        let is_awaited = word.swap(state, Ordering::AcqRel) == self.awaited;
        sync::wake_next(address, ALL, is_awaited, false);
    }
}

/// Says for which ticket this thread naps, if for one: a promotion looks there for tickets that died with
/// the primary.
fn await_turn(thread: &Thread, run: Option<Header>) {
    let clock = run.map_or(core::ptr::null_mut(), |run| clock_of(run.call).as_ptr().cast());
    thread.awaited_ticket.store(run.map_or(0, |run| run.ticket), Ordering::Relaxed);
    thread.awaited.store(clock, Ordering::Release);
}

struct Run<'a> {
    word: &'a AtomicU32,
    initialiser: unsafe extern "C" fn(),
}

unsafe extern "C" fn run(run: *mut c_void) {
    // SAFETY: `pthread_once` passes its own.
    let run = unsafe { &*run.cast::<Run>() };
    // SAFETY: the guest's initialiser.
    unsafe { (run.initialiser)() };
}

/// The initialiser has thrown or its thread was cancelled: somebody else may try.
unsafe extern "C" fn abandoned(run: *mut c_void) {
    // SAFETY: `pthread_once` passes its own.
    let run = unsafe { &*run.cast::<Run>() };
    ONCE.end(run.word, ONCE.idle);
}

unsafe extern "C" fn once(
    control: *const AtomicU32,
    initialiser: unsafe extern "C" fn(),
    caller: *const c_void,
) -> c_int {
    // SAFETY: the guest's control word.
    let word = unsafe { &*control };
    let is_done = || ONCE.local(word.load(Ordering::Acquire)) == Local::Done;
    // Before the turn only where there is none: whether it is done already would decide how many there are.
    if !state::is_parallel() && is_done() {
        return 0;
    }
    let is_unseen = unwinder(caller);
    // A copy that waited in its turn for the end of the unwinder's waited for a thread that wanted the next one.
    let begin_door = || (!is_unseen).then(|| Scope::begin(control as usize));
    let door = begin_door();
    if is_done() {
        return 0;
    }
    let run = if is_unseen { ONCE.begin_unseen(word) } else { ONCE.begin(word) };
    // The initialiser is the guest's, and may be left by its end.
    drop(door);
    if run {
        let mut this = Run { word, initialiser };
        // SAFETY: `this` outlives the call.
        unsafe { unwind::guarded(self::run, abandoned, (&raw mut this).cast()) };
        let _door = begin_door();
        ONCE.end(word, ONCE.done);
    }
    0
}

/// Whether the code at `caller` belongs to libgcc's unwinder. Its initialiser fills a private table, and a
/// cancelled thread comes to it earlier in a primary, on its way out of a wait, than in a standby, which
/// learns of the cancellation from the end of that wait: logged, it would stand in the wrong place.
#[cold]
fn unwinder(caller: *const c_void) -> bool {
    type Function = unsafe extern "C" fn(*const c_void, *mut [*const c_char; 4]) -> c_int;
    let function = real::DLADDR.get();
    if function.is_null() {
        return false;
    }
    // The first of the four words is the library's path.
    let mut about = [core::ptr::null(); 4];
    // SAFETY: libc's function of that name has this type; a path ends with NUL.
    unsafe {
        let found = core::mem::transmute::<*mut c_void, Function>(function)(caller, &raw mut about);
        found != 0
            && !about[0].is_null()
            && CStr::from_ptr(about[0]).to_bytes().windows(10).any(|part| part == b"/libgcc_s.")
    }
}

/// `pthread_once`: passes the caller's address on.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_once(
    _control: *const AtomicU32,
    _initialiser: unsafe extern "C" fn(),
) -> c_int {
    core::arch::naked_asm!("mov rdx, [rsp]", "jmp {}", sym once)
}

/// The name under which old libraries know [`pthread_once`].
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __pthread_once() {
    core::arch::naked_asm!("jmp {}", sym pthread_once)
}

/// C11's `call_once`.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn call_once() {
    core::arch::naked_asm!("jmp {}", sym pthread_once)
}

/// `__cxa_guard_acquire`: 1 if the caller is to run the initialiser and then to release or abort.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_guard_acquire(guard: *const AtomicU32) -> c_int {
    let _door = Scope::begin(guard as usize);
    // SAFETY: the guest's guard, eight bytes.
    c_int::from(GUARD.begin(unsafe { &*guard }))
}

/// `__cxa_guard_release`: the initialiser has run.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_guard_release(guard: *const AtomicU32) {
    let _door = Scope::begin(guard as usize);
    // SAFETY: the guest's guard.
    GUARD.end(unsafe { &*guard }, GUARD.done);
}

/// `__cxa_guard_abort`: the initialiser has thrown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __cxa_guard_abort(guard: *const AtomicU32) {
    let _door = Scope::begin(guard as usize);
    // SAFETY: the guest's guard.
    GUARD.end(unsafe { &*guard }, GUARD.idle);
}

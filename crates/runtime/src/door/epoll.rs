//! epoll: the kernel is given tokens of ours.
//!
//! A guest's data word is often a pointer, and heap addresses may differ between the copies. So the kernel
//! gets the index of a registration instead, and each copy translates it back to its own guest's word. The
//! index is chosen by the primary and travels in the log. A registration that has been removed keeps its
//! data until its place is needed again, which is as late as possible: an event that was already on its
//! way carries the old token.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general::epoll_event;
use us_abi::event::{CallArgs, EventKind, ReturnHead};
use us_calls::Row;

use crate::call::Call;
use crate::door::patience::Patience;
use crate::door::pending;
use crate::door::recorded::{begin, end, execute, return_ticket, take_begin_with, take_end};
use crate::fdtable;
use crate::guest::{Digest, GuestMut, GuestPtr};
use crate::lock::Lock;
use crate::raw::{self, err, failed};
use crate::signal::{self, Plan};
use crate::thread::{Mode, Thread};
use crate::{mirror, state};

/// Operations of epoll_ctl.
pub const CTL_ADD: u64 = 1;
/// As above.
pub const CTL_DEL: u64 = 2;
/// As above.
pub const CTL_MOD: u64 = 3;
const EPOLLONESHOT: u32 = linux_raw_sys::general::EPOLLONESHOT;
/// Of a registration, behind [`EPOLLONESHOT`]: it has been reported, and is until it is armed not reported again. No event of the
/// kernel's has this bit.
const FIRED: u32 = 1 << 26;
const EVENT_BYTES: usize = size_of::<epoll_event>();
/// Registrations that can exist at one time.
const REGISTRATIONS: usize = 1 << 17;
/// Events of one wait; more are left for the next, as epoll may.
const EVENTS_MAX: usize = 16384;

struct Registration {
    epoll: AtomicI32,
    fd: AtomicI32,
    data: AtomicU64,
    events: AtomicU32,
    /// Next registration of the same descriptor plus one: an older one.
    next: AtomicU32,
    /// Which call made it, by the order in which they begin.
    born: AtomicU64,
    used: AtomicBool,
}

static POOL: [Registration; REGISTRATIONS] = [const {
    Registration {
        epoll: AtomicI32::new(0),
        fd: AtomicI32::new(0),
        data: AtomicU64::new(0),
        events: AtomicU32::new(0),
        next: AtomicU32::new(0),
        born: AtomicU64::new(0),
        used: AtomicBool::new(false),
    }
}; REGISTRATIONS];

/// Where the next free place is looked for: behind the last one, so that a place rests as long as possible.
static HAND: AtomicU32 = AtomicU32::new(0);
/// One past the highest place that has ever been filled in this copy.
static HIGH: AtomicU32 = AtomicU32::new(0);
/// Calls that have begun.
static BEGUN: AtomicU64 = AtomicU64::new(0);
static LOCK: Lock = Lock::new();

/// Guards the lists. Held for a few instructions and never across a system call or guest code.
fn locked<R>(f: impl FnOnce() -> R) -> R {
    LOCK.with(f)
}

/// Calls that had begun when this process was forked: what they have registered is its parent's.
static INHERITED: AtomicU64 = AtomicU64::new(0);

/// A child process starts with its parent's registrations.
pub fn inherit() {
    INHERITED.store(BEGUN.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// The registrations of a descriptor in a set, the newest first: more than one only while calls about it are under way.
fn registrations(epoll: i32, fd: i32) -> impl Iterator<Item = u32> {
    let place = |link: &AtomicU32| link.load(Ordering::Relaxed).checked_sub(1);
    let newest = fdtable::get(fd).and_then(|shadow| place(&shadow.registration));
    core::iter::successors(newest, move |at| place(&POOL[*at as usize].next))
        .filter(move |at| POOL[*at as usize].epoll.load(Ordering::Relaxed) == epoll)
}

/// The newest registration of a descriptor.
pub fn find(epoll: i32, fd: i32) -> Option<u32> {
    registrations(epoll, fd).next()
}

/// How many registrations a descriptor has in a set.
pub fn count(epoll: i32, fd: i32) -> usize {
    registrations(epoll, fd).count()
}

/// Does with the kernel's set what a registration says. Its result.
pub fn control_kernel(place: u32, operation: u64) -> i64 {
    control_kernel_for(place, operation, POOL[place as usize].events.load(Ordering::Relaxed))
}

fn control_kernel_for(place: u32, operation: u64, events: u32) -> i64 {
    let registration = &POOL[place as usize];
    let mut event = [0u8; EVENT_BYTES];
    event[..4].copy_from_slice(&(events & !FIRED).to_le_bytes());
    event[4..].copy_from_slice(&u64::from(place).to_le_bytes());
    let epoll = registration.epoll.load(Ordering::Relaxed) as u64;
    let fd = registration.fd.load(Ordering::Relaxed) as u64;
    // SAFETY: the kernel reads the event.
    unsafe { raw::call4(raw::nr::EPOLL_CTL, epoll, operation, fd, &raw const event as u64) }
}

fn free_place() -> Option<u32> {
    let start = HAND.load(Ordering::Relaxed);
    let place = (0..REGISTRATIONS as u32)
        .map(|step| (start + step) % REGISTRATIONS as u32)
        .find(|place| !POOL[*place as usize].used.load(Ordering::Relaxed))?;
    HAND.store((place + 1) % REGISTRATIONS as u32, Ordering::Relaxed);
    Some(place)
}

fn fill(place: u32, epoll: i32, fd: i32, events: u32, data: u64) {
    let registration = &POOL[place as usize];
    registration.epoll.store(epoll, Ordering::Relaxed);
    registration.fd.store(fd, Ordering::Relaxed);
    registration.events.store(events, Ordering::Relaxed);
    registration.used.store(true, Ordering::Relaxed);
    registration.data.store(data, Ordering::Release);
    HIGH.fetch_max(place + 1, Ordering::Relaxed);
}

fn link(place: u32, fd: i32) {
    if let Some(shadow) = fdtable::get(fd) {
        POOL[place as usize].next.store(shadow.registration.load(Ordering::Relaxed), Ordering::Relaxed);
        shadow.registration.store(place + 1, Ordering::Relaxed);
    }
}

fn unlink(place: u32, fd: i32) {
    let Some(shadow) = fdtable::get(fd) else { return };
    let after = POOL[place as usize].next.load(Ordering::Relaxed);
    let mut link = &shadow.registration;
    while link.load(Ordering::Relaxed) != 0 {
        let at = link.load(Ordering::Relaxed) - 1;
        if at == place {
            link.store(after, Ordering::Relaxed);
            break;
        }
        link = &POOL[at as usize].next;
    }
    POOL[place as usize].used.store(false, Ordering::Relaxed);
}

/// A descriptor is gone: its registrations are free to be used again.
pub fn forget(fd: i32) {
    let Some(shadow) = fdtable::get(fd) else { return };
    if shadow.registration.load(Ordering::Relaxed) == 0 {
        return;
    }
    locked(|| {
        let mut at = shadow.registration.swap(0, Ordering::Relaxed);
        while at != 0 {
            let registration = &POOL[at as usize - 1];
            registration.used.store(false, Ordering::Relaxed);
            at = registration.next.load(Ordering::Relaxed);
        }
    });
}

/// epoll_ctl. The token travels in the `Enter`: an event for it may be replayed before this call's `Return`.
pub fn control(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let [epoll, op, fd, event, ..] = call.args;
    let (epoll, fd) = (epoll as i32, fd as i32);
    let mut kernel_event = epoll_event { events: 0, data: 0 };
    if op != CTL_DEL {
        let Some(given) = GuestPtr::at(event).load() else { return err::EFAULT };
        kernel_event = given;
    }
    let epoll_event { events, data } = kernel_event;
    let mut digest = Digest::new();
    digest.number(op);
    digest.number(fd as u64);
    digest.number(u64::from(events));
    let digest = digest.finish();
    loop {
        if thread.calls() == Mode::Replay {
            let mut change = Change { op, epoll, fd, token: 0, born: 0 };
            let begun = take_begin_with(thread, row, epoll, digest, |_, token| {
                change.token = token;
                change.begin(events, data);
            });
            if begun.is_none() {
                continue;
            }
            let Some(result) = take_end(thread, row, |_, head, _, _| {
                change.conclude(head.result);
                if state::is_mirrored() && !failed(head.result) {
                    let data = change.token.wrapping_sub(1);
                    mirror::registered(epoll, op, fd, [u64::from(events), data]);
                }
                head.result
            }) else {
                // It was not done, and is made anew, with another token.
                change.conclude(err::EINTR);
                continue;
            };
            return result;
        }
        // A place is taken before the call, because the first event may come before the call has returned. A MOD
        // gets a new one: events on their way carry the old word.
        let place = if op == CTL_DEL { None } else { locked(free_place) };
        let token = place.map_or(0, |place| u64::from(place) + 1);
        if let Some(place) = place {
            kernel_event.data = u64::from(place);
        }
        let mut change = Change { op, epoll, fd, token, born: 0 };
        let mut args = call.args;
        args[3] = &raw const kernel_event as u64;
        let recording = thread.calls() == Mode::Record;
        if recording {
            begin(thread, row, CallArgs { fd: epoll, digest, len: token });
        }
        change.begin(events, data);
        let result = execute(thread, row, call.nr, &args);
        change.conclude(result);
        if recording {
            end(thread, row, 0, ReturnHead { result, identity: 0 });
        }
        return result;
    }
}

/// One epoll_ctl, from its beginning to its end.
///
/// A registration is linked when its call begins, and the older ones go when the call has succeeded, by age and not
/// by what is then found: once the kernel has armed it another thread may get its event, handle it and arm the
/// next, all before this call comes back. (Concluded by what was found, the later registration went, and the next
/// promotion disarmed a descriptor that the kernel had armed.)
struct Change {
    op: u64,
    epoll: i32,
    fd: i32,
    /// The place of the new registration plus one; 0 for none.
    token: u64,
    born: u64,
}

impl Change {
    /// In every copy, at the call's turn, before the kernel can report the first event.
    fn begin(&mut self, events: u32, data: u64) {
        locked(|| {
            self.born = BEGUN.fetch_add(1, Ordering::Relaxed) + 1;
            if self.token != 0 {
                let place = self.token as u32 - 1;
                fill(place, self.epoll, self.fd, events, data);
                POOL[place as usize].born.store(self.born, Ordering::Relaxed);
                link(place, self.fd);
            }
        });
    }

    /// In every copy, when the result is known.
    fn conclude(&self, result: i64) {
        locked(|| {
            if failed(result) {
                let own = (self.token as u32).wrapping_sub(1);
                // Somebody may have closed the descriptor, and the place been given away.
                if self.token != 0 && POOL[own as usize].born.load(Ordering::Relaxed) == self.born {
                    unlink(own, self.fd);
                }
            } else if self.op != CTL_ADD {
                while let Some(old) = older(self.epoll, self.fd, self.born) {
                    unlink(old, self.fd);
                }
            }
        });
    }
}

/// A registration of this descriptor that was made before the call `born`.
fn older(epoll: i32, fd: i32, born: u64) -> Option<u32> {
    registrations(epoll, fd).find(|at| POOL[*at as usize].born.load(Ordering::Relaxed) < born)
}

/// Copies the events of a wait to the guest with its own data words instead of our tokens. What the wait comes to: where there is no
/// room for all it tells of those before, as the kernel's own.
#[inline(always)]
fn translate(to: GuestMut<epoll_event>, result: i64, event: impl Fn(usize) -> Option<epoll_event>) -> i64 {
    let short = |index| if index == 0 { err::EFAULT } else { index as i64 };
    for index in 0..result.max(0) as usize {
        let Some(epoll_event { events, data: token }) = event(index) else { return short(index) };
        let data = POOL.get(token as usize).map_or(token, |place| {
            if place.events.load(Ordering::Relaxed) & EPOLLONESHOT != 0 {
                // Until the guest arms it. Re-arming it at a promotion would hand the same descriptor to a second thread.
                place.events.store(EPOLLONESHOT | FIRED, Ordering::Relaxed);
            }
            place.data.load(Ordering::Acquire)
        });
        if !to.nth(index as u64).store(&epoll_event { events, data }) {
            return short(index);
        }
    }
    result
}

/// epoll_wait, epoll_pwait, epoll_pwait2.
pub fn wait(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let mask = signal::begin_waiting(thread, row, call);
    let result = wait_masked(thread, row, call);
    signal::end_waiting(thread, mask);
    result
}

fn wait_masked(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    let mut call = *call;
    if call.args[2] as i32 > EVENTS_MAX as i32 {
        call.args[2] = EVENTS_MAX as u64;
    }
    let call = &call;
    let mut patience = Patience::default();
    let mut digest = Digest::new();
    digest.number(call.args[2] & 0xffff_ffff);
    let digest = digest.finish();
    // Before the loop: what the other modes need is computed in front of that, each time.
    if thread.calls() == Mode::Record
        && let Some(result) = record_wait(thread, row, call, &mut patience, digest)
    {
        return result;
    }
    wait_in_any_mode(thread, row, call, patience, digest)
}

#[inline(always)]
fn record_wait(
    thread: &mut Thread,
    row: &Row,
    call: &Call,
    patience: &mut Patience,
    digest: u32,
) -> Option<i64> {
    let capacity = (call.args[2] as i32).clamp(0, EVENTS_MAX as i32) as usize;
    let began = patience.begin(call);
    let mut args = *patience.args(call);
    begin(thread, row, CallArgs { fd: args[0] as i32, digest, len: began });
    let place = thread.reserve(size_of::<ReturnHead>() + capacity * EVENT_BYTES)?;
    // SAFETY: the events lie behind the head, both reserved.
    let events = unsafe { place.add(size_of::<ReturnHead>()) };
    args[1] = events as u64;
    let result = execute(thread, row, call.nr, &args);
    let count = result.max(0) as usize;
    // SAFETY: so many events lie there.
    let event = |index| Some(unsafe { events.cast::<epoll_event>().add(index).read() });
    let shown = translate(GuestMut::at(call.args[1]), result, event);
    let plan = signal::plan(thread, row, result);
    if plan.is_abandoned() {
        return None;
    }
    let ticket = return_ticket(row);
    // SAFETY: reserved.
    unsafe { place.cast::<ReturnHead>().write(ReturnHead { result, identity: 0 }) };
    let bytes = size_of::<ReturnHead>() + count * EVENT_BYTES;
    thread.publish(EventKind::Return, plan.flags(), row.nr, ticket, bytes);
    if plan.carry_out(thread) {
        return None;
    }
    Some(shown)
}

#[inline(never)]
fn wait_in_any_mode(
    thread: &mut Thread,
    row: &'static Row,
    call: &Call,
    mut patience: Patience,
    digest: u32,
) -> i64 {
    thread.attempt(|thread, mode| match mode {
        Mode::Solo => {
            let args = *patience.args(call);
            let (result, shown) = solo_wait(thread, row, call, &args);
            if signal::solo_restart(thread, row, result) {
                return None;
            }
            Some(shown)
        }
        Mode::Record => record_wait(thread, row, call, &mut patience, digest),
        Mode::Replay => {
            // The moment is the primary's: our own copy of it is what the log says.
            let began = take_begin_with(thread, row, call.args[0] as i32, digest, |_, _| ())?;
            patience.continues(call, began);
            let taken = take_end(thread, row, |_, head, bytes, flags| {
                let event = |index: usize| {
                    let place = bytes.get(index * EVENT_BYTES..)?.first_chunk::<EVENT_BYTES>()?;
                    // SAFETY: the bytes of one, which is packed.
                    Some(unsafe { place.as_ptr().cast::<epoll_event>().read() })
                };
                (head.result, translate(GuestMut::at(call.args[1]), head.result, event), flags)
            });
            let (result, shown, flags) = taken?;
            if Plan::replay(thread, flags, result) {
                return None;
            }
            Some(shown)
        }
    })
}

/// Without a log the kernel writes into the guest's own array, and the words are put right in place.
fn solo_wait(thread: &Thread, row: &Row, call: &Call, args: &[u64; 6]) -> (i64, i64) {
    let result = execute(thread, row, call.nr, args);
    let to = GuestMut::<epoll_event>::at(call.args[1]);
    (result, translate(to, result, |index| to.nth(index as u64).written()))
}

/// In sets that have been made anew: has the kernel not report what has been reported, by letting it do so once more, to us. What is
/// not ready for anything cannot be had to that, and is reported if it comes to its end.
fn disarm() {
    use linux_raw_sys::general::{EPOLLIN, EPOLLOUT, EPOLLPRI, EPOLLRDHUP};
    const ANY: u32 = EPOLLIN | EPOLLOUT | EPOLLPRI | EPOLLRDHUP | EPOLLONESHOT;
    const AT_ONCE: usize = 64;
    const ROUNDS: usize = 64;
    for (place, registration) in POOL.iter().enumerate().take(HIGH.load(Ordering::Relaxed) as usize) {
        let events = registration.events.load(Ordering::Relaxed);
        if !registration.used.load(Ordering::Relaxed) || events & FIRED == 0 {
            continue;
        }
        control_kernel_for(place as u32, CTL_MOD, ANY);
        let epoll = registration.epoll.load(Ordering::Relaxed) as u64;
        // What else it tells is armed again behind this, or is told by level.
        let mut told = [epoll_event { events: 0, data: 0 }; AT_ONCE];
        for _ in 0..ROUNDS {
            // SAFETY: the kernel writes at most so many events.
            let got =
                unsafe { raw::call4(raw::nr::EPOLL_WAIT, epoll, &raw mut told as u64, AT_ONCE as u64, 0) };
            if got < AT_ONCE as i64 {
                break;
            }
        }
    }
}

/// Arms every registration anew: an edge that the dead primary consumed and did not log would never come
/// again. By the promoted copy, before its threads go live.
pub fn rearm() {
    const EPOLLET: u32 = linux_raw_sys::general::EPOLLET;
    // Made, and filled, by whoever put this process together.
    if state::IS_RESTORED.load(Ordering::Relaxed) {
        disarm();
    }
    for (place, registration) in POOL.iter().enumerate().take(HIGH.load(Ordering::Relaxed) as usize) {
        let events = registration.events.load(Ordering::Relaxed);
        // One that is inherited waits for the signals of the parent, as it does natively.
        let is_own = registration.born.load(Ordering::Relaxed) > INHERITED.load(Ordering::Relaxed);
        let is_signalfd = is_own && pending::may_be_signalfd(registration.fd.load(Ordering::Relaxed));
        if !registration.used.load(Ordering::Relaxed)
            || events & (EPOLLET | EPOLLONESHOT) == 0 && !is_signalfd
        {
            // What is reported by level is reported again anyway.
            continue;
        }
        if events & FIRED != 0 && !is_signalfd {
            // The kernel arms what is put in for its error and its end, whatever the caller says: it would be reported. A signalfd
            // has neither.
            continue;
        }
        if find(registration.epoll.load(Ordering::Relaxed), registration.fd.load(Ordering::Relaxed))
            != Some(place as u32)
        {
            // There is a newer one: that of a call in doubt.
            continue;
        }
        // A set waits for the signals of the process that has put the signalfd into it, and that one is dead.
        if is_signalfd && !failed(control_kernel(place as u32, CTL_DEL)) {
            control_kernel(place as u32, CTL_ADD);
        } else {
            control_kernel(place as u32, CTL_MOD);
        }
    }
}

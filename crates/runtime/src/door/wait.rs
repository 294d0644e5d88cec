//! wait4, waitid: children of the kernel's, and those of which the supervisor tells.
//!
//! A child that has failed over is no longer its parent's in the kernel's eyes, nor are any of a parent's that has. How
//! these end stands in the roster ([`crate::members`]); the guest sees one family. And the death of a child's primary is
//! not told where a standby takes over.

use core::mem::offset_of;
use core::sync::atomic::Ordering;

use linux_raw_sys::general::{rusage, siginfo__bindgen_ty_1__bindgen_ty_1, siginfo_t};
use us_abi::{Header, Process, ReturnHead, WILL, end, kin};
use us_world::child::{self, Child, End, Meaning, Standing, Wait, Waited};

use crate::call::Call;
use crate::door::{sigchld, witness};
use crate::guest::{GuestMut, part};
use crate::raw::err::ECHILD;
use crate::raw::{self, failed, nr};
use crate::thread::Thread;
use crate::{members, signal};

/// Numbers of the two calls.
pub const WAIT4: u64 = crate::raw::nr::WAIT4;
/// See [`WAIT4`].
pub const WAITID: u64 = crate::raw::nr::WAITID;

mod ask;

use ask::Ask;

pub(super) use crate::kernel::WEXITED;
pub(super) use crate::kernel::WNOHANG;
pub(super) use crate::kernel::WNOWAIT;
/// How long the death of a child with a standby may stay undecided, ns.
const VERDICT_NS: u64 = 3_000_000_000;
/// How long a call that does not wait does so for a child that is about to end, ns.
const ENDING_NS: u64 = 200_000_000;
/// Pause between two looks where both the kernel and the roster may have news, ns.
const LOOK_NS: u64 = 5_000_000;

/// What waitid writes of a child: the start of a `siginfo_t`, and its resources.
#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct News {
    signal: i32,
    errno: i32,
    pub(super) code: i32,
    pad: i32,
    pub(super) pid: u32,
    /// Its real user.
    pub(super) user: u32,
    pub(super) status: i32,
    rest: [u32; 25],
    used: [u64; size_of::<rusage>() / size_of::<u64>()],
}

impl News {
    const NONE: News = News {
        signal: 0,
        errno: 0,
        code: 0,
        pad: 0,
        pid: 0,
        user: 0,
        status: 0,
        rest: [0; 25],
        used: [0; _],
    };

    fn new(entry: &Process, child::News { code, status }: child::News) -> News {
        let [pid, user] = [&entry.pid, &entry.user].map(|word| word.load(Ordering::Relaxed));
        News { signal: 17, code, pid, user, status, ..News::NONE }
    }

    /// Of a process of which the roster tells.
    pub(super) fn of(entry: &Process) -> News {
        let end = child::News::of_end(entry.status.load(Ordering::Relaxed));
        let mut news = News::new(entry, end);
        for (kind, used) in entry.used_us.iter().enumerate() {
            let us = used.load(Ordering::Relaxed);
            (news.used[2 * kind], news.used[2 * kind + 1]) = (us / 1_000_000, us % 1_000_000);
        }
        news
    }

    /// What it tells.
    pub(super) fn told(&self) -> child::News {
        child::News { code: self.code, status: self.status }
    }

    /// The same of a child that was killed when it was about to end: that is how it has ended.
    fn or_as_willed(mut self) -> News {
        let willed = members::find(self.pid).and_then(willed);
        child::News { code: self.code, status: self.status } = self.told().or_as_willed(willed);
        self
    }
}

/// The end that a process has announced.
pub(super) fn willed(entry: &Process) -> Option<child::News> {
    let will = entry.will.load(Ordering::SeqCst);
    (will & WILL != 0).then(|| child::News::of_end(will & !WILL))
}

/// What the roster says of a child whose primary was once `first`.
pub(super) fn child_of(entry: &Process, first: u32) -> Child {
    Child {
        has_joined: entry.joined.load(Ordering::Acquire) != 0,
        is_adopted: entry.kin.load(Ordering::Acquire) == kin::ADOPTED,
        is_first: members::primary(entry) == first,
        is_doomed: entry.doomed.load(Ordering::Acquire) != 0,
        end: match entry.end.load(Ordering::Acquire) {
            end::NONE => End::None,
            end::FINAL => End::Final,
            _ => End::Ended,
        },
        is_told: sigchld::is_told(entry),
    }
}

/// Makes the call for real, as a copy that records: what there is to tell is put into the slot of the call's `Return`
/// before anybody else forgets it.
pub fn make_recorded(thread: &mut Thread, number: u64, args: &[u64; 6]) -> i64 {
    let mut own = News::NONE;
    let place = match thread.reserve(size_of::<ReturnHead>() + size_of::<News>()) {
        Some(place) => {
            // SAFETY: reserved: the event's head comes before its payload.
            let news = unsafe {
                let news = place.add(size_of::<ReturnHead>()).cast::<News>();
                news.write(News::NONE);
                place.sub(size_of::<Header>()).cast::<u64>().write_volatile(MARK);
                news
            };
            witness::is_laid_out(thread);
            news
        }
        None => &raw mut own,
    };
    make_at(thread, number, args, place)
}

/// In the first word of a slot that holds [`News`].
const MARK: u64 = 0x7573_7761_6974_2121;

/// What a dead primary's wait had been told and has not published: the call's result and what the kernel would have
/// written. `None`: nothing, or what nobody is to hear of.
pub fn told(slot: *const u8, number: u64, asked: &[u64; 6]) -> Option<(i64, Told)> {
    // SAFETY: the slot of a dead primary's call, as `make_recorded` has laid it out.
    let news = unsafe {
        if slot.cast::<u64>().read() != MARK {
            return None;
        }
        slot.add(size_of::<Header>() + size_of::<ReturnHead>()).cast::<News>().read().or_as_willed()
    };
    let asked_of = Wait {
        news: (news.pid != 0).then(|| news.told()),
        meaning: members::find(news.pid).map_or(Meaning::Ends, |entry| meaning_then(entry, &news)),
        peeks: number == WAITID && asked[3] & WNOWAIT != 0,
    };
    let waited = child::judge(asked_of);
    let entry = members::find_child(news.pid);
    let mut told = Told { bytes: [0; 192], len: 0, signals: 0 };
    match (waited, entry) {
        (Waited::Again, _) => return None,
        (Waited::Reaped, Some(entry)) => {
            told.signals = sigchld::was_told(entry, news.told()).into();
            members::strike_off(entry);
        }
        // The dead primary may not have come to say so: its successor would be told of the same stop again, or never of
        // what comes behind it.
        (Waited::Stood, Some(entry)) => has_been_told(entry, news.code),
        _ => {}
    }
    // SAFETY: plain data.
    let of_news = unsafe { core::slice::from_raw_parts((&raw const news).cast::<u8>(), size_of::<News>()) };
    if number == WAITID {
        told.put(asked[2], &of_news[..SIGINFO_BYTES]);
        told.put(asked[4], &of_news[USED_AT..USED_AT + RUSAGE_BYTES]);
        return Some((0, told));
    }
    told.put(asked[1], &news.told().word().to_ne_bytes());
    told.put(asked[3], &of_news[USED_AT..USED_AT + RUSAGE_BYTES]);
    Some((i64::from(news.pid), told))
}

/// As a standby, at the turn of a wait that has told of something.
pub fn is_logged(thread: &Thread, call: &Call, result: i64) {
    if thread.ends.announced == 0 || call.nr == WAITID && call.args[3] & WNOWAIT != 0 {
        return;
    }
    let (pid, news) = if call.nr == WAITID {
        let told = GuestMut::<News>::at(call.args[2]);
        (
            part!(told, News, pid).written().unwrap_or_default(),
            child::News {
                code: part!(told, News, code).written().unwrap_or_default(),
                status: part!(told, News, status).written().unwrap_or_default(),
            },
        )
    } else {
        let status = GuestMut::<i32>::at(call.args[1]).written().unwrap_or_default();
        if status & 0x7f == 0x7f || status == 0xffff {
            // A stop, or a continuation.
            return;
        }
        (result as u32, child::News::of_end(status))
    };
    if pid != 0 && news.is_end() {
        sigchld::is_logged(pid, news);
    }
}

/// What the end of a child meant of which a dead parent had been told, once that is decided.
fn meaning_then(entry: &Process, news: &News) -> Meaning {
    let start = raw::now_ns();
    loop {
        match child_of(entry, news.pid).meaning_then(news.told()) {
            Meaning::Undecided if raw::now_ns() - start < VERDICT_NS => members::await_news(),
            Meaning::Undecided => return Meaning::Ends,
            decided => return decided,
        }
    }
}

/// The payload of a wait's `Return`.
pub struct Told {
    bytes: [u8; 192],
    len: usize,
    /// Signals whose handlers run before it.
    pub signals: u8,
}

impl Told {
    /// What goes to a place of the guest's, if it has one.
    fn put(&mut self, place: u64, bytes: &[u8]) {
        if place != 0 {
            self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Bytes that the log carries of a `siginfo_t`.
const SIGINFO_BYTES: usize = offset_of!(News, rest);
const RUSAGE_BYTES: usize = size_of::<rusage>();
/// Where the resources lie in [`News`].
const USED_AT: usize = offset_of!(News, used);
const _: () = assert!(
    USED_AT == size_of::<siginfo_t>()
        && size_of::<News>() == USED_AT + RUSAGE_BYTES
        && offset_of!(News, pid) == offset_of!(siginfo__bindgen_ty_1__bindgen_ty_1, _sifields)
        && offset_of!(News, code) == offset_of!(siginfo__bindgen_ty_1__bindgen_ty_1, si_code)
);

/// Makes the call for real.
pub fn make(thread: &Thread, number: u64, args: &[u64; 6]) -> i64 {
    let mut own = News::NONE;
    make_at(thread, number, args, &raw mut own)
}

fn make_at(thread: &Thread, number: u64, args: &[u64; 6], place: *mut News) -> i64 {
    let ask = match Ask::new(number, args) {
        Some(ask) if members::header().is_some() => ask,
        // SAFETY: the guest's own call.
        _ => return unsafe { raw::blocking(number, args, &thread.pending) },
    };
    // What is wrong with the arguments the kernel says best, and it says it before it waits.
    let valid = if number == WAITID { WNOHANG | WEXITED | WNOWAIT | 10 } else { WNOHANG | WEXITED | 10 };
    if ask.options & !(valid | 0xe000_0000) != 0 {
        // SAFETY: as above.
        return unsafe { raw::blocking(number, args, &thread.pending) };
    }
    match find(thread, &ask, place) {
        // SAFETY: the caller's place.
        Ok(()) => tell(number, args, unsafe { &*place }),
        Err(error) => error,
    }
}

/// What there is to tell: of a child, of none yet (no pid), or an error.
fn find(thread: &Thread, ask: &Ask, place: *mut News) -> Result<(), i64> {
    let Some(roster) = members::header() else { return Err(ECHILD) };
    let start = raw::now_ns();
    let mut doubted_ns = None;
    'look: loop {
        let seen = roster.ends.0.load(Ordering::Acquire);
        let mut is_any = false;
        for entry in members::adopted() {
            let is_about = ask.is_about(entry);
            if is_about == Some(false) {
                continue;
            }
            if has_vanished(entry) {
                members::strike_off(entry);
                continue 'look;
            }
            // Else it would be told of another group's end, or that there are children where there are none.
            if is_about.is_none() && raw::now_ns() - start < ENDING_NS {
                members::await_news();
                continue 'look;
            }
            is_any = true;
            if let Some(news) = standing(entry, ask) {
                // SAFETY: the caller's place, written before the roster forgets.
                unsafe { place.write_volatile(news) };
                if ask.options & WNOWAIT == 0 {
                    has_been_told(entry, news.code);
                }
                return Ok(());
            }
            if is_discarded(entry) {
                continue 'look;
            }
            if ask.options & WNOHANG != 0 && is_ending(entry) && raw::now_ns() - start < ENDING_NS {
                members::await_news();
                continue 'look;
            }
            if ask.options & WEXITED != 0 && members::has_ended(entry) {
                // SAFETY: the caller's place, written before the roster forgets.
                let news = unsafe {
                    place.write_volatile(News::of(entry));
                    place.read_volatile()
                };
                if ask.options & WNOWAIT == 0 {
                    sigchld::owe(entry, news.told());
                    reap_first(entry);
                    members::strike_off(entry);
                }
                return Ok(());
            }
        }
        let waits = ask.options & WNOHANG == 0;
        let options = if is_any { ask.options | WNOHANG } else { ask.options };
        // SAFETY: the caller's place.
        unsafe { place.write_volatile(News::NONE) };
        // SAFETY: the same.
        match ask_kernel(thread, ask, options, place).map(|()| unsafe { place.read_volatile() }) {
            Ok(news) if news.pid != 0 => match lives_on(&news, ask.options & WNOWAIT != 0) {
                true => continue,
                false => {
                    if let Some(entry) = members::find(news.pid)
                        && ask.options & WNOWAIT == 0
                    {
                        has_been_told(entry, news.code);
                    }
                    return Ok(());
                }
            },
            Ok(_) if !is_any || !waits => return Ok(()),
            Ok(_) => sleep(thread, &roster.ends.0, seen, LOOK_NS)?,
            Err(ECHILD) if is_any && !waits => return Ok(()),
            // A child may still be on its way to us from a parent of the kernel's: looked at again now and then.
            Err(ECHILD) if is_any => sleep(thread, &roster.ends.0, seen, 20 * LOOK_NS)?,
            Err(ECHILD) if super::unlisted::await_birth(ask.one()) => {}
            // The kernel keeps nothing of a child whose parent wants no word of its end, and says so at the death of its primary.
            Err(ECHILD) if may_live_on(ask) && !is_over(&mut doubted_ns) => {
                if waits {
                    sleep(thread, &roster.ends.0, seen, LOOK_NS)?;
                } else {
                    members::await_news();
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the time is over in which a death is decided, which begins with the first doubt.
fn is_over(doubted_ns: &mut Option<u64>) -> bool {
    let since_ns = *doubted_ns.get_or_insert_with(raw::now_ns);
    raw::now_ns() - since_ns >= VERDICT_NS
}

/// Whether a child is gone of which the kernel alone would tell, and it is not decided whether a standby takes over: it is adopted
/// then.
fn may_live_on(ask: &Ask) -> bool {
    let is_undecided = |entry: &Process| {
        // Without a supervisor nobody decides.
        members::is_fed()
            && entry.joined.load(Ordering::Acquire) != 0
            && entry.end.load(Ordering::Acquire) == end::NONE
            && !is_sure(entry)
            && !members::exists(members::primary(entry))
    };
    members::children().filter(|entry| ask.is_about(entry) != Some(false)).any(|entry| {
        // It may have been adopted between the look at those and the kernel's answer: the next look is at that one, too.
        entry.kin.load(Ordering::Acquire) == kin::ADOPTED || is_undecided(entry)
    })
}

/// Whether a process ends, whoever might follow it.
fn is_sure(entry: &Process) -> bool {
    willed(entry).is_some() || entry.doomed.load(Ordering::Acquire) != 0
}

/// Whether an adopted child is about to end. The kernel may have shown that already, by a pidfd, and the supervisor has not come to
/// say it: a program that is told so asks without waiting, and finds its child ended.
fn is_ending(entry: &Process) -> bool {
    is_sure(entry) && !members::has_ended(entry)
}

/// Whether the child of this number has ended and leaves nothing behind. No wait need have come by to find that.
pub fn leaves_nothing(pid: u32) -> bool {
    members::adopted().filter(|entry| entry.pid.load(Ordering::Relaxed) == pid).any(is_discarded)
}

/// Takes an adopted child off the list that has ended, if its parent ignores SIGCHLD; false if it stays. The kernel forgets such a
/// child by itself, but not one that another process has adopted.
fn is_discarded(entry: &Process) -> bool {
    let is_over = members::has_ended(entry) && signal::discards_children();
    if is_over {
        reap_first(entry);
        members::strike_off(entry);
    }
    is_over
}

/// Takes what the kernel keeps of an adopted child's first primary, if it was ours. That one has been killed, and its end may
/// take longer than its successor has lived: once the child is off the list, nobody knows what such an end means.
fn reap_first(entry: &Process) {
    use crate::kernel::P_PID;
    let args = [P_PID, u64::from(entry.pid.load(Ordering::Relaxed)), 0, WEXITED, 0, 0];
    // SAFETY: the kernel writes nothing.
    while unsafe { raw::call6(WAITID, args) } == raw::err::EINTR {}
}

/// Whether an adopted child is gone, nobody follows, and nobody will tell of it: the kernel had told the dead primary, or had
/// done away with it, since that ignored SIGCHLD. Or the supervisor, which has adopted it, is not there any more: the program
/// itself has ended, and this process goes on alone. How its child has ended is known to nobody then.
fn has_vanished(entry: &Process) -> bool {
    let is_untold = || match entry.end.load(Ordering::Acquire) {
        end::FINAL => true,
        end::NONE => !members::is_fed(),
        _ => false,
    };
    let looks_gone = || is_untold() && !members::exists(members::primary(entry));
    looks_gone() && !super::unlisted::await_word(|| !looks_gone())
}

/// The stop or continuation of an adopted child that is still to be told.
fn standing(entry: &Process, ask: &Ask) -> Option<News> {
    use crate::kernel::{WCONTINUED, WSTOPPED};
    let seen = entry.standing.load(Ordering::Acquire);
    let told_stopped = entry.told_stopped.load(Ordering::Acquire) != 0;
    let asks_for = |option| ask.options & option != 0;
    match child::standing(seen, told_stopped, asks_for(WSTOPPED), asks_for(WCONTINUED)) {
        Standing::None | Standing::Unasked => None,
        Standing::Known => {
            let _ = entry.standing.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire);
            None
        }
        Standing::News(news) => Some(News::new(entry, news)),
    }
}

/// The guest hears of a child what this code says. What has come since still has to be told.
fn has_been_told(entry: &Process, code: i32) {
    if !matches!(code, child::STOPPED | child::CONTINUED) {
        return;
    }
    entry.told_stopped.store(u32::from(code == child::STOPPED), Ordering::SeqCst);
    let seen = entry.standing.load(Ordering::SeqCst);
    if child::is_the_told(seen, code) {
        let _ = entry.standing.compare_exchange(seen, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

fn ask_kernel(thread: &Thread, ask: &Ask, options: u64, place: *mut News) -> Result<(), i64> {
    let used = place.cast::<u8>().wrapping_add(USED_AT) as u64;
    let args = [ask.kernel[0], ask.kernel[1], place as u64, options, used, 0];
    // SAFETY: the guest's own call, into memory of ours.
    let result = unsafe { raw::blocking(WAITID, &args, &thread.pending) };
    if failed(result) {
        return Err(result);
    }
    // SAFETY: the caller's place, which the kernel has written.
    unsafe { place.write_volatile(place.read_volatile().or_as_willed()) };
    Ok(())
}

/// Sleeps until the roster has news; an error if a signal is due.
fn sleep(thread: &Thread, word: &core::sync::atomic::AtomicU32, seen: u32, for_ns: u64) -> Result<(), i64> {
    let pause = raw::Timespec::from_ns(for_ns);
    let args = [word.as_ptr() as u64, 0, u64::from(seen), &raw const pause as u64, 0, 0];
    // SAFETY: a futex wait on a word of the roster.
    match unsafe { raw::blocking(nr::FUTEX, &args, &thread.pending) } {
        raw::err::EINTR => Err(raw::err::EINTR),
        _ => Ok(()),
    }
}

/// Whether a child whose primary the kernel has reported lives on in its standby. If not, it is struck off the list, unless
/// the caller only peeks.
fn lives_on(news: &News, peeks: bool) -> bool {
    let Some(entry) = members::find(news.pid).filter(|_| news.told().is_end()) else { return false };
    let Some(roster) = members::header() else { return false };
    let start = raw::now_ns();
    loop {
        let seen = roster.ends.0.load(Ordering::Acquire);
        match child_of(entry, news.pid).meaning(news.told()) {
            Meaning::Ends => break,
            Meaning::Lives => {
                if peeks {
                    // Its real end comes by the roster. Left there, this one would be found again and again.
                    look(1, news.pid, WEXITED | WNOHANG);
                }
                return true;
            }
            Meaning::Undecided if raw::now_ns() - start >= VERDICT_NS => break,
            Meaning::Undecided => drop(raw::futex_wait_shared(&roster.ends.0, seen, LOOK_NS)),
        }
    }
    if !peeks {
        if news.told().is_violent() && entry.joined.load(Ordering::Acquire) != 0 {
            // What the kernel has said of it was not passed on while nobody knew what it meant.
            sigchld::owe(entry, news.told());
        }
        members::strike_off(entry);
    }
    false
}

/// Writes what is told to where the guest wants it.
fn tell(number: u64, args: &[u64; 6], news: &News) -> i64 {
    let rusage = GuestMut::at(if number == WAITID { args[4] } else { args[3] });
    if news.pid != 0 && rusage.tell(&news.used) != 0 {
        return raw::err::EFAULT;
    }
    if number == WAITID {
        // Single fields, as the kernel does it.
        let place = GuestMut::<News>::at(args[2]);
        let written = place.is_nowhere()
            || part!(place, News, signal).store(&news.signal)
                && part!(place, News, errno).store(&0)
                && part!(place, News, code).store(&news.code)
                && part!(place, News, pid).store(&news.pid)
                && part!(place, News, user).store(&news.user)
                && part!(place, News, status).store(&news.status);
        return if written { 0 } else { raw::err::EFAULT };
    }
    if news.pid != 0 && GuestMut::at(args[1]).tell(&news.told().word()) != 0 {
        return raw::err::EFAULT;
    }
    i64::from(news.pid)
}

/// getppid: the group's number for the parent, while it lives.
pub fn parent() -> i64 {
    // SAFETY: asks for a number.
    members::parent().map_or_else(|| unsafe { raw::call1(nr::GETPPID, 0) }, i64::from)
}

/// What the kernel has to tell at once.
pub(super) fn look(kind: u64, id: u32, options: u64) -> Option<News> {
    let mut news = News::NONE;
    let place = &raw mut news;
    let used = place.cast::<u8>().wrapping_add(USED_AT) as u64;
    // SAFETY: the kernel writes into our memory; it does not wait.
    let result = unsafe { raw::call6(WAITID, [kind, u64::from(id), place as u64, options, used, 0]) };
    (!failed(result) && news.pid != 0).then_some(news.or_as_willed())
}

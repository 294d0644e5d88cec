//! SIGCHLD: whether it tells the guest anything, and what.
//!
//! It comes from the kernel at the death of any child of the kernel's, and from the supervisor as a reminder: an end of
//! which it alone knows, or a verdict on a death that was not told. Both may speak of one end, and the guest hears of it
//! once.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::{PROCESSES_MAX, Process, end, kin};
use us_world::child::{self, is_end};

use super::wait::{News, WEXITED, WNOHANG, WNOWAIT, child_of, look, willed};
use crate::door::pending;
use crate::members::{self, registry};
use crate::raw;
use crate::raw::nr::GETUID;
use crate::siginfo::{Info, SI_USER};
use crate::signal;
use crate::state;

const SIGCHLD: i32 = linux_raw_sys::general::SIGCHLD as i32;

/// Birth of the process, for each place of the roster, of whose end a signal has told this process.
static TOLD: [AtomicU64; PROCESSES_MAX] = [const { AtomicU64::new(0) }; PROCESSES_MAX];

/// Whether a signal has told this process of its end.
pub(super) fn is_told(entry: &Process) -> bool {
    told_of(entry).is_some_and(|told| told.load(Ordering::Relaxed) == entry.born_ns.load(Ordering::Relaxed))
}

/// Notes that a signal tells of this end. False if one has told of it already: of two that come at once, a wait's and a
/// reminder's that interrupts it, one does.
fn note(entry: &Process) -> bool {
    let born_ns = entry.born_ns.load(Ordering::Relaxed);
    told_of(entry).is_none_or(|told| told.swap(born_ns, Ordering::SeqCst) != born_ns)
}

fn told_of(entry: &Process) -> Option<&'static AtomicU64> {
    TOLD.get(members::index_of(entry)?)
}

/// Not zero while a reminder of a promoted copy's own is on its way to it.
static REMINDED: AtomicU32 = AtomicU32::new(0);

/// What SIGCHLD is to say of a child that a wait has told of before any signal did: its number, code and status of its end, and its
/// user. Several make one signal, as with the kernel.
static OWED: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];

/// A wait is about to tell of a violent end that this process was to hear of from the supervisor: with the kernel the signal is
/// there before any wait returns. The supervisor's comes too late, when the child is off the list.
pub fn owe(entry: &Process, end: child::News) {
    if !is_owed(entry, end) {
        return;
    }
    REMINDED.store(1, Ordering::SeqCst);
    // SAFETY: to our own process.
    unsafe {
        raw::call2(raw::nr::KILL, u64::from(state::REAL_PID.load(Ordering::Relaxed)), SIGCHLD as u64);
    }
    // Where the kernel has thrown it away the next reminder would tell of this end, which may be another one's.
    if !signal::waits(SIGCHLD) && pending::waiting() & 1 << (SIGCHLD - 1) == 0 {
        forget_owed();
    }
}

/// A dead primary's wait had been told of an end, and the signal of it may have been lost with that primary. The signal itself is
/// sent when all is settled: see [`is_due_again`]. Whether there is one, which has to be there before the wait returns.
pub fn was_told(entry: &Process, end: child::News) -> bool {
    is_owed(entry, end) && signal::waits(SIGCHLD)
}

/// As a standby: a wait in the log has told of the end of this child, and signals come behind it. Natively SIGCHLD is there before
/// any wait returns, so it is one of them: if the primary has died before the log had it, it died with that primary. Of a child
/// that has its own entry no more nobody else tells either.
pub fn is_logged(child: u32, end: child::News) {
    if !signal::waits(SIGCHLD) {
        return;
    }
    match members::find_child(child) {
        Some(entry) => drop(is_owed(entry, end)),
        // SAFETY: asks for a number.
        None => set_owed(child, end, unsafe { raw::call1(GETUID, 0) } as u32),
    }
}

fn set_owed(child: u32, end: child::News, user: u32) {
    OWED[3].store(user, Ordering::Relaxed);
    OWED[1].store(end.code as u32, Ordering::Relaxed);
    OWED[2].store(end.status as u32, Ordering::Relaxed);
    OWED[0].store(child, Ordering::SeqCst);
}

/// What the next reminder is to say. False if a signal has told of this end already.
fn is_owed(entry: &Process, end: child::News) -> bool {
    let is_news = note(entry);
    if is_news {
        set_owed(entry.pid.load(Ordering::Relaxed), end, entry.user.load(Ordering::Relaxed));
    }
    is_news
}

/// What is owed is owed no more: the guest ignores SIGCHLD from now on, or this is a child of the process that it was owed to.
pub fn forget_owed() {
    OWED[0].store(0, Ordering::SeqCst);
    REMINDED.store(0, Ordering::SeqCst);
}

/// A signal has reached the guest, in a copy that takes it from the log: at a promotion this one is not told of again.
pub fn taken(info: &Info) {
    if info.signal() != SIGCHLD {
        return;
    }
    // Of several ends it is one signal, as with the kernel.
    OWED[0].store(0, Ordering::SeqCst);
    if is_end(info.code())
        // Its primary's wait may have been told meanwhile.
        && let Some(entry) = members::find_child(info.sender())
    {
        note(entry);
    }
}

/// At a promotion: whether this process is to send itself a reminder, because the signal of an end was lost with the dead
/// primary.
pub fn is_due_again() -> bool {
    let is_untold = |entry: &Process| known(entry).is_untold();
    let due = OWED[0].load(Ordering::SeqCst) != 0 || members::adopted().any(is_untold);
    REMINDED.fetch_or(u32::from(due), Ordering::SeqCst);
    due
}

/// What the roster says of a child.
fn known(entry: &Process) -> child::Child {
    child_of(entry, entry.pid.load(Ordering::Relaxed))
}

/// What a siginfo tells of a child.
fn news_in(info: &Info) -> child::News {
    child::News { code: info.code(), status: info.status() }
}

fn tell(info: &mut Info, news: child::News) {
    info.set_code(news.code);
    info.set_value(u64::from(news.status as u32));
}

/// Whether a SIGCHLD tells the guest anything; made to say what. The death of a child's primary does not, until it is
/// known that nobody takes over; the supervisor then sends another, as it does for children that it has adopted.
pub fn is_news(info: &mut Info) -> bool {
    if members::header().is_none() {
        return true;
    }
    let (code, sender) = (info.code(), info.sender());
    if is_end(code) {
        let Some(entry) = members::find(sender) else { return is_news_of_the_told(info, sender) };
        let Some(news) = known(entry).told_by_signal(news_in(info), willed(entry)) else { return false };
        tell(info, news);
        return note(entry);
    }
    let is_own =
        || state::REAL_PID.load(Ordering::Relaxed) == sender && REMINDED.swap(0, Ordering::SeqCst) != 0;
    if code != SI_USER || (registry::supervisor() != sender && !is_own()) {
        return true;
    }
    let owed = OWED[0].swap(0, Ordering::SeqCst);
    if owed != 0 {
        info.set_code(OWED[1].load(Ordering::Relaxed) as i32);
        info.set_sender(owed);
        info.set_value(u64::from(OWED[2].load(Ordering::Relaxed)));
        info.set_user(OWED[3].load(Ordering::Relaxed));
        return true;
    }
    let ended = |entry: &&Process| entry.end.load(Ordering::Acquire) == end::ENDED && note(entry);
    let adopted = members::adopted().find(ended);
    let Some(news) = adopted.map(News::of).or_else(waiting) else { return false };
    info.set_sender(news.pid);
    info.set_user(news.user);
    tell(info, news.told());
    true
}

/// The same of a child that is off the list: the guest's wait has told of its end while this signal waited behind a mask.
/// What the kernel says in it of an adopted one is the death of its first primary.
fn is_news_of_the_told(info: &mut Info, sender: u32) -> bool {
    let Some(entry) = members::struck_off(sender) else { return true };
    let news = known(entry).told_behind_wait(news_in(info), News::of(entry).told());
    let Some(news) = news else { return false };
    tell(info, news);
    note(entry)
}

/// A child of the kernel's that waits to be asked for, and that no signal has told of. What an adopted one has left there
/// goes. One by one, since of several the kernel names the same one again and again.
fn waiting() -> Option<News> {
    use crate::kernel::P_PID;
    // Nobody at all: the roster need not be looked through.
    look(0, 0, WEXITED | WNOHANG | WNOWAIT)?;
    members::children().find_map(|entry| {
        let news = look(P_PID, entry.pid.load(Ordering::Relaxed), WEXITED | WNOHANG | WNOWAIT)?;
        let is_violent = news.told().is_violent();
        if entry.kin.load(Ordering::Acquire) == kin::ADOPTED && is_violent {
            look(P_PID, news.pid, WEXITED | WNOHANG);
            return None;
        }
        // The reminder may have been meant for another; of this one it is not known yet what its death means.
        (!(is_violent && known(entry).is_undecided()) && note(entry)).then_some(news)
    })
}

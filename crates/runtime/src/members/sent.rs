//! Signals that processes of the group send each other by kill: how often, and how many of them a copy has seen taken.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::{Process, SIGNALS, end};
use us_world::pending::raised_again;

use super::{exists, find, group_of, has_ended, leader, listed, of_family, own, primary, registry};
use crate::siginfo::{Info, SI_USER};
use crate::{raw, state};

/// The processes that `kill` would send to.
fn meant(target: i32) -> impl Iterator<Item = &'static Process> {
    use crate::raw::nr::GETPGID;
    // SAFETY: asks for a number.
    let group = |pid: u32| unsafe { raw::call1(GETPGID, u64::from(pid)) };
    let wanted = match target {
        0 => group(0),
        target => i64::from(leader::to_kernel(target.unsigned_abs())),
    };
    listed().filter(move |entry| match target {
        -1 => true,
        1.. => entry.pid.load(Ordering::Relaxed) == target as u32,
        _ => !has_ended(entry) && group_of(entry).is_some_and(|group| i64::from(group) == wanted),
    })
}

/// A process of the group sends a signal to `target`, as `kill` names it. SIGKILL is no failure then, and nobody is to
/// take over; of any other a standby must know that it was sent.
pub fn note_send(target: i32, signal: u64) {
    use crate::kernel::{SIGCONT, SIGKILL, SIGSTOP};
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    for entry in meant(target) {
        match signal {
            SIGSTOP => entry.stopped.store(1, Ordering::SeqCst),
            SIGCONT => entry.stopped.store(0, Ordering::SeqCst),
            _ => {}
        }
        if signal == SIGKILL {
            // It ends wherever it is, and its standby with it: what it has done in its turns may be missing there.
            of_family::break_up(&[b"a relative has sent SIGKILL to a process"]);
            entry.doomed.store(1, Ordering::SeqCst);
        } else if entry.pid.load(Ordering::Relaxed) != own
            && let Some(sent) = entry.sent.get(signal as usize)
        {
            entry.last_sender.store(own, Ordering::Relaxed);
            sent.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// What a thread notes of a signal that it has counted, until it has asked the kernel.
pub fn noted(target: i32, signal: u64) -> u64 {
    signal & 0xff | lives(target) << 8 | u64::from(target as u32) << 32
}

/// The low bits of how often a process has been promoted.
fn lives(target: i32) -> u64 {
    let lives = if target > 0 { super::mail::lives_of(target as u32) } else { 0 };
    u64::from(lives & 0xff_ffff)
}

/// At a promotion: a signal that the dead primary's thread had counted and not sent is counted when it is sent again. Not so if who is
/// to have it has been promoted since, and raised it by that count: true, it has been sent.
pub fn take_back(noted: u64) -> bool {
    let (signal, target) = (noted as usize & 0xff, (noted >> 32) as u32 as i32);
    if noted == 0 || noted >> 8 & 0xff_ffff != lives(target) {
        return noted != 0;
    }
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    for entry in meant(target).filter(|entry| entry.pid.load(Ordering::Relaxed) != own) {
        if let Some(sent) = entry.sent.get(signal) {
            sent.fetch_sub(1, Ordering::SeqCst);
        }
    }
    false
}

/// A thread of this process that has counted a signal, or is about to, and has not asked the kernel yet.
pub struct Sending(Option<&'static Process>);

impl Sending {
    /// Before the count.
    pub fn begin() -> Sending {
        let own = own();
        if let Some(own) = own {
            own.sending.fetch_add(1, Ordering::SeqCst);
        }
        Sending(own)
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(own) = self.0 {
            own.sending.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

/// At a promotion, behind [`each_unseen`]: what a relative has counted, and was raised by that, it has also sent before anybody takes
/// it; or it would come once more.
fn await_senders() {
    const LOOKS: u32 = 400;
    const PAUSE_NS: u64 = 50_000;
    let own = state::GUEST_PID.load(Ordering::Relaxed);
    let is_sending = |entry: &&Process| {
        entry.sending.load(Ordering::SeqCst) != 0
            && entry.pid.load(Ordering::Relaxed) != own
            && entry.end.load(Ordering::Acquire) == end::NONE
            && exists(primary(entry))
    };
    for entry in listed().filter(is_sending) {
        for _ in (0..LOOKS).take_while(|_| is_sending(&entry)) {
            raw::nap(PAUSE_NS);
        }
    }
}

/// Of each signal, how often it had been sent to this process when it was last taken.
static SEEN: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];

/// This is another process from here on, which has taken nothing.
pub(super) fn forget() {
    SEEN.iter().for_each(|seen| seen.store(0, Ordering::Relaxed));
}

/// This is another image of the process from here on. What an earlier one has taken is not known; what waits, waits in the kernel. An
/// exec has ended those who were about to send.
pub(super) fn adopt() {
    for (signal, seen) in SEEN.iter().enumerate() {
        seen.store(sent_so_far(signal as i32), Ordering::Relaxed);
    }
    if let Some(own) = own() {
        own.sending.store(0, Ordering::SeqCst);
    }
}

/// How often relatives have sent this process a signal so far.
pub fn sent_so_far(signal: i32) -> u32 {
    own().and_then(|own| own.sent.get(signal as usize)).map_or(0, |sent| sent.load(Ordering::SeqCst))
}

/// A signal has been taken, of which so many had been sent when it arrived.
pub fn seen(signal: i32, sent: u32) {
    const REAL_TIME: i32 = 32;
    let Some(seen) = SEEN.get(signal as usize) else { return };
    if signal < REAL_TIME {
        return seen.store(sent, Ordering::Relaxed);
    }
    // Each of them is taken by itself. One from outside the group is in no count.
    let one_more = |seen: u32| (seen != sent).then(|| seen.wrapping_add(1));
    let _ = seen.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
}

/// Real-time signals of one number that are sent again, at most.
const WAITING_MAX: u32 = 64;

/// At a promotion: calls `f` for each signal that a relative has sent and that the dead primary has not taken, of those that
/// the guest lets wait.
pub fn each_unseen(waits: impl Fn(i32) -> bool, mut f: impl FnMut(u64)) {
    let counts = if registry::doubts() { 0 } else { SIGNALS };
    let mut are_any = false;
    if let Some(own) = own() {
        // The dead primary's threads send nothing any more.
        own.sending.store(0, Ordering::SeqCst);
    }
    for (signal, seen) in SEEN.iter().enumerate().take(counts).skip(1) {
        // It counts as seen when it is taken: until then the next copy has to raise it again.
        // What is thrown away, or stops a process, waits for nobody.
        if !waits(signal as i32) {
            continue;
        }
        // One that was counted and not sent may have been seen, and taken back.
        let unseen = sent_so_far(signal as i32).wrapping_sub(seen.load(Ordering::Relaxed)) as i32;
        let unseen = unseen.max(0) as u32;
        if unseen != 0 {
            RAISED.fetch_or(1 << (signal - 1), Ordering::SeqCst);
            are_any = true;
        }
        (0..raised_again(signal as i32, unseen, WAITING_MAX)).for_each(|_| f(signal as u64));
    }
    if are_any {
        await_senders();
    }
}

/// Whether [`each_unseen`] is about to raise this signal: a relative has sent it by kill.
pub fn is_raised_again(info: &Info) -> bool {
    let (signal, sender) = (info.signal(), info.sender());
    let is_relative = sender != state::GUEST_PID.load(Ordering::Relaxed) && find(sender).is_some();
    let seen = SEEN.get(signal as usize).map_or(0, |seen| seen.load(Ordering::Relaxed));
    info.code() == SI_USER && is_relative && sent_so_far(signal) != seen
}

/// Signals that a promotion has raised in a relative's place and that have not arrived yet.
static RAISED: AtomicU64 = AtomicU64::new(0);

/// Who is to be named as the sender of a signal that has arrived from this very process: the relative whose it was.
pub fn sender_of_raised(signal: i32) -> Option<u32> {
    let bit = 1 << (signal - 1);
    (RAISED.fetch_and(!bit, Ordering::SeqCst) & bit != 0)
        .then(|| own().map(|own| own.last_sender.load(Ordering::Relaxed)))
        .flatten()
}

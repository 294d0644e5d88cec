//! Signals that the program has sent to itself and that nobody has taken yet, and sends in doubt.
//!
//! They wait in the primary's kernel, or in its runtime's queues, and die with it. So a standby keeps a list: a send adds to it at its
//! turn, whoever takes a signal (a handler, `sigwait`, a signalfd) removes it, and a promotion raises what is left. Every entry
//! carries the ticket of its send, so that it does not matter when the copy's threads come by: a signal that was taken at ticket
//! `t` was not sent after `t`.

use core::mem::offset_of;

/// `si_code`: by kill.
pub const SI_USER: i32 = 0;
/// `si_code`: by tgkill.
pub const SI_TKILL: i32 = -6;
/// `si_code` of a signal of which only the number is known.
pub const ANY: i32 = 0x7fff;
/// From here on the kernel queues every signal; of one below only the first waits.
const REAL_TIME: i32 = 32;

/// What a siginfo says.
pub trait Siginfo: Copy {
    /// The signal's number.
    fn signal(&self) -> i32;
    /// `si_code`: who sent it.
    fn code(&self) -> i32;
    /// What a queued signal carries.
    fn value(&self) -> u64;
}

/// Whom a signal was sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target(u32);

/// A bit that no slot has: the rest is the number of a thread that has not begun.
const NUMBERED: u32 = 1 << 31;

impl Target {
    /// The process.
    pub const PROCESS: Target = Target(u32::MAX);

    /// The thread of a slot.
    #[must_use]
    pub const fn slot(slot: u32) -> Target {
        Target(slot)
    }

    /// The thread that the program calls `number`, and that has not taken its place in this copy yet.
    #[must_use]
    pub const fn numbered(number: u32) -> Target {
        Target(NUMBERED | number)
    }

    /// The slot of a thread that has its place.
    #[must_use]
    pub const fn its_slot(self) -> Option<u32> {
        if self.0 & NUMBERED == 0 { Some(self.0) } else { None }
    }
}

/// One signal that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sent<I> {
    /// What comes with it.
    pub info: I,
    /// Whom it was sent to.
    pub target: Target,
    /// Ticket of the send.
    pub at: u64,
    /// Whether it had reached its thread, and waited for a door, when this copy was made.
    pub queued: bool,
}

/// A signal that the log shows as taken.
#[derive(Clone, Copy, Debug)]
pub struct Taken<'a, I> {
    /// By the thread of this slot.
    pub slot: u32,
    /// What came with it.
    pub info: &'a I,
    /// Whether all of that is known, and not the signal's number alone.
    pub exact: bool,
    /// Ticket of the event.
    pub ticket: u64,
}

/// What a promotion does with a signal that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Raise {
    /// It is sent to the process.
    ToProcess,
    /// It is sent to the thread of this number of the kernel's.
    ToThread(u32),
    /// Its thread finds it when it goes live, or is still to be made and raises it then.
    Later,
    /// Its sender's count has it raised.
    Never,
}

/// What is to be known of one that waits, at a promotion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// A relative has sent it by kill, and it is raised from the count of those.
    pub is_counted: bool,
    /// The kernel's number of its thread in this copy, 0 if there is none yet.
    pub tid: u32,
}

impl<I> Sent<I> {
    /// What a promotion does with it.
    #[must_use]
    pub fn raise(&self, known: Known) -> Raise {
        match (self.queued, self.target) {
            (true, _) if known.is_counted => Raise::Never,
            (true, _) => Raise::Later,
            (false, Target::PROCESS) => Raise::ToProcess,
            (false, target) if target.its_slot().is_some() && known.tid != 0 => Raise::ToThread(known.tid),
            (false, _) => Raise::Later,
        }
    }
}

/// By which call a signal is sent again such that it looks as it did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// kill: a siginfo that says so can be made by nothing else.
    Kill,
    /// tgkill, likewise.
    Tgkill,
    /// One that takes a siginfo as it is.
    Queue,
}

/// See [`By`].
#[must_use]
pub const fn sent_by(code: i32, to_a_thread: bool) -> By {
    match (code, to_a_thread) {
        (SI_USER | ANY, false) => By::Kill,
        (SI_TKILL, true) => By::Tgkill,
        _ => By::Queue,
    }
}

/// The signals that wait, as a copy that follows has them.
#[derive(Debug)]
pub struct Pending<'a, I> {
    all: &'a mut [Sent<I>],
    count: &'a mut usize,
}

impl<'a, I: Siginfo> Pending<'a, I> {
    /// The first `count` of `all` wait.
    pub fn new(all: &'a mut [Sent<I>], count: &'a mut usize) -> Pending<'a, I> {
        Pending { all, count }
    }

    /// Those that wait.
    #[must_use]
    pub fn waiting(&self) -> &[Sent<I>] {
        &self.all[..*self.count]
    }

    fn remove(&mut self, at: usize) -> Sent<I> {
        let found = self.all[at];
        self.all.copy_within(at + 1..*self.count, at);
        *self.count -= 1;
        found
    }

    /// Takes the first one out that `is_it`.
    pub fn take(&mut self, is_it: impl FnMut(&Sent<I>) -> bool) -> Option<Sent<I>> {
        let found = self.waiting().iter().position(is_it)?;
        Some(self.remove(found))
    }

    fn forget_all(&mut self, is_one: impl Fn(&Sent<I>) -> bool) {
        while self.take(&is_one).is_some() {}
    }

    /// One is sent. False if there is no room for it.
    #[must_use]
    pub fn add(&mut self, new: Sent<I>) -> bool {
        let signal = new.info.signal();
        let same = |sent: &&mut Sent<I>| sent.info.signal() == signal && sent.target == new.target;
        let waiting = self.all[..*self.count].iter_mut().find(same).filter(|_| signal < REAL_TIME);
        if let Some(waiting) = waiting {
            // One standard signal waits at most once. Kept with the later ticket: a taker between the two tickets has taken the
            // first, and the second still waits.
            waiting.at = waiting.at.max(new.at);
            return true;
        }
        let Some(place) = self.all.get_mut(*self.count) else { return false };
        *place = new;
        *self.count += 1;
        true
    }

    /// The send of this ticket has failed.
    pub fn retract(&mut self, at: u64) {
        let _ = self.take(|sent| sent.at == at);
    }

    /// The log shows that one was taken.
    pub fn taken(&mut self, by: Taken<I>) {
        let own = Target::slot(by.slot);
        let (signal, code) = (by.info.signal(), by.info.code());
        let fits = |sent: &Sent<I>| {
            let is_any = sent.info.code() == ANY;
            sent.info.signal() == signal
                // What waited when the copy was made waited before anything that is in the log.
                && (sent.at < by.ticket || is_any)
                && (sent.target == own || sent.target == Target::PROCESS)
                && (!by.exact || sent.info.code() == code || is_any)
                && (!by.exact || signal < REAL_TIME || sent.info.value() == by.info.value())
        };
        // The kernel prefers a thread's own signals, and the older of two.
        let found = (0..*self.count)
            .filter(|at| fits(&self.all[*at]))
            .min_by_key(|at| (self.all[*at].target == Target::PROCESS, self.all[*at].at));
        if let Some(found) = found {
            self.remove(found);
        }
    }

    /// A signal is ignored from now on: the kernel forgets what waits of it.
    pub fn forget(&mut self, signal: i32) {
        self.forget_all(|sent| sent.info.signal() == signal);
    }

    /// A thread ends: nobody takes what waited for it.
    pub fn forget_thread(&mut self, slot: u32) {
        self.forget_all(|sent| sent.target == Target::slot(slot));
    }

    /// A thread takes its place: what was sent to its number was sent to it.
    pub fn has_begun(&mut self, slot: u32, number: u32) {
        let its = self.all[..*self.count].iter_mut().filter(|sent| sent.target == Target::numbered(number));
        its.for_each(|sent| sent.target = Target::slot(slot));
    }

    /// At a promotion, before any thread is live: hands out what is to be raised, the oldest first. What stays is for later.
    pub fn raise_all(&mut self, know: impl Fn(&Sent<I>) -> Known, mut raise: impl FnMut(&Sent<I>, u32)) {
        self.all[..*self.count].sort_unstable_by_key(|sent| sent.at);
        let mut later = 0;
        for at in 0..*self.count {
            let sent = self.all[at];
            match sent.raise(know(&sent)) {
                Raise::ToProcess => raise(&sent, 0),
                Raise::ToThread(tid) => raise(&sent, tid),
                Raise::Later => {
                    self.all[later] = sent;
                    later += 1;
                }
                Raise::Never => {}
            }
        }
        *self.count = later;
    }
}

/// Of the signals that waited in the kernel at a clone (bit n-1 for signal n), those whose number is all that counts. Queued ones
/// are looked at one by one, and timers and children tell of themselves.
#[must_use]
pub const fn known_by_number(waiting: u64) -> u64 {
    const STANDARD: u64 = (1 << (REAL_TIME - 1)) - 1;
    // SIGKILL, SIGALRM, SIGCHLD, SIGSTOP, SIGVTALRM, SIGPROF, SIGSYS
    const APART: u64 = 1 << 8 | 1 << 13 | 1 << 16 | 1 << 18 | 1 << 25 | 1 << 26 | 1 << 30;
    waiting & STANDARD & !APART
}

/// How many of a relative's sends by kill, of which a copy has not seen `unseen` taken, are raised again.
#[must_use]
pub fn raised_again(signal: i32, unseen: u32, most: u32) -> u32 {
    unseen.min(if signal < REAL_TIME { 1 } else { most })
}

/// Whom a send in doubt was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum To {
    /// The process that has sent it: in the list, or taken.
    Itself,
    /// Another process, which is there, and may be sent signals.
    Another,
    /// A process group. `with_itself`: the sender is of it.
    Group {
        /// See there.
        with_itself: bool,
    },
    /// Nobody, or everybody.
    Others,
}

/// What becomes of a send in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    /// It is made again: by the promoted copy, or from the list.
    Again,
    /// It was done. `came_back`: what came to the sender itself died with it.
    Done {
        /// See there.
        came_back: bool,
    },
}

/// A send does not wait, and the kernel goes through a group without a stop: it was done once the kernel was entered. What was not
/// allowed is not allowed now.
#[must_use]
pub const fn judge(to: To, entered: bool) -> Send {
    match to {
        To::Another if entered => Send::Done { came_back: false },
        To::Group { with_itself } if entered => Send::Done { came_back: with_itself },
        _ => Send::Again,
    }
}

/// The kernel's `signalfd_siginfo`: what a read from a signalfd tells of a signal.
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct SignalRecord {
    pub signal: u32,
    pub errno: u32,
    pub code: i32,
    pub pid: u32,
    pub uid: u32,
    pub fd: i32,
    pub tid: u32,
    pub band: u32,
    pub overrun: u32,
    pub trap: u32,
    pub status: i32,
    pub number: i32,
    pub value: u64,
    pub used: [u64; 2],
    pub address: u64,
    pub address_bits: u16,
    rest: [u8; 46],
}

/// Bytes of one.
pub const RECORD_BYTES: u64 = size_of::<SignalRecord>() as u64;
const _: () = assert!(RECORD_BYTES == 128 && offset_of!(SignalRecord, address_bits) == 80);

/// The first four words of the siginfo that one tells of, which `word` reads by its offset.
#[must_use]
pub fn of_record(word: impl Fn(u64) -> u32) -> [u64; 4] {
    const VALUE: usize = offset_of!(SignalRecord, value);
    let at = |offset: usize| u64::from(word(offset as u64));
    [
        at(offset_of!(SignalRecord, signal)) | at(offset_of!(SignalRecord, errno)) << 32,
        at(offset_of!(SignalRecord, code)),
        at(offset_of!(SignalRecord, pid)),
        at(VALUE) | at(VALUE + size_of::<u32>()) << 32,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Info(i32, i32, u64);

    impl Siginfo for Info {
        fn signal(&self) -> i32 {
            self.0
        }
        fn code(&self) -> i32 {
            self.1
        }
        fn value(&self) -> u64 {
            self.2
        }
    }

    const NONE: Sent<Info> = Sent { info: Info(0, 0, 0), target: Target::PROCESS, at: 0, queued: false };

    fn sent(signal: i32, target: Target, at: u64) -> Sent<Info> {
        Sent { info: Info(signal, SI_USER, 0), target, at, ..NONE }
    }

    #[test]
    fn a_standard_signal_waits_once_and_another_each_time() {
        let (mut all, mut count) = ([NONE; 4], 0);
        let mut pending = Pending::new(&mut all, &mut count);
        assert!(pending.add(sent(10, Target::PROCESS, 3)) && pending.add(sent(10, Target::PROCESS, 7)));
        assert_eq!((pending.waiting().len(), pending.waiting()[0].at), (1, 7));
        assert!(pending.add(sent(10, Target::slot(1), 8)), "a thread's own is another one");
        assert!(pending.add(sent(40, Target::PROCESS, 9)) && pending.add(sent(40, Target::PROCESS, 10)));
        assert!(!pending.add(sent(41, Target::PROCESS, 11)), "there is no room");
        pending.forget(40);
        assert_eq!(pending.waiting().len(), 2);
    }

    #[test]
    fn what_is_taken_was_sent_before_to_whoever_takes_it() {
        let (mut all, mut count) = ([NONE; 4], 0);
        let mut pending = Pending::new(&mut all, &mut count);
        let add = |pending: &mut Pending<Info>, target, at| assert!(pending.add(sent(10, target, at)));
        add(&mut pending, Target::PROCESS, 3);
        add(&mut pending, Target::slot(2), 5);
        let info = Info(10, SI_USER, 0);
        let by = |slot, ticket| Taken { slot, info: &info, exact: true, ticket };
        pending.taken(by(1, 3));
        assert_eq!(pending.waiting().len(), 2, "it was sent no earlier");
        pending.taken(by(2, 6));
        assert_eq!(pending.waiting(), [sent(10, Target::PROCESS, 3)], "its own first");
        pending.taken(by(2, 6));
        assert!(pending.waiting().is_empty());
    }

    #[test]
    fn a_promotion_raises_in_order_and_keeps_what_is_for_later() {
        let (mut all, mut count) = ([NONE; 5], 0);
        let mut pending = Pending::new(&mut all, &mut count);
        let queued = |signal, at| Sent { queued: true, ..sent(signal, Target::slot(1), at) };
        for new in [
            sent(40, Target::PROCESS, 9),
            sent(41, Target::slot(1), 4),
            sent(42, Target::numbered(77), 5),
            queued(43, 1),
            queued(44, 2),
        ] {
            assert!(pending.add(new));
        }
        let mut raised = [(0, 0); 2];
        let mut places = raised.iter_mut();
        pending.raise_all(
            |sent| Known {
                is_counted: sent.info.signal() == 44,
                tid: if sent.info.signal() == 41 { 500 } else { 0 },
            },
            |sent, tid| *places.next().expect("two are raised") = (sent.info.signal(), tid),
        );
        assert_eq!(
            pending.waiting().iter().map(|sent| sent.info.signal()).fold(0, |all, one| all * 100 + one),
            4342
        );
        pending.has_begun(6, 77);
        assert!(pending.take(|sent| sent.target == Target::slot(6)).is_some());
        assert_eq!(raised, [(41, 500), (40, 0)]);
    }

    #[test]
    fn a_send_that_entered_the_kernel_was_made() {
        assert_eq!(judge(To::Another, true), Send::Done { came_back: false });
        assert_eq!(judge(To::Group { with_itself: true }, true), Send::Done { came_back: true });
        for to in [To::Itself, To::Another, To::Group { with_itself: true }, To::Others] {
            assert_eq!(judge(to, false), Send::Again);
        }
        assert_eq!((judge(To::Itself, true), judge(To::Others, true)), (Send::Again, Send::Again));
    }

    #[test]
    fn a_signal_is_sent_again_by_what_has_sent_it() {
        assert_eq!((sent_by(SI_USER, false), sent_by(ANY, false)), (By::Kill, By::Kill));
        assert_eq!(
            (sent_by(SI_TKILL, true), sent_by(SI_USER, true), sent_by(-1, false)),
            (By::Tgkill, By::Queue, By::Queue)
        );
    }
}

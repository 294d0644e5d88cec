//! Queued signals on their way from one process of the group to another, with what they carry.
//!
//! They wait in the kernel, or in the runtime's queue, of the primary that is to take them, and die with it. So a sender
//! writes a letter into the roster before it asks the kernel; whoever has put the taking into the log takes the letter
//! away, and so does the standby that applies it. What is there at a promotion is sent again, in order.
//!
//! A letter may so be announced to the same process twice, by its sender and by the promotion, or late, behind younger ones.
//! So the signal says in bytes that nobody looks at (`si_errno`) that it announces a letter, and which: who gets it takes the
//! oldest letter that is there, and nothing where none is left.

use core::sync::atomic::{AtomicU32, Ordering};

use us_abi::{Mail, mail};

use super::{find, primary_of, registry, roster};
use crate::siginfo::{Info, SI_QUEUE};
use crate::{guest, raw, state};

fn all() -> &'static [Mail] {
    roster().map_or(&[], |roster| &roster.mail)
}

fn own() -> u32 {
    state::GUEST_PID.load(Ordering::Relaxed)
}

/// A letter in the roster. Its place may be another's by now; then nothing done to it has an effect.
#[derive(Clone, Copy)]
pub struct Letter {
    place: &'static Mail,
    number: u64,
}

impl Letter {
    fn word(self, stage: u64) -> u64 {
        self.number << mail::STAGE_BITS | stage
    }

    fn step(self, from: u64, to: u64) {
        let to = if to == mail::FREE { mail::FREE } else { self.word(to) };
        let _ = self.place.state.compare_exchange(self.word(from), to, Ordering::SeqCst, Ordering::Acquire);
    }

    fn take_away(self) {
        self.step(mail::SENDING, mail::FREE);
        self.step(mail::SENT, mail::FREE);
    }

    fn is_to(self, pid: u32) -> bool {
        self.place.to.load(Ordering::Relaxed) == pid
    }

    fn is_from(self, pid: u32) -> bool {
        self.place.from.load(Ordering::Relaxed) == pid
    }

    /// Whether it is one of this signal by this sender that has not arrived yet.
    fn is_due(self, info: &Info) -> bool {
        self.is_to(own())
            && self.place.signal.load(Ordering::Relaxed) == info.signal() as u32
            && self.is_from(info.sender())
            && self.place.arrived.load(Ordering::Relaxed) == 0
    }

    /// What is to be written into `si_errno`.
    fn tag(self) -> u32 {
        TAG | self.number as u32 & !TAGGED
    }

    /// The signal that announces it.
    pub fn info(self) -> Info {
        let word = |word: &AtomicU32| word.load(Ordering::Relaxed);
        let mut info = Info::new(word(&self.place.signal) as i32, SI_QUEUE);
        info.set_tag(self.tag());
        info.set_sender(word(&self.place.from));
        info.set_user(word(&self.place.uid));
        info.set_value(self.place.value.load(Ordering::Relaxed));
        info
    }

    /// The kernel has been asked: it has taken the signal, or not.
    pub fn is_sent(self, done: bool) {
        self.step(mail::SENDING, if done { mail::SENT } else { mail::FREE });
    }
}

/// What marks an `si_errno` as ours. Nobody else has been seen to use it at all.
const TAG: u32 = 0x5500_0000;
/// The bits of the mark.
const TAGGED: u32 = 0xff00_0000;

/// The tag of a signal that announces a letter, 0 for any other.
fn tag_of(info: &Info) -> u32 {
    let tag = info.tag();
    if info.code() == SI_QUEUE && tag & TAGGED == TAG { tag } else { 0 }
}

/// The letters that are written whole, and how far each has come.
fn letters() -> impl Iterator<Item = (Letter, u64)> {
    all().iter().filter_map(|place| {
        let word = place.state.load(Ordering::Acquire);
        let stage = word & mail::STAGE;
        (stage >= mail::SENDING).then_some((Letter { place, number: word >> mail::STAGE_BITS }, stage))
    })
}

/// Which argument of such a call says where its siginfo lies.
pub fn info_at(call: u64) -> usize {
    if call == raw::nr::RT_TGSIGQUEUEINFO { 3 } else { 2 }
}

/// The process that a call sends a signal to, the signal, and where its siginfo lies.
fn addressed(call: u64, args: &[u64; 6]) -> Option<(u32, u64, u64)> {
    match call {
        raw::nr::RT_SIGQUEUEINFO => Some((args[0] as u32, args[1], args[2])),
        raw::nr::RT_TGSIGQUEUEINFO => Some((args[0] as u32, args[2], args[3])),
        _ => None,
    }
}

/// Writes the letter of a call that queues a signal for a relative. `None` for any other call, and without room.
pub fn post(call: u64, args: &[u64; 6]) -> Option<Letter> {
    let (to, signal, info) = addressed(call, args)?;
    let info = guest::load::<Info>(info)?;
    if signal as u32 == 0 || info.code() != SI_QUEUE || to == own() {
        return None;
    }
    find(to)?;
    let take = |place: &&Mail| {
        let word = place.state.load(Ordering::Acquire);
        let stage = word & mail::STAGE;
        // One whose sender or receiver is gone is nobody's.
        let is_dead = stage >= mail::SENDING
            && (find(place.to.load(Ordering::Relaxed)).is_none()
                || (stage == mail::SENDING && find(place.from.load(Ordering::Relaxed)).is_none()));
        (word == mail::FREE || is_dead)
            && place.state.compare_exchange(word, mail::TAKEN, Ordering::AcqRel, Ordering::Acquire).is_ok()
    };
    let place = all().iter().find(take)?;
    for (word, value) in
        [(&place.to, to), (&place.from, own()), (&place.signal, signal as u32), (&place.uid, info.user())]
    {
        word.store(value, Ordering::Relaxed);
    }
    place.arrived.store(0, Ordering::Relaxed);
    place.value.store(info.value(), Ordering::Relaxed);
    let number = super::header()?.letters.fetch_add(1, Ordering::AcqRel) + 1;
    let letter = Letter { place, number };
    place.state.store(letter.word(mail::SENDING), Ordering::Release);
    Some(letter)
}

/// A signal has reached this process: notes the letter that it comes with, in bytes that no siginfo uses. False if it is of
/// no letter that is still to come: that one has been announced twice.
pub fn arrived(info: &mut Info) -> bool {
    const REAL_TIME: i32 = 32;
    info.set_letter(0);
    let tag = tag_of(info);
    if tag == 0 {
        return true;
    }
    info.set_tag(0);
    let found = letters()
        .filter(|(letter, _)| letter.is_due(info))
        // Of a standard signal the kernel keeps one, and forgets what else was sent meanwhile. A letter that is being sent
        // comes with its own announcement only: its sender may still make it anew.
        .filter(|(letter, stage)| letter.tag() == tag || (info.signal() >= REAL_TIME && *stage == mail::SENT))
        .map(|(letter, _)| letter)
        .min_by_key(|letter| letter.number);
    let Some(letter) = found else { return false };
    letter.place.arrived.store(1, Ordering::Relaxed);
    info.set_value(letter.place.value.load(Ordering::Relaxed));
    info.set_letter(letter.number);
    true
}

/// As [`arrived`], of a signal that has been read from a descriptor, and that has been told by that. In a copy that takes it
/// from the log it says only whether the tag is to be taken out.
pub fn arrived_by_descriptor(info: &Info, acts: bool) -> bool {
    let tag = tag_of(info);
    if tag != 0 && acts {
        letters()
            .map(|(letter, _)| letter)
            .filter(|letter| letter.tag() == tag && letter.is_due(info))
            .for_each(Letter::take_away);
    }
    tag != 0
}

/// The number of the letter with which a signal has come, 0 for none.
pub fn letter_of(info: &Info) -> u64 {
    info.letter()
}

/// A siginfo as the guest is to see it.
pub fn without_letter(info: &Info) -> Info {
    let mut info = *info;
    info.set_letter(0);
    info
}

/// The log says that the signal of this letter has been taken.
pub fn is_taken(number: u64) {
    if number != 0 {
        letters()
            .map(|(letter, _)| letter)
            .filter(|letter| letter.number == number)
            .for_each(Letter::take_away);
    }
}

/// At a promotion: this process's own sends. A call in doubt that was made has sent, to that process that signal; any other
/// is made again, with a letter of its own.
pub fn settle(sent: Option<(u32, u32)>) {
    letters()
        .filter(|(letter, stage)| *stage == mail::SENDING && letter.is_from(own()))
        .for_each(|(letter, _)| letter.is_sent(sent.is_some()));
    let Some((to, signal)) = sent else { return };
    // Others write letters, too, and in our name if they like: it is the one that this very call has posted.
    let is_its = |letter: &Letter| {
        letter.is_from(own()) && letter.is_to(to) && letter.place.signal.load(Ordering::Relaxed) == signal
    };
    let last = letters().map(|(letter, _)| letter).filter(is_its);
    if let Some(letter) = last.max_by_key(|letter| letter.number) {
        // Its receiver may have been promoted meanwhile, before the letter was said to be sent.
        announce(letter, to, signal);
    }
}

/// Announces a letter to its receiver once more.
fn announce(letter: Letter, to: u32, signal: u32) {
    let info = letter.info();
    let kernels = u64::from(primary_of(to).unwrap_or(to));
    // SAFETY: the kernel reads the structure before the call returns.
    unsafe { raw::call3(raw::nr::RT_SIGQUEUEINFO, kernels, signal.into(), &raw const info as u64) };
}

/// A number has become another process's.
pub fn forget(pid: u32) {
    letters().map(|(letter, _)| letter).filter(|letter| letter.is_to(pid)).for_each(Letter::take_away);
}

/// At a promotion: sends this process again what it has not taken.
pub fn raise_all() {
    letters()
        .filter(|(letter, _)| letter.is_to(own()))
        .for_each(|(letter, _)| letter.place.arrived.store(0, Ordering::Relaxed));
    if let Some(own) = super::own() {
        own.lives.fetch_add(1, Ordering::SeqCst);
    }
    if registry::doubts() {
        return;
    }
    let mut last = 0;
    let next = |last: u64| {
        letters()
            .filter(|(letter, stage)| *stage == mail::SENT && letter.is_to(own()) && letter.number > last)
            .map(|(letter, _)| letter)
            .min_by_key(|letter| letter.number)
    };
    while let Some(letter) = next(last) {
        last = letter.number;
        letter.info().send(None);
    }
}

/// How often the process of this number has been promoted.
pub fn lives_of(pid: u32) -> u32 {
    find(pid).map_or(0, |entry| entry.lives.load(Ordering::SeqCst))
}

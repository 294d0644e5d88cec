//! Queued signals on their way from one process of the group to another, with what they carry.
//!
//! They wait in the kernel, or in the runtime's queue, of the primary that is to take them, and die with it. So a sender
//! writes a letter into the roster before it asks the kernel; whoever has put the taking into the log takes the letter
//! away, and so does the standby that applies it. What is there at a promotion is sent again, in order.

use core::sync::atomic::Ordering;

use us_abi::{Mail, mail};

use super::{find, roster};
use crate::raw;
use crate::signal::{Info, SI_QUEUE};
use crate::state;
use crate::sys::guest;

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
        let _ = self.place.state.compare_exchange(self.word(from), to, Ordering::AcqRel, Ordering::Acquire);
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

    /// Whether this is what has come.
    fn is(self, info: &Info) -> bool {
        self.place.signal.load(Ordering::Relaxed) == info.signal() as u32
            && self.is_from(info.0[2] as u32)
            && self.place.value.load(Ordering::Relaxed) == info.0[3]
    }

    /// The kernel has been asked: it has taken the signal, or not.
    pub fn is_sent(self, done: bool) {
        self.step(mail::SENDING, if done { mail::SENT } else { mail::FREE });
    }
}

/// The letters that are written whole, and how far each has come.
fn letters() -> impl Iterator<Item = (Letter, u64)> {
    all().iter().filter_map(|place| {
        let word = place.state.load(Ordering::Acquire);
        let stage = word & mail::STAGE;
        (stage >= mail::SENDING).then_some((Letter { place, number: word >> mail::STAGE_BITS }, stage))
    })
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
    for (word, value) in [
        (&place.to, to),
        (&place.from, own()),
        (&place.signal, signal as u32),
        (&place.uid, (info.0[2] >> 32) as u32),
    ] {
        word.store(value, Ordering::Relaxed);
    }
    place.arrived.store(0, Ordering::Relaxed);
    place.value.store(info.0[3], Ordering::Relaxed);
    let number = super::header()?.letters.fetch_add(1, Ordering::AcqRel) + 1;
    let letter = Letter { place, number };
    place.state.store(letter.word(mail::SENDING), Ordering::Release);
    Some(letter)
}

/// A signal has reached this process: notes the letter that it comes with, in bytes that no siginfo uses.
pub fn arrived(info: &mut Info) {
    info.0[LETTER] = 0;
    if info.code() != SI_QUEUE {
        return;
    }
    let found = letters()
        .map(|(letter, _)| letter)
        .filter(|letter| {
            letter.is_to(own()) && letter.is(info) && letter.place.arrived.load(Ordering::Relaxed) == 0
        })
        .min_by_key(|letter| letter.number);
    if let Some(letter) = found {
        letter.place.arrived.store(1, Ordering::Relaxed);
        info.0[LETTER] = letter.number;
    }
}

/// Where a siginfo carries the number of its letter.
const LETTER: usize = 14;

/// The number of the letter with which a signal has come, 0 for none.
pub fn letter_of(info: &Info) -> u64 {
    info.0[LETTER]
}

/// A siginfo as the guest is to see it.
pub fn without_letter(info: &Info) -> Info {
    let mut info = *info;
    info.0[LETTER] = 0;
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

/// At a promotion: this process's own sends. A call in doubt that was made has sent; any other is made again, with a letter
/// of its own.
pub fn settle(done: bool) {
    letters()
        .filter(|(letter, stage)| *stage == mail::SENDING && letter.is_from(own()))
        .for_each(|(letter, _)| letter.is_sent(done));
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
    let mut last = 0;
    let next = |last: u64| {
        letters()
            .filter(|(letter, stage)| *stage == mail::SENT && letter.is_to(own()) && letter.number > last)
            .map(|(letter, _)| letter)
            .min_by_key(|letter| letter.number)
    };
    while let Some(letter) = next(last) {
        last = letter.number;
        let place = letter.place;
        let mut info = Info([0; 16]);
        info.0[0] = u64::from(place.signal.load(Ordering::Relaxed));
        info.0[1] = u64::from(SI_QUEUE as u32);
        info.0[2] = u64::from(place.from.load(Ordering::Relaxed))
            | u64::from(place.uid.load(Ordering::Relaxed)) << 32;
        info.0[3] = place.value.load(Ordering::Relaxed);
        info.send(None);
    }
}

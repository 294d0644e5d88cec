//! One connection at a gate.

use crate::note::{Facts, Note, agreed};
use crate::packet::{Pair, Segment, flag, is_before};
use crate::{Adopted, Found, PATIENCE_NS, Reading};

/// How a packet was shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Short {
    /// It says less than it did.
    Less,
    /// It would say what has been said already.
    Nothing,
}

/// What is known of it.
#[derive(Debug)]
pub struct Known {
    /// Number of this side's SYN.
    pub first: u32,
    /// Of the other side's, once something has acknowledged that.
    pub other_first: Option<u32>,
    /// By how many bits the windows are shifted that the other side is sent.
    own_scale: u8,
    agreed: u8,
    time: u32,
    at_ns: u64,
    /// Who it is in the log.
    pub identity: Option<u64>,
    /// When that is to be asked for, and how often it has been.
    pub ask_at_ns: u64,
    /// See `ask_at_ns`.
    pub asked: u32,
    /// A packet behind its SYN has been seen.
    is_made: bool,
    /// Nobody needs its acknowledgements shortened: it is over, or cannot be taken over.
    pub is_free: bool,
    /// When a packet of it was last seen.
    pub seen_ns: u64,
    /// Bytes that may be acknowledged.
    allowed: u64,
    /// See [`Adopted`].
    read_by_others: u64,
    /// So many may be once the log has that everywhere: with this pass, 0 while it has no number.
    beyond: Option<(u64, u64)>,
    /// What was acknowledged last, and where the window ended then.
    told: Option<(u32, u32)>,
    /// Behind the last byte that has been sent.
    sent: u32,
    /// The same when it was last asked what of it has been acknowledged.
    pub measured_at: u32,
    /// Bytes that the other side had acknowledged when the socket was made: see [`Adopted`].
    pub acknowledged_before: u64,
    /// The last packet, without data, as the kernel had it, while more is to be acknowledged.
    waits: Option<Segment>,
    since_ns: u64,
}

impl Known {
    /// One that begins, by its SYN or by the answer to one.
    pub fn of(segment: &Segment, now: u64) -> Known {
        let offer = segment.offer();
        let time = if offer.time.is_some() { agreed::TIME } else { 0 };
        Known {
            first: segment.sequence(),
            other_first: segment.has(flag::ACK).then(|| segment.acknowledged().wrapping_sub(1)),
            own_scale: offer.scale.unwrap_or(0),
            agreed: time,
            time: offer.time.unwrap_or(0),
            at_ns: now,
            identity: None,
            ask_at_ns: now,
            asked: 0,
            is_made: false,
            is_free: false,
            seen_ns: now,
            allowed: 0,
            read_by_others: 0,
            beyond: None,
            told: None,
            sent: segment.end(),
            measured_at: segment.end(),
            acknowledged_before: 0,
            waits: None,
            since_ns: now,
        }
    }

    /// One that has been made anew: its SYNs were another machine's.
    pub fn adopted(adopted: &Adopted, now: u64) -> Known {
        let Adopted { facts, sent, read, read_by_others, acknowledged } = adopted;
        Known {
            first: facts.first,
            other_first: Some(facts.other_first),
            own_scale: facts.own_scale,
            agreed: facts.agreed,
            time: facts.time,
            at_ns: facts.at_ns,
            identity: Some(facts.identity),
            ask_at_ns: now,
            asked: 0,
            is_made: true,
            is_free: false,
            seen_ns: now,
            allowed: *read,
            read_by_others: *read_by_others,
            beyond: None,
            told: None,
            sent: *sent,
            measured_at: *sent,
            acknowledged_before: *acknowledged,
            waits: None,
            since_ns: now,
        }
    }

    /// A packet behind its SYN is sent: the kernel knows it by now. Whether it is to be asked for it, because that is news.
    pub fn is_there(&mut self) -> bool {
        let is_news = !std::mem::replace(&mut self.is_made, true) && self.identity.is_none();
        if is_news {
            (self.asked, self.is_free) = (0, false);
        }
        is_news
    }

    /// The number behind the last byte that has been sent.
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// What whoever takes over has to know.
    pub fn facts(&mut self, pair: Pair, found: &Found) -> Facts {
        if found.agreed & agreed::SCALE == 0 {
            self.own_scale = 0;
        }
        Facts {
            identity: found.identity,
            pair,
            first: self.first,
            other_first: self.other_first.unwrap_or(0),
            segment_bytes: found.segment_bytes,
            scale: found.scale,
            own_scale: self.own_scale,
            agreed: found.agreed & !agreed::TIME | found.agreed & self.agreed,
            time: self.time,
            at_ns: self.at_ns,
        }
    }

    /// The number of the byte that the other side may be told is waited for.
    fn limit(&self) -> u32 {
        self.other_first.unwrap_or(0).wrapping_add(1).wrapping_add(self.allowed as u32)
    }

    /// The program has read so far.
    pub fn has_read(&mut self, reading: &Reading) {
        let read = self.read_by_others + reading.read + u64::from(reading.is_ended);
        self.allowed = self.allowed.max(read);
        self.is_free |= reading.is_free;
    }

    /// More has been, or is to be, acknowledged than was read: the note for the log.
    pub fn is_beyond(&mut self) -> Option<Note> {
        let acknowledged = match &self.waits {
            Some(segment) => segment.acknowledged(),
            None => self.told?.0,
        };
        if !is_before(self.limit(), acknowledged) || self.is_free {
            return None;
        }
        let Some(identity) = self.identity else {
            self.is_free = true;
            return None;
        };
        let bytes = self.allowed + u64::from(acknowledged.wrapping_sub(self.limit()));
        self.beyond = Some((bytes, 0));
        Some(Note::Beyond { identity, bytes })
    }

    /// The pass that will have its note has this number.
    pub fn stamp(&mut self, number: u64) {
        if let Some((_, pass @ 0)) = &mut self.beyond {
            *pass = number;
        }
    }

    /// Up to this pass all is committed.
    pub fn committed(&mut self, number: u64) {
        if let Some((bytes, _)) = self.beyond.filter(|(_, pass)| *pass != 0 && *pass <= number) {
            self.allowed = self.allowed.max(bytes);
            self.beyond = None;
        }
    }

    /// Whether an acknowledgement has waited for too long.
    pub fn is_impatient(&self, now: u64) -> bool {
        self.waits.is_some() && self.beyond.is_none() && !self.is_free && now > self.since_ns + PATIENCE_NS
    }

    /// A packet of it leaves, with what may be acknowledged. How it was shortened, if it was.
    pub fn passes(&mut self, segment: &mut Segment, is_strict: bool, now: u64) -> Option<Short> {
        if is_before(self.sent, segment.end()) {
            self.sent = segment.end();
        }
        if !segment.has(flag::ACK) || segment.has(flag::SYN | flag::RST) {
            return None;
        }
        let wanted = segment.acknowledged();
        let limit = match self.told {
            Some((told, _)) if is_before(self.limit(), told) => told,
            _ => self.limit(),
        };
        if !is_strict || self.is_free || !is_before(limit, wanted) {
            self.tell(wanted, segment.window());
            self.waits = None;
            return None;
        }
        if self.waits.is_none() {
            self.since_ns = now;
        }
        self.waits = Some(segment.bare(self.sent));
        let is_left = segment.forget_between(limit, wanted);
        let before = self.told;
        let window = self.widened(segment.window(), wanted, limit);
        self.tell(limit, window);
        if segment.is_bare() && !is_left && before == self.told {
            return Some(Short::Nothing);
        }
        segment.acknowledge(limit, window);
        segment.sum_up();
        Some(Short::Less)
    }

    /// The window is to end where it does in the kernel's packet.
    fn widened(&self, window: u16, wanted: u32, limit: u32) -> u16 {
        let more = wanted.wrapping_sub(limit) >> self.own_scale;
        (u32::from(window) + more).min(u32::from(u16::MAX)) as u16
    }

    fn tell(&mut self, acknowledged: u32, window: u16) {
        self.told = Some((acknowledged, acknowledged.wrapping_add(u32::from(window) << self.own_scale)));
    }

    /// A packet that acknowledges what has come to be allowed since the last one; and whether nothing waits any more.
    pub fn catch_up(&mut self, now: u64) -> (Option<Segment>, bool) {
        let Some(last) = &self.waits else { return (None, true) };
        let (wanted, limit) = (last.acknowledged(), self.limit());
        let is_level = self.is_free || !is_before(limit, wanted);
        let up_to = if is_level { wanted } else { limit };
        if self.told.is_some_and(|(told, _)| !is_before(told, up_to)) {
            return (None, is_level);
        }
        let mut segment = last.bare(self.sent);
        let window = self.widened(segment.window(), wanted, up_to);
        segment.acknowledge(up_to, window);
        segment.sum_up();
        self.tell(up_to, window);
        self.since_ns = now;
        if is_level {
            self.waits = None;
        }
        (Some(segment), is_level)
    }
}

//! The side that has the log.

use std::collections::VecDeque;

use crate::hello::{Commit, Hello};
use crate::wire::Message;
use crate::{Act, Broken, Limits, Place};

/// Moments that are remembered of entries that are not committed.
const MOMENTS: usize = 256;

/// The log that is sent.
pub trait Log {
    /// The whole entry that begins here; `None` if it is not there yet.
    fn entry(&mut self, at: Place) -> Option<Vec<u8>>;
    /// CRC32C of the entry that ends here, 0 at the beginning; `None` where no entry ends.
    fn before(&mut self, at: Place) -> Option<u32>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// No link; the next attempt is due then.
    Apart(u64),
    /// Asked for one.
    Connecting,
    /// It is there, and the follower has not answered; `true` once the hello is on its way.
    Greeting(bool),
    /// Entries go.
    Shipping,
    /// The end has been told.
    Ending,
    /// The link is to be ended; the next attempt is due then, or there is none.
    Closing(Option<u64>),
    /// The follower has all of a log that is at its end.
    Done,
    /// The follower has been given up.
    GivenUp,
}

/// What is known of a follower, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Whether entries go now.
    pub is_linked: bool,
    /// Whether it has all of a log that is at its end.
    pub is_done: bool,
    /// Whether it has been given up.
    pub is_given_up: bool,
    /// Up to here the log is safe.
    pub committed: Place,
    /// Bytes of the log behind that.
    pub lag_bytes: u64,
    /// How long the first of them has waited, nanoseconds.
    pub lag_ns: u64,
    /// How long the entry that was committed last had waited, nanoseconds.
    pub last_ns: u64,
    /// Whether the follower's lease holds.
    pub is_leased: bool,
    /// Links that there have been.
    pub links: u64,
    /// Entries that it had acknowledged, and lost.
    pub lost: u64,
    /// Why there is no link.
    pub trouble: Option<String>,
    /// What stands against running the program there.
    pub remarks: Vec<String>,
    /// Why that machine cannot take over, though it keeps the log.
    pub obstacle: Option<String>,
    /// The last image of the program that it has asked for, by its own number; 0: it has asked for none.
    pub wanted: u64,
}

/// One follower of a log, as its leader sees it.
#[derive(Debug)]
pub struct Leader {
    hello: Hello,
    limits: Limits,
    broken: Option<Broken>,
    state: State,
    pause: u64,
    /// How far the log is, and whether that is its end.
    end: Place,
    is_finished: bool,
    /// What was sent over this link, or stood before it.
    sent: Place,
    /// What the follower has, by its own word.
    memory: Place,
    disk: Place,
    committed: Place,
    /// Ends of the entries that are on their way.
    flight: VecDeque<Place>,
    /// When the log came to be so long, of what is not committed.
    moments: VecDeque<(Place, u64)>,
    heard: u64,
    beat_due: u64,
    leased: u64,
    report: Report,
}

impl Leader {
    /// A follower of the log that `hello` is about; its `session` counts the links.
    pub fn new(hello: Hello, limits: Limits, now: u64) -> Leader {
        Leader {
            hello: Hello { protocol: crate::PROTOCOL, session: 0, ..hello },
            limits,
            broken: None,
            state: State::Apart(now),
            pause: limits.pause.0,
            end: Place::default(),
            is_finished: false,
            sent: Place::default(),
            memory: Place::default(),
            disk: Place::default(),
            committed: Place::default(),
            flight: VecDeque::new(),
            moments: VecDeque::new(),
            heard: now,
            beat_due: now,
            leased: 0,
            report: Report::default(),
        }
    }

    /// The same with a rule broken.
    #[doc(hidden)]
    #[must_use]
    pub fn breaking(mut self, rule: Broken) -> Leader {
        self.broken = Some(rule);
        self
    }

    /// The log is so long now.
    pub fn grew(&mut self, end: Place, now: u64) {
        if end <= self.end {
            return;
        }
        self.end = end;
        if self.moments.len() < MOMENTS {
            self.moments.push_back((end, now));
        } else if let Some(last) = self.moments.back_mut() {
            // With the older moment: it rather seems to have waited longer.
            last.0 = end;
        }
        let behind = end.offset.saturating_sub(self.committed.offset);
        if behind > self.limits.backlog && self.state != State::GivenUp {
            self.report.trouble = Some(format!("it was behind by {behind} bytes, and was given up"));
            self.state = if self.has_link() { State::Closing(None) } else { State::GivenUp };
        }
    }

    /// The log is at its end: nothing comes behind what has been told.
    pub fn finished(&mut self) {
        self.is_finished = true;
    }

    /// The link is there.
    pub fn connected(&mut self, now: u64) {
        if self.state == State::Connecting {
            self.state = State::Greeting(false);
            self.heard = now;
        }
    }

    /// There is no link, or no more.
    pub fn broken(&mut self, why: &str, now: u64) {
        match self.state {
            State::Done | State::GivenUp => {}
            State::Closing(None) => self.state = State::GivenUp,
            State::Closing(Some(due)) => self.state = State::Apart(due),
            State::Apart(_) => {}
            _ => {
                self.report.trouble = Some(why.into());
                let due = self.later(now);
                self.state = State::Apart(due);
            }
        }
        self.flight.clear();
    }

    /// Bytes have come: a sign of life, though no message is whole.
    pub fn alive(&mut self, now: u64) {
        self.heard = now;
    }

    fn later(&mut self, now: u64) -> u64 {
        let due = now.saturating_add(self.pause);
        self.pause = self.pause.saturating_mul(2).min(self.limits.pause.1);
        due
    }

    fn has_link(&self) -> bool {
        matches!(self.state, State::Greeting(_) | State::Shipping | State::Ending)
    }

    /// Whether the follower has said nothing for too long. [`Leader::next`] sees to that; this is for whoever cannot ask it,
    /// because what was sent last is not taken.
    pub fn is_silent(&self, now: u64) -> bool {
        self.has_link() && now.saturating_sub(self.heard) > self.limits.silence
    }

    fn close(&mut self, why: String, now: u64) {
        self.report.trouble = Some(why);
        let due = self.later(now);
        self.state = State::Closing(Some(due));
    }

    /// What the follower says.
    pub fn heard(&mut self, message: Message, log: &mut dyn Log, now: u64) {
        if !self.has_link() {
            return;
        }
        self.heard = now;
        let own = self.hello.session;
        let is_own = |session: u64| session == own || self.broken == Some(Broken::Sessions);
        match message {
            Message::Refuse(why) => {
                // Nothing is gained by asking soon.
                self.pause = self.limits.pause.1;
                self.close(why, now);
            }
            Message::Welcome { session, at, disk, last, remarks } if is_own(session) => {
                if self.state == State::Greeting(true) {
                    self.welcomed(at, disk, last, remarks, log, now);
                }
            }
            Message::Ack { session, memory, disk, echo } if is_own(session) => {
                if matches!(self.state, State::Shipping | State::Ending) {
                    self.acknowledged(memory, disk, echo, now);
                }
            }
            Message::Ended { session, at } if is_own(session) => {
                let is_all = self.is_finished && self.memory == self.end && at == self.end;
                if matches!(self.state, State::Shipping | State::Ending) && is_all {
                    self.acknowledged(at, at, 0, now);
                    self.report.trouble = None;
                    self.state = State::Done;
                }
            }
            Message::Obstacle { session, why } if is_own(session) => {
                if matches!(self.state, State::Shipping | State::Ending) {
                    self.report.obstacle = Some(why).filter(|why| !why.is_empty());
                }
            }
            Message::Wanted { session, number } if is_own(session) => {
                if matches!(self.state, State::Shipping | State::Ending) {
                    self.report.wanted = number;
                }
            }
            Message::Welcome { .. }
            | Message::Ack { .. }
            | Message::Ended { .. }
            | Message::Obstacle { .. }
            | Message::Wanted { .. } => {}
            Message::Hello(_) | Message::Entry { .. } | Message::Beat { .. } | Message::End { .. } => {
                self.close("it speaks as a leader does".into(), now);
            }
        }
    }

    fn welcomed(
        &mut self,
        at: Place,
        disk: Place,
        last: u32,
        remarks: Vec<String>,
        log: &mut dyn Log,
        now: u64,
    ) {
        let is_like = log.before(at) == Some(last) || self.broken == Some(Broken::Unlike);
        if !at.is_within(self.end) || !disk.is_within(at) || !is_like {
            self.pause = self.limits.pause.1;
            let number = at.number;
            return self.close(format!("it has {number} entries that are not this log's"), now);
        }
        if at < self.memory {
            self.report.lost += self.memory.number - at.number;
        }
        if self.broken == Some(Broken::TakenBack) {
            self.committed = self.committed.min(at);
        }
        if self.broken != Some(Broken::Resume) {
            self.sent = at;
        }
        (self.memory, self.disk) = (at, disk);
        self.flight.clear();
        self.report.remarks = remarks;
        // It says so over each link.
        self.report.obstacle = None;
        self.report.trouble = None;
        self.report.links += 1;
        self.state = State::Shipping;
        self.beat_due = now;
        self.commit(now);
    }

    fn acknowledged(&mut self, memory: Place, disk: Place, echo: u64, now: u64) {
        let is_end = |place: &Place| *place == memory;
        let is_known = memory == self.memory || self.flight.iter().any(is_end);
        if self.broken != Some(Broken::Sessions)
            && (!is_known || !disk.is_within(memory) || !self.disk.is_within(disk))
        {
            return self.close("it acknowledges what was not sent".into(), now);
        }
        if memory > self.memory {
            self.pause = self.limits.pause.0;
        }
        (self.memory, self.disk) = (memory, disk);
        while self.flight.front().is_some_and(|end| *end <= memory) {
            self.flight.pop_front();
        }
        // By when the question was sent: on its way to us the answer may have taken any time.
        let since = if self.broken == Some(Broken::Lease) { now } else { echo.min(now) };
        if echo > 0 {
            self.leased = self.leased.max(since.saturating_add(self.limits.silence));
        }
        self.commit(now);
    }

    /// What is committed stays so, whatever a follower loses later.
    fn commit(&mut self, now: u64) {
        let safe = if self.hello.commit == Commit::Disk { self.disk } else { self.memory };
        if self.committed.is_within(safe) {
            self.committed = safe;
        }
        while let Some((end, since)) = self.moments.front().filter(|(end, _)| *end <= self.committed) {
            let _ = end;
            self.report.last_ns = now.saturating_sub(*since);
            self.moments.pop_front();
        }
    }

    /// What is to be done next. Asked again until it is nothing, and only while there is room for what it may send.
    pub fn next(&mut self, log: &mut dyn Log, now: u64) -> Option<Act> {
        if self.is_silent(now) {
            let ms = self.limits.silence / 1_000_000;
            self.close(format!("it said nothing for {ms} ms"), now);
        }
        match self.state {
            State::Apart(due) if now >= due => {
                self.state = State::Connecting;
                Some(Act::Connect)
            }
            State::Closing(due) => {
                self.flight.clear();
                self.state = due.map_or(State::GivenUp, State::Apart);
                Some(Act::Disconnect)
            }
            State::Greeting(false) => {
                self.state = State::Greeting(true);
                self.hello.session += 1;
                Some(Act::Send(Message::Hello(Box::new(self.hello.clone()))))
            }
            State::Shipping | State::Ending if now >= self.beat_due => {
                // The end is told again behind each: the first time it may have been lost.
                self.state = State::Shipping;
                self.beat_due = now.saturating_add(self.limits.beat);
                let (session, at, end) = (self.hello.session, self.sent, self.end);
                Some(Act::Send(Message::Beat { session, sent: now, at, end }))
            }
            State::Shipping => self.ship(log),
            _ => None,
        }
    }

    fn ship(&mut self, log: &mut dyn Log) -> Option<Act> {
        let session = self.hello.session;
        if self.is_finished && self.sent == self.end && self.memory == self.end {
            self.state = State::Ending;
            return Some(Act::Send(Message::End { session, at: self.end }));
        }
        let away = self.sent.offset.saturating_sub(self.memory.offset);
        let is_full = away >= self.limits.window || self.flight.len() >= self.limits.entries;
        if self.sent >= self.end || is_full && self.broken != Some(Broken::Window) {
            return None;
        }
        let at = self.sent;
        let bytes = log.entry(at)?;
        self.sent = at.behind(bytes.len());
        self.flight.push_back(self.sent);
        Some(Act::Send(Message::Entry { session, at, bytes }))
    }

    /// When there is something to do though nothing happens.
    pub fn due(&self) -> Option<u64> {
        match self.state {
            State::Apart(due) => Some(due),
            State::Closing(_) => Some(0),
            State::Greeting(_) => Some(self.heard.saturating_add(self.limits.silence)),
            State::Shipping | State::Ending => {
                Some(self.beat_due.min(self.heard.saturating_add(self.limits.silence)))
            }
            State::Connecting | State::Done | State::GivenUp => None,
        }
    }

    /// Links that there have been, with this one.
    #[doc(hidden)]
    pub fn session(&self) -> u64 {
        self.hello.session
    }

    /// What the follower has, by its own word.
    pub fn follower_has(&self) -> Place {
        self.memory
    }

    /// Until when the follower's lease holds: for so long it takes no other leader.
    pub fn leased_until(&self) -> u64 {
        self.leased
    }

    /// What there is to say.
    pub fn report(&self, now: u64) -> Report {
        let lag_bytes = self.end.offset.saturating_sub(self.committed.offset);
        let waits = self.moments.front().map_or(0, |(_, since)| now.saturating_sub(*since));
        Report {
            is_linked: matches!(self.state, State::Shipping | State::Ending),
            is_done: self.state == State::Done,
            is_given_up: matches!(self.state, State::GivenUp | State::Closing(None)),
            committed: self.committed,
            lag_bytes,
            lag_ns: if lag_bytes == 0 { 0 } else { waits },
            is_leased: now < self.leased,
            ..self.report.clone()
        }
    }
}

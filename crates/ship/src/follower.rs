//! The side that keeps a copy: what it takes over one link.

use crate::hello::{Commit, Hello, Here};
use crate::wire::Message;
use crate::{Act, Broken, Limits, Place};

/// The copy of a log.
pub trait Copy {
    /// Finds the copy of this log, or begins one. How far it goes with whole entries, how much of that is on the disk, and
    /// CRC32C of the last one; and the hash of the file that lies here at the program's path.
    ///
    /// # Errors
    /// Why there can be none, for people.
    fn open(&mut self, hello: &Hello) -> Result<Opened, String>;
    /// Appends an entry. All of it or nothing.
    ///
    /// # Errors
    /// Why not, for people.
    fn append(&mut self, at: Place, bytes: &[u8]) -> Result<(), String>;
    /// Puts on the disk what has been appended. After a failure the copy is to be what is on the disk, and nothing more: asked
    /// again a kernel may say that all is well, and have forgotten the bytes.
    ///
    /// # Errors
    /// Why not, for people.
    fn sync(&mut self) -> Result<(), String>;
}

/// A copy as it was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Whole entries.
    pub at: Place,
    /// Of them on the disk.
    pub disk: Place,
    /// CRC32C of the last one, 0 if there is none.
    pub last: u32,
    /// Hash of the program's file here.
    pub program: Option<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The leader has not said who it is.
    New,
    /// Entries come.
    Taking,
    /// The link is to be ended.
    Closing,
    /// It is ended.
    Closed,
}

/// One link from a leader.
#[derive(Debug)]
pub struct Follower {
    here: Here,
    limits: Limits,
    broken: Option<Broken>,
    state: State,
    hello: Hello,
    memory: Place,
    disk: Place,
    /// How far the leader has said that its log is.
    end: Place,
    echo: u64,
    /// What is to be said before anything else; one each at the most.
    first: Option<Message>,
    owes_ack: bool,
    /// Why its machine cannot take over, until that is said.
    obstacle: Option<String>,
    /// Which image of the program it wants, until that is said.
    wanted: Option<u64>,
    is_ended: bool,
    heard: u64,
    beat_due: u64,
    why: Option<String>,
}

impl Follower {
    /// A link that has just come.
    pub fn new(here: Here, limits: Limits, now: u64) -> Follower {
        Follower {
            here,
            limits,
            broken: None,
            state: State::New,
            hello: Hello::default(),
            memory: Place::default(),
            disk: Place::default(),
            end: Place::default(),
            echo: 0,
            first: None,
            owes_ack: false,
            obstacle: None,
            wanted: None,
            is_ended: false,
            heard: now,
            beat_due: now,
            why: None,
        }
    }

    /// The same with a rule broken.
    #[doc(hidden)]
    #[must_use]
    pub fn breaking(mut self, rule: Broken) -> Follower {
        self.broken = Some(rule);
        self
    }

    /// Bytes have come: a sign of life, though no message is whole.
    pub fn alive(&mut self, now: u64) {
        self.heard = now;
    }

    /// Whether the leader has said who it is, and may send entries.
    pub fn is_open(&self) -> bool {
        self.state == State::Taking
    }

    /// Whether it has all of a log that is at its end.
    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Whose log it is.
    pub fn hello(&self) -> &Hello {
        &self.hello
    }

    /// What it has, and how far the leader's log is.
    pub fn progress(&self) -> (Place, Place) {
        (self.memory, self.end.max(self.memory))
    }

    /// Why the link ends, where that was no good end.
    pub fn why(&self) -> Option<&str> {
        self.why.as_deref()
    }

    /// Ends the link for this reason, which the leader hears.
    pub fn refuse(&mut self, why: String) {
        if matches!(self.state, State::New | State::Taking) {
            self.first = Some(Message::Refuse(why.clone()));
            self.close(why);
        }
    }

    /// This machine cannot take over, for this reason, which the leader hears; an empty one: it can again. The log is kept as before.
    pub fn cannot_take_over(&mut self, why: String) {
        self.obstacle = Some(why);
    }

    /// This machine wants an image of the program in the log; `number` is the wish's own.
    pub fn wants_image(&mut self, number: u64) {
        self.wanted = Some(number);
    }

    fn close(&mut self, why: String) {
        self.why = Some(why);
        self.owes_ack = false;
        self.state = State::Closing;
    }

    /// What the leader says. [`Follower::settle`] is due once no more has come.
    pub fn heard(&mut self, message: Message, copy: &mut dyn Copy, now: u64) {
        self.heard = now;
        let own = self.hello.session;
        let is_own = |session: u64| session == own || self.broken == Some(Broken::Sessions);
        match (self.state, message) {
            (State::New, Message::Hello(hello)) => self.greeted(*hello, copy, now),
            (State::New, _) => self.close("the first message is no hello".into()),
            (State::Taking, Message::Entry { session, at, bytes }) if is_own(session) => {
                self.take(at, &bytes, copy);
            }
            (State::Taking, Message::Beat { session, sent, at, end }) if is_own(session) => {
                (self.echo, self.end) = (self.echo.max(sent), self.end.max(end));
                self.owes_ack = true;
                if at > self.memory {
                    self.close("an entry has been lost".into());
                }
            }
            (State::Taking, Message::End { session, at }) if is_own(session) => match at == self.memory {
                true => self.ends(copy),
                false => self.close("the log ends where the copy does not".into()),
            },
            // Of an older link, late.
            (State::Taking, Message::Entry { .. } | Message::Beat { .. } | Message::End { .. }) => {}
            (State::Taking, _) => self.close("a message that is not a leader's".into()),
            (State::Closing | State::Closed, _) => {}
        }
    }

    fn greeted(&mut self, hello: Hello, copy: &mut dyn Copy, now: u64) {
        if let Some(why) = self.here.refuses(&hello) {
            return self.refuse(why);
        }
        match copy.open(&hello) {
            Err(why) => self.refuse(format!("{}: {why}", self.here.name)),
            Ok(Opened { at, disk, last, program }) => {
                let remarks = self.here.remarks(&hello, program);
                let session = hello.session;
                self.hello = hello;
                (self.memory, self.disk) = (at, disk.min(at));
                let disk = self.disk;
                self.first = Some(Message::Welcome { session, at, disk, last, remarks });
                self.state = State::Taking;
                self.beat_due = now.saturating_add(self.limits.beat);
            }
        }
    }

    fn take(&mut self, at: Place, bytes: &[u8], copy: &mut dyn Copy) {
        let takes_all = self.broken == Some(Broken::Gaps);
        if at < self.memory && !takes_all {
            // It has come before.
            self.owes_ack = true;
            return;
        }
        if at != self.memory && !takes_all {
            let (came, due) = (at.number, self.memory.number);
            return self.close(format!("entry {came} came where {due} was due"));
        }
        match copy.append(self.memory, bytes) {
            Ok(()) => {
                self.memory = self.memory.behind(bytes.len());
                if self.broken == Some(Broken::Unsynced) {
                    self.disk = self.memory;
                }
                self.owes_ack = true;
            }
            Err(why) => self.refuse(format!("{}: {why}", self.here.name)),
        }
    }

    fn ends(&mut self, copy: &mut dyn Copy) {
        if self.sync(copy) {
            self.is_ended = true;
            let (session, at) = (self.hello.session, self.memory);
            self.first = Some(Message::Ended { session, at });
            self.owes_ack = false;
            self.state = State::Closing;
        }
    }

    fn sync(&mut self, copy: &mut dyn Copy) -> bool {
        match copy.sync() {
            Ok(()) => self.disk = self.memory,
            Err(why) => self.refuse(format!("{}: {why}", self.here.name)),
        }
        self.disk == self.memory
    }

    /// All that had come has been heard: what was taken since is put on the disk, if the leader waits for that.
    pub fn settle(&mut self, copy: &mut dyn Copy) {
        let waits = self.hello.commit == Commit::Disk && self.disk < self.memory;
        if self.state == State::Taking && waits {
            self.sync(copy);
        }
    }

    /// Whether the leader has said nothing for too long. [`Follower::next`] sees to that; this is for whoever cannot ask it,
    /// because what was sent last is not taken.
    pub fn is_silent(&self, now: u64) -> bool {
        let is_open = matches!(self.state, State::New | State::Taking);
        is_open && now.saturating_sub(self.heard) > self.limits.silence
    }

    /// What is to be done next. Asked again until it is nothing, and only while there is room for what it may send.
    pub fn next(&mut self, now: u64) -> Option<Act> {
        if self.is_silent(now) {
            self.close("the leader has fallen silent".into());
        }
        if let Some(message) = self.first.take() {
            return Some(Act::Send(message));
        }
        if self.state == State::Taking
            && let Some(why) = self.obstacle.take()
        {
            return Some(Act::Send(Message::Obstacle { session: self.hello.session, why }));
        }
        if self.state == State::Taking
            && let Some(number) = self.wanted.take()
        {
            return Some(Act::Send(Message::Wanted { session: self.hello.session, number }));
        }
        match self.state {
            State::Taking if self.owes_ack || now >= self.beat_due => {
                self.owes_ack = false;
                self.beat_due = now.saturating_add(self.limits.beat);
                let (session, memory, disk, echo) = (self.hello.session, self.memory, self.disk, self.echo);
                Some(Act::Send(Message::Ack { session, memory, disk, echo }))
            }
            State::Closing => {
                self.state = State::Closed;
                Some(Act::Disconnect)
            }
            _ => None,
        }
    }

    fn has_to_speak(&self) -> bool {
        self.owes_ack || self.first.is_some() || self.obstacle.is_some() || self.wanted.is_some()
    }

    /// When there is something to do though nothing happens.
    pub fn due(&self) -> Option<u64> {
        let silent = self.heard.saturating_add(self.limits.silence).saturating_add(1);
        match self.state {
            State::New => Some(silent),
            State::Taking if self.has_to_speak() => Some(0),
            State::Taking => Some(silent.min(self.beat_due)),
            State::Closing => Some(0),
            State::Closed => None,
        }
    }
}

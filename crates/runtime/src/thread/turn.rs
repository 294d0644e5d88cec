//! What a thread knows of its turn: where the threads of a scope take turns.

use core::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// What a call waits for, as far as is known when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waits {
    /// What is outside, or nobody knows.
    ForWorld,
    /// Nothing: the kernel answers at once.
    ForNobody,
    /// So many nanoseconds.
    For(u64),
}

/// The thread's turn. Its own to change; a promotion looks who has had the last one.
pub struct Turn {
    is_own: AtomicBool,
    gives: AtomicBool,
    heard: AtomicBool,
    waits: AtomicU64,
    ended: AtomicBool,
    section: AtomicBool,
    apart: AtomicBool,
    ticks: AtomicU64,
    begun_at: AtomicU64,
    number: AtomicU64,
    doors: AtomicU32,
    out: AtomicBool,
    in_door: AtomicBool,
    glances: AtomicBool,
    object: AtomicU64,
    door: AtomicU16,
    begins_again: AtomicBool,
    placed: AtomicBool,
}

impl Turn {
    /// Another thread's.
    pub(super) const fn unused() -> Turn {
        Turn {
            is_own: AtomicBool::new(false),
            gives: AtomicBool::new(false),
            heard: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            ended: AtomicBool::new(false),
            section: AtomicBool::new(false),
            apart: AtomicBool::new(false),
            ticks: AtomicU64::new(0),
            begun_at: AtomicU64::new(0),
            number: AtomicU64::new(0),
            doors: AtomicU32::new(0),
            out: AtomicBool::new(false),
            in_door: AtomicBool::new(false),
            glances: AtomicBool::new(false),
            object: AtomicU64::new(0),
            door: AtomicU16::new(0),
            begins_again: AtomicBool::new(false),
            placed: AtomicBool::new(false),
        }
    }

    /// Whether it is this thread's turn.
    #[inline(always)]
    pub fn is_own(&self) -> bool {
        self.is_own.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_own(&self, is_own: bool) {
        self.is_own.store(is_own, Ordering::Relaxed);
    }

    /// To be given back once the call that begins has been logged, or found in the log.
    #[inline(always)]
    pub fn gives(&self) -> bool {
        self.gives.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_gives(&self, gives: bool) {
        self.gives.store(gives, Ordering::Relaxed);
    }

    /// What the call waits for that begins.
    pub fn waits(&self) -> Waits {
        match self.waits.load(Ordering::Relaxed) {
            0 => Waits::ForWorld,
            1 => Waits::ForNobody,
            wait_ns => Waits::For(wait_ns),
        }
    }

    /// Sets that.
    pub fn set_waits(&self, waits: Waits) {
        let word = match waits {
            Waits::ForWorld => 0,
            Waits::ForNobody => 1,
            Waits::For(wait_ns) => wait_ns.max(2),
        };
        self.waits.store(word, Ordering::Relaxed);
    }

    /// A handler has run at the beginning of this call: the log has its signal before all that it says of the call.
    pub fn set_heard(&self) {
        self.heard.store(true, Ordering::Relaxed);
    }

    /// Whether one has; not any more.
    pub fn take_heard(&self) -> bool {
        self.heard.load(Ordering::Relaxed) && self.heard.swap(false, Ordering::Relaxed)
    }

    /// The turn's number.
    pub fn number(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_number(&self, number: u64) {
        self.number.store(number, Ordering::Relaxed);
    }

    /// Counts a door passed in it, and says how many they were.
    pub fn count_door(&self) -> u32 {
        let doors = self.doors.load(Ordering::Relaxed).wrapping_add(1);
        self.doors.store(doors, Ordering::Relaxed);
        doors
    }

    /// Whether the program has asked for this turn, and gives it back itself.
    pub fn is_section(&self) -> bool {
        self.section.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_section(&self, is_section: bool) {
        self.section.store(is_section, Ordering::Relaxed);
    }

    /// What the thread says that it has computed in this turn counts at its end.
    pub fn add_ticks(&self, count: u64) {
        self.ticks.store(self.ticks.load(Ordering::Relaxed).saturating_add(count), Ordering::Relaxed);
    }

    /// How much that is.
    pub fn ticks(&self) -> u64 {
        self.ticks.load(Ordering::Relaxed)
    }

    /// That, and from here on nothing.
    pub fn take_ticks(&self) -> u64 {
        let ticks = self.ticks();
        if ticks != 0 {
            self.ticks.store(0, Ordering::Relaxed);
        }
        ticks
    }

    /// A turn of a computed order begins at this clock. What counts at the end of the last one is over, if that did not count it: a
    /// copy does not know of a call whether its primary went into the world. One that is taken anew behind a clone has begun before.
    pub fn begin_at(&self, clock: u64) {
        if self.begun_at.load(Ordering::Relaxed) != clock {
            self.begun_at.store(clock, Ordering::Relaxed);
            self.take_ticks();
        }
    }

    /// Whether the thread has asked to be in no order.
    #[inline(always)]
    pub fn is_apart(&self) -> bool {
        self.apart.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_apart(&self, is_apart: bool) {
        self.apart.store(is_apart, Ordering::Relaxed);
    }

    /// Whether the thread has been in a call since its last turn: its place in a computed order is then for the primary to say.
    pub fn is_out(&self) -> bool {
        self.out.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_out(&self, is_out: bool) {
        self.out.store(is_out, Ordering::Relaxed);
    }

    /// Where turns are had in doors alone: whether the thread is in one, and takes the turn again behind a wait.
    pub fn is_in_door(&self) -> bool {
        self.in_door.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_in_door(&self, is_in_door: bool) {
        self.in_door.store(is_in_door, Ordering::Relaxed);
    }

    /// Whether it sleeps where the one that wakes it may be unknown to a copy: it looks again when that takes over.
    pub fn glances(&self) -> bool {
        self.glances.load(Ordering::Relaxed)
    }

    /// Sets that.
    pub fn set_glances(&self, glances: bool) {
        self.glances.store(glances, Ordering::Relaxed);
    }

    /// The guest's object that the thread's door is about; it may lie at another address in each copy.
    pub fn object(&self) -> u64 {
        self.object.load(Ordering::Relaxed)
    }

    /// Sets it.
    pub fn set_object(&self, address: u64) {
        self.object.store(address, Ordering::Relaxed);
    }

    /// The kind of the door that the thread came to last, for the digest of a computed order.
    pub fn door(&self) -> u16 {
        self.door.load(Ordering::Relaxed)
    }

    /// Sets it.
    #[inline(always)]
    pub fn set_door(&self, kind: u16) {
        self.door.store(kind, Ordering::Relaxed);
    }

    /// It waited for its turn in a call that is in doubt, and that is made again: its door begins anew behind the turn.
    pub fn set_begins_again(&self) {
        self.begins_again.store(true, Ordering::Relaxed);
    }

    /// Whether that is so; not any more.
    pub fn take_begins_again(&self) -> bool {
        self.begins_again.load(Ordering::Relaxed) && self.begins_again.swap(false, Ordering::Relaxed)
    }

    /// When it came back into the race somebody has said who was in no turn: a computed order says nothing of that.
    pub fn set_placed(&self) {
        self.placed.store(true, Ordering::Relaxed);
    }

    /// Whether that is so; not any more.
    pub fn take_placed(&self) -> bool {
        self.placed.load(Ordering::Relaxed) && self.placed.swap(false, Ordering::Relaxed)
    }

    /// The slot's thread has come to its end.
    pub fn set_ended(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether it has.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The slot has another thread.
    pub fn begin_anew(&self) {
        self.leave();
        for word in [&self.object, &self.ticks, &self.begun_at] {
            word.store(0, Ordering::Relaxed);
        }
        self.set_door(0);
        let of_door = [&self.section, &self.apart, &self.in_door, &self.begins_again];
        for flag in of_door.into_iter().chain([&self.ended, &self.out, &self.glances, &self.placed]) {
            flag.store(false, Ordering::Relaxed);
        }
    }

    /// It is not this thread's any more, and it is not going to give it.
    pub fn leave(&self) {
        self.set_own(false);
        self.set_gives(false);
    }
}

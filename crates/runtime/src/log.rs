//! Appending to this thread's ring, and reading from it.
//!
//! # Safety
//! Everything here works on the calling thread's own block and ring. The primary writes above the tail,
//! where no consumer reads; the standby reads below it, where no producer writes until the head has moved.

use core::arch::asm;
use core::arch::x86_64::_mm_set_epi64x;
use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::event::{EventKind, Header, NO_TICKET};
use us_abi::{Cause, EVENT_ALIGN, SegmentHeader};
use us_calls::Class;
use us_ring::{Position, Readers, Room};

use crate::above::above;
use crate::event::Event;
use crate::fault::{self, Point};
use crate::members::of_family;
use crate::thread::{Mode, Thread, stop_logging};
use crate::verdict::drop_follower;
use crate::{invariant, milestones, missing, pace, raw, recorder, seats, state, twins};

/// A reader that has freed nothing for so long may be gone, ns.
const GONE_NS: u64 = 2_000_000;

/// What the log says to a standby's thread.
pub enum Next {
    /// The next event. It stays open until [`Thread::close`].
    Event(Event),
    /// There are no more: this copy has been promoted, act for real.
    Live,
}

impl Next {
    /// The event, if there is one.
    #[inline(always)]
    pub fn event(self) -> Option<Event> {
        match self {
            Next::Event(event) => Some(event),
            Next::Live => None,
        }
    }
}

/// Puts an event's header above the tail of its ring, by one instruction. Whoever was killed between two has told of half an
/// event: its successor would take a call for over, with a result that it has not had, or find a witness's mark whose other
/// word is a ticket.
///
/// # Safety
/// The place of an event that nobody reads yet, by its ring's only producer.
#[inline(always)]
pub unsafe fn put_header(place: *mut u8, word: u64, ticket: u64) {
    // SAFETY: the caller's promise; events are aligned to 16 bytes. The payload's stores come first: it may write to any memory.
    unsafe {
        asm!(
            "movaps xmmword ptr [{place}], {header}",
            place = in(reg) place,
            header = in(xmm_reg) _mm_set_epi64x(ticket as i64, word as i64),
            options(nostack, preserves_flags),
        );
    }
}

impl Thread {
    /// Passes a door: makes an attempt in the mode that the thread has now, and another one as long as an attempt says `None`.
    /// That is what it says where the log had nothing more and this copy has taken over, where the log has begun or ended
    /// since, and where a handler has run and the call starts over.
    #[inline(always)]
    pub fn attempt<R>(&mut self, mut attempt: impl FnMut(&mut Thread, Mode) -> Option<R>) -> R {
        loop {
            let mode = self.calls();
            if let Some(result) = attempt(self, mode) {
                return result;
            }
        }
    }

    /// Appends an event without payload.
    #[inline(always)]
    pub fn push(&mut self, kind: EventKind, flags: u8, call: u16, ticket: u64) {
        if !self.is_ready() {
            return;
        }
        let tail = &self.entry().tail.0;
        fault::at(Point::Publish, (kind as u32) << 16 | u32::from(call));
        self.ends.producer.push(Header::word(kind, flags, call, 0), ticket, &mut self.ends.ring, tail);
        fault::at(Point::Published, (kind as u32) << 16 | u32::from(call));
    }

    /// Makes sure that an event without payload fits, before the thread takes the lock that the event will tell of. One that
    /// waited for the standby with the lock in hand would hold up all who come to it, and they come within microseconds.
    /// False when the standby has been dropped meanwhile.
    #[inline(always)]
    pub fn is_ready(&mut self) -> bool {
        self.ends.producer.fits(2 * EVENT_ALIGN) || self.make_room(2 * EVENT_ALIGN)
    }

    /// Makes sure that an event with `payload` bytes fits, and tells where its payload will lie. `None` when
    /// the standby has been dropped meanwhile: the caller goes on without a log.
    #[inline(always)]
    pub fn reserve(&mut self, payload: usize) -> Option<*mut u8> {
        let bytes = Header::size(payload as u32) + EVENT_ALIGN;
        if !self.ends.producer.fits(bytes) && !self.make_room(bytes) {
            return None;
        }
        // SAFETY: the doubled mapping makes header and payload contiguous.
        Some(unsafe { self.ends.ring.at(self.ends.producer.at).add(size_of::<Header>()) })
    }

    /// Publishes the event whose payload has been written at the place that [`Thread::reserve`] gave.
    #[inline(always)]
    pub fn publish(&mut self, kind: EventKind, flags: u8, call: u16, ticket: u64, payload: usize) {
        let word = Header::word(kind, flags, call, payload as u32);
        // SAFETY: reserved; above the tail.
        unsafe { put_header(self.ends.ring.at(self.ends.producer.at), word, ticket) };
        let tail = &self.entry().tail.0;
        fault::at(Point::Publish, (kind as u32) << 16 | u32::from(call));
        self.ends.producer.publish(Header::size(payload as u32), tail);
        fault::at(Point::Published, (kind as u32) << 16 | u32::from(call));
    }

    /// Appends an event with a payload given as a value.
    #[inline(always)]
    pub fn append<T: Copy>(&mut self, kind: EventKind, flags: u8, call: u16, ticket: u64, payload: &T) {
        if let Some(place) = self.reserve(size_of::<T>()) {
            // SAFETY: reserved; 16-byte aligned.
            unsafe { place.cast::<T>().write(*payload) };
            self.publish(kind, flags, call, ticket, size_of::<T>());
        }
    }

    /// Waits until whoever reads the ring has freed room, at most the lag timeout; then a reader that has not is given up,
    /// and the others go on.
    #[cold]
    #[inline(never)]
    fn make_room(&mut self, bytes: usize) -> bool {
        if self.calls() != Mode::Record {
            return false;
        }
        let mut waited_ns = 0;
        if seats::is_followed() {
            let mut pace = self.ends.pace;
            let (at, events) = (self.ends.producer.at, self.ends.producer.events);
            waited_ns = pace::keep(&mut pace, self.slot(), at, events, || self.calls() == Mode::Record);
            self.ends.pace = pace;
        }
        // Most come here for a look at the others, and have room: they ask no clock.
        let mut is_made = self.extend(bytes);
        if !is_made {
            let start = raw::now_ns();
            is_made = self.await_room(bytes, start);
            waited_ns += raw::now_ns() - start;
        }
        if waited_ns != 0
            && let Some(header) = state::header()
        {
            header.room_wait_ns.fetch_add(waited_ns, Ordering::Relaxed);
        }
        is_made
    }

    /// Until there is room. The wait began at `start`.
    fn await_room(&mut self, bytes: usize, start: u64) -> bool {
        let mut pause_ns = 20_000;
        loop {
            if self.calls() != Mode::Record {
                return false;
            }
            if self.extend(bytes) {
                return true;
            }
            let Readers { standby, recorder } = self.readers();
            if standby.is_none() && recorder.is_none() {
                // Whoever gave the last one up was not this process.
                stop_logging();
                return false;
            }
            let waited = raw::now_ns() - start;
            let late = waited > state::LAG_TIMEOUT_NS.load(Ordering::Relaxed);
            let look = waited > GONE_NS;
            if self.is_slow(standby, bytes) && (look || late) {
                self.judge_standbys(bytes, late);
            }
            if self.is_slow(recorder, bytes) {
                if late {
                    recorder::stop(&[b"the recorder did not free room in a ring within the lag timeout"]);
                } else if look && !recorder::is_taken() {
                    recorder::stop(&[b"the process that took the log is gone"]);
                }
            }
            raw::nap(pause_ns);
            pause_ns = (pause_ns * 2).min(1_000_000);
        }
    }

    /// Gives up each standby that leaves no room: one that is gone, or all if it is `late`.
    fn judge_standbys(&self, bytes: usize, late: bool) {
        let Some(header) = state::header() else { return };
        for seat in seats::followers() {
            if !self.is_slow(Some(seats::head_of(seat, self.slot()).acquire()), bytes) {
                continue;
            }
            if late {
                let why = b"the standby did not free room in a ring within the lag timeout";
                drop_follower(seat, Cause::Behind, &[why]);
            } else if !seats::is_there(header, seat) {
                drop_follower(seat, Cause::StandbyLost, &[b"the standby's process is gone"]);
            }
        }
    }

    /// Where the slowest standby and the recorder are, of those that there are.
    fn readers(&self) -> Readers {
        let entry = self.entry();
        let recorder = recorder::is_recording().then(|| entry.taken.0.acquire());
        Readers { standby: seats::slowest(self.slot()), recorder }
    }

    /// Whether it is this reader that leaves no room.
    fn is_slow(&self, reader: Option<u64>, bytes: usize) -> bool {
        reader.is_some_and(|at| self.ends.producer.is_held_by(at, bytes))
    }

    /// Moves the limit up, as far as the slower reader, the next boundary and the lead allow.
    fn extend(&mut self, bytes: usize) -> bool {
        let readers = self.readers();
        let Some(head) = readers.slowest() else { return false };
        if !invariant::one_writer(self.slot(), self.ends.producer.at) {
            return false;
        }
        let lead = readers.standby.map_or(u64::MAX, |_| self.ends.pace.stretch(bytes));
        let (entry, base) = (self.entry(), self.ends.ring.0 as u64);
        let ring = (&mut self.ends.ring, &entry.tail.0);
        let back = |from: usize, bytes: usize| missing::populate(base + from as u64, bytes);
        let (room, skipped) = self.ends.producer.make_room(bytes, head, lead, ring, back);
        if skipped != 0 {
            entry.skipped.store(entry.skipped.load(Ordering::Relaxed) + skipped, Ordering::Relaxed);
        }
        if room == Room::NoMemory {
            missing::give_up();
        }
        room == Room::Made
    }

    /// The next event, as a standby. Signals on the way are delivered to the guest here: the primary
    /// delivered them at this very door.
    #[inline]
    pub fn next(&mut self) -> Next {
        loop {
            // Live since a handler that has just been replayed: where the log goes on, what comes next is its own.
            if self.is_live() || (!self.ends.consumer.ready() && !self.wait_for_event()) {
                return Next::Live;
            }
            let place = self.ends.ring.at(self.ends.consumer.at);
            // SAFETY: below the acquired tail, aligned.
            let header = unsafe { place.cast::<Header>().read() };
            self.ends.open = Header::size(header.len);
            // SAFETY: the payload follows the header in the doubled mapping.
            let event = Event { header, payload: unsafe { place.add(size_of::<Header>()) } };
            if header.kind == EventKind::Signal as u8 {
                above().replay_signal(self, event);
            } else if self.ends.consumer.passes(&header, self.head()) {
                self.ends.open = 0;
            } else if header.kind == EventKind::Yield as u8 {
                self.ends.open = 0;
                self.turn.take_begins_again();
                above().follow_pause(self);
                if self.turn.take_begins_again() {
                    return Next::Live;
                }
            } else if header.kind == EventKind::Alike as u8 {
                twins::choice::follow(self, event.payload());
                self.close();
            } else {
                twins::passed();
                return Next::Event(event);
            }
        }
    }

    /// Looks at the next event without waiting and without opening it.
    pub fn peek(&mut self) -> Option<Header> {
        if self.is_live() {
            return None;
        }
        let (tail, head) = (&self.entry().tail.0, self.head());
        self.ends.consumer.front(&self.ends.ring, tail, head)
    }

    /// Takes the signal that is the next event, as a standby.
    pub fn take_signal(&mut self) {
        let event = self.open_front();
        above().replay_signal(self, event);
    }

    /// Opens the event at the front of the ring.
    pub fn open_front(&mut self) -> Event {
        let place = self.ends.ring.at(self.ends.consumer.at);
        // SAFETY: `peek` has seen it: below the acquired tail, aligned, the payload behind the header.
        let event = unsafe {
            Event { header: place.cast::<Header>().read(), payload: place.add(size_of::<Header>()) }
        };
        self.ends.open = Header::size(event.header.len);
        event
    }

    /// The first two words behind the header of the event at the front of the ring, which `peek` has seen; zeros if it has none.
    pub fn front_words(&self, header: &Header) -> [u64; 2] {
        if (header.len as usize) < size_of::<[u64; 2]>() {
            return [0; 2];
        }
        let place = self.ends.ring.at(self.ends.consumer.at);
        // SAFETY: below the acquired tail, aligned; so much of a payload follows the header in the doubled mapping.
        unsafe { place.add(size_of::<Header>()).cast::<[u64; 2]>().read() }
    }

    /// Takes the event at the front of the ring, of which this is the header.
    pub fn take_front(&mut self, header: &Header) {
        self.ends.open = Header::size(header.len);
        self.close();
    }

    /// Sleeps until there may be another event, or this copy is live.
    pub fn wait_more(&mut self) {
        self.wait_for_event();
    }

    /// Sleeps for so long at a place where this copy may take over, or until the log goes on.
    pub fn rest(&mut self, limit_ns: u64) {
        let bell = self.bell.load(Ordering::Acquire);
        self.parked.store(true, Ordering::SeqCst);
        if !self.ends.consumer.ready_after_refresh(&self.entry().tail.0)
            && !state::LIVE.load(Ordering::Acquire)
        {
            raw::futex_wait(&self.bell, bell, limit_ns);
        }
        self.parked.store(false, Ordering::Relaxed);
    }

    /// Waits until this copy is live, or the log goes on.
    pub fn await_live(&mut self) {
        while self.calls() == Mode::Replay && self.peek().is_none() {
            self.wait_for_event();
        }
    }

    /// Sleeps at a place where this copy may take over as well: whoever promotes it waits until every thread is at one.
    pub fn stand_while(&mut self, sleep: impl FnOnce()) {
        self.parked.store(of_family::is_member(), Ordering::SeqCst);
        // One with an event that the wait comes before is not at its log's end. It sleeps all the same: whom it waits for may
        // need the processor.
        if self.ends.consumer.ready_after_refresh(&self.entry().tail.0) {
            self.parked.store(false, Ordering::Relaxed);
        }
        sleep();
        self.parked.store(false, Ordering::Relaxed);
    }

    /// Gives the open event back: it has been applied, and its clock advanced.
    #[inline(always)]
    pub fn close(&mut self) {
        fault::at(Point::Apply, 0);
        let bytes = core::mem::take(&mut self.ends.open);
        let head = self.head();
        self.ends.consumer.release(bytes, head);
        milestones::look_again(self);
    }

    /// What says how far this copy has come in this thread's ring.
    #[inline(always)]
    fn head(&self) -> &'static AtomicU64 {
        // SAFETY: a word of the segment, which stays mapped; set with the ring, and asked for by who has one.
        unsafe { &*self.ends.head }
    }

    /// As [`Thread::close`], of a call's beginning: it is counted, and not as an event of its class.
    pub fn close_begun(&mut self) {
        self.close();
        add_one(&self.entry().begun);
    }

    /// Waits until an event is there (true) or this copy is live (false).
    #[cold]
    #[inline(never)]
    fn wait_for_event(&mut self) -> bool {
        // No spin: a standby that has caught up has no hurry, and looking pulls the line that the primary writes at
        // every event. The poller rings when there is a batch.
        let tail = &self.entry().tail.0;
        loop {
            let bell = self.bell.load(Ordering::Acquire);
            // Another process's standby may have to wake this one.
            let kick = of_family::own_kick().map(|word| (word, word.load(Ordering::Acquire)));
            self.parked.store(true, Ordering::SeqCst);
            if self.ends.consumer.ready_after_refresh(tail) {
                self.parked.store(false, Ordering::Relaxed);
                return true;
            }
            if state::LIVE.load(Ordering::Acquire) {
                self.parked.store(false, Ordering::Relaxed);
                above().go_live(self);
                return false;
            }
            match kick {
                Some((word, value)) => raw::futex_wait_shared(word, value, 0),
                None => raw::futex_wait(&self.bell, bell, 0),
            };
            self.parked.store(false, Ordering::Relaxed);
        }
    }

    /// The next event, which must be of this kind and call; anything else is a divergence.
    #[inline]
    pub fn expect(&mut self, kind: EventKind, call: u16) -> Next {
        self.expect_in(kind, call, u16::MAX)
    }

    /// As [`Thread::expect`], of the bits of `call` in `mask`.
    #[inline(always)]
    pub fn expect_in(&mut self, kind: EventKind, call: u16, mask: u16) -> Next {
        let next = self.next();
        if let Next::Event(event) = &next
            && (event.header.kind != kind as u8 || event.header.call & mask != call)
        {
            let is_begun = self.doubt.is_open() || self.begun().is_in_pieces;
            if event.header.kind == EventKind::Again as u8 && is_begun {
                // The door begins again, as it does in a copy that goes live with the call in doubt.
                self.doubt.set_open(false);
                self.begun_mut().is_in_pieces = false;
                self.begun_mut().was_entered = event.header.flags != 0;
                self.close();
                return Next::Live;
            }
            crate::verdict::diverge(self, kind, call, event);
        }
        next
    }

    /// Counts an applied event for `status`.
    #[inline(always)]
    pub fn count(&self, class: Class) {
        add_one(&self.entry().events[class.index()]);
    }
}

/// Behind a call that this thread may have logged: if it is the first after a silence, the standby's poller, which naps for long
/// by now, is to look. Not at each event: with a call in it the code that appends one keeps fewer registers.
#[inline(always)]
pub fn rouse() {
    // Without a fence the poller may have looked before the event and doze on: its nap ends by itself.
    if let Some(header) = state::header()
        && header.dozing.0.load(Ordering::Relaxed) != 0
    {
        rouse_now(header);
    }
}

#[cold]
#[inline(never)]
fn rouse_now(header: &SegmentHeader) {
    if !state::is_standby() && header.dozing.0.swap(0, Ordering::Relaxed) != 0 {
        raw::futex_wake_shared(&header.command.0);
    }
}

/// One more of what this copy has applied, if it is the one that counts.
#[inline(always)]
fn add_one(counter: &AtomicU64) {
    if seats::counts() {
        // One writer: a plain add is enough.
        counter.store(counter.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// Whether a ticket is one.
#[inline(always)]
pub const fn has_ticket(ticket: u64) -> bool {
    ticket != NO_TICKET
}

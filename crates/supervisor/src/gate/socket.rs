//! One connection that is made anew on this machine: its socket, what is under way, and how that goes on its way again.
//!
//! The kernel believes of what it is given to repair a connection that it has just been sent. It sends that again when a clock has run
//! out: a second at first, and, once the other side has acknowledged a part, three times what has passed since the machine that died
//! sent that. Downloads stood for 4 to 9 s so, and some for longer than servers wait. So the other side is asked how much it has
//! ([`super::answers`]), and the rest is sent as what is new.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::Duration;

use gate::note::agreed;
use gate::packet::flag;
use gate::{Facts, Pair};
use rustix::net::{SendFlags, Shutdown};
use us_abi::{SENT_BYTES, connection};

use super::answers::{Answer, Question};
use super::kernel;
use super::rebuild::Whole;
use crate::clock;

/// The clock in the packets is to be so far ahead of what it may have been: what seems to be old is thrown away. Not further: the
/// kernel takes for the time of a round trip by how much the other side's echo is behind. So it goes on from where it was when the
/// last of the log came, and not from now.
const AHEAD_MS: u64 = 30 + gate::BUSY_TIME_NS / 1_000_000;

/// The room that the other side is thought to have, besides what is under way, until it says so.
const WINDOW: u32 = 64 << 10;

/// So many segments leave at once by any kernel. As many need not be asked for: whatever the other side has of them, the kernel has
/// sent it when the acknowledgement comes.
const AT_ONCE: u64 = 8;

/// The largest segment of whoever has agreed upon none.
const SMALLEST: u16 = 536;

/// A connection of which more had come than was said would wait for ever: the kernel believes no acknowledgement of what it has not
/// sent. After so long all is taken for sent.
const STUCK: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(10);

const TCP_MAXSEG: i32 = 2;
const TCP_REPAIR: i32 = 19;
const TCP_REPAIR_QUEUE: i32 = 20;
const TCP_QUEUE_SEQ: i32 = 21;
const TCP_REPAIR_OPTIONS: i32 = 22;
const TCP_TIMESTAMP: i32 = 24;
const TCP_REPAIR_WINDOW: i32 = 29;
const SO_BUF_LOCK: i32 = 72;
const QUEUE_IN: i32 = 1;
const QUEUE_OUT: i32 = 2;
const ON: i32 = 1;
/// Off, and nothing is sent.
const QUIETLY_OFF: i32 = -1;
const TCP: i32 = libc::IPPROTO_TCP;

/// What is known of a connection besides its numbers.
pub(super) struct Place {
    /// Where the bytes lie that were written last.
    pub(super) at: u64,
    /// So many have been acknowledged.
    pub(super) from: u64,
    /// So long the connection had been there when the last of the log came.
    pub(super) passed_ms: u64,
}

/// A connection that goes on.
pub(super) struct Socket {
    fd: OwnedFd,
    /// What was agreed upon, with this machine's clock, and so many bytes have been read.
    pub(super) facts: Facts,
    pub(super) read: u64,
    /// See [`gate::Adopted`].
    pub(super) read_by_others: u64,
    /// So many bytes had been acknowledged when it was made, and so many have been sent; where they lie.
    pub(super) from: u64,
    end: u64,
    at: u64,
    pub(super) pair: Pair,
    /// The first number of this side's that the other one may lack, the next one, and that of the other side.
    oldest: u32,
    pub(super) next: u32,
    other_next: u32,
    /// The other side has sent its end, which has been read.
    pub(super) is_ended: bool,
    is_shut: bool,
    pub(super) is_closed: bool,
    is_mapped: bool,
    /// Options as the program has them: the room for what is sent, whether that is its own wish, and whether the address is shared.
    room: i32,
    lock: i32,
    reuses: i32,
    /// Bytes of a segment.
    segment: u64,
    /// The other side has said how much it has: up to this number, in a window that it writes so.
    told: Option<Answer>,
}

impl Socket {
    /// Makes a connection of a socket that is none, with nothing under way. One that cannot be made is none.
    pub(super) fn make(fd: OwnedFd, facts: &Facts, whole: &Whole, place: &Place) -> io::Result<Socket> {
        let Whole { read, written, begun, flags, .. } = *whole;
        let (end, from) = (written + begun, place.from.min(written));
        if end - from > SENT_BYTES {
            let told =
                format!("{} of {end} bytes that it has sent are under way, more than is kept", end - from);
            return Err(io::Error::other(told));
        }
        let number = |first: u32, bytes: u64| first.wrapping_add(1).wrapping_add(bytes as u32);
        let of_sockets = libc::SOL_SOCKET;
        let mut socket = Socket {
            facts: *facts,
            read,
            read_by_others: whole.read_by_others,
            from,
            end,
            at: place.at,
            pair: facts.pair,
            oldest: number(facts.first, from),
            next: number(facts.first, end),
            other_next: number(facts.other_first, read),
            is_ended: flags & connection::ENDED != 0,
            is_shut: flags & connection::SHUT != 0,
            is_closed: whole.open.is_none(),
            is_mapped: kernel::get(&fd, of_sockets, libc::SO_DOMAIN)? == libc::AF_INET6,
            room: kernel::get(&fd, of_sockets, libc::SO_SNDBUF)?,
            lock: kernel::get(&fd, of_sockets, SO_BUF_LOCK)?,
            reuses: kernel::get(&fd, of_sockets, libc::SO_REUSEADDR)?,
            segment: 0,
            told: None,
            fd,
        };
        socket.connect(place.passed_ms).inspect_err(|_| socket.part())?;
        Ok(socket)
    }

    fn connect(&mut self, passed_ms: u64) -> io::Result<()> {
        let facts = self.facts;
        // Connecting takes the largest segment from there; that of the options comes too late for it.
        let largest = u32::from(facts.segment_bytes.max(SMALLEST));
        let own_largest = kernel::get(&self.fd, TCP, TCP_MAXSEG)?;
        self.set(TCP_MAXSEG, &largest)?;
        let (level, name) = transparent(self.is_mapped);
        kernel::set(&self.fd, level, name, &ON)?;
        self.set(TCP_REPAIR, &ON)?;
        for (queue, number) in [(QUEUE_IN, self.other_next), (QUEUE_OUT, self.oldest)] {
            self.set(TCP_REPAIR_QUEUE, &queue)?;
            self.set(TCP_QUEUE_SEQ, &number)?;
        }
        kernel::join(&self.fd, &facts.pair.own, &facts.pair.other, self.is_mapped)?;
        // The program has said none if this is the kernel's.
        let own_largest = if own_largest == i32::from(SMALLEST) { 0 } else { own_largest };
        self.set(TCP_MAXSEG, &own_largest)?;
        let mut options = vec![[2u32, largest]];
        if facts.agreed & agreed::SCALE != 0 {
            options.push([3, u32::from(facts.scale) | u32::from(facts.own_scale) << 16]);
        }
        if facts.agreed & agreed::SACK != 0 {
            options.push([4, 0]);
        }
        if facts.agreed & agreed::TIME != 0 {
            options.push([8, 0]);
        }
        kernel::set_all(&self.fd, TCP, TCP_REPAIR_OPTIONS, &options)?;
        // Before it is set: who takes over next may think it further than it is, and not less far.
        self.facts.at_ns = clock::monotonic_ns();
        // An odd number would have newer kernels (6.7) count microseconds.
        self.facts.time = facts.time.wrapping_add((passed_ms + AHEAD_MS) as u32 + 1) & !1;
        if facts.agreed & agreed::TIME != 0 {
            self.set(TCP_TIMESTAMP, &self.facts.time)?;
        }
        // All that is under way had room there. With less the kernel would acknowledge from within it: from numbers that are old to
        // the other side, which throws such packets away, while its own lie beyond the window here.
        let there = WINDOW + (self.end - self.from) as u32;
        let window = [self.other_next, there, there, WINDOW >> 1, self.other_next];
        self.set(TCP_REPAIR_WINDOW, &window)?;
        self.segment = kernel::get(&self.fd, TCP, TCP_MAXSEG)?.max(1) as u64;
        Ok(())
    }

    fn set<T: Copy>(&self, name: i32, value: &T) -> io::Result<()> {
        kernel::set(&self.fd, TCP, name, value)
    }

    /// It is none any more, and nobody is told: what stands for it is reset. With a part of its bytes it would be a lie.
    fn part(&self) {
        let _ = self.set(TCP_REPAIR, &ON).and_then(|()| kernel::part(&self.fd));
        let _ = self.set(TCP_REPAIR, &QUIETLY_OFF);
    }

    /// So little is under way that it need not be asked for.
    fn is_little(&self) -> bool {
        self.end - self.from <= self.segment * AT_ONCE
    }

    /// What the other side is asked to say where it is.
    fn where_is_it(&self) -> Question {
        let Socket { pair, oldest, other_next, .. } = *self;
        Question { pair, before: oldest.wrapping_sub(1), acknowledged: other_next }
    }

    /// The same if that is to be known before it goes on.
    pub(super) fn question(&self) -> Option<Question> {
        (!self.is_little()).then(|| self.where_is_it())
    }

    /// Puts what is under way into the queue, and sends what the other side does not have. False if the kernel would not believe that.
    pub(super) fn resume(&mut self, sent: &File, told: Option<(&Answer, &OwnedFd)>) -> io::Result<bool> {
        self.put_all(sent, told).inspect_err(|_| self.part())
    }

    fn put_all(&mut self, sent: &File, told: Option<(&Answer, &OwnedFd)>) -> io::Result<bool> {
        let of_sockets = libc::SOL_SOCKET;
        let (from, end) = (self.from, self.end);
        kernel::set(&self.fd, of_sockets, libc::SO_SNDBUFFORCE, &((SENT_BYTES as i32) * 2))?;
        self.set(TCP_REPAIR_QUEUE, &QUEUE_OUT)?;
        let mut is_believed = true;
        let came = told.and_then(|(answer, sender)| Some((self.came(answer)?, answer, sender)));
        if self.is_little() {
            self.set(TCP_REPAIR, &QUIETLY_OFF)?;
            self.put(sent, from, end)?;
        } else if let Some((bytes, answer, sender)) = came {
            self.put(sent, from, from + bytes)?;
            self.set(TCP_REPAIR, &QUIETLY_OFF)?;
            is_believed = bytes == 0 || self.has_come(answer, sender);
            if !is_believed {
                self.set(TCP_REPAIR, &ON)?;
                self.set(TCP_REPAIR_QUEUE, &QUEUE_OUT)?;
                self.put(sent, from + bytes, end)?;
                self.set(TCP_REPAIR, &QUIETLY_OFF)?;
            } else {
                self.put(sent, from + bytes, end)?;
                self.told = Some(*answer);
            }
        } else {
            self.put(sent, from, end)?;
            self.set(TCP_REPAIR, &QUIETLY_OFF)?;
        }
        // As it was: what a larger one took besides would be more than is kept for whoever takes over next. The kernel counts double.
        kernel::set(&self.fd, of_sockets, libc::SO_SNDBUFFORCE, &(self.room / 2))?;
        kernel::set(&self.fd, of_sockets, SO_BUF_LOCK, &self.lock)?;
        self.as_shared_as_it_was().map(|()| is_believed)
    }

    /// Repairing takes it away.
    fn as_shared_as_it_was(&self) -> io::Result<()> {
        kernel::set(&self.fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &self.reuses)
    }

    /// How much the other side has of what is under way, by its word, if that can be.
    fn came(&self, answer: &Answer) -> Option<u64> {
        let bytes = u64::from(answer.acknowledged.wrapping_sub(self.oldest));
        // An end counts as a byte.
        let most = self.end - self.from;
        (bytes <= most + u64::from(self.is_shut || self.is_closed)).then_some(bytes.min(most))
    }

    /// The kernel is told so, as by the other side; whether it has believed it.
    fn has_come(&self, answer: &Answer, sender: &OwnedFd) -> bool {
        self.tell(flag::ACK, answer, sender);
        let until_ns = clock::monotonic_ns() + 5_000_000;
        loop {
            if kernel::waiting(&self.fd).is_ok_and(|(all, _)| all == 0) {
                return true;
            }
            if clock::monotonic_ns() > until_ns {
                return false;
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// A packet to this socket, as from the other side.
    fn tell(&self, flags: u8, answer: &Answer, sender: &OwnedFd) {
        let Pair { own, other } = self.pair;
        let from = Pair { own: other, other: own };
        let packet = gate::Segment::new(&from, self.other_next, answer.acknowledged, flags, answer.window);
        let _ = kernel::send(sender, &packet.into_bytes());
    }

    fn put(&self, sent: &File, mut from: u64, end: u64) -> io::Result<()> {
        let mut room = vec![0; 64 << 10];
        while from < end {
            let at = from % SENT_BYTES;
            let part = (end - from).min(SENT_BYTES - at).min(room.len() as u64) as usize;
            sent.read_exact_at(&mut room[..part], self.at + at)?;
            let done = rustix::net::send(&self.fd, &room[..part], SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
            from += done as u64;
        }
        Ok(())
    }

    /// The program is live: the connection comes to itself.
    pub(super) fn wake(&self, sender: Option<&OwnedFd>) {
        let off = 0;
        let (level, name) = transparent(self.is_mapped);
        let _ = kernel::set(&self.fd, level, name, &off);
        if let Some(sender) = sender.filter(|_| self.is_ended) {
            // What the other side sent last has been read, and it does not send that again. It says nothing of what it has, and of no
            // more room than the kernel thinks: both would be believed.
            let window = (WINDOW >> self.facts.scale.min(14)).clamp(1, u16::MAX.into()) as u16;
            let acknowledged = self.told.map_or(self.oldest, |told| told.acknowledged);
            self.tell(flag::FIN | flag::ACK, &Answer { acknowledged, window }, sender);
        }
        if self.is_shut || self.is_closed {
            let _ = rustix::net::shutdown(&self.fd, Shutdown::Write);
        }
        if let Some(sender) = sender {
            let _ = kernel::send(sender, &self.where_is_it().segment().into_bytes());
        }
    }

    /// Whether nothing is acknowledged of what has been sent since it was told.
    fn stands(&self) -> bool {
        let told = self.told.and_then(|told| self.came(&told));
        let is_sent = kernel::waiting(&self.fd).is_ok_and(|(all, unsent)| all > unsent);
        let known = || kernel::acknowledged(&kernel::get_all(&self.fd, TCP, libc::TCP_INFO)?);
        is_sent && told.is_some_and(|bytes| known().is_some_and(|known| known <= bytes))
    }

    /// All that has been written is taken for sent from here on.
    fn believe(&self, sender: &OwnedFd) {
        let Some(told) = self.told else { return };
        let repair = self.set(TCP_REPAIR, &ON).and_then(|()| self.set(TCP_REPAIR_QUEUE, &QUEUE_OUT));
        if repair.is_ok() {
            // The kernel looks at the queue when a packet comes.
            self.tell(flag::ACK, &told, sender);
            thread::sleep(Duration::from_millis(1));
        }
        let _ = self.set(TCP_REPAIR, &QUIETLY_OFF).and_then(|()| self.as_shared_as_it_was());
    }
}

/// Lets the sockets go, each once what it has sent since it was told arrives.
pub(super) fn look_after(mut sockets: Vec<Socket>, sender: Option<OwnedFd>) {
    let until_ns = clock::monotonic_ns() + STUCK.as_nanos() as u64;
    sockets.retain(Socket::stands);
    // Without one nobody has been told anything.
    let Some(sender) = sender.filter(|_| !sockets.is_empty()) else { return };
    let look = move || {
        while !sockets.is_empty() && clock::monotonic_ns() < until_ns {
            thread::sleep(LOOK);
            sockets.retain(Socket::stands);
        }
        sockets.iter().for_each(|socket| socket.believe(&sender));
    };
    // Without a thread nobody looks after them.
    let _ = thread::Builder::new().name("connections".into()).spawn(look);
}

fn transparent(is_mapped: bool) -> (i32, i32) {
    const IPV6_TRANSPARENT: i32 = 75;
    if is_mapped { (libc::IPPROTO_IPV6, IPV6_TRANSPARENT) } else { (libc::IPPROTO_IP, libc::IP_TRANSPARENT) }
}

//! A link: messages over TLS over TCP.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::Connection;
use ship::Message;
use ship::wire::{Frames, SMALL_MAX};

/// Bytes that TLS keeps for a peer that does not take them.
const BUFFER: usize = 128 << 10;

/// Messages that wait to be sent have so many bytes and one message more at the most.
const OUT_MAX: usize = 64 << 10;

/// Reads of one look, so that what is answered is not forgotten over what comes.
const READS: usize = 64;

/// A message that has begun is whole after so long, in each direction.
const MESSAGE_MAX: Duration = Duration::from_secs(120);

/// So long a peer may take what was said last.
const LINGER: Duration = Duration::from_millis(500);

/// A link. A bounded part of what is to be sent waits, and at most one message that is not whole is kept.
pub struct Link {
    tcp: TcpStream,
    tls: Connection,
    frames: Frames,
    out: VecDeque<u8>,
    /// Since when a message has not been whole.
    begun: Option<Instant>,
    /// What waited then is gone after [`MESSAGE_MAX`]; so many bytes of it are left.
    given: (Instant, usize),
    is_closed: bool,
}

impl Link {
    /// Over this connection. Its peer may send small messages.
    pub fn new(tcp: TcpStream, tls: impl Into<Connection>) -> io::Result<Link> {
        tcp.set_nonblocking(true)?;
        tcp.set_nodelay(true)?;
        let mut tls = tls.into();
        tls.set_buffer_limit(Some(BUFFER));
        let frames = Frames::new(SMALL_MAX);
        Ok(Link {
            tcp,
            tls,
            frames,
            out: VecDeque::new(),
            begun: None,
            given: (Instant::now(), 0),
            is_closed: false,
        })
    }

    /// TLS's side of it.
    pub fn tls(&self) -> &Connection {
        &self.tls
    }

    /// From now on the peer may send messages of so many bytes.
    pub fn allow(&mut self, most: usize) {
        self.frames.allow(most);
    }

    /// Whether a message may be given to be sent.
    pub fn has_room(&self) -> bool {
        self.out.len() < OUT_MAX
    }

    /// Gives a message to be sent with the next [`Link::push`]; there must be room.
    pub fn send(&mut self, message: &Message) {
        self.out.extend(&message.to_frame());
        self.look_at_clock();
    }

    /// Begins to count anew where all is gone that waited when it was begun.
    fn look_at_clock(&mut self) {
        if self.given.1 == 0 {
            self.given = (Instant::now(), self.out.len());
        }
    }

    /// Waits until there is something to do, or something else is readable, or it is time.
    pub fn wait(&self, limit: Duration, other: Option<BorrowedFd>) {
        let mut flags = PollFlags::IN;
        if self.tls.wants_write() || !self.out.is_empty() && !self.tls.is_handshaking() {
            flags |= PollFlags::OUT;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(self.tcp.as_fd(), flags)];
        fds.extend(other.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
        // One that ends early has looked in vain.
        let _ = poll(&mut fds, Some(&limit));
    }

    /// Sends and takes what can be. Whether bytes have come.
    ///
    /// # Errors
    /// Why there is no link any more, for people.
    pub fn pump(&mut self) -> Result<bool, String> {
        let mut has_come = false;
        for _ in 0..READS {
            self.push()?;
            if !self.pull_in()? {
                break;
            }
            has_come = true;
        }
        self.push()?;
        self.look_at_clock();
        let is_stuck = !self.out.is_empty() && self.given.0.elapsed() > MESSAGE_MAX;
        if is_stuck || self.begun.is_some_and(|begun| begun.elapsed() > MESSAGE_MAX) {
            return Err("a message took too long".into());
        }
        Ok(has_come)
    }

    /// Sends what can be.
    ///
    /// # Errors
    /// Why there is no link any more, for people.
    pub fn push(&mut self) -> Result<(), String> {
        loop {
            if !self.out.is_empty() && !self.tls.is_handshaking() {
                let taken = self.tls.writer().write(self.out.as_slices().0).map_err(told)?;
                self.out.drain(..taken);
                self.given.1 = self.given.1.saturating_sub(taken);
                if self.out.is_empty() {
                    // A large message's room is given back.
                    self.out.shrink_to(2 * OUT_MAX);
                }
            }
            if !self.tls.wants_write() {
                return Ok(());
            }
            match self.tls.write_tls(&mut self.tcp) {
                Ok(_) => {}
                Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(cause) => return Err(told(cause)),
            }
        }
    }

    fn pull_in(&mut self) -> Result<bool, String> {
        match self.tls.read_tls(&mut self.tcp) {
            Ok(0) => self.is_closed = true,
            Ok(_) => {}
            Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => return Ok(true),
            Err(cause) => return Err(told(cause)),
        }
        if let Err(cause) = self.tls.process_new_packets() {
            // The alert that says so is on its way, if it can be.
            let _ = self.tls.write_tls(&mut self.tcp);
            return Err(format!("TLS: {cause}"));
        }
        let mut piece = [0; 16 << 10];
        loop {
            match self.tls.reader().read(&mut piece) {
                Ok(0) => {
                    self.is_closed = true;
                    return Ok(false);
                }
                Ok(bytes) => self.frames.push(&piece[..bytes]),
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => break,
                Err(cause) => return Err(told(cause)),
            }
        }
        Ok(!self.is_closed)
    }

    /// The next message that has come. All are to be taken before the next [`Link::pump`].
    ///
    /// # Errors
    /// What the peer does wrong; or that it has gone, once everything that came before has been taken.
    pub fn next_message(&mut self) -> Result<Option<Message>, String> {
        match self.frames.next_message() {
            Err(fault) => Err(fault.to_string()),
            Ok(Some(message)) => {
                self.begun = None;
                Ok(Some(message))
            }
            Ok(None) if self.is_closed => Err("the other side has ended the link".into()),
            Ok(None) => {
                if self.frames.waiting() > 0 {
                    self.begun.get_or_insert_with(Instant::now);
                }
                Ok(None)
            }
        }
    }

    /// Ends the link so that what was said last arrives, if the peer takes it soon.
    pub fn finish(mut self) {
        let until = Instant::now() + LINGER;
        let left = || until.saturating_duration_since(Instant::now());
        let mut has_said = false;
        while !left().is_zero() {
            if self.push().is_err() {
                return;
            }
            match (self.out.is_empty(), self.tls.wants_write()) {
                (true, false) if has_said => break,
                (true, false) => {
                    self.tls.send_close_notify();
                    has_said = true;
                }
                _ => self.wait(left(), None),
            }
        }
        let _ = self.tcp.shutdown(Shutdown::Write);
        // What came meanwhile would turn the end into a reset, which takes with it what was said.
        let mut piece = [0; 16 << 10];
        while !left().is_zero() {
            match self.tcp.read(&mut piece) {
                Ok(1..) => {}
                Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => self.wait(left(), None),
                _ => return,
            }
        }
    }
}

fn told(cause: io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::UnexpectedEof => "the other side has ended the link".into(),
        _ => cause.to_string(),
    }
}

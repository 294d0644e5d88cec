//! A connection that measures its own silences.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

/// A TCP connection with line and byte reads; every wait for an answer is timed.
pub struct Connection {
    reader: BufReader<TcpStream>,
    longest: Duration,
}

impl Connection {
    /// Connects; a silence longer than `limit` will be an error.
    pub fn open(address: SocketAddr, limit: Duration) -> Result<Self> {
        let stream = TcpStream::connect(address).context("connecting")?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        Ok(Self { reader: BufReader::with_capacity(1 << 16, stream), longest: Duration::ZERO })
    }

    /// Sends all bytes.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.reader.get_mut().write_all(bytes).context("sending")
    }

    /// Receives exactly `bytes.len()` bytes.
    pub fn receive(&mut self, bytes: &mut [u8]) -> Result<()> {
        let start = Instant::now();
        self.reader.read_exact(bytes).context("receiving")?;
        self.longest = self.longest.max(start.elapsed());
        Ok(())
    }

    /// Receives one line, without its CR LF.
    pub fn line(&mut self) -> Result<String> {
        self.line_or_end()?.context("the connection was closed")
    }

    /// The same; none if the connection was closed, or reset, before the line began.
    pub fn line_or_end(&mut self) -> Result<Option<String>> {
        let start = Instant::now();
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(0) => return Ok(None),
            Err(error) if error.kind() == ErrorKind::ConnectionReset && line.is_empty() => return Ok(None),
            received => received.context("receiving a line")?,
        };
        self.longest = self.longest.max(start.elapsed());
        ensure!(line.ends_with("\r\n"), "a line without its end: {line:?}");
        line.truncate(line.len() - 2);
        Ok(Some(line))
    }

    /// Receives one line that must be `expected`.
    pub fn expect(&mut self, expected: &str, request: u64) -> Result<()> {
        let line = self.line()?;
        ensure!(line == expected, "request {request}: got {line:?}, expected {expected:?}");
        Ok(())
    }

    /// Nothing may follow the last answer: an extra byte is a repeated one.
    pub fn expect_silence(&mut self) -> Result<()> {
        ensure!(self.reader.buffer().is_empty(), "bytes after the last answer: {:?}", self.reader.buffer());
        self.reader.get_ref().set_nonblocking(true)?;
        let mut byte = [0];
        let more = self.reader.get_mut().read(&mut byte);
        self.reader.get_ref().set_nonblocking(false)?;
        match more {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            other => anyhow::bail!("expected silence after the last answer, got {other:?}"),
        }
    }

    /// The same connection for another thread, to send on while this one receives.
    pub fn second(&self) -> Result<Self> {
        let stream = self.reader.get_ref().try_clone()?;
        Ok(Self { reader: BufReader::new(stream), longest: Duration::ZERO })
    }

    /// Ends the connection for whoever uses it.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
    }

    /// The longest wait for an answer so far.
    pub fn longest(&self) -> Duration {
        self.longest
    }
}

/// So many clients at a time, each with its number and in a thread of its own: what each came to, in their order, or the
/// first one's error.
pub fn at_once<T: Send>(clients: u64, talk: impl Fn(u64) -> Result<T> + Sync) -> Result<Vec<T>> {
    let talk = &talk;
    let talks: Vec<Result<T>> = thread::scope(|scope| {
        let talks: Vec<_> = (0..clients).map(|n| scope.spawn(move || talk(n))).collect();
        talks.into_iter().map(|talk| talk.join().expect("a client does not panic")).collect()
    });
    talks.into_iter().collect()
}

/// The same of clients that each come to their longest wait: the longest of all.
pub fn longest_wait(clients: u64, talk: impl Fn(u64) -> Result<Duration> + Sync) -> Result<Duration> {
    Ok(at_once(clients, talk)?.into_iter().max().unwrap_or_default())
}

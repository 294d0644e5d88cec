//! GET over a connection that is kept, every byte of the answer known beforehand.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::Run;
use super::client::{Connection, longest_wait};
use super::life::Load;
use crate::rng::Rng;

/// A file that is served.
#[derive(Clone, Debug)]
pub struct Page {
    /// What is asked for.
    pub path: String,
    /// What must come.
    pub body: Vec<u8>,
}

/// Files of a kilobyte and of ten, which differ in every byte, written into a folder.
pub fn pages(folder: &Path, seed: u64, count: u64) -> Result<Vec<Page>> {
    fs::create_dir_all(folder)?;
    let page = |n: u64| {
        let size = if n.is_multiple_of(2) { 1024 } else { 10_240 };
        let mut rng = Rng::new(seed, &format!("page {n}"));
        let body: Vec<u8> =
            std::iter::repeat_with(|| rng.draw().to_le_bytes()).flatten().take(size).collect();
        let name = format!("page{n}.bin");
        fs::write(folder.join(&name), &body)?;
        Ok(Page { path: format!("/{name}"), body })
    };
    (0..count).map(page).collect()
}

/// What a request came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The answer was right.
    Right,
    /// It was right, and the server has said that it closes the connection behind it.
    Last,
    /// The connection was closed before a byte of the answer.
    Closed,
}

/// A client that opens its connection again when it was closed.
pub struct Client {
    address: SocketAddr,
    limit: Duration,
    connection: Connection,
    longest: Duration,
}

impl Client {
    /// Connects; a silence longer than `limit` will be an error.
    pub fn open(address: SocketAddr, limit: Duration) -> Result<Self> {
        Ok(Self { address, limit, connection: Connection::open(address, limit)?, longest: Duration::ZERO })
    }

    /// Opens another connection in the place of one that was closed.
    pub fn reopen(&mut self) -> Result<()> {
        self.longest = self.longest();
        self.connection = Connection::open(self.address, self.limit).context("connecting again")?;
        Ok(())
    }

    /// Asks for a path, which must be answered by these bytes.
    pub fn get(&mut self, path: &str, body: &[u8]) -> Result<Answer> {
        if self.connection.send(format!("GET {path} HTTP/1.1\r\nHost: kit\r\n\r\n").as_bytes()).is_err() {
            return Ok(Answer::Closed);
        }
        let Some(status) = self.connection.line_or_end()? else { return Ok(Answer::Closed) };
        ensure!(status == "HTTP/1.1 200 OK", "GET {path} was answered {status:?}");
        let (mut length, mut answer) = (None, Answer::Right);
        loop {
            let line = self.connection.line()?;
            if line.is_empty() {
                break;
            }
            let Some((name, value)) = line.split_once(':') else { bail!("GET {path}: a header {line:?}") };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Some(value.trim().parse::<usize>()?),
                "connection" if value.trim().eq_ignore_ascii_case("close") => answer = Answer::Last,
                _ => {}
            }
        }
        ensure!(length == Some(body.len()), "GET {path}: {length:?} bytes, expected {}", body.len());
        let mut got = vec![0; body.len()];
        self.connection.receive(&mut got)?;
        if let Some(at) = got.iter().zip(body).position(|(a, b)| a != b) {
            bail!("GET {path}: byte {at} of {} is wrong", body.len());
        }
        Ok(answer)
    }

    /// Nothing may follow the last answer.
    pub fn expect_silence(&mut self) -> Result<()> {
        self.connection.expect_silence()
    }

    /// The longest wait for an answer so far.
    pub fn longest(&self) -> Duration {
        self.longest.max(self.connection.longest())
    }
}

/// GETs of seeded pages over so many kept connections, none of which may be closed, while the load lasts: the longest
/// wait.
pub fn talk(
    run: &Run,
    address: SocketAddr,
    load: &Load,
    pages: &[Page],
    connections: u64,
) -> Result<Duration> {
    longest_wait(connections, |n| talk_one(run, address, n, load, pages))
}

fn talk_one(run: &Run, address: SocketAddr, me: u64, load: &Load, pages: &[Page]) -> Result<Duration> {
    let mut rng = Rng::new(run.seed, &format!("http {me}"));
    let mut client = Client::open(address, run.limit)?;
    let mut n = 0;
    while load.goes_on(n) {
        let page = &pages[rng.below(pages.len() as u64) as usize];
        let answer = client.get(&page.path, &page.body);
        let answer = answer.with_context(|| format!("connection {me}, request {n}"))?;
        ensure!(
            answer == Answer::Right,
            "connection {me}, request {n}: the connection was closed ({answer:?})"
        );
        n += 1;
        load.answered();
    }
    client.expect_silence()?;
    Ok(client.longest())
}

/// A server behind a proxy, in threads of the kit itself: it answers GET until the other side closes. Its port. The
/// thread that accepts stays until the kit ends.
pub fn backend(pages: &[Page]) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port for the server behind")?;
    let port = listener.local_addr()?.port();
    let pages = pages.to_vec();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let pages = pages.clone();
            thread::spawn(move || serve(stream, &pages));
        }
    });
    Ok(port)
}

fn serve(stream: TcpStream, pages: &[Page]) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    loop {
        line.clear();
        // Nothing is the proxy's end of the connection.
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let path = line.split(' ').nth(1)?.to_owned();
        while line != "\r\n" {
            line.clear();
            reader.read_line(&mut line).ok()?;
        }
        let page = pages.iter().find(|page| page.path == path)?;
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.body.len()).into_bytes();
        answer.extend(&page.body);
        reader.get_mut().write_all(&answer).ok()?;
    }
}

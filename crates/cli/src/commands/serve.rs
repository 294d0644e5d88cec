//! `serve`: the figures of all groups over HTTP, for whoever may connect, as little of HTTP as that takes. And those of one, by
//! `run --metrics`.
//!
//! A client gets one answer. It has a few seconds to ask and to listen and a few kilobytes to ask in, and there are a few clients
//! at a time: others are turned away at once.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use us_supervisor::status::Status;
use us_supervisor::{Error, spawn, status, terminal};

use super::print;
use crate::metrics::Metrics;
use crate::metrics::page::page;
use crate::report;
use crate::style::Style;

/// Between two looks at the groups.
const LOOK: Duration = Duration::from_secs(1);

/// How long a client may take to ask, and how long to listen.
const PATIENCE: Duration = Duration::from_secs(3);

/// Longest question, bytes.
const QUESTION_MAX: usize = 8 << 10;

/// Clients at a time.
const CLIENTS_MAX: usize = 8;

/// What the clients share.
#[derive(Default)]
struct Shared {
    metrics: Mutex<Metrics>,
    clients: AtomicUsize,
    /// Of which group, if not of all.
    own: Option<Own>,
}

/// The group that this process supervises.
#[derive(Default)]
struct Own {
    /// Its name, once it has one.
    name: OnceLock<String>,
}

impl Own {
    fn read(&self) -> Result<Status, Error> {
        if let Some(name) = self.name.get() {
            return status::read(Some(name));
        }
        let mut status = status::read(None)?;
        status.groups.retain(|group| group.supervisor_pid == std::process::id());
        status.ended.clear();
        if let Some(group) = status.groups.first() {
            let _ = self.name.set(group.name.clone());
        }
        Ok(status)
    }
}

impl Shared {
    fn read(&self) -> Result<Status, Error> {
        self.own.as_ref().map_or_else(|| status::read(None), Own::read)
    }

    fn metrics(&self) -> MutexGuard<'_, Metrics> {
        self.metrics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address: a port alone is one of this machine's own.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let port = text.strip_prefix(':').unwrap_or(text).parse().ok();
    let own = port.map(|port| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    own.or_else(|| text.parse().ok()).ok_or_else(|| "ADDR:PORT, as in 127.0.0.1:9464 or [::1]:9464".into())
}

fn listen(address: SocketAddr) -> Result<(SocketAddr, TcpListener), Error> {
    TcpListener::bind(address)
        .and_then(|listener| Ok((listener.local_addr()?, listener)))
        .map_err(|cause| Error::Refused(format!("cannot listen on {address}: {cause}")))
}

/// Serves until it is ended.
pub fn serve(address: SocketAddr) -> Result<i32, Error> {
    let (address, listener) = listen(address)?;
    if print(format!("http://{address}/metrics\n").as_bytes()) != 0 {
        return Ok(us_abi::exit::FAILED);
    }
    let shared = Arc::new(Shared::default());
    look_at_times(&shared);
    answer(&listener, address, &shared);
    Ok(0)
}

/// Serves the group that this process is about to run, in threads of its own, for as long as it lives. Where it listens then.
pub fn beside_run(address: SocketAddr) -> Result<SocketAddr, Error> {
    let (address, listener) = listen(address)?;
    let shared = Arc::new(Shared { own: Some(Own::default()), ..Shared::default() });
    // Whoever supervises takes this process's signals.
    spawn::without_signals(|| {
        look_at_times(&shared);
        std::thread::spawn(move || answer(&listener, address, &shared));
    });
    Ok(address)
}

/// Looks at the groups again and again, in a thread of its own.
fn look_at_times(shared: &Arc<Shared>) {
    let sampler = Arc::clone(shared);
    std::thread::spawn(move || {
        loop {
            // A look takes its time, in which clients are not to wait.
            if let Ok(found) = sampler.read() {
                sampler.metrics().take(found);
            }
            std::thread::sleep(LOOK);
        }
    });
}

fn answer(listener: &TcpListener, address: SocketAddr, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        match client {
            Ok(client) => admit(client, shared, address.ip().is_loopback()),
            // Out of descriptors, or the client has gone: no reason to end, nor to try in vain as fast as one can.
            Err(cause) => {
                terminal::say(&format!("cannot take a client: {cause}"));
                std::thread::sleep(LOOK);
            }
        }
    }
}

fn admit(client: TcpStream, shared: &Arc<Shared>, is_local: bool) {
    if shared.clients.fetch_add(1, Ordering::AcqRel) >= CLIENTS_MAX {
        shared.clients.fetch_sub(1, Ordering::AcqRel);
        return;
    }
    let inner = Arc::clone(shared);
    let thread = std::thread::Builder::new().spawn(move || {
        // A client that is lost has no more to say, and hears no more.
        let _ = talk(client, &inner, is_local);
        inner.clients.fetch_sub(1, Ordering::AcqRel);
    });
    if thread.is_err() {
        shared.clients.fetch_sub(1, Ordering::AcqRel);
    }
}

fn talk(mut client: TcpStream, shared: &Shared, is_local: bool) -> std::io::Result<()> {
    let question = hear(&mut client)?;
    let mut policy = String::from("default-src 'none'; frame-ancestors 'none'");
    let (code, kind, body) = match asked(&question, is_local) {
        Ok("/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", shared.metrics().text()),
        Ok("/status.txt") => ("200 OK", "text/plain; charset=utf-8", table(shared)),
        Ok("/figures.json") => ("200 OK", "application/json", shared.metrics().figures().to_string()),
        Ok("/") => {
            let (body, of_page) = page(&nonce()?);
            policy = of_page;
            ("200 OK", "text/html; charset=utf-8", body)
        }
        Ok(_) => {
            ("404 Not Found", "text/plain", "there are /, /figures.json, /metrics and /status.txt\n".into())
        }
        Err(code) => (code, "text/plain", format!("{code}\n")),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\
         Content-Security-Policy: {policy}\r\nCache-Control: no-store\r\nReferrer-Policy: no-referrer\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nX-Content-Type-Options: nosniff\r\n\r\n"
    );
    let wants_body = !question.starts_with(b"HEAD ");
    say(&mut client, &[head.as_bytes(), if wants_body { body.as_bytes() } else { b"" }].concat())
}

/// What is left of [`PATIENCE`].
fn left(begun: Instant) -> std::io::Result<Duration> {
    let left = PATIENCE.checked_sub(begun.elapsed()).filter(|left| !left.is_zero());
    left.ok_or_else(|| std::io::ErrorKind::TimedOut.into())
}

/// Writes all of it in time, and not from byte to byte.
fn say(client: &mut TcpStream, mut answer: &[u8]) -> std::io::Result<()> {
    let begun = Instant::now();
    while !answer.is_empty() {
        client.set_write_timeout(Some(left(begun)?))?;
        match client.write(answer)? {
            0 => return Err(std::io::ErrorKind::WriteZero.into()),
            length => answer = &answer[length..],
        }
    }
    Ok(())
}

/// What nobody can guess, new for each answer: without it a browser runs no script.
fn nonce() -> std::io::Result<String> {
    let mut bytes = [0; 16];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The groups as `status` shows them.
fn table(shared: &Shared) -> String {
    shared
        .read()
        .map_or_else(|error| format!("{error}\n"), |status| report::status(&status, Style::default(), false))
}

/// Reads up to the empty line behind the head of a question.
fn hear(client: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let begun = Instant::now();
    let mut question = Vec::new();
    let mut part = [0; 1024];
    while !question.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        // All in all, and not from byte to byte.
        client.set_read_timeout(Some(left(begun)?))?;
        match client.read(&mut part)? {
            0 => break,
            length => question.extend(&part[..length]),
        }
        if question.len() > QUESTION_MAX {
            break;
        }
    }
    Ok(question)
}

/// The path that is asked for, or the code of a refusal.
fn asked(question: &[u8], is_local: bool) -> Result<&str, &'static str> {
    if question.len() > QUESTION_MAX {
        return Err("431 Request Header Fields Too Large");
    }
    let text = std::str::from_utf8(question).map_err(|_| "400 Bad Request")?;
    let (head, _) = text.split_once("\r\n\r\n").ok_or("400 Bad Request")?;
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (Some(method), Some(path), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err("400 Bad Request");
    };
    if !version.starts_with("HTTP/1.") {
        return Err("505 HTTP Version Not Supported");
    }
    if !matches!(method, "GET" | "HEAD") {
        return Err("405 Method Not Allowed");
    }
    // A page in somebody's browser that has given this machine's address a name of its own.
    let mut hosts =
        lines.filter_map(|line| line.split_once(':')).filter(|(name, _)| name.eq_ignore_ascii_case("host"));
    if is_local && hosts.any(|(_, host)| !is_own_name(host.trim())) {
        return Err("403 Forbidden");
    }
    Ok(path.split('?').next().unwrap_or(path))
}

/// Whether a client may know us by this name, where only this machine reaches us.
fn is_own_name(host: &str) -> bool {
    let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let name = name.map_or(host, |(name, _)| name);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    is_address || name.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions() {
        let ask = |question: &str| asked(question.as_bytes(), true).map(String::from);
        assert_eq!(ask("GET /metrics HTTP/1.1\r\nHost: localhost:9464\r\n\r\n"), Ok("/metrics".into()));
        assert_eq!(ask("HEAD /?x=y HTTP/1.0\r\nHost: [::1]:1\r\n\r\n"), Ok("/".into()));
        assert_eq!(ask("GET / HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"), Ok("/".into()));
        assert_eq!(ask("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"), Err("403 Forbidden"));
        assert_eq!(ask("POST / HTTP/1.1\r\n\r\n"), Err("405 Method Not Allowed"));
        assert_eq!(ask("GET / HTTP/2\r\n\r\n"), Err("505 HTTP Version Not Supported"));
        for bad in ["", "GET /", "GET\r\n\r\n", "GET / HTTP/1.1 x\r\n\r\n", "\r\n\r\n"] {
            assert_eq!(ask(bad), Err("400 Bad Request"), "{bad:?}");
        }
        assert_eq!(asked(b"GET \xff HTTP/1.1\r\n\r\n", true), Err("400 Bad Request"));
        assert_eq!(asked(&[b'x'; QUESTION_MAX + 1], true), Err("431 Request Header Fields Too Large"));
        assert_eq!(asked(b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", false), Ok("/"));
    }

    #[test]
    fn a_port_alone_is_this_machines() {
        for text in ["9464", ":9464", "127.0.0.1:9464"] {
            assert_eq!(address(text), Ok("127.0.0.1:9464".parse().unwrap()), "{text}");
        }
        assert_eq!(address("[::]:1"), Ok("[::]:1".parse().unwrap()));
        assert!(address("localhost").is_err() && address("").is_err() && address("1.2.3.4").is_err());
    }
}

//! `kit python`: Python's threaded HTTP server, files and counts over several connections.

use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::client::longest_wait;
use super::http::{Answer, Client, Page, pages};
use super::life::Load;
use super::session::{Session, free_port};
use super::{Failure, Options, Outcome, Run, Title};
use crate::rng::Rng;

/// Connections at a time, each with a thread of the server.
const CONNECTIONS: u64 = 4;

/// Files that are served.
const PAGES: u64 = 6;

/// Port and folder are its arguments. `/count` is answered by how often this connection has asked for it.
const SERVER: &str = r#"
import http.server, sys, threading

class Handler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    lock = threading.Lock()
    total = 0
    count = 0

    def __init__(self, *args):
        super().__init__(*args, directory=sys.argv[2])

    def do_GET(self):
        if self.path != "/count":
            return super().do_GET()
        with Handler.lock:
            Handler.total += 1
            self.count += 1
        body = b"%d" % self.count
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass

# By default a thread that has waited 5 ms for the interpreter sets a flag that its holder reads without a lock: a race
# that Understudy cannot follow. Every request waits for its socket, so each thread has its turn all the same.
sys.setswitchinterval(3600)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"#;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    super::campaign(options, &Title { name: "python", flags: String::new() }, "python3", |_| Ok(()), one)
}

/// The interpreter itself: what is called python3 may be a script that looks for one.
fn interpreter() -> Result<String> {
    let output = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output()?;
    ensure!(output.status.success(), "python3 does not say where it is");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let dir = run.place.fresh("python")?;
    let folder = dir.join("pages");
    let pages = pages(&folder, run.seed, PAGES)?;
    let program = vec![
        interpreter()?.into(),
        "-c".into(),
        SERVER.into(),
        port.to_string().into(),
        folder.clone().into_os_string(),
    ];
    let session = Session::start_in(run, dir, program, port, 1)?;
    let address = session.address;
    session.talk_with_kill(run, CONNECTIONS, |load| talk_all(run, address, load, &pages))
}

fn talk_all(run: &Run, address: SocketAddr, load: &Load, pages: &[Page]) -> Result<Duration> {
    longest_wait(CONNECTIONS, |n| talk(run, address, n, load, pages))
}

fn talk(run: &Run, address: SocketAddr, me: u64, load: &Load, pages: &[Page]) -> Result<Duration> {
    let mut rng = Rng::new(run.seed, &format!("python {me}"));
    let mut client = Client::open(address, run.limit)?;
    let (mut n, mut count) = (0, 0);
    while load.goes_on(n) {
        let answer = if n % 2 == 0 {
            count += 1;
            client.get("/count", count.to_string().as_bytes())
        } else {
            let page = &pages[rng.below(pages.len() as u64) as usize];
            client.get(&page.path, &page.body)
        };
        let answer = answer.with_context(|| format!("connection {me}, request {n}"))?;
        ensure!(answer == Answer::Right, "connection {me}, request {n}: the connection was closed");
        n += 1;
        load.answered();
    }
    client.expect_silence()?;
    Ok(client.longest())
}

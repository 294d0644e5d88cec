//! `kit nginx`: a master and two workers serve files over kept connections, while each of them is killed and the
//! configuration is loaded anew.

use std::ffi::OsString;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::process::Signal;

use super::client::longest_wait;
use super::http::{Answer, Client, Page, pages};
use super::life::Load;
use super::session::{Session, free_port};
use super::{Failure, Outcome, Run, Title};
use crate::place::installed;
use crate::rng::Rng;

/// Connections at a time.
const CONNECTIONS: u64 = 4;

/// Files that are served.
const PAGES: u64 = 8;

/// Worker processes.
const WORKERS: usize = 2;

/// Of many kills, every so many are followed by a reload.
const KILLS_TO_RELOAD: usize = 4;

/// Flags of `kit nginx`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "nginx-options")]
pub struct Options {
    #[command(flatten)]
    common: super::Options,
    /// The user that workers change to, if nginx is started by root
    #[arg(long, default_value = "root")]
    user: String,
}

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let title = Title { name: "nginx", flags: format!(" --user {}", options.user) };
    super::campaign(&options.common, &title, "nginx", |_| Ok(()), |run| one(run, &options.user))
}

fn one(run: &Run, user: &str) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let dir = run.place.fresh("nginx")?;
    let pages = pages(&dir.join("pages"), run.seed, PAGES)?;
    let log = dir.join("error.log");
    let program = program(&dir, port, user).map_err(|error| Failure::of(error, &dir))?;
    let mut session = Session::start_in(run, dir, program, port, 1 + WORKERS)?;
    session.allow(
        "unprotected",
        "new workers share memory that is newer than the master's standby, which it costs",
    );
    let (address, total) = (session.address, run.requests * CONNECTIONS);
    let reloads = Reloads::default();
    let work = |load: &Load| {
        let longest = longest_wait(CONNECTIONS, |n| talk(run, address, n, load, &pages, &reloads))?;
        // Read while its folder is there.
        judge_log(&log)?;
        Ok((load.done(), longest))
    };
    let ((requests, longest), words) =
        session.with(run, work, |session, load| disturb(session, run, total, load, &reloads))?;
    let reloads = reloads.count();
    let detail = format!(
        "{requests} requests over {CONNECTIONS} connections, {reloads} reloads, longest wait {longest:.1?}; {words}"
    );
    Ok(Outcome { detail, longest: Some(longest) })
}

/// The command line, after its configuration has been written.
fn program(dir: &Path, port: u16, user: &str) -> Result<Vec<OsString>> {
    let nginx = installed("nginx").context("nginx is not installed")?;
    let user = if rustix::process::geteuid().is_root() { format!("user {user};\n") } else { String::new() };
    let here = dir.display();
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("    {what}_temp_path {here}/{what};\n"))
        .concat();
    let text = format!(
        "{user}daemon off;\nworker_processes {WORKERS};\npid {here}/nginx.pid;\nerror_log {here}/error.log notice;\n\
         events {{ worker_connections 64; }}\nhttp {{\n    access_log off;\n    keepalive_requests 100000000;\n    \
         keepalive_timeout 600s;\n    default_type application/octet-stream;\n{temporary}    server {{\n        \
         listen 127.0.0.1:{port};\n        root {here}/pages;\n    }}\n}}\n"
    );
    let file = dir.join("nginx.conf");
    fs::write(&file, text)?;
    let mut program: Vec<OsString> = vec![nginx.into(), "-p".into(), dir.into(), "-c".into(), file.into()];
    // Messages before the configuration is read.
    program.extend(["-e".into(), dir.join("error.log").into()]);
    Ok(program)
}

/// Counts up at the beginning and at the end of each reload: odd while the old workers may be there.
#[derive(Default)]
struct Reloads(AtomicU64);

impl Reloads {
    fn now(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    fn step(&self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    fn count(&self) -> u64 {
        self.now() / 2
    }

    /// Whether a connection that was opened at `then` may be closed by the server: a worker that is to end closes
    /// those that are idle.
    fn may_close(&self, then: u64) -> bool {
        then % 2 == 1 || self.now() > then
    }
}

/// GETs of seeded pages while the load lasts: the longest wait.
fn talk(
    run: &Run,
    address: SocketAddr,
    me: u64,
    load: &Load,
    pages: &[Page],
    reloads: &Reloads,
) -> Result<Duration> {
    let mut rng = Rng::new(run.seed, &format!("nginx {me}"));
    let mut opened = reloads.now();
    let mut client = Client::open(address, run.limit)?;
    let mut n = 0;
    while load.goes_on(n) {
        let page = &pages[rng.below(pages.len() as u64) as usize];
        loop {
            let answer = client
                .get(&page.path, &page.body)
                .with_context(|| format!("connection {me}, request {n}, {} reloads", reloads.count()))?;
            if answer == Answer::Right {
                break;
            }
            ensure!(
                reloads.may_close(opened),
                "connection {me}, request {n}: the connection was closed ({answer:?}) without a reload"
            );
            opened = reloads.now();
            client.reopen()?;
            if answer == Answer::Last {
                break;
            }
        }
        n += 1;
        load.answered();
    }
    client.expect_silence().or_else(|error| if reloads.may_close(opened) { Ok(()) } else { Err(error) })?;
    Ok(client.longest())
}

/// Kills and reloads, as the run says.
fn disturb(session: &Session, run: &Run, total: u64, load: &Load, reloads: &Reloads) -> Result<String> {
    if let Some(life) = &run.life {
        return session.kill_many(run, life, load, |n| {
            if n % KILLS_TO_RELOAD == KILLS_TO_RELOAD - 1 {
                reload(session, run, load, reloads)
            } else {
                Ok(())
            }
        });
    }
    // Before the kill, or behind it.
    if run.seed.is_multiple_of(2) {
        reload(session, run, load, reloads)?;
    }
    let words = session.kill_once(run, total, load)?;
    if !run.seed.is_multiple_of(2) {
        // A signal that waits in a process that is killed is lost.
        if words.is_empty() {
            session.wait_until(load, total / 3)?
        } else {
            session.wait_promoted(run)?
        }
        reload(session, run, load, reloads)?;
    }
    Ok(words)
}

/// Has the master load its configuration anew, and waits until it has other workers only, which are protected.
fn reload(session: &Session, run: &Run, load: &Load, reloads: &Reloads) -> Result<()> {
    let until = Instant::now() + run.limit;
    let (before, _) = session.children(run)?;
    reloads.step();
    session.signal_program(run, Signal::HUP, "HUP")?;
    loop {
        let (now, protected) = session.children(run)?;
        if now.len() == WORKERS && now.is_disjoint(&before) && protected {
            break;
        }
        // A load that is over has no more to show; the workers' change is still waited for.
        ensure!(
            Instant::now() < until,
            "{:?} after the reload the workers are {now:?}, before it {before:?}; requests {}",
            run.limit,
            load.done()
        );
        thread::sleep(Duration::from_millis(5));
    }
    reloads.step();
    Ok(())
}

/// The master must not have seen a worker die.
fn judge_log(log: &Path) -> Result<()> {
    let text = fs::read_to_string(log)?;
    let bad = |line: &&str| {
        ["[alert]", "[crit]", "[emerg]", "exited on signal"].iter().any(|word| line.contains(word))
    };
    match text.lines().find(bad) {
        Some(line) => Err(anyhow!("nginx says: {line}")),
        None => Ok(()),
    }
}

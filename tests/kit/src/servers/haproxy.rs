//! `kit haproxy`: HAProxy with four threads before a server of the kit's own, over kept connections.

use std::fs;

use anyhow::{Error, Result};

use super::http::{backend, pages, talk};
use super::session::{Session, free_port};
use super::{Failure, Options, Outcome, Run, Title};

/// Connections at a time.
const CONNECTIONS: u64 = 4;

/// Files that are served.
const PAGES: u64 = 8;

/// Threads of HAProxy.
const THREADS: u64 = 4;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    super::campaign(options, &Title { name: "haproxy", flags: String::new() }, "haproxy", |_| Ok(()), one)
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let dir = run.place.fresh("haproxy")?;
    let pages = pages(&dir.join("pages"), run.seed, PAGES)?;
    let behind = backend(&pages)?;
    let text = format!(
        "global\n    nbthread {THREADS}\n    maxconn 200\ndefaults\n    mode http\n    timeout connect 600s\n    \
         timeout client 600s\n    timeout server 600s\n    http-reuse never\nfrontend kit\n    bind 127.0.0.1:{port}\n    \
         default_backend behind\nbackend behind\n    server one 127.0.0.1:{behind}\n"
    );
    let file = dir.join("haproxy.cfg");
    fs::write(&file, text).map_err(|error| Failure::of(Error::from(error), &dir))?;
    let program = vec!["haproxy".into(), "-db".into(), "-f".into(), file.into()];
    let mut session = Session::start_in(run, dir, program, port, 1)?;
    for event in ["diverged", "unprotected"] {
        session.allow(event, "its threads hand connections on by lists without locks");
    }
    let address = session.address;
    session.talk_with_kill(run, CONNECTIONS, |load| talk(run, address, load, &pages, CONNECTIONS))
}

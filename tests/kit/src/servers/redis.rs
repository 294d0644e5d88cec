//! `kit redis`: INCR, SET and GET over one RESP connection; every answer is known beforehand.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};

use super::client::Connection;
use super::session::{Session, free_port};
use super::{Failure, Options, Outcome, Run, Title};

/// Distinct keys that SET and GET go through.
const KEYS: u64 = 100;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    super::campaign(options, &Title { name: "redis", flags: String::new() }, "redis-server", |_| Ok(()), one)
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let number = port.to_string();
    let program =
        ["redis-server", "--port", &number, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"];
    let program = program.iter().map(Into::into).collect();
    let session = Session::start(run, "redis", program, port)?;
    let address = session.address;
    let longest = session.with_kill(run, run.requests, |progress| {
        let mut client = Connection::open(address, run.limit)?;
        let longest = talk(&mut client, run.requests, progress)?;
        client.expect_silence()?;
        Ok(longest)
    })?;
    let detail = format!("{} requests, longest wait {longest:.1?}", run.requests);
    Ok(Outcome { detail, longest: Some(longest) })
}

fn talk(client: &mut Connection, requests: u64, progress: &AtomicU64) -> Result<Duration> {
    let mut counter = 0;
    for n in 0..requests {
        let key = format!("key:{}", n % KEYS);
        match n % 3 {
            0 => {
                counter += 1;
                command(client, &["INCR", "counter"])?;
                client.expect(&format!(":{counter}"), n)?;
            }
            1 => {
                command(client, &["SET", &key, &value(n)])?;
                client.expect("+OK", n)?;
            }
            _ => {
                // The last SET of this key: KEYS requests apart and n % 3 == 1.
                let wrote = (0..n).rev().take(3 * KEYS as usize).find(|w| w % 3 == 1 && w % KEYS == n % KEYS);
                command(client, &["GET", &key])?;
                expect_bulk(client, wrote.map(value).as_deref(), n)?;
            }
        }
        progress.store(n + 1, Ordering::Relaxed);
    }
    command(client, &["GET", "counter"])?;
    expect_bulk(client, Some(&counter.to_string()), requests)?;
    Ok(client.longest())
}

fn value(n: u64) -> String {
    format!("value {n} {}", "x".repeat((n % 97) as usize))
}

fn command(client: &mut Connection, words: &[&str]) -> Result<()> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    client.send(bytes.as_bytes())
}

fn expect_bulk(client: &mut Connection, expected: Option<&str>, request: u64) -> Result<()> {
    let Some(expected) = expected else { return client.expect("$-1", request) };
    client.expect(&format!("${}", expected.len()), request)?;
    let line = client.line()?;
    ensure!(line == expected, "request {request}: got {line:?}, expected {expected:?}");
    Ok(())
}

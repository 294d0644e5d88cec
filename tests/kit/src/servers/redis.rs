//! `kit redis`: INCR, SET and GET over one RESP connection; every answer is known beforehand.

use anyhow::{Context, Result, ensure};

use super::client::Connection;
use super::life::Load;
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
    let ((requests, longest), words) = session.with_kill(run, run.requests, |load| {
        let mut client = Connection::open(address, run.limit)?;
        let requests = talk(&mut client, load)?;
        client.expect_silence()?;
        Ok((requests, client.longest()))
    })?;
    let detail = format!("{requests} requests, longest wait {longest:.1?}; {words}");
    Ok(Outcome { detail, longest: Some(longest) })
}

/// INCR, SET and GET in turn while the load lasts: how many.
pub fn talk(client: &mut Connection, load: &Load) -> Result<u64> {
    let (mut counter, mut n) = (0, 0);
    while load.goes_on(n) {
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
        n += 1;
        load.answered();
    }
    command(client, &["GET", "counter"])?;
    expect_bulk(client, Some(&counter.to_string()), n)?;
    Ok(n)
}

fn value(n: u64) -> String {
    format!("value {n} {}", "x".repeat((n % 97) as usize))
}

/// Sends one command.
pub fn command(client: &mut Connection, words: &[&str]) -> Result<()> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes += &format!("${}\r\n{word}\r\n", word.len());
    }
    client.send(bytes.as_bytes())
}

/// Receives one string, or none.
pub fn bulk(client: &mut Connection) -> Result<Option<String>> {
    let head = client.line()?;
    if head == "$-1" {
        return Ok(None);
    }
    let length = head.strip_prefix('$').and_then(|length| length.parse::<usize>().ok());
    let length = length.with_context(|| format!("a string begins with {head:?}"))?;
    let mut bytes = vec![0; length + 2];
    client.receive(&mut bytes)?;
    ensure!(bytes.ends_with(b"\r\n"), "a string of {length} bytes does not end there");
    bytes.truncate(length);
    Ok(Some(String::from_utf8(bytes)?))
}

fn expect_bulk(client: &mut Connection, expected: Option<&str>, request: u64) -> Result<()> {
    let Some(expected) = expected else { return client.expect("$-1", request) };
    client.expect(&format!("${}", expected.len()), request)?;
    let line = client.line()?;
    ensure!(line == expected, "request {request}: got {line:?}, expected {expected:?}");
    Ok(())
}

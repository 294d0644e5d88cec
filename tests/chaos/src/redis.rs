//! Clients of redis: counters whose every value is known, a list that must hold what was appended, in order and
//! once, and registers that several clients use at once.

use std::net::SocketAddr;
use std::thread;

use anyhow::{Context, Result, ensure};
use us_kit::rng::Rng;
use us_kit::servers::Run;
use us_kit::servers::client::Connection;
use us_kit::servers::life::Load;
use us_kit::servers::redis::{bulk, command, talk as count};

use crate::register::{Operation, Record};
use crate::workload::Errands;

/// Clients of the registers.
const CLIENTS: usize = 4;
/// Registers in use at a time.
const REGISTERS: u64 = 3;
/// Operations of one client until all go on to fresh registers: the longer a history, the longer its check.
const TURN: u64 = 300;

/// The command line, without the program.
pub fn words(port: &str) -> Vec<&str> {
    vec!["--port", port, "--bind", "127.0.0.1", "--save", "", "--daemonize", "no"]
}

/// Everything at once, until the load is over.
pub fn talk(run: &Run, address: SocketAddr, load: &Load, errands: &Errands) -> Result<String> {
    let record = Record::default();
    let outcome = thread::scope(|scope| {
        let guarded = |work: Result<()>| {
            if work.is_err() {
                load.stop();
            }
            work
        };
        let record = &record;
        let mut clients = vec![
            scope.spawn(move || guarded(counters(run, address, load))),
            scope.spawn(move || guarded(list(run, address, load))),
            scope.spawn(move || guarded(errands.serve(load, |n| burst(run, address, n)))),
        ];
        for me in 0..CLIENTS {
            clients.push(scope.spawn(move || guarded(registers(run, address, load, me, record))));
        }
        let outcomes = clients.into_iter().map(|client| client.join().expect("a client does not panic"));
        // All are waited for, and of several failures the first is told.
        outcomes.collect::<Vec<_>>().into_iter().collect::<Result<Vec<()>>>()
    });
    outcome?;
    Ok(format!("{} requests, {}", load.done(), record.judge()?))
}

fn counters(run: &Run, address: SocketAddr, load: &Load) -> Result<()> {
    let mut client = Connection::open(address, run.limit)?;
    count(&mut client, load)?;
    client.expect_silence()
}

/// RPUSH answers the new length; at the end the list is read back whole.
fn list(run: &Run, address: SocketAddr, load: &Load) -> Result<()> {
    let mut client = Connection::open(address, run.limit)?;
    let mut n = 0;
    while load.goes_on(n) {
        command(&mut client, &["RPUSH", "list", &format!("entry {n}")])?;
        n += 1;
        client.expect(&format!(":{n}"), n)?;
        load.answered();
    }
    command(&mut client, &["LRANGE", "list", "0", "-1"])?;
    client.expect(&format!("*{n}"), n)?;
    for at in 0..n {
        let entry = bulk(&mut client)?;
        ensure!(entry.as_deref() == Some(&format!("entry {at}")[..]), "the list holds {entry:?} at {at}");
    }
    client.expect_silence()
}

fn registers(run: &Run, address: SocketAddr, load: &Load, me: usize, record: &Record) -> Result<()> {
    let mut rng = Rng::new(run.seed, &format!("register {me}"));
    let mut client = Connection::open(address, run.limit)?;
    let mut n = 0;
    while load.goes_on(n) {
        let register = n / TURN * REGISTERS + rng.below(REGISTERS);
        let key = format!("register:{register}");
        // No two writes write the same: a read says which one it saw.
        let fresh = 1 + n * CLIENTS as u64 + me as u64;
        n += 1;
        match rng.below(4) {
            0 => {
                record.begins(me, register, Operation::Write(fresh));
                command(&mut client, &["SET", &key, &fresh.to_string()])?;
                client.expect("+OK", n)?;
                record.ends(me, register, Operation::Write(fresh));
            }
            1 => {
                record.begins(me, register, Operation::Exchange(0, fresh));
                command(&mut client, &["GETSET", &key, &fresh.to_string()])?;
                let found = number(&mut client)?;
                record.ends(me, register, Operation::Exchange(found, fresh));
            }
            _ => {
                record.begins(me, register, Operation::Read(0));
                command(&mut client, &["GET", &key])?;
                let found = number(&mut client)?;
                record.ends(me, register, Operation::Read(found));
            }
        }
        load.answered();
    }
    client.expect_silence()
}

fn number(client: &mut Connection) -> Result<u64> {
    let text = bulk(client)?;
    text.map_or(Ok(0), |text| text.parse().with_context(|| format!("a register holds {text:?}")))
}

/// Large values in and out again.
fn burst(run: &Run, address: SocketAddr, n: usize) -> Result<()> {
    let mut client = Connection::open(address, run.limit)?;
    let value = format!("{n:07} ").repeat(128 << 10);
    for round in 0..12 {
        command(&mut client, &["SET", "burst", &value])?;
        client.expect("+OK", round)?;
        command(&mut client, &["GET", "burst"])?;
        let back = bulk(&mut client)?;
        ensure!(
            back.as_deref() == Some(&value[..]),
            "burst {n}: the value of round {round} is not what was set"
        );
    }
    client.expect_silence()
}

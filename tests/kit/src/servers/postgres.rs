//! `kit postgres`: PostgreSQL under updates and queries of several connections.
//!
//! Its processes share memory, so they are cloned, fenced and promoted together. Where one diverges all begin again: that is no
//! failure here, a wrong answer is. Says how often, and what part of the time each process had a standby.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::client::{Connection, longest_wait};
use super::life::Load;
use super::session::{Session, free_port};
use super::{Failure, Options, Outcome, Run, Title};

/// Connections at a time, each with a process of the server.
const CONNECTIONS: u64 = 4;

/// Of the requests that one connection of other servers makes, each makes one transaction in so many.
const SHARE: u64 = 4;

/// Whom it runs as if the kit is root, whom it refuses.
const USER: &str = "postgres";

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    ensure!(options.kills == 1, "its processes fail over together: who is to be next cannot be said");
    super::campaign(options, &Title { name: "postgres", flags: String::new() }, "", |_| Ok(()), one)
}

/// The newest installed version's programs: Debian keeps them out of the PATH.
fn programs() -> Result<PathBuf> {
    let folders = fs::read_dir("/usr/lib/postgresql").context("postgresql is not installed")?;
    let mut folders: Vec<PathBuf> = folders.flatten().map(|entry| entry.path().join("bin")).collect();
    folders.retain(|folder| folder.join("postgres").exists());
    folders.sort();
    folders.pop().context("postgresql is not installed")
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let bin = programs()?;
    let dir = run.place.fresh("postgres")?;
    let (understudy, program) = prepare(run, &dir, &bin, port).map_err(|error| Failure::of(error, &dir))?;
    let run = &Run { understudy, life: run.life.clone(), ..*run };
    let mut session = Session::start_in(run, dir, program, port, 1)?;
    session.is_family();
    for event in ["diverged", "unprotected", "standby_lost"] {
        session.allow(event, "what ends one log ends those of all, and they begin again");
    }
    let (address, each) = (session.address, run.requests / SHARE);
    let work = |load: &Load| {
        let longest = longest_wait(CONNECTIONS, |n| talk(run, address, n, each, load))?;
        Ok((load.done(), longest))
    };
    let total = each * CONNECTIONS;
    let ((done, longest), words) = session.with(run, work, |session, load| {
        let words = session.kill_once(run, total, load)?;
        session.wait_until(load, total * 9 / 10)?;
        let words = if words.is_empty() { words } else { words + "; " };
        Ok(words + &session.protection())
    })?;
    let detail =
        format!("{done} transactions over {CONNECTIONS} connections, longest wait {longest:.1?}; {words}");
    Ok(Outcome { detail, longest: Some(longest) })
}

/// Makes the data folder, and for root what runs all of it as another user. The command of Understudy, and the program.
fn prepare(run: &Run, dir: &Path, bin: &Path, port: u16) -> Result<(Option<PathBuf>, Vec<OsString>)> {
    let data = dir.join("data");
    let is_root = rustix::process::geteuid().is_root();
    let as_user: Vec<OsString> = match is_root {
        true => {
            let names = ["setpriv", "--reuid", USER, "--regid", USER, "--clear-groups"];
            names.map(Into::into).to_vec()
        }
        false => vec!["env".into()],
    };
    if is_root {
        let (user, group) = numbers()?;
        for path in [dir, &dir.join("tmp")] {
            chown(path, Some(user), Some(group))?;
        }
    }
    let output = Command::new(&as_user[0])
        .args(&as_user[1..])
        .arg(bin.join("initdb"))
        .args(["-A", "trust", "-U", USER, "--no-sync", "-D"])
        .arg(&data)
        .current_dir(dir)
        .output()?;
    ensure!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr).trim());
    let port = port.to_string();
    let mut program: Vec<OsString> = vec![bin.join("postgres").into(), "-D".into(), data.into()];
    program
        .extend(["-p", &port, "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k"].map(Into::into));
    program.push(dir.into());
    if !is_root {
        return Ok((run.understudy.clone(), program));
    }
    let Some(understudy) = &run.understudy else { return Ok((None, [as_user, program].concat())) };
    // A command that is Understudy as the other user, with a folder of that user's for its groups.
    let state = dir.join("state");
    let script = dir.join("understudy");
    let text = format!(
        "#!/bin/sh\nexec setpriv --reuid {USER} --regid {USER} --clear-groups env UNDERSTUDY_DIR={} {} \"$@\"\n",
        state.display(),
        understudy.display()
    );
    fs::write(&script, text)?;
    fs::set_permissions(&script, Permissions::from_mode(0o755))?;
    Ok((Some(script), program))
}

/// Numbers of the user and its group.
fn numbers() -> Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let line = users.lines().find(|line| line.split(':').next() == Some(USER));
    let mut fields = line.with_context(|| format!("there is no user {USER}"))?.split(':').skip(2);
    let mut number = || fields.next().and_then(|field| field.parse().ok()).context("a user without a number");
    Ok((number()?, number()?))
}

/// Counts up in a row of its own and reads it back, while the load lasts: the longest wait.
fn talk(run: &Run, address: SocketAddr, me: u64, each: u64, load: &Load) -> Result<Duration> {
    let mut client = connect(run, address)?;
    query(&mut client, &format!("create table t{me} (id int primary key, v bigint)"))?;
    query(&mut client, &format!("insert into t{me} values (1, 0)"))?;
    for n in 1..=each {
        if !load.goes_on(0) {
            break;
        }
        let at = || format!("connection {me}, transaction {n}");
        query(&mut client, &format!("update t{me} set v = v + 1 where id = 1")).with_context(at)?;
        let value = query(&mut client, &format!("select v from t{me} where id = 1")).with_context(at)?;
        ensure!(value.as_deref() == Some(n.to_string().as_str()), "{}: got {value:?}", at());
        load.answered();
    }
    client.expect_silence()?;
    Ok(client.longest())
}

/// A session; a server that has just begun to listen may not take one yet.
fn connect(run: &Run, address: SocketAddr) -> Result<Connection> {
    let until = Instant::now() + run.limit;
    loop {
        let attempt = || {
            let mut client = Connection::open(address, run.limit)?;
            let hello = format!("\0\u{3}\0\0user\0{USER}\0database\0{USER}\0\0");
            let length = (hello.len() as u32 + 4).to_be_bytes();
            client.send(&[&length, hello.as_bytes()].concat())?;
            answer(&mut client)?;
            Ok(client)
        };
        match attempt() {
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => thread::sleep(Duration::from_millis(20)),
            Ok(client) => return Ok(client),
        }
    }
}

fn query(client: &mut Connection, text: &str) -> Result<Option<String>> {
    let length = (text.len() as u32 + 5).to_be_bytes();
    client.send(&[b"Q", length.as_slice(), text.as_bytes(), b"\0"].concat())?;
    answer(client)
}

/// Reads until the server is ready for the next query: the first column of the last row.
fn answer(client: &mut Connection) -> Result<Option<String>> {
    let mut value = None;
    loop {
        let mut head = [0; 5];
        client.receive(&mut head)?;
        let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let mut body = vec![0; length.saturating_sub(4)];
        client.receive(&mut body)?;
        match head[0] {
            b'E' => bail!("the server says {}", String::from_utf8_lossy(&body)),
            b'D' => value = body.get(6..).map(|bytes| String::from_utf8_lossy(bytes).into_owned()),
            b'Z' => return Ok(value),
            _ => {}
        }
    }
}

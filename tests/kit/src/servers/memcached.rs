//! `kit memcached`: several connections; a counter that all of them increase, and compare-and-swap.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::client::{Connection, at_once};
use super::life::Load;
use super::session::{Session, free_port};
use super::{Failure, Outcome, Run, Title};

const CONNECTIONS: u64 = 4;

/// Flags of `kit memcached`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "memcached-options")]
pub struct Options {
    #[command(flatten)]
    common: super::Options,
    /// With its maintenance threads, which race by design: it diverges, and takes turns from then on
    #[arg(long)]
    defaults: bool,
}

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let flags = if options.defaults { " --defaults" } else { "" };
    let title = Title { name: "memcached", flags: flags.to_owned() };
    super::campaign(&options.common, &title, "memcached", |_| Ok(()), |run| one(run, options.defaults))
}

fn one(run: &Run, defaults: bool) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let number = port.to_string();
    let mut words = words(&number);
    if defaults {
        words.retain(|word| *word != "-o" && !word.starts_with("no_"));
    }
    let program = std::iter::once("memcached").chain(words).map(Into::into).collect();
    let session = Session::start(run, "memcached", program, port)?;
    let address = session.address;
    session.talk_with_kill(run, CONNECTIONS, |load| talk_all(run, address, load))
}

/// The command line, without the program.
pub fn words(port: &str) -> Vec<&str> {
    // -u root: it refuses to start as root without being told; the maintenance threads race by design.
    let mut words = vec!["-l", "127.0.0.1", "-U", "0", "-p", port, "-t", "4"];
    words.extend(["-o", "no_lru_maintainer,no_lru_crawler", "-u", "root"]);
    words
}

/// Counters and compare-and-swap over several connections while the load lasts: the longest wait.
pub fn talk_all(run: &Run, address: SocketAddr, load: &Load) -> Result<Duration> {
    let mut first = Connection::open(address, run.limit)?;
    for key in ["shared", "swapped"] {
        store(&mut first, key, "0")?;
    }
    let (mut increments, mut swaps, mut longest) = (0, 0, Duration::ZERO);
    for (more_increments, more_swaps, wait) in at_once(CONNECTIONS, |n| talk(run, address, n, load))? {
        increments += more_increments;
        swaps += more_swaps;
        longest = longest.max(wait);
    }
    for (key, expected) in [("shared", increments), ("swapped", swaps)] {
        let (value, _) = gets(&mut first, key)?;
        ensure!(value == expected, "{key} is {value} after {expected} acknowledged changes");
    }
    first.expect_silence()?;
    Ok(longest)
}

fn talk(run: &Run, address: SocketAddr, me: u64, load: &Load) -> Result<(u64, u64, Duration)> {
    let mut client = Connection::open(address, run.limit)?;
    let own = format!("own{me}");
    store(&mut client, &own, "0")?;
    let (mut increments, mut swaps, mut own_count, mut last) = (0, 0, 0, 0);
    let mut n = 0;
    while load.goes_on(n) {
        match n % 3 {
            0 => {
                client.send(b"incr shared 1\r\n")?;
                let answer = client.line()?;
                let value: u64 =
                    answer.parse().with_context(|| format!("request {n}: incr answered {answer:?}"))?;
                ensure!(value > last, "request {n}: the shared counter fell from {last} to {value}");
                last = value;
                increments += 1;
            }
            1 => {
                own_count += 1;
                client.send(format!("incr {own} 1\r\n").as_bytes())?;
                client.expect(&own_count.to_string(), n)?;
            }
            _ => {
                let (value, unique) = gets(&mut client, "swapped")?;
                let text = (value + 1).to_string();
                client.send(format!("cas swapped 0 0 {} {unique}\r\n{text}\r\n", text.len()).as_bytes())?;
                match client.line()?.as_str() {
                    "STORED" => swaps += 1,
                    "EXISTS" => {} // another connection was first
                    other => bail!("request {n}: cas answered {other:?}"),
                }
            }
        }
        n += 1;
        load.answered();
    }
    client.expect_silence()?;
    Ok((increments, swaps, client.longest()))
}

fn store(client: &mut Connection, key: &str, value: &str) -> Result<()> {
    client.send(format!("set {key} 0 0 {}\r\n{value}\r\n", value.len()).as_bytes())?;
    client.expect("STORED", 0)
}

/// The number under `key` and its cas value.
fn gets(client: &mut Connection, key: &str) -> Result<(u64, u64)> {
    client.send(format!("gets {key}\r\n").as_bytes())?;
    let head = client.line()?;
    let unique = head.rsplit(' ').next().unwrap_or_default();
    ensure!(head.starts_with(&format!("VALUE {key} ")), "gets answered {head:?}");
    let unique = unique.parse().with_context(|| format!("the cas value in {head:?}"))?;
    let text = client.line()?;
    let value = text.trim().parse().with_context(|| format!("{key} is {text:?}"))?;
    client.expect("END", 0)?;
    Ok((value, unique))
}

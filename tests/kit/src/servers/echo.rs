//! `kit echo`: numbered requests over one TCP connection to `guests/servers/echo_server.c`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;

use super::client::{Connection, longest_wait};
use super::life::Load;
use super::session::{Session, free_port};
use super::{Failure, Outcome, Run, Title};
use crate::guest;
use crate::rng::Rng;

/// Flags of `kit echo`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "echo-options")]
pub struct Options {
    #[command(flatten)]
    common: super::Options,
    /// The server's shape
    #[arg(long, value_enum, default_value = "both")]
    shape: Shape,
    /// Worker threads of the epoll shape
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Connections at a time; every one is verified
    #[arg(long, default_value_t = 1)]
    connections: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Shape {
    /// Workers on one epoll set
    Epoll,
    /// A thread for each connection
    Threads,
    /// The two in turn, by the seed
    Both,
}

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let shape = options.shape.to_possible_value().expect("no shape is hidden");
    let flags = format!(
        " --shape {} --workers {} --connections {}",
        shape.get_name(),
        options.workers,
        options.connections
    );
    super::campaign(
        &options.common,
        &Title { name: "echo", flags },
        "",
        |place| {
            let guests = guest::discover(place, "guests/servers", Some("echo_server"))?;
            match guest::build(place, &guests, 1)?.pop() {
                Some((_, words)) => bail!("building the echo server: {words}"),
                None => Ok(()),
            }
        },
        |run| one(run, options),
    )
}

fn one(run: &Run, options: &Options) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let shape = match options.shape {
        Shape::Epoll => "epoll",
        Shape::Both if run.seed.is_multiple_of(2) => "epoll",
        Shape::Threads | Shape::Both => "threads",
    };
    let binary: PathBuf = run.place.guests().join("echo_server");
    let program =
        vec![binary.into(), shape.into(), port.to_string().into(), options.workers.to_string().into()];
    let session = Session::start(run, "echo", program, port)?;
    let address = session.address;
    let connections = options.connections.max(1);
    let total = run.requests * connections;
    let ((requests, longest), words) = session.with_kill(run, total, |load| {
        let longest = talk_all(run, address, connections, load)?;
        Ok((load.done(), longest))
    })?;
    let detail = format!("{shape}, {requests} requests, longest wait {longest:.1?}; {words}");
    Ok(Outcome { detail, longest: Some(longest) })
}

/// Numbered requests over several connections at a time while the load lasts: the longest wait.
pub fn talk_all(run: &Run, address: SocketAddr, connections: u64, load: &Load) -> Result<Duration> {
    longest_wait(connections, |n| talk(run, address, n, load))
}

/// Requests have seeded sizes and go out in seeded bursts. Each starts with its number; its other bytes
/// follow from the number, so that any lost, repeated or moved byte shows.
fn talk(run: &Run, address: SocketAddr, connection: u64, load: &Load) -> Result<Duration> {
    let mut rng = Rng::new(run.seed, &format!("echo {connection}"));
    let mut client = Connection::open(address, run.limit)?;
    let mut number = 0;
    while load.goes_on(number) {
        let burst = 1 + rng.below(8);
        let requests: Vec<Vec<u8>> =
            (number..number + burst).map(|n| request(connection, n, &mut rng)).collect();
        client.send(&requests.concat())?;
        for request in requests {
            let mut answer = vec![0; request.len()];
            client.receive(&mut answer)?;
            ensure!(
                answer == request,
                "connection {connection}, request {number}: the answer is not what was sent ({:02x?} for {:02x?})",
                &answer[..8],
                &request[..8]
            );
            number += 1;
            load.answered();
        }
    }
    client.expect_silence()?;
    Ok(client.longest())
}

fn request(connection: u64, number: u64, rng: &mut Rng) -> Vec<u8> {
    let size = if rng.below(50) == 0 { 30_000 } else { 8 + rng.below(200) } as usize;
    let mut bytes = number.to_le_bytes().to_vec();
    let mut fill = Rng::new(number, &format!("fill {connection}"));
    while bytes.len() < size {
        bytes.extend(fill.draw().to_le_bytes());
    }
    bytes.truncate(size);
    bytes
}

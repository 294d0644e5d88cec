//! `kit threads16`: requests to `guests/servers/server_threads16.c`, sixteen threads that share locks of every
//! kind. Every answer carries three counts, and together the answers must account for each of them exactly.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::client::{Connection, at_once};
use super::life::Load;
use super::session::{Session, free_port};
use super::{Failure, Options, Outcome, Run, Title};
use crate::guest;
use crate::rng::Rng;

/// Clients at a time.
const CONNECTIONS: u64 = 6;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let title = Title { name: "threads16", flags: String::new() };
    let prepare = |place: &_| {
        let guests = guest::discover(place, "guests/servers", Some("server_threads16"))?;
        match guest::build(place, &guests, 1)?.pop() {
            Some((_, words)) => bail!("building the server: {words}"),
            None => Ok(()),
        }
    };
    super::campaign(options, &title, "", prepare, one)
}

fn one(run: &Run) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let binary: PathBuf = run.place.guests().join("server_threads16");
    let session = Session::start(run, "threads16", vec![binary.into(), port.to_string().into()], port)?;
    let address = session.address;
    session.talk_with_kill(run, CONNECTIONS, |load| talk_all(run, address, load, &|| false))
}

/// What one answer says, beside what its connection could check at once.
struct Answer {
    amount: u64,
    worker: u64,
    of_worker: u64,
    sum: u64,
}

/// The amount that has the server make a call that no standby can follow.
const REFUSED: u64 = 1;

/// Requests over several connections while the load lasts, all accounted for: the longest wait. `refuse` says
/// whether the next one is to have the server make a call that no standby can follow.
pub fn talk_all(
    run: &Run,
    address: SocketAddr,
    load: &Load,
    refuse: &(dyn Fn() -> bool + Sync),
) -> Result<Duration> {
    let (mut answers, mut longest) = (Vec::new(), Duration::ZERO);
    for (more, wait) in at_once(CONNECTIONS, |n| talk(run, address, n, load, refuse))? {
        answers.extend(more);
        longest = longest.max(wait);
    }
    account(answers)?;
    Ok(longest)
}

/// One connection: requests are a number and an amount; the answer repeats the number and carries how many
/// requests this connection has made, which worker answered, how many that worker has answered, and the sum of all
/// amounts so far.
fn talk(
    run: &Run,
    address: SocketAddr,
    me: u64,
    load: &Load,
    refuse: &(dyn Fn() -> bool + Sync),
) -> Result<(Vec<Answer>, Duration)> {
    let mut rng = Rng::new(run.seed, &format!("threads16 {me}"));
    let mut client = Connection::open(address, run.limit)?;
    let mut answers = Vec::new();
    let (mut n, mut last_sum) = (0, 0);
    while load.goes_on(n) {
        n += 1;
        // Asked of one connection only: an errand is done once.
        let amount = if me == 0 && refuse() { REFUSED } else { 1 + REFUSED + rng.below(1000) };
        client.send(&[n.to_le_bytes(), amount.to_le_bytes()].concat())?;
        let mut bytes = [0; 40];
        client.receive(&mut bytes)?;
        let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().expect("eight bytes"));
        let (number, count, worker, of_worker, sum) = (word(0), word(1), word(2), word(3), word(4));
        ensure!(
            (number, count) == (n, n),
            "connection {me}, request {n}: answered as {number}, counted as {count}"
        );
        ensure!(sum > last_sum, "connection {me}, request {n}: the sum fell from {last_sum} to {sum}");
        last_sum = sum;
        answers.push(Answer { amount, worker, of_worker, sum });
        load.answered();
    }
    client.expect_silence()?;
    Ok((answers, client.longest()))
}

/// Each worker's counts are 1, 2, 3 ... without a gap or a repetition, and the sums form one chain.
fn account(mut answers: Vec<Answer>) -> Result<()> {
    let mut counts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for answer in &answers {
        counts.entry(answer.worker).or_default().push(answer.of_worker);
    }
    for (worker, mut counts) in counts {
        counts.sort_unstable();
        if let Some((at, got)) = counts.iter().enumerate().find(|(at, got)| **got != *at as u64 + 1) {
            bail!("worker {worker}: among its counts, {got} stands where {} should", at + 1);
        }
    }
    answers.sort_by_key(|answer| answer.sum);
    let mut sum = 0;
    for answer in &answers {
        ensure!(
            answer.sum == sum + answer.amount,
            "a sum of {} after {sum} and {}",
            answer.sum,
            answer.amount
        );
        sum = answer.sum;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Answer, account};

    fn judged(rows: &[(u64, u64, u64, u64)]) -> bool {
        let answer = |&(amount, worker, of_worker, sum)| Answer { amount, worker, of_worker, sum };
        account(rows.iter().map(answer).collect()).is_ok()
    }

    #[test]
    fn every_count_is_accounted_for() {
        assert!(judged(&[(5, 0, 1, 12), (7, 1, 1, 7), (1, 0, 2, 13)]));
        assert!(!judged(&[(5, 0, 1, 12), (7, 1, 1, 7), (1, 0, 3, 13)]));
        assert!(!judged(&[(5, 0, 1, 12), (7, 1, 1, 7), (1, 0, 2, 14)]));
        assert!(!judged(&[(5, 0, 1, 5), (7, 0, 1, 12)]));
    }
}

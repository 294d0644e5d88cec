//! `chaos`: seeded faults of every kind against groups under load. A seed is a program and a schedule of faults;
//! its clients know every answer, so that anything lost, repeated or out of order is a failure.

mod fault;
mod group;
mod redis;
mod register;
mod round;
mod workload;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Parser;
use us_kit::place::{PlaceOptions, own_path};
use us_kit::report::Report;

use round::{Failed, Outcome, Round};
use workload::Workload;

#[derive(Parser)]
#[command(name = "chaos", about = "Seeded faults of every kind against groups under load")]
struct Cli {
    #[command(flatten)]
    place: PlaceOptions,
    /// The first seed; the next rounds use the numbers after it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// No round begins after so many seconds
    #[arg(long, value_name = "S", env = "CHAOS_SECONDS", default_value_t = 300)]
    seconds: u64,
    /// Rounds at most
    #[arg(long, value_name = "N")]
    rounds: Option<u64>,
    /// Only this program; otherwise all of them in turn
    #[arg(long, value_enum)]
    workload: Option<Workload>,
    /// Seconds that anything may take: an answer, or the return of protection
    #[arg(long, value_name = "S", default_value_t = 60)]
    timeout: u64,
    /// Print the schedules of the rounds and stop
    #[arg(long)]
    list: bool,
    /// Be a probe: ask the program of this kind on --port one thing
    #[arg(long, value_name = "WORKLOAD", value_enum, hide = true, requires = "port")]
    ask: Option<Workload>,
    /// See --ask
    #[arg(long, hide = true)]
    port: Option<u16>,
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("chaos: {error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(cli: &Cli) -> Result<bool> {
    if let (Some(workload), Some(port)) = (cli.ask, cli.port) {
        workload.ask(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(cli.timeout))?;
        return Ok(true);
    }
    let place = cli.place.place()?;
    let report = Report::default();
    let understudy = match cli.place.understudy(&place) {
        Ok(understudy) => understudy,
        Err(why) => {
            report.skip("chaos", &why);
            return Ok(report.finish(0));
        }
    };
    Workload::build(&place)?;
    let begin = Instant::now();
    let last = cli.rounds.map_or(u64::MAX, |rounds| cli.seed.saturating_add(rounds));
    for seed in cli.seed..last {
        if begin.elapsed() >= Duration::from_secs(cli.seconds) {
            break;
        }
        let kinds = Workload::ALL;
        let workload = cli.workload.unwrap_or(kinds[(seed % kinds.len() as u64) as usize]);
        let what = format!("chaos seed {seed} {}", workload.name());
        if let Some(program) = workload.missing() {
            report.skip(&what, &format!("{program} is not installed"));
            continue;
        }
        let limit = Duration::from_secs(cli.timeout);
        let round = Round { place: &place, understudy: &understudy, seed, workload, limit };
        if cli.list {
            println!("{what}");
            round.acts().iter().for_each(|act| println!("    {:>9.1?} {}", act.after, act.fault));
            if cli.rounds.is_none() {
                break;
            }
            continue;
        }
        match round.run() {
            Ok(Outcome::Pass(words)) => report.pass(&what, &words),
            Ok(Outcome::Missed(words)) => {
                report.skip(&what, &format!("a standby was too slow just before a kill: {words}"));
            }
            Err(Failed { why, dir }) => {
                let label = format!("chaos-{}-{seed}", workload.name());
                let kept = match dir {
                    Some(dir) if dir.exists() => place.keep(&dir, &label)?.display().to_string(),
                    _ => String::new(),
                };
                let repeat = format!(
                    "{} --seed {seed} --rounds 1 --workload {}{}",
                    own_path(),
                    workload.name(),
                    cli.place.repeat()
                );
                report.fail(&what, &why, &kept, &repeat);
            }
        }
    }
    Ok(report.finish(0))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        super::Cli::command().debug_assert();
    }
}

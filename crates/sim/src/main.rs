#![forbid(unsafe_code)]
//! `understudy-sim`: the model, for people.

use std::process::ExitCode;

use clap::{Parser, Subcommand, ValueEnum};
use us_sim::explore::Copies;
use us_sim::trace::{Choice, trace};
use us_sim::{family, library, program::Program};

/// Shows how a standby takes over, in the model that the tests explore
#[derive(Parser)]
#[command(name = "understudy-sim", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the programs of the model
    List,
    /// Print one promotion of a program, a line for each step; of processes that share memory (family-...) all steps
    Trace {
        /// A program of the list
        name: String,
        /// Kill the primary behind this step of its own [default: where most calls are in doubt]
        #[arg(long, value_name = "STEP")]
        kill_at: Option<usize>,
        /// The schedule: which thread goes on at each step
        #[arg(long, default_value_t = 0)]
        seed: u64,
        /// How many of the primary's last steps are shown
        #[arg(long, value_name = "STEPS", default_value_t = Choice::default().before)]
        before: usize,
        /// How many of the successor's first steps are shown
        #[arg(long, value_name = "STEPS", default_value_t = Choice::default().after)]
        after: usize,
        /// Whether a second standby follows, as heir behind the failover
        #[arg(long, value_enum, default_value_t = Standbys::One)]
        standbys: Standbys,
    },
}

#[derive(Clone, Copy, ValueEnum)]
enum Standbys {
    /// The one that takes over
    One,
    /// That one, and a spare
    Two,
}

fn main() -> ExitCode {
    let programs = library::all();
    match Arguments::parse().command {
        Command::List => {
            for Program { name, why, .. } in &programs {
                println!("{name:<20} {why}");
            }
            for family::world::Program { name, why, .. } in family::library::all() {
                println!("{name:<20} {why}");
            }
        }
        Command::Trace { name, kill_at, seed, before, after, standbys } => {
            if let Some(program) = family::library::all().iter().find(|program| program.name == name) {
                print!("{}", family::trace::trace(program, seed, kill_at));
                return ExitCode::SUCCESS;
            }
            let Some(program) = programs.iter().find(|program| program.name == name) else {
                eprintln!(
                    "understudy-sim: no program is called {name}; `understudy-sim list` shows them all"
                );
                return ExitCode::FAILURE;
            };
            let copies = match standbys {
                Standbys::One => Copies::None,
                Standbys::Two => Copies::Spares,
            };
            print!("{}", trace(program, Choice { seed, kill_at, before, after, copies }));
        }
    }
    ExitCode::SUCCESS
}

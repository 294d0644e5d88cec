//! The one binary: flags, help, reports and exit codes.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod inspect;
mod metrics;
mod progress;
mod report;
mod style;
mod top;
mod users;

use clap::{CommandFactory, Parser};

fn main() {
    let args = match args::Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are no errors, for clap neither.
            let code = error.exit_code();
            let _ = error.print();
            std::process::exit(code);
        }
    };
    std::process::exit(commands::run(args.command, &mut args::Args::command()));
}

//! `kit`: the command of the test kit.

use std::os::unix::process::CommandExt;
use std::process::{Command as Process, ExitCode};

use clap::{Parser, Subcommand};
use us_kit::{battery, foreign, servers};

#[derive(Parser)]
#[command(name = "kit", about = "Runs guests and servers natively, protected, and with the primary killed")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the programs of guests/ and compare their output with a native run
    Guests(battery::Options),
    /// Run programs that nobody here wrote and compare their output with a native run
    Foreign(foreign::Options),
    /// Numbered requests over one TCP connection to the echo server, the primary killed once
    Echo(servers::echo::Options),
    /// INCR, SET and GET over one connection to redis, the primary killed once
    Redis(servers::Options),
    /// incr and cas over several connections to memcached, the primary killed once
    Memcached(servers::memcached::Options),
    /// Requests to sixteen threads that share locks of every kind, the primary killed once
    Threads16(servers::Options),
    /// Compress and decompress a generated file, the primary killed in the middle
    Pbzip2(servers::Options),
    /// GET from Python's threaded HTTP server over kept connections, the primary killed once
    Python(servers::Options),
    /// GET from nginx, a master and two workers, over kept connections; one of them killed, and a reload
    Nginx(servers::nginx::Options),
    /// GET from Apache's httpd, a parent and two children with threads, over kept connections; one of them killed
    Apache(servers::apache::Options),
    /// GET through HAProxy with four threads over kept connections, the primary killed once
    Haproxy(servers::Options),
    /// Fifty MQTT clients of mosquitto that publish to themselves, the primary killed once
    Mosquitto(servers::Options),
    /// Updates and queries over several connections to PostgreSQL, one of its processes killed
    Postgres(servers::Options),
    /// A tree of processes that is ended in five ways at any moment of its start: nothing may be left of it
    Stop(servers::Options),
    /// Both copies of a program, and of a program's child, killed within a millisecond: everybody hears of it at once
    Both(servers::Options),
    /// Signals to a program whose primary is killed at that moment: each is handled once
    Signals(servers::Options),
    /// A shell's pipeline and make -j4, one of their processes killed
    Shell(servers::Options),
}

fn main() -> ExitCode {
    // Guests are here to race: what one run has found out, the next one is to find out as well.
    const RACES: &str = "UNDERSTUDY_RACES";
    if std::env::var_os(RACES).is_none()
        && let Ok(kit) = std::env::current_exe()
    {
        let error = Process::new(kit).args(std::env::args_os().skip(1)).env(RACES, "off").exec();
        eprintln!("kit: {error}");
        return ExitCode::FAILURE;
    }
    let outcome = match Cli::parse().command {
        Command::Guests(options) => battery::run(&options),
        Command::Foreign(options) => foreign::run(&options),
        Command::Echo(options) => servers::echo::run(&options),
        Command::Redis(options) => servers::redis::run(&options),
        Command::Memcached(options) => servers::memcached::run(&options),
        Command::Threads16(options) => servers::threads16::run(&options),
        Command::Pbzip2(options) => servers::pbzip2::run(&options),
        Command::Python(options) => servers::python::run(&options),
        Command::Nginx(options) => servers::nginx::run(&options),
        Command::Apache(options) => servers::apache::run(&options),
        Command::Haproxy(options) => servers::haproxy::run(&options),
        Command::Mosquitto(options) => servers::mosquitto::run(&options),
        Command::Postgres(options) => servers::postgres::run(&options),
        Command::Stop(options) => servers::stop::run(&options),
        Command::Both(options) => servers::both::run(&options),
        Command::Signals(options) => servers::signals::run(&options),
        Command::Shell(options) => servers::shell::run(&options),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("kit: {error:#}");
            ExitCode::from(2)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        super::Cli::command().debug_assert();
    }
}

//! `kit apache`: Apache's httpd with threads, a parent and two children, over kept connections; any of them is killed.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::ValueEnum;

use super::http::{pages, talk};
use super::session::{Session, free_port};
use super::{Failure, Outcome, Run, Title};
use crate::place::installed;

/// Connections at a time.
const CONNECTIONS: u64 = 4;

/// Files that are served.
const PAGES: u64 = 8;

/// Child processes, each with threads.
const CHILDREN: usize = 2;

/// Where Debian keeps the modules.
const MODULES: &str = "/usr/lib/apache2/modules";

/// How httpd spreads connections over threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Mpm {
    /// One thread listens to all idle connections.
    Event,
    /// A thread for each connection.
    Worker,
}

/// Flags of `kit apache`.
#[derive(Clone, Debug, clap::Args)]
#[group(id = "apache-options")]
pub struct Options {
    #[command(flatten)]
    common: super::Options,
    /// The multi-processing module
    #[arg(long, value_enum, default_value_t = Mpm::Event)]
    mpm: Mpm,
    /// The user that children change to, if httpd is started by root
    #[arg(long, default_value = "www-data")]
    user: String,
}

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let mpm = if options.mpm == Mpm::Event { "event" } else { "worker" };
    let title = Title { name: "apache", flags: format!(" --mpm {mpm} --user {}", options.user) };
    super::campaign(&options.common, &title, "apache2", |_| Ok(()), |run| one(run, mpm, &options.user))
}

fn one(run: &Run, mpm: &str, user: &str) -> Result<Outcome, Failure> {
    let port = free_port()?;
    let dir = run.place.fresh("apache")?;
    let pages = pages(&dir.join("pages"), run.seed, PAGES)?;
    let program = program(&dir, port, mpm, user).map_err(|error| Failure::of(error, &dir))?;
    let mut session = Session::start_in(run, dir, program, port, 1 + CHILDREN)?;
    session.allow(
        "unprotected",
        "new children share memory that is newer than the parent's standby, which it costs",
    );
    session.allow(
        "diverged",
        "children take pools from a list, and read what others have written, without a lock",
    );
    let address = session.address;
    session.talk_with_kill(run, CONNECTIONS, |load| talk(run, address, load, &pages, CONNECTIONS))
}

/// The command line, after its configuration has been written.
fn program(dir: &Path, port: u16, mpm: &str, user: &str) -> Result<Vec<OsString>> {
    let apache = installed("apache2").context("apache2 is not installed")?;
    let user = match rustix::process::geteuid().is_root() {
        true => format!("User {user}\nGroup {user}\n"),
        false => String::new(),
    };
    let here = dir.display();
    // As many spare threads as there are: children come and go by the load otherwise, and this counts on two.
    let text = format!(
        "ServerRoot {here}\nServerName localhost\nPidFile {here}/httpd.pid\nDefaultRuntimeDir {here}\n\
         Listen 127.0.0.1:{port}\nLoadModule mpm_{mpm}_module {MODULES}/mod_mpm_{mpm}.so\n\
         LoadModule authz_core_module {MODULES}/mod_authz_core.so\nErrorLog {here}/error.log\nLogLevel info\n\
         DocumentRoot {here}/pages\nMaxKeepAliveRequests 0\nKeepAliveTimeout 600\nStartServers {CHILDREN}\n\
         ThreadsPerChild 16\nMaxRequestWorkers 32\nServerLimit {CHILDREN}\nMinSpareThreads 1\n\
         MaxSpareThreads 32\n{user}<Directory {here}/pages>\n    Require all granted\n</Directory>\n"
    );
    let file = dir.join("httpd.conf");
    fs::write(&file, text)?;
    Ok(vec![apache.into(), "-f".into(), file.into(), "-DFOREGROUND".into()])
}

//! `understudy run`: from the command line to the program's exit code.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::EventfdFlags;
use serde_json::json;
use us_abi::{CONFIG_GATED, CONFIG_RECORDED, ENV_SEED};

use crate::book::Book;
use crate::checkpoint::restore::{Checkpoint, Restored};
use crate::child::Child;
use crate::clock;
use crate::error::Error;
use crate::events::Voice;
use crate::filter;
use crate::folder::{self, GroupFolder, Meta, ProcessId, Recording};
use crate::group::Group;
use crate::handout::Handout;
use crate::history::History;
use crate::limit;
use crate::options::{Options, Verbosity, default_name};
use crate::reap::End;
use crate::recorder::beside::{Beside, Prepared, padded_paths};
use crate::roster::{self, Place, Roster};
use crate::segment::Segment;
use crate::sentry::Shared;
use crate::service::Relay;
use crate::spawn::{self, Layout, Signals, Start};
use crate::{doctor, place, proc, program};

/// Runs one group to its end. Nothing of it is left afterwards, nor after an error.
///
/// # Errors
/// Every error is from before the program started.
pub fn run(options: &Options) -> Result<End, Error> {
    run_from(options, None)
}

/// The same of a program that goes on where its checkpoint was taken, if there is one.
///
/// # Errors
/// As there, and what could not be put together.
pub fn run_from(options: &Options, checkpoint: Option<&Checkpoint>) -> Result<End, Error> {
    spawn::outlive_full_files();
    let mut voice = Voice::open(options.events.as_deref(), options.verbosity)?;
    let path = match checkpoint {
        Some(checkpoint) => checkpoint.head().root().executable.clone().into(),
        None => program::resolve(&options.command[0])?,
    };
    program::check(&options.command[0], &path)?;
    // Our failure costs protection. Nobody could find us, so nobody needs us either.
    let alone = |voice: &Voice, why: &str| {
        if options.is_required || checkpoint.is_some() {
            let program = options.command[0].to_string_lossy().into_owned();
            return Err(Error::CannotProtect { program, reason: why.into() });
        }
        let name = default_name(&options.command[0]);
        voice.say(Verbosity::Normal, &format!("{name} runs unprotected: {why}"));
        Err(spawn::become_program(&path, &options.command))
    };
    if let Some(why) = surroundings() {
        return alone(&voice, &why);
    }
    if options.is_required && program::has_sanitizer(&path) {
        return alone(&voice, "it is built with a sanitizer, whose runtime replaces the same functions");
    }
    let library = program::library()?;
    let ready = make_group(options).and_then(|made| Ok((made, take_ears()?)));
    let (Made { folder, segment, roster, mut meta }, (signals, bell)) = match ready {
        Ok(ready) => ready,
        Err(cause) if options.record.is_none() && is_the_places_fault(&cause) => {
            return alone(&voice, &explain(&cause));
        }
        Err(cause) => return Err(cause),
    };
    voice.set_group(&folder.name);

    let relay = Relay::open();
    // Last, so that what has failed before leaves no file.
    let recorded = options.record.as_deref();
    let recorded = recorded.map(|file| Prepared::new(options, file, &path, &library)).transpose()?;
    let handout = folder.segment_path().map_err(std::io::Error::other).and_then(|path| match &recorded {
        None => Handout::open(&path, options.config(0)),
        Some(_) => Handout::open(&padded_paths(&library, &path).1, options.config(CONFIG_RECORDED)),
    });
    let started = match checkpoint {
        Some(checkpoint) => checkpoint.put_back().and_then(|told| {
            told.into_iter().for_each(|told| voice.say(Verbosity::Normal, &told));
            checkpoint.start(&folder, &segment, &roster, || options.config(0))
        }),
        None => start(options, &path, &library, &folder, (&segment, &roster), &signals, relay.as_ref())
            .map(|child| vec![Restored::root(child)]),
    };
    let (primary, others) = match started {
        Ok(mut all) => (all.remove(0).child, all),
        // Of the file of a recording something is known already.
        Err(cause @ Error::System { .. }) if recorded.is_none() => {
            drop((segment, roster, folder));
            return alone(&voice, &explain(&cause));
        }
        Err(cause) => {
            recorded.into_iter().for_each(Prepared::discard);
            return Err(cause);
        }
    };
    spawn::let_go_of_inherited();
    meta.primary = ProcessId::of(primary.pid);
    let known_as = checkpoint.map_or(primary.pid, |checkpoint| checkpoint.head().root().pid);
    (meta.root, meta.lead) = (known_as, known_as);
    let place = roster.find(known_as).map(|(place, _)| place);
    let handout =
        handout.and_then(|handout| handout.start(Arc::clone(&folder.dir), Arc::clone(&roster), primary.pid));
    if let Err(cause) = handout {
        let line = format!("{}: who changes the user or the root cannot join later: {cause}", folder.name);
        voice.say(Verbosity::Verbose, &line);
    }
    let bell = Arc::new(bell);
    let beside = recorded.and_then(|recorded| {
        let started = Beside::start(recorded, &folder, primary.pid, Arc::clone(&roster), Arc::clone(&bell));
        started
            .inspect_err(|cause| {
                // The program runs, and its log would wait for nobody.
                segment.header().recorder.0.store(us_abi::recorder::STOPPED, Ordering::Release);
                voice.say(
                    Verbosity::Normal,
                    &format!("{}: nothing is recorded: {}", folder.name, explain(cause)),
                );
            })
            .ok()
    });
    let shared = Arc::new(Shared {
        segment,
        place: place.unwrap_or(Place { at: roster::ROOT, pid: known_as, born_ns: 0 }),
        roster,
        primary: Mutex::new(Some(primary.clone())),
        standby_pid: AtomicU32::new(0),
        choice: std::sync::Mutex::new(()),
        bell,
        done: AtomicBool::new(false),
        scores: Mutex::default(),
        relieved: AtomicU32::new(0),
    });
    let book = Book { folder: &folder, meta, history: History::default(), voice, explaining: Vec::new() };
    let mut group = Group::new(book, shared, signals, primary, options.probe.clone(), beside, relay);
    others.into_iter().for_each(|other| group.go_on_with(other));
    Ok(group.until_the_end())
}

/// What is around us that nothing can be protected in, in words.
fn surroundings() -> Option<String> {
    if let Some(call) = filter::obstacle() {
        return Some(format!("a filter of system calls (seccomp) blocks {call}"));
    }
    proc::obstacle().or_else(limit::tight).map(String::from).or_else(doctor::old_libc)
}

/// Makes sure that an orphan of the program finds us, and that no signal slips through.
fn take_ears() -> Result<(Signals, OwnedFd), Error> {
    let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|cause| Error::system("make an eventfd", cause))?;
    let signals = spawn::take_signals()?;
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|cause| Error::system("adopt the program's orphans", cause))?;
    Ok((signals, bell))
}

/// What a group has before its program starts.
struct Made {
    folder: GroupFolder,
    segment: Segment,
    roster: Arc<Roster>,
    meta: Meta,
}

/// Makes the group's folder and its files; nothing is left after an error.
fn make_group(options: &Options) -> Result<Made, Error> {
    let folder = match &options.name {
        Some(name) => GroupFolder::named(name)?,
        None => GroupFolder::first_free(&default_name(&options.command[0]))?,
    };
    let is_gated = options.cluster.as_ref().is_some_and(|cluster| cluster.gate.is_some());
    let flags =
        if options.record.is_some() { CONFIG_RECORDED } else { 0 } | if is_gated { CONFIG_GATED } else { 0 };
    let segment = Segment::create(&folder.dir, folder::SEGMENT, options.config(flags))?;
    let roster = Arc::new(Roster::create(&folder.dir)?);
    if options.order == "serial" {
        // One thread at a time: of processes that share memory, too.
        roster.family().small.store(1, Ordering::Release);
    }
    let meta = meta(options);
    folder.write_json("meta.json", &meta)?;
    Ok(Made { folder, segment, roster, meta })
}

/// Whether a group cannot be made because its place is full, missing or not writable: nothing that the user has asked wrongly.
fn is_the_places_fault(cause: &Error) -> bool {
    matches!(cause, Error::File { .. } | Error::System { .. } | Error::NothingRun(_))
}

fn start(
    options: &Options,
    path: &Path,
    library: &Path,
    folder: &GroupFolder,
    (segment, roster): (&Segment, &Roster),
    signals: &Signals,
    relay: Option<&Relay>,
) -> Result<Child, Error> {
    let segment_path = folder.segment_path()?;
    // A replay has to be able to lie where the recorded program lay, and so has another run with the same seed.
    let layout = (options.record.is_some() || options.seed.is_some()).then(Layout::default);
    let mut environment = match layout {
        Some(_) => {
            let (library, segment) = padded_paths(library, &segment_path);
            spawn::environment(&library, &segment)
        }
        None => spawn::environment(library, &segment_path),
    };
    environment.extend(options.seed.map(|seed| format!("{ENV_SEED}={seed}").into()));
    if let Some(relay) = relay {
        relay.enter(&mut environment);
    }
    let pid = spawn::start(
        &Start {
            path,
            command: &options.command,
            environment: &environment,
            layout: layout.as_ref(),
            cpus: options.cpus.as_ref(),
            mask: &signals.previous,
        },
        segment,
        Some(roster),
    )?;
    Child::of_child(pid).ok_or_else(|| {
        // Unreaped, so the pid is still its own.
        spawn::kill_child(pid);
        Error::system("watch the program", std::io::Error::last_os_error())
    })
}

pub(crate) fn meta(options: &Options) -> Meta {
    Meta {
        version: 1,
        program: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        order: options.order.clone(),
        since: clock::now_text(),
        since_ns: clock::monotonic_ns(),
        supervisor: ProcessId::of(std::process::id()),
        root: 0,
        lead: 0,
        primary: ProcessId::default(),
        standbys: options.standbys,
        reprotect: options.reprotect && options.standbys > 0,
        probe: options.probe.as_ref().map(|probe| probe.command.to_string_lossy().into_owned()),
        recording: options.record.as_deref().map(Recording::into),
    }
}

/// Says why nothing was run, as `run` would say it.
pub fn explain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(next) = cause {
        text.push_str(&format!(": {next}"));
        cause = next.source();
    }
    match error {
        Error::File { path, cause, .. } if place::is_full(path, cause) => {
            text.push_str(&format!("; the way out is {}", place::WAY_OUT));
        }
        _ => {}
    }
    text
}

/// The fields of a `started` event.
pub(crate) fn started(meta: &Meta) -> serde_json::Value {
    json!({ "program": meta.program, "primary": meta.primary.pid, "supervisor": meta.supervisor.pid })
}

/// What is said at the start with `-v`.
pub(crate) fn say_started(voice: &Voice, name: &str, meta: &Meta) {
    voice.say(Verbosity::Verbose, &format!("{name} started, pid {}", meta.primary.pid));
}

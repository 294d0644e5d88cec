//! Another version of the runtime is put into a running program.
//!
//! Nothing of the program moves: its processes, descriptors and memory stay what they are. All threads of a process park, as for a
//! standby; the new version is [linked](link) beside the one that runs, on the same data; the ways into the older versions then lead
//! to the new one, and the program goes on. A call that has begun ends in the version that it has begun in. The standbys are of the
//! older version: they are ended, and new ones are made.

mod library;
mod link;
mod steps;

use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use serde_json::{Value, json};
use us_abi::upgrade::BERTH_BYTES;
use us_abi::{SegmentHeader, VERSIONS_MAX};

use crate::checkpoint::take::{self, One, Refusal};
use crate::dir::Dir;
use crate::error::Error;
use crate::folder::Found;
use crate::{program, request};
use library::BUILD_BYTES;
pub(crate) use library::Library;
use link::{PAGE, Place};

/// No library is larger.
const LIBRARY_BYTES_MAX: u64 = 256 << 20;

/// What the name of a file with steps begins with; behind it is the number of the process.
pub(crate) const STEPS: &str = "upgrade.";

type Build = [u8; BUILD_BYTES];

/// The versions that a supervisor knows: that which it was started with, and those that it was given.
pub(crate) struct Versions {
    /// The first one's file, which may have another content at its path by now.
    first: Option<File>,
    known: Vec<Rc<Library>>,
}

impl Versions {
    pub(crate) fn new() -> Versions {
        let first = program::library().ok().and_then(|path| File::open(path).ok());
        Versions { first, known: Vec::new() }
    }

    fn find(&mut self, build: Build) -> Option<Rc<Library>> {
        if let Some(known) = self.known.iter().find(|known| known.build == build) {
            return Some(Rc::clone(known));
        }
        let library = self.first.take().and_then(|file| read(file).ok())?;
        self.known.push(Rc::new(library));
        self.known.iter().find(|known| known.build == build).map(Rc::clone)
    }

    /// Takes the version that a caller has in a file. It is [kept](Self::keep) once it is in a process.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn take(&mut self, caller: &UnixStream, number: &str) -> Result<Rc<Library>, String> {
        let file = request::callers(caller, number)?;
        let file = File::open(file).map_err(|cause| format!("cannot open the library: {cause}"))?;
        let library = read(file)?;
        Ok(self.find(library.build).unwrap_or_else(|| Rc::new(library)))
    }

    /// There is a process that has it.
    pub(crate) fn keep(&mut self, library: &Rc<Library>) {
        if self.known.iter().all(|known| known.build != library.build) {
            self.known.push(Rc::clone(library));
        }
    }
}

/// The beginning of a build id, as `status` shows it.
fn digits(build: &Build) -> String {
    build.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

fn read(mut file: File) -> Result<Library, String> {
    let mut bytes = Vec::new();
    let read = file.rewind().and_then(|()| (&file).take(LIBRARY_BYTES_MAX).read_to_end(&mut bytes));
    read.map_err(|cause| format!("cannot read the library: {cause}"))?;
    Library::parse(bytes).map_err(|why| format!("it is no runtime that can be put into a program: {why}"))
}

/// What a process says of the versions in it: where each begins, and its build id.
fn versions_of(header: &SegmentHeader) -> Vec<(u64, Build)> {
    let versions = &header.versions;
    let count = (versions.count.load(Ordering::Acquire) as usize).min(VERSIONS_MAX);
    let read = |version: &us_abi::upgrade::Version| {
        let bytes: Vec<u8> =
            version.build.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let mut build = [0; BUILD_BYTES];
        build.copy_from_slice(&bytes[..BUILD_BYTES]);
        (version.base.load(Ordering::Relaxed), build)
    };
    versions.all[..count].iter().map(read).collect()
}

/// A process for which everything is ready.
pub(crate) struct Ready {
    file: String,
}

/// Links a version for a process, and writes down how it comes there. `None` if it is there already.
///
/// # Errors
/// Why it cannot be put there. Nothing has happened to the process.
pub(crate) fn prepare(
    one: &One,
    new: &Library,
    versions: &mut Versions,
    dir: &Dir,
) -> Result<Option<Ready>, String> {
    let header = one.segment.header();
    let there = versions_of(header);
    if there.last().is_some_and(|(_, build)| *build == new.build) {
        return Ok(None);
    }
    let libraries = there.iter().map(|(_, build)| {
        versions.find(*build).ok_or_else(|| {
            format!(
                "its supervisor has not seen the version {} that it runs: name that first (--library)",
                digits(build)
            )
        })
    });
    let libraries = libraries.collect::<Result<Vec<_>, String>>()?;
    let places: Vec<Place> = libraries
        .iter()
        .zip(&there)
        .enumerate()
        .map(|(at, (library, (base, _)))| Place { library, base: *base, is_first: at == 0 })
        .collect();
    let (first, last) = places.first().zip(places.last()).ok_or("it has no runtime")?;
    link::compare(last.library, new)?;
    let berth = header.versions.berth.load(Ordering::Relaxed);
    let base = if places.len() == 1 { berth } else { last.end() }.next_multiple_of(PAGE);
    let place = Place { library: new, base, is_first: false };
    if new.needs() > BERTH_BYTES as u64 {
        return Err("it is no runtime that can be put into a program: it is too large".into());
    }
    if places.len() == VERSIONS_MAX || place.end() > berth + BERTH_BYTES as u64 {
        return Err(format!("it has had {} versions, and has no room for another", places.len()));
    }
    let memory = crate::proc::open(one.primary, "mem")
        .map_err(|cause| format!("cannot read process {}: {cause}", one.primary))?;
    let peek = |at: u64| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, at).ok().map(|()| u64::from_le_bytes(word))
    };
    let linked = link::link(first, &place, &peek)?;
    let jumps = places.iter().map(|old| Ok((old.text(), link::jumps(old, &place)?)));
    let jumps = jumps.collect::<Result<Vec<_>, String>>()?;
    let then = new.ways().first().map_or(0, |way| place.of(*way));
    let bytes = steps::write(&linked, base, &jumps, then)?;
    let name = format!("{STEPS}{}", one.place.pid);
    dir.replace(&name, &bytes).map_err(|cause| format!("cannot write {name}: {cause}"))?;
    Ok(Some(Ready { file: name }))
}

/// Puts it there. The milliseconds in which the process stood still, at the most.
///
/// # Errors
/// Why it is not there; the process goes on as it was.
pub(crate) fn perform(one: &mut One, ready: &Ready, dir: &Dir) -> Result<f64, Refusal> {
    let began = Instant::now();
    let done = take::upgrade(one);
    let stood = began.elapsed().as_secs_f64() * 1e3;
    let _ = dir.remove(&ready.file);
    done.map(|()| stood)
}

/// Nobody wants it any more.
pub(crate) fn discard(ready: &Ready, dir: &Dir) {
    let _ = dir.remove(&ready.file);
}

/// Asks a group for another version of its runtime: that in `library`.
///
/// # Errors
/// What the supervisor says against it.
pub fn ask(group: &Found, library: &Path) -> Result<Value, Error> {
    let file = File::open(library).map_err(|cause| Error::file("open", library, cause))?;
    request::ask_for(group, &format!("{} {}", request::UPGRADE, file.as_raw_fd()), None)
}

/// The answer: how many processes have another version, and how long each stood still.
pub(crate) fn answer(new: &Library, stood: &[f64], had: usize) -> Value {
    json!({
        "version": new.version,
        "build": digits(&new.build),
        "processes": stood.len(),
        "had_it": had,
        "paused_ms": stood,
    })
}

//! A guest: its source, what its header comment promises, and its binary.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context, Result, bail};

use crate::place::Place;

/// How a guest ends when all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It exits with this code.
    Code(i32),
    /// It dies of this signal.
    Signal(i32),
}

impl End {
    /// The exit code that `understudy run` must show for it.
    pub fn as_code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// One program of `guests/`.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The file name without its ending.
    pub name: String,
    /// The source file.
    pub source: PathBuf,
    /// Where its binary is or will be.
    pub binary: PathBuf,
    /// Its directives.
    pub wants: Directives,
    /// What it shows, in its own words.
    pub shows: String,
}

/// What a guest's `// kit:` lines ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directives {
    /// Output may differ from run to run: only the status and the last line are checked.
    pub varies: bool,
    /// It makes child processes that are protected too, and no kill comes before one is.
    pub tree: bool,
    /// How it must end.
    pub end: End,
    /// Why it is not run with kills, if it is not.
    pub no_kill: Option<String>,
    /// Why it is not run under protection at all, if it is not.
    pub no_protect: Option<String>,
    /// Why it is not recorded and replayed, if it is not.
    pub no_record: Option<String>,
    /// Why it is not run with faults at named points.
    pub no_faults: Option<String>,
    /// Why a standby that is made of it while it runs may diverge, if it may: a run with a recording besides then shows
    /// that this costs the recording nothing.
    pub stale: Option<String>,
    /// Why no checkpoint of it can be compared.
    pub no_checkpoint: Option<String>,
    /// Why it is recorded with one thread at a time, if it is.
    pub serial: Option<String>,
    /// Why it is protected with one thread at a time, if it is.
    pub turns: Option<String>,
    /// Why it is protected with its atomic instructions in order, if it is.
    pub schedule: Option<String>,
    /// Why the order of its doors does not repeat it, if it does not and neither of the two above is asked for.
    pub races: Option<String>,
    /// Why only primaries are struck, if it is so.
    pub family: Option<String>,
    /// Why no other guest runs beside it, if none may.
    pub alone: Option<String>,
    /// Lifecycle events that are no failure for this guest, each with the reason.
    pub allowed: Vec<(String, String)>,
    /// What it reads from stdin.
    pub stdin: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
}

impl Default for Directives {
    fn default() -> Self {
        Self {
            varies: false,
            tree: false,
            end: End::Code(0),
            no_kill: None,
            no_protect: None,
            no_record: None,
            no_faults: None,
            stale: None,
            no_checkpoint: None,
            serial: None,
            turns: None,
            schedule: None,
            races: None,
            family: None,
            alone: None,
            allowed: Vec::new(),
            stdin: None,
            args: Vec::new(),
        }
    }
}

impl Directives {
    /// Reads the directives from the comment lines at the top of a source file.
    ///
    /// An unknown or incomplete directive is an error: a mistyped one would silently check less.
    pub fn parse(source: &str) -> Result<Self> {
        let mut wants = Self::default();
        for line in source.lines().take_while(|line| line.starts_with("//") || line.trim().is_empty()) {
            if let Some(text) = line.trim_start_matches('/').trim().strip_prefix("kit:") {
                wants.apply(text.trim()).with_context(|| format!("in \"{line}\""))?;
            }
        }
        Ok(wants)
    }

    /// Why the order of doors alone does not repeat the guest.
    pub fn unordered(&self) -> Option<&str> {
        self.turns.as_deref().or(self.schedule.as_deref()).or(self.races.as_deref())
    }

    fn apply(&mut self, text: &str) -> Result<()> {
        let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let rest = rest.trim();
        match word {
            "varies" => self.varies = true,
            "tree" => self.tree = true,
            "exit" => self.end = End::Code(rest.parse().context("exit needs a code")?),
            "signal" => self.end = End::Signal(rest.parse().context("signal needs a number")?),
            "no-kill" => self.no_kill = Some(reason(rest)?),
            "no-protect" => self.no_protect = Some(reason(rest)?),
            "serial" => self.serial = Some(reason(rest)?),
            "turns" => self.turns = Some(reason(rest)?),
            "schedule" => self.schedule = Some(reason(rest)?),
            "races" => self.races = Some(reason(rest)?),
            "family" => self.family = Some(reason(rest)?),
            "alone" => self.alone = Some(reason(rest)?),
            "no-checkpoint" => self.no_checkpoint = Some(reason(rest)?),
            "stale" => self.stale = Some(reason(rest)?),
            "no-record" => self.no_record = Some(reason(rest)?),
            "no-faults" => self.no_faults = Some(reason(rest)?),
            "allow" => {
                let (event, why) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
                self.allowed.push((event.to_owned(), reason(why)?));
            }
            "stdin" => self.stdin = Some(rest.replace("\\n", "\n")),
            "args" => self.args = rest.split_whitespace().map(str::to_owned).collect(),
            other => bail!("unknown directive {other:?}"),
        }
        Ok(())
    }
}

fn reason(text: &str) -> Result<String> {
    let text = text.trim();
    if text.is_empty() {
        bail!("a reason is required");
    }
    Ok(text.to_owned())
}

/// The first sentence of the header comment. A guest that does not say what it shows and what would break
/// it is not accepted.
fn shows(source: &str) -> Result<String> {
    let mut lines = source.lines();
    let first = lines.next().unwrap_or_default();
    let Some(shows) = first.strip_prefix("// Shows: ") else {
        bail!("the first line is not \"// Shows: …\"")
    };
    if !lines.take_while(|line| line.starts_with("//")).any(|line| line.starts_with("// Breaks if: ")) {
        bail!("no line \"// Breaks if: …\" in the header comment");
    }
    Ok(shows.to_owned())
}

/// The guests of a folder whose names contain `only` (a full name selects exactly that one), by name.
pub fn discover(place: &Place, folder: &str, only: Option<&str>) -> Result<Vec<Guest>> {
    let dir = place.root.join(folder);
    let mut guests = Vec::new();
    for entry in fs::read_dir(&dir).with_context(|| format!("reading {}", dir.display()))? {
        let source = entry?.path();
        let ending = source.extension().and_then(|e| e.to_str());
        if !matches!(ending, Some("c" | "cc")) {
            continue;
        }
        let name = source.file_stem().and_then(|s| s.to_str()).context("a guest's file name")?.to_owned();
        let text = fs::read_to_string(&source)?;
        let wants = Directives::parse(&text).with_context(|| source.display().to_string())?;
        let shows = shows(&text).with_context(|| source.display().to_string())?;
        guests.push(Guest { binary: place.guests().join(&name), name, source, wants, shows });
    }
    guests.sort_by(|a, b| a.name.cmp(&b.name));
    if let Some(only) = only {
        let exact = guests.iter().any(|guest| guest.name == only);
        guests.retain(|guest| if exact { guest.name == only } else { guest.name.contains(only) });
    }
    Ok(guests)
}

/// Builds what is older than its source, `jobs` compilers at a time. Returns (guest name, compiler's
/// words) of those that failed; a warning is a failure.
pub fn build(place: &Place, guests: &[Guest], jobs: usize) -> Result<Vec<(String, String)>> {
    fs::create_dir_all(place.guests())?;
    let include = place.root.join("guests");
    let headers = [headers_in(&include)?, headers_in(&place.root.join("sdk"))?].concat();
    let stale: Vec<&Guest> = guests.iter().filter(|guest| is_stale(guest, &headers)).collect();
    let queue = Mutex::new(stale.into_iter());
    let failures = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while let Some(guest) = next(&queue) {
                    if let Err(words) = compile(guest, &include) {
                        failures.lock().expect("no panic under this lock").push((guest.name.clone(), words));
                    }
                }
            });
        }
    });
    Ok(failures.into_inner().expect("no panic under this lock"))
}

fn next<'a>(queue: &Mutex<impl Iterator<Item = &'a Guest>>) -> Option<&'a Guest> {
    queue.lock().expect("no panic under this lock").next()
}

fn headers_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.map(|entry| Ok(entry?.path()));
    let paths = entries.collect::<std::io::Result<Vec<_>>>()?;
    Ok(paths.into_iter().filter(|path| path.extension().is_some_and(|end| end == "h")).collect())
}

/// Older than its source or than any header; a file whose time cannot be read counts as newer.
fn is_stale(guest: &Guest, headers: &[PathBuf]) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let Some(built) = modified(&guest.binary) else { return true };
    let mut sources = headers.iter().chain([&guest.source]);
    sources.any(|source| modified(source).is_none_or(|changed| changed > built))
}

fn compile(guest: &Guest, include: &Path) -> Result<(), String> {
    let cxx = guest.source.extension().is_some_and(|e| e == "cc");
    let (variable, standard) = if cxx { ("CXX", "c++") } else { ("CC", "cc") };
    let compiler = std::env::var(variable).unwrap_or_else(|_| standard.to_owned());
    // Built beside and renamed: a kit that runs at the same time never starts half a binary.
    let fresh = guest.binary.with_extension(format!("{}.new", std::process::id()));
    let output = Command::new(&compiler)
        .args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"])
        .arg(include)
        .arg(&guest.source)
        .arg("-o")
        .arg(&fresh)
        .output()
        .map_err(|error| format!("{compiler}: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    fs::rename(&fresh, &guest.binary).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{Directives, End};

    #[test]
    fn directives_are_read_from_the_top_only() {
        let text = "// Shows: x\n// kit: varies\n// kit: tree\n// kit: signal 15\n// kit: stdin a\\nb\n// kit: args A B\n\
                    // kit: no-kill a reason\n// kit: allow diverged planted\nint main;\n// kit: exit 3\n";
        let wants = Directives::parse(text).expect("valid");
        assert!(wants.varies && wants.tree);
        assert_eq!(wants.end, End::Signal(15));
        assert_eq!(wants.end.as_code(), 143);
        assert_eq!(wants.stdin.as_deref(), Some("a\nb"));
        assert_eq!(wants.args, ["A", "B"]);
        assert_eq!(wants.no_kill.as_deref(), Some("a reason"));
        assert_eq!(wants.allowed, [("diverged".to_owned(), "planted".to_owned())]);
    }

    #[test]
    fn mistakes_are_errors() {
        for text in ["// kit: vary", "// kit: no-kill", "// kit: exit x", "// kit: allow diverged"] {
            assert!(Directives::parse(text).is_err(), "{text}");
        }
    }
}

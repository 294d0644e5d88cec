//! `kit guests`: every guest in every mode asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::guest::{self, Guest};
use crate::place::{PlaceOptions, own_path};
use crate::process::Sink;
use crate::report::Report;
use crate::rng::Rng;
use crate::strike::{Plan, Target};
use crate::trial::{Ordeal, Reference, Stage, Verdict};

mod moments;

/// How guests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Mode {
    /// Without Understudy
    Native,
    /// With --standbys 0: under the runtime, and nobody follows
    Bare,
    /// Under protection, nothing killed
    Protected,
    /// Under protection, the primary killed at a random moment
    Kill,
    /// Under protection, primaries and standbys killed at random moments, one after the other
    Storm,
    /// Recorded, and the recording replayed
    Record,
    /// Recorded under protection, once with nothing killed and once with copies killed at random moments, and replayed
    Beside,
    /// Under protection, a checkpoint taken at a random moment, and the program ended there and put together again from it
    Checkpoint,
    /// Recorded with its states besides, and replayed from several of them
    Middle,
    /// Under protection, with other versions of the runtime put into it at random moments
    Upgrade,
    /// Under protection by a library whose copies die and are late at named points (see --faulty)
    Faults,
    /// All of them but the last four, one after the other
    All,
}

impl Mode {
    /// As on the command line.
    const fn name(self) -> &'static str {
        match self {
            Mode::Native => "native",
            Mode::Bare => "bare",
            Mode::Protected => "protected",
            Mode::Kill => "kill",
            Mode::Storm => "storm",
            Mode::Record => "record",
            Mode::Beside => "beside",
            Mode::Checkpoint => "checkpoint",
            Mode::Middle => "middle",
            Mode::Upgrade => "upgrade",
            Mode::Faults => "faults",
            Mode::All => "all",
        }
    }

    /// Whether copies are killed in it at random moments.
    const fn races(self) -> bool {
        matches!(
            self,
            Mode::Kill | Mode::Storm | Mode::Beside | Mode::Checkpoint | Mode::Upgrade | Mode::Faults
        )
    }
}

/// Flags of `kit guests`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    #[command(flatten)]
    place: PlaceOptions,
    /// Modes to run; a native run always comes first, as the reference
    #[arg(long, value_enum, default_value = "all")]
    mode: Mode,
    /// Only guests whose name contains this; a full name selects that one alone
    #[arg(long, value_name = "SUBSTR")]
    only: Option<String>,
    /// Runs of each guest and mode
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// The first seed; the next runs use the numbers after it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Guests run at a time
    #[arg(long, default_value_t = 1)]
    jobs: usize,
    /// Seconds that one run may take
    #[arg(long, value_name = "S", default_value_t = 60)]
    timeout: u64,
    /// Kills in one run of --mode kill; the second and later ones wait for the new standby
    #[arg(long, default_value_t = 1)]
    kills: usize,
    /// The library of --mode faults, built with the runtime's feature of that name [default: target/faults/release/libunderstudy.so
    /// of the source tree]
    #[arg(long, value_name = "PATH")]
    faulty: Option<PathBuf>,
    /// Runs of each guest in --mode storm
    #[arg(long, value_name = "N", default_value_t = 1)]
    storms: u64,
    /// Races that may be lost: a run with kills that fails is made five times more at the end, and forgiven if no more than
    /// one of those fails; more of them than this fail
    #[arg(long, value_name = "N", default_value_t = 0)]
    unsteady: usize,
    /// Standbys of each guest; with more than one, storms kill the one that takes over as well
    #[arg(long, value_name = "N", default_value_t = 1)]
    standbys: u32,
    /// An order for every guest; of those that race "deterministic" leaves out the ones that it does not put in order
    #[arg(long)]
    order: Option<String>,
    /// List the guests and what each shows, and stop
    #[arg(long)]
    list: bool,
}

/// How often a kill that came too late is tried again, each time within what the last run showed.
const RETRIES: u32 = 6;

/// Kills of one run with a recording besides, at most.
const BESIDE_KILLS: usize = 5;

/// How long after its primary one that is to take over is killed, at most: on its way to that, or a moment later.
const HEIR_MAX: Duration = Duration::from_millis(4);

/// Kills of one storm at most.
const STORM_MAX: usize = 40;

/// Runs the command. True if nothing failed.
pub fn run(options: &Options) -> Result<bool> {
    let place = options.place.place()?;
    let guests = guest::discover(&place, "guests", options.only.as_deref())?;
    if guests.is_empty() {
        anyhow::bail!("no guest is named like {:?}", options.only.as_deref().unwrap_or(""));
    }
    if options.list {
        for guest in &guests {
            println!("{}\n    {}", guest.name, guest.shows);
        }
        return Ok(true);
    }
    let understudy = options.place.understudy(&place);
    let report = Report::default();
    let broken = guest::build(&place, &guests, options.jobs.max(2))?;
    for (name, words) in &broken {
        report.fail(&format!("{name} build"), words, "", "the compiler call above");
    }
    let stage = Stage {
        place: &place,
        understudy: understudy.as_deref().ok(),
        limit: Duration::from_secs(options.timeout),
        standbys: options.standbys,
        order: options.order.as_deref(),
    };
    let suspects = Mutex::default();
    let default = || place.root.join("target/faults/release/libunderstudy.so");
    let faulty = options.faulty.clone().unwrap_or_else(default).canonicalize().ok();
    let session = Session {
        options,
        stage,
        understudy: &understudy,
        faulty: faulty.as_deref(),
        report: &report,
        suspects: &suspects,
    };
    let built = guests.iter().filter(|guest| !broken.iter().any(|(name, _)| *name == guest.name));
    let (alone, beside): (Vec<_>, Vec<_>) = built.partition(|guest| guest.wants.alone.is_some());
    session.judge_all(beside, options.jobs);
    session.judge_all(alone, 1);
    let suspects = std::mem::take(&mut *suspects.lock().expect("no panic under this lock"));
    for suspect in suspects {
        session.clear_up(&suspect)?;
    }
    Ok(report.finish(options.unsteady))
}

/// A run with kills that has failed once.
struct Suspect<'a> {
    guest: &'a Guest,
    mode: Mode,
    seed: u64,
}

/// How often such a run is made again.
const SECOND_RUNS: u64 = 5;

/// How many of those may fail: what is lost once in fifty runs is sometimes lost twice.
const SECOND_LOSSES: u32 = 1;

struct Session<'a> {
    options: &'a Options,
    stage: Stage<'a>,
    understudy: &'a Result<PathBuf, String>,
    faulty: Option<&'a Path>,
    report: &'a Report,
    suspects: &'a Mutex<Vec<Suspect<'a>>>,
}

impl<'a> Session<'a> {
    fn wants(&self, mode: Mode) -> bool {
        self.options.mode == mode || self.options.mode == Mode::All
    }

    /// Runs these in the modes that are asked for, `jobs` at a time.
    fn judge_all(&self, guests: Vec<&'a Guest>, jobs: usize) {
        let queue = Mutex::new(guests.into_iter());
        let work = || {
            loop {
                let next = queue.lock().expect("no panic under this lock").next();
                let Some(guest) = next else { return };
                if let Err(error) = self.all_modes(guest) {
                    let repeat = self.repeat(guest, Mode::All, 1);
                    self.report.fail(&guest.name, &format!("{error:#}"), "", &repeat);
                }
            }
        };
        thread::scope(|scope| (0..jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    }

    /// Makes a run that has failed again, several times. What fails in more than one of them has failed.
    fn clear_up(&self, suspect: &Suspect<'a>) -> Result<()> {
        let Suspect { guest, mode, seed } = *suspect;
        let options = Options { mode, seed, seeds: SECOND_RUNS, unsteady: 0, ..self.options.clone() };
        let (report, none) = (Report::default(), Mutex::default());
        let again = Session {
            options: &options,
            stage: self.stage,
            understudy: self.understudy,
            faulty: self.faulty,
            report: &report,
            suspects: &none,
        };
        again.all_modes(guest)?;
        self.report.cleared(&guest.name, report.failed() <= SECOND_LOSSES);
        Ok(())
    }

    fn all_modes(&self, guest: &'a Guest) -> Result<()> {
        let Some(reference) = self.reference(guest)? else { return Ok(()) };
        if self.wants(Mode::Native) {
            self.native_again(guest, &reference)?;
        }
        if self.wants(Mode::Bare) && !self.skipped(guest, Mode::Bare, None) {
            let count = if self.options.mode == Mode::Bare { self.options.seeds } else { 1 };
            for seed in (self.options.seed..).take(count.max(1) as usize) {
                let verdict = self.stage.bare(guest, sink(seed), &reference)?;
                self.judge(guest, Mode::Bare, seed, verdict)?;
            }
        }
        let mut window = reference.elapsed;
        if self.wants(Mode::Protected) && !self.skipped(guest, Mode::Protected, None) {
            for seed in self.seeds() {
                if let Some(active) = self.protected_once(guest, &reference, seed)? {
                    window = active;
                }
            }
        }
        if self.wants(Mode::Kill) && !self.skipped(guest, Mode::Kill, guest.wants.no_kill.as_deref()) {
            for seed in self.seeds() {
                self.kill_once(guest, &reference, window, seed)?;
            }
        }
        if self.wants(Mode::Record) && !self.skipped(guest, Mode::Record, guest.wants.no_record.as_deref()) {
            // What happens is decided in one run: a long battery of all modes needs fewer of them.
            let count = if self.options.mode == Mode::Record { self.options.seeds } else { 1 };
            for seed in (self.options.seed..).take(count.max(1) as usize) {
                let verdict = self.stage.recorded(guest, sink(seed), &reference)?;
                self.judge(guest, Mode::Record, seed, verdict)?;
            }
        }
        if self.wants(Mode::Beside) && !self.skipped(guest, Mode::Beside, guest.wants.no_kill.as_deref()) {
            let count = if self.options.mode == Mode::Beside { self.options.seeds } else { 1 };
            for seed in (self.options.seed..).take(count.max(1) as usize) {
                self.beside_once(guest, &reference, window, seed)?;
            }
        }
        if self.wants(Mode::Storm) && !self.skipped(guest, Mode::Storm, guest.wants.no_kill.as_deref()) {
            // One storm has many kills: a long run of all modes needs fewer of them than of the others.
            let count =
                if self.options.mode == Mode::Storm { self.options.seeds } else { self.options.storms };
            for seed in (self.options.seed..).take(count.max(1) as usize) {
                self.storm_once(guest, &reference, window, seed)?;
            }
        }
        if self.options.mode == Mode::Checkpoint
            && !self.skipped(guest, Mode::Checkpoint, guest.wants.no_checkpoint.as_deref())
        {
            let count = if self.options.mode == Mode::Checkpoint { self.options.seeds } else { 1 };
            for seed in (self.options.seed..).take(count.max(1) as usize) {
                self.checkpoint_once(guest, &reference, window, seed)?;
            }
        }
        if self.options.mode == Mode::Upgrade
            && !self.skipped(guest, Mode::Upgrade, guest.wants.no_kill.as_deref())
        {
            for seed in self.seeds() {
                self.upgrades_once(guest, &reference, window, seed)?;
            }
        }
        if self.options.mode == Mode::Middle
            && !self.skipped(guest, Mode::Middle, guest.wants.no_record.as_deref())
        {
            for seed in (self.options.seed..).take(self.options.seeds.max(1) as usize) {
                let (verdict, states) = self.stage.middle(guest, sink(seed), &reference)?;
                match verdict {
                    Verdict::Pass { elapsed, .. } => {
                        let detail = format!("seed {seed}, {states} states, {elapsed:.0?}");
                        self.report.pass(&format!("{} middle", guest.name), &detail);
                    }
                    other => _ = self.judge(guest, Mode::Middle, seed, other)?,
                }
            }
        }
        let why_not = guest.wants.no_kill.as_deref().or(guest.wants.no_faults.as_deref());
        if self.options.mode == Mode::Faults && !self.skipped(guest, Mode::Faults, why_not) {
            for seed in self.seeds() {
                self.faults_once(guest, &reference, seed)?;
            }
        }
        Ok(())
    }

    fn seeds(&self) -> std::ops::Range<u64> {
        self.options.seed..self.options.seed + self.options.seeds.max(1)
    }

    fn skipped(&self, guest: &Guest, mode: Mode, why_not: Option<&str>) -> bool {
        let missing = self.understudy.as_ref().err().map(String::as_str);
        let races = self.stage.order.filter(|order| *order == "deterministic").and(guest.wants.unordered());
        match missing.or(races).or(guest.wants.no_protect.as_deref()).or(why_not) {
            Some(why) => {
                self.report.skip(&format!("{} {}", guest.name, mode.name()), why);
                true
            }
            None => false,
        }
    }

    /// The first native run. Without it there is nothing to compare with: the guest's other modes are
    /// not run and it counts as one failure.
    fn reference(&self, guest: &'a Guest) -> Result<Option<Reference>> {
        match self.stage.native(guest, Sink::File, None)? {
            Verdict::Pass { elapsed, stdout, .. } => {
                let dir = self.stage.place.target.join("kit/reference");
                fs::create_dir_all(&dir)?;
                fs::write(dir.join(&guest.name), &stdout)?;
                Ok(Some(Reference { stdout, elapsed }))
            }
            failed => {
                self.judge(guest, Mode::Native, self.options.seed, failed)?;
                Ok(None)
            }
        }
    }

    /// Native runs after the first must show the same bytes: that is what makes a guest a guest.
    fn native_again(&self, guest: &'a Guest, reference: &Reference) -> Result<()> {
        for seed in self.seeds() {
            let verdict = self.stage.native(guest, sink(seed + 1), Some(reference))?;
            self.judge(guest, Mode::Native, seed, verdict)?;
        }
        Ok(())
    }

    /// Kills of one run: all of the primary, at seeded moments within `window`.
    fn primaries(&self, rng: &mut Rng, choices: &mut Rng, window: Duration) -> Vec<Plan> {
        let kills = self.options.kills.max(1);
        let plan = |_| Plan {
            target: Target::Primary,
            delay: window.mul_f64(rng.fraction() / kills as f64),
            choice: choices.draw(),
            again: None,
        };
        (0..kills).map(plan).collect()
    }

    fn protected_once(&self, guest: &'a Guest, reference: &Reference, seed: u64) -> Result<Option<Duration>> {
        let (verdict, _) = self.stage.protected(guest, sink(seed), reference, Ordeal::default())?;
        self.judge(guest, Mode::Protected, seed, verdict)
    }

    fn kill_once(
        &self,
        guest: &'a Guest,
        reference: &Reference,
        mut window: Duration,
        seed: u64,
    ) -> Result<()> {
        let mut rng = Rng::new(seed, &guest.name);
        let mut choices = Rng::new(seed, &format!("{} choice", guest.name));
        let mut void = 0;
        for _ in 0..=RETRIES {
            let plans = self.primaries(&mut rng, &mut choices, window);
            let ordeal = Ordeal { plans: &plans, ..Ordeal::default() };
            let (verdict, account) = self.stage.protected(guest, sink(seed), reference, ordeal)?;
            let (elapsed, active, promoted) = match verdict {
                Verdict::Pass { elapsed, active, promoted, .. } => (elapsed, active, promoted),
                Verdict::Void => {
                    void += 1;
                    self.report.void();
                    continue;
                }
                failed => return self.judge(guest, Mode::Kill, seed, failed).map(|_| ()),
            };
            self.report.kill(promoted > 0);
            if promoted > 0 {
                let detail = format!("seed {seed}, {account}, {promoted} promotions, {elapsed:.0?}");
                self.report.pass(&format!("{} kill", guest.name), &detail);
                return Ok(());
            }
            window = window.min(active);
        }
        self.gave_up(guest, Mode::Kill, seed, void);
        Ok(())
    }

    /// Under protection with a recording besides: first with nothing killed, then with copies killed.
    fn beside_once(
        &self,
        guest: &'a Guest,
        reference: &Reference,
        window: Duration,
        seed: u64,
    ) -> Result<()> {
        let mut rng = Rng::new(seed, &format!("{} beside", guest.name));
        let mut choices = Rng::new(seed, &format!("{} beside choice", guest.name));
        let mut again = Rng::new(seed, &format!("{} beside again", guest.name));
        let strike = |_| Plan {
            target: if rng.below(3) == 0 { Target::Standby } else { Target::Primary },
            delay: (window / 4).mul_f64(rng.fraction()),
            choice: choices.draw(),
            again: (self.options.standbys > 1).then(|| HEIR_MAX.mul_f64(again.fraction())),
        };
        let kills: Vec<Plan> = (0..BESIDE_KILLS).map(strike).collect();
        let mut runs = vec![&[][..]];
        let why_none = if guest.wants.tree {
            Some("a recording beside the standbys of a tree does not outlive every failover yet")
        } else {
            guest
                .wants
                .turns
                .as_ref()
                .or(guest.wants.schedule.as_ref())
                .map(|_| "beside a recording nobody takes turns, and what races diverges")
        };
        match why_none {
            Some(why) => self.report.skip(&format!("{} beside, with kills", guest.name), why),
            None => runs.push(&kills),
        }
        for plans in runs {
            let ordeal = Ordeal { plans, recorded: true, faults: None };
            let (verdict, account) = self.stage.protected(guest, sink(seed), reference, ordeal)?;
            match verdict {
                Verdict::Pass { elapsed, promoted, .. } => {
                    let detail = format!("seed {seed}, {account}, {promoted} promotions, {elapsed:.0?}");
                    self.report.pass(&format!("{} beside", guest.name), &detail);
                }
                Verdict::Void => self.report.void(),
                failed => return self.judge(guest, Mode::Beside, seed, failed).map(|_| ()),
            }
        }
        Ok(())
    }

    /// Kills one copy after the other for as long as the guest lives, so that it is forked at many moments of its
    /// work. Two of three kills are the primary's: only then does the next standby come at once.
    fn storm_once(
        &self,
        guest: &'a Guest,
        reference: &Reference,
        mut window: Duration,
        seed: u64,
    ) -> Result<()> {
        let mut rng = Rng::new(seed, &format!("{} storm", guest.name));
        let mut choices = Rng::new(seed, &format!("{} storm choice", guest.name));
        let mut again = Rng::new(seed, &format!("{} storm again", guest.name));
        let mut void = 0;
        for _ in 0..=RETRIES {
            let gap = window / 8;
            let strike = |_| Plan {
                target: if rng.below(3) == 0 { Target::Standby } else { Target::Primary },
                delay: gap.mul_f64(rng.fraction()),
                choice: choices.draw(),
                again: (self.options.standbys > 1).then(|| HEIR_MAX.mul_f64(again.fraction())),
            };
            let plans: Vec<Plan> = (0..STORM_MAX).map(strike).collect();
            let ordeal = Ordeal { plans: &plans, ..Ordeal::default() };
            let (verdict, account) = self.stage.protected(guest, sink(seed), reference, ordeal)?;
            let (elapsed, active, promoted) = match verdict {
                Verdict::Pass { elapsed, active, promoted, .. } => (elapsed, active, promoted),
                Verdict::Void => {
                    void += 1;
                    self.report.void();
                    continue;
                }
                failed => return self.judge(guest, Mode::Storm, seed, failed).map(|_| ()),
            };
            let sent = account.sent(Target::Primary) + account.sent(Target::Standby);
            if sent > 0 {
                self.report.storm(sent);
                let detail = format!("seed {seed}, {account}, {promoted} promotions, {elapsed:.0?}");
                self.report.pass(&format!("{} storm", guest.name), &detail);
                return Ok(());
            }
            window = window.min(active);
        }
        self.gave_up(guest, Mode::Storm, seed, void);
        Ok(())
    }

    /// Under protection, with faults at named points.
    fn faults_once(&self, guest: &'a Guest, reference: &Reference, seed: u64) -> Result<()> {
        let Some(library) = self.faulty else {
            anyhow::bail!("no library with faults: build one, or give --faulty")
        };
        let ordeal = Ordeal { faults: Some((library, seed)), ..Ordeal::default() };
        let (verdict, _) = self.stage.protected(guest, sink(seed), reference, ordeal)?;
        match verdict {
            Verdict::Pass { elapsed, promoted, .. } => {
                let detail = format!("seed {seed}, {promoted} promotions, {elapsed:.0?}");
                self.report.storm(promoted);
                self.report.pass(&format!("{} faults", guest.name), &detail);
            }
            Verdict::Void => self.report.void(),
            failed => return self.judge(guest, Mode::Faults, seed, failed).map(|_| ()),
        }
        Ok(())
    }

    /// No run of several has shown anything. A kill seldom meets a child's end: if every one did, nobody took over.
    fn gave_up(&self, guest: &Guest, mode: Mode, seed: u64, void: u32) {
        let tries = RETRIES + 1;
        let what = format!("{} {} seed {seed}", guest.name, mode.name());
        if void == tries {
            let why =
                format!("{tries} runs in which a child that was killed was not taken over, and its end seen");
            self.report.fail(&what, &why, "", &self.repeat(guest, mode, seed));
        } else {
            self.report.skip(&what, &format!("none of {tries} (first) kills found the guest protected"));
        }
    }

    /// Reports a run; the time in which a kill could have fallen, if it passed.
    fn judge(&self, guest: &'a Guest, mode: Mode, seed: u64, verdict: Verdict) -> Result<Option<Duration>> {
        let what = format!("{} {}", guest.name, mode.name());
        match verdict {
            Verdict::Pass { elapsed, active, .. } => {
                self.report.pass(&what, &format!("{elapsed:.0?}"));
                Ok(Some(active))
            }
            Verdict::Void => Ok(None),
            Verdict::Fail { why, dir } => {
                let kept = self.stage.place.keep(&dir, &format!("{}-{}-{seed}", guest.name, mode.name()))?;
                let (kept, repeat) = (kept.display().to_string(), self.repeat(guest, mode, seed));
                if mode.races() && self.options.unsteady > 0 {
                    let mut suspects = self.suspects.lock().expect("no panic under this lock");
                    suspects.push(Suspect { guest, mode, seed });
                    self.report.suspect(&what, &why, &kept, &repeat);
                } else {
                    self.report.fail(&what, &why, &kept, &repeat);
                }
                Ok(None)
            }
        }
    }

    fn repeat(&self, guest: &Guest, mode: Mode, seed: u64) -> String {
        let (kit, mode) = (own_path(), mode.name());
        let mut command = format!("{kit} guests --mode {mode} --only {} --seed {seed}", guest.name);
        command += &self.options.place.repeat();
        if self.options.standbys != 1 {
            command += &format!(" --standbys {}", self.options.standbys);
        }
        if let Some(order) = self.stage.order {
            command += &format!(" --order {order}");
        }
        if self.options.kills > 1 {
            command += &format!(" --kills {}", self.options.kills);
        }
        command
    }
}

/// Both kinds of stdout take turns.
fn sink(seed: u64) -> Sink {
    if seed.is_multiple_of(2) { Sink::Pipe } else { Sink::File }
}

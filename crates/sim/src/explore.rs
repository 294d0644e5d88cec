//! The exhaustive search.
//!
//! A kill ends the primary's story; what the standby can do with it depends on nothing but the final rings and the
//! kernel. Before a promotion the standby reads neither the primary's memory nor the kernel, and waits for events
//! to appear but never for them to be absent. So every way of following "close behind" is also a way of following
//! after the kill, and the search splits: first all states of the primary, then, for every distinct
//! (rings, kernel) that a kill can leave, all ways of draining, promoting and running on. [`joint`] explores both
//! together, without this argument, for programs small enough; a test compares the two.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use crate::hash::Fingerprint;
use crate::local::initial;
use crate::mutation::Mutation;
use crate::program::Program;
use crate::world::*;
use crate::{copies, primary, promote, standby, stranger};

/// What is explored.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The program.
    pub program: &'a Program,
    /// The rule that is broken, if any.
    pub mutation: Option<Mutation>,
    /// No copies: everything that POSIX allows may happen.
    pub native: bool,
    /// Where further standbys come from.
    pub copies: Copies,
    /// How many there may be.
    pub copies_max: u8,
}

/// Where a standby comes from behind the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Copies {
    /// From nowhere: one primary, one standby, one kill.
    #[default]
    None,
    /// The running program is cloned, wherever its threads stand.
    Clones,
    /// A spare follows beside the first, and behind it once that has taken over.
    Spares,
}

impl<'a> Context<'a> {
    /// Of a program under the rules, one of which may be broken, with at most one further standby.
    #[must_use]
    pub fn new(program: &'a Program, mutation: Option<Mutation>, copies: Copies) -> Self {
        Self { program, mutation, native: false, copies, copies_max: 1 }
    }

    /// Of a program without copies.
    #[must_use]
    pub fn native(program: &'a Program) -> Self {
        Self { native: true, ..Self::new(program, None, Copies::None) }
    }

    /// True if this rule is broken.
    #[must_use]
    pub fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// True if running programs are cloned.
    #[must_use]
    pub fn makes_clones(&self) -> bool {
        self.copies == Copies::Clones
    }

    /// True if a spare attends this promotion.
    #[must_use]
    pub fn is_attended(&self, world: &World) -> bool {
        self.copies == Copies::Spares && world.copies < self.copies_max
    }
}

/// One step in a trace.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    who: &'static str,
    thread: usize,
    pc: u8,
    what: &'static str,
}

impl Label {
    /// A step of the primary.
    #[must_use]
    pub fn primary(thread: usize, pc: u8, what: &'static str) -> Self {
        Self { who: "primary", thread, pc, what }
    }

    /// A step of the standby or the promoted copy.
    #[must_use]
    pub fn standby(thread: usize, pc: u8, what: &'static str) -> Self {
        Self { who: "standby", thread, pc, what }
    }

    /// A step of the standby's poller.
    #[must_use]
    pub fn poller(what: &'static str) -> Self {
        Self { who: "poller", thread: SLOTS, pc: 0, what }
    }

    /// A step of the poller for one thread.
    #[must_use]
    pub fn poller_for(thread: usize, what: &'static str) -> Self {
        Self { thread, ..Self::poller(what) }
    }

    /// A step of a process that is no copy.
    #[must_use]
    pub fn stranger(what: &'static str) -> Self {
        Self { who: "stranger", ..Self::poller(what) }
    }

    /// A step of the spare, which goes by the rules of a standby.
    pub fn is_of_spare(&mut self) {
        self.who = "spare";
    }

    /// Who, which of its threads, and at which operation.
    #[must_use]
    pub fn place(&self, program: &Program) -> (&'static str, String, String) {
        match (self.who, self.thread) {
            (who, SLOTS) => (who, String::new(), String::new()),
            ("poller", t) => ("poller", format!("T{t}"), String::new()),
            (who, t) => (who, format!("T{t}"), program.code[usize::from(self.pc)].to_string()),
        }
    }

    /// What it is.
    #[must_use]
    pub fn what(&self) -> &'static str {
        self.what
    }

    /// One line.
    #[must_use]
    pub fn line(&self, program: &Program) -> String {
        match (self.who, self.thread) {
            ("poller", SLOTS) => format!("poller      {}", self.what),
            ("poller", t) => format!("poller T{t}   {}", self.what),
            (who, SLOTS) => format!("{who}       {}", self.what),
            (who, t) => {
                format!("{who} T{t} {}: {:?}: {}", self.pc, program.code[usize::from(self.pc)], self.what)
            }
        }
    }
}

/// The possible next worlds.
pub type Successors = Vec<(World, Label)>;

/// A violation and how to get there.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What is violated.
    pub violation: Violation,
    /// The steps, one a line.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {} steps", self.violation, self.trace.len())?;
        self.trace.iter().try_for_each(|line| write!(f, "\n    {line}"))
    }
}

/// What an exploration saw.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Distinct states of the primary.
    pub primary_states: usize,
    /// Distinct logs and kernels that a kill left.
    pub kills: usize,
    /// Distinct states of standbys, promoted copies included.
    pub standby_states: usize,
    /// Promotions that ended in a refusal.
    pub refusals: usize,
    /// Distinct outcomes of promoted copies.
    pub outcomes: HashSet<Outcome>,
    /// The first violation found, by breadth first, if any.
    pub failure: Option<Failure>,
}

/// All outcomes that the program can have natively.
///
/// # Panics
///
/// If the program itself can deadlock or misuse a descriptor: it is then no fit test.
#[must_use]
pub fn native(program: &Program) -> HashSet<Outcome> {
    let cx = Context::native(program);
    let mut start = initial(program);
    start.phase = Phase::Live;
    let mut stack = vec![start];
    let mut seen = HashSet::new();
    let mut outcomes = HashSet::new();
    let mut next = Successors::new();
    while let Some(world) = stack.pop() {
        assert!(world.bad.is_none(), "{}: natively {:?}", program.name, world.bad);
        next.clear();
        (0..SLOTS).for_each(|t| standby::steps(&cx, &world, t, &mut next));
        stranger::steps(&cx, &world, &mut next);
        if next.is_empty() {
            assert!(world.standby.has_ended(), "{}: deadlocks natively", program.name);
            outcomes.insert(world.standby.outcome(&world.kernel));
        }
        let fresh = |w: &World| seen.insert(Fingerprint::of((&w.standby, &w.kernel, w.bad)));
        stack.extend(next.drain(..).map(|(w, _)| w).filter(fresh));
    }
    outcomes
}

/// Parents and labels of the states that a breadth-first search has reached.
#[derive(Default)]
struct Paths {
    nodes: Vec<(usize, Option<Label>)>,
}

impl Paths {
    fn add(&mut self, parent: usize, label: Option<Label>) -> usize {
        self.nodes.push((parent, label));
        self.nodes.len() - 1
    }

    /// The labels that lead to a node, and one more.
    fn labels(&self, mut node: usize, last: Label) -> Vec<Label> {
        let mut labels = vec![last];
        while let (parent, Some(label)) = self.nodes[node] {
            labels.push(label);
            node = parent;
        }
        labels.reverse();
        labels
    }

    fn trace(&self, cx: &Context, mut node: usize) -> Vec<String> {
        let mut lines = Vec::new();
        while let (parent, Some(label)) = self.nodes[node] {
            lines.push(label.line(cx.program));
            node = parent;
        }
        lines.reverse();
        lines
    }
}

/// Explores a program: every interleaving of the primary, a kill at every step, every promotion.
#[must_use]
pub fn check(program: &Program, mutation: Option<Mutation>) -> Report {
    check_with(Context::new(program, mutation, Copies::None))
}

/// The same, with further standbys: behind each clone, or each failover, everything again.
#[must_use]
pub fn check_with(cx: Context) -> Report {
    let native = native(cx.program);
    let mut search = Search {
        cx,
        native,
        report: Report::default(),
        live: HashSet::new(),
        seen: HashSet::new(),
        born: Vec::new(),
    };
    search.primaries();
    search.report.standby_states += search.live.len();
    search.report
}

struct Search<'a> {
    cx: Context<'a>,
    native: HashSet<Outcome>,
    report: Report,
    /// Live states: what follows them does not depend on the log that led there, so all kills share them.
    live: HashSet<u128>,
    seen: HashSet<u128>,
    /// Primaries that have come out of a promotion, and how.
    born: Vec<(World, Vec<Label>)>,
}

impl Search<'_> {
    fn primaries(&mut self) {
        let mut paths = Paths::default();
        let mut queue = VecDeque::new();
        let mut seen = HashSet::new();
        let mut kills = HashSet::new();
        let mut finals: HashMap<u128, Outcome> = HashMap::new();
        let mut next = Successors::new();
        queue.push_back((initial(self.cx.program), paths.add(0, None)));
        while let Some((world, node)) = queue.pop_front() {
            if self.report.failure.is_some() {
                return;
            }
            next.clear();
            (0..SLOTS).for_each(|t| primary::steps(&self.cx, &world, t, &mut next));
            stranger::steps(&self.cx, &world, &mut next);
            let log =
                Fingerprint::of((&world.rings, &world.kernel, &world.standby, world.head, world.copies));
            let has_ended = next.is_empty();
            copies::clone(&self.cx, &world, &mut next);
            let mut failure = world.bad.map(|bad| (bad, Vec::new()));
            if failure.is_none() && kills.insert(log) {
                failure = self.promote(&world, None);
            }
            if failure.is_none() && has_ended {
                failure = self.complete(&world, log, &mut finals);
            }
            if let Some((violation, after)) = failure {
                let mut trace = paths.trace(&self.cx, node);
                trace.push("the primary is killed, or has ended".into());
                trace.extend(after);
                self.report.failure = Some(Failure { violation, trace });
                return;
            }
            let mut is_new = |w: &World| {
                seen.insert(Fingerprint::of((
                    &w.primary, &w.rings, &w.kernel, w.bad, &w.standby, w.head, w.copies,
                )))
            };
            for (w, label) in next.drain(..) {
                if is_new(&w) {
                    queue.push_back((w, paths.add(node, Some(label))));
                }
            }
            for (w, labels) in std::mem::take(&mut self.born) {
                if is_new(&w) {
                    let kill = paths.add(node, Some(Label::poller("the primary is killed")));
                    let last = labels.into_iter().fold(kill, |at, label| paths.add(at, Some(label)));
                    queue.push_back((w, last));
                }
            }
        }
        self.report.primary_states = seen.len();
        self.report.kills = kills.len();
    }

    /// The primary has ended by itself: its outcome is native, and its log leads to exactly this outcome.
    fn complete(
        &mut self,
        world: &World,
        log: u128,
        finals: &mut HashMap<u128, Outcome>,
    ) -> Option<(Violation, Vec<String>)> {
        if !world.primary.has_ended() {
            return Some((Violation::Deadlock, Vec::new()));
        }
        let outcome = world.primary.outcome(&world.kernel);
        if !self.native.contains(&outcome) {
            return Some((Violation::NotNative, Vec::new()));
        }
        match finals.insert(log, outcome) {
            Some(other) if other == outcome => None,
            Some(_) => Some((Violation::ReplayDiffers, Vec::new())),
            None => self.promote(world, Some(outcome)),
        }
    }

    /// Explores everything that can follow a kill in `dead`.
    fn promote(&mut self, dead: &World, expected: Option<Outcome>) -> Option<(Violation, Vec<String>)> {
        let cx = self.cx;
        let mut paths = Paths::default();
        let mut queue = VecDeque::new();
        let mut next = Successors::new();
        self.seen.clear();
        let start = killed(&cx, dead);
        queue.push_back((start, paths.add(0, None)));
        while let Some((world, node)) = queue.pop_front() {
            let verdict = judge(&cx, &world, &mut next, |outcome| match expected {
                Some(expected) if expected != *outcome => Some(Violation::ReplayDiffers),
                _ if !self.native.contains(outcome) => Some(Violation::NotNative),
                _ => {
                    self.report.outcomes.insert(*outcome);
                    None
                }
            });
            match verdict {
                Verdict::Bad(violation) => return Some((violation, paths.trace(&cx, node))),
                Verdict::Refused => self.report.refusals += 1,
                Verdict::Good => {}
            }
            copies::clone(&cx, &world, &mut next);
            for (w, label) in next.drain(..) {
                if w.copies > dead.copies {
                    self.born.push((w, paths.labels(node, label)));
                    continue;
                }
                let shared = w.phase == Phase::Live && expected.is_none() && cx.mutation.is_none();
                let fresh = if shared {
                    self.live.insert(Fingerprint::of((&w.standby, &w.kernel, w.bad, w.refused, w.copies)))
                } else {
                    self.seen.insert(fingerprint(&w))
                };
                if fresh {
                    queue.push_back((w, paths.add(node, Some(label))));
                }
            }
        }
        self.report.standby_states += self.seen.len();
        None
    }
}

fn fingerprint(w: &World) -> u128 {
    // What settling appends is all that changes in the rings.
    let last = |t: usize| w.rings.events[t][usize::from(w.rings.tail[t].max(1) - 1)];
    let ends: [Event; SLOTS] = std::array::from_fn(last);
    let ends = (w.rings.tail, ends);
    let copy = (&w.standby, &w.head, w.scan);
    if matches!(w.phase, Phase::Attended | Phase::Spare) {
        return Fingerprint::of((copy, &w.kernel, ends, w.phase as u8, w.bad, &w.spare, &w.spare_head));
    }
    Fingerprint::of((copy, &w.kernel, ends, w.phase as u8, w.bad, w.refused))
}

fn killed(cx: &Context, dead: &World) -> World {
    let mut start = *dead;
    // What the primary's memory held no longer matters: let such worlds be one.
    start.primary = initial(cx.program).primary;
    start.phase = Phase::Draining;
    start
}

enum Verdict {
    Good,
    Refused,
    Bad(Violation),
}

/// Fills `next` with what can follow, and judges the world; nothing follows a refusal or a violation.
fn judge(
    cx: &Context,
    world: &World,
    next: &mut Successors,
    mut outcome: impl FnMut(&Outcome) -> Option<Violation>,
) -> Verdict {
    next.clear();
    if let Some(bad) = world.bad {
        return Verdict::Bad(bad);
    }
    if world.refused {
        return if cx.program.may_refuse { Verdict::Refused } else { Verdict::Bad(Violation::Refused) };
    }
    (0..SLOTS).for_each(|t| standby::steps(cx, world, t, next));
    promote::steps(cx, world, next);
    stranger::steps(cx, world, next);
    if !next.is_empty() {
        return Verdict::Good;
    }
    if !world.standby.has_ended() {
        return Verdict::Bad(Violation::Deadlock);
    }
    outcome(&world.standby.outcome(&world.kernel)).map_or(Verdict::Good, Verdict::Bad)
}

/// Explores primary and standby together, step by step, with the kill as a step of its own. With `capacity`, a ring
/// holds so many events, and the primary waits for room when it publishes.
#[must_use]
pub fn joint(program: &Program, mutation: Option<Mutation>, capacity: Option<u8>) -> Report {
    joint_with(Context::new(program, mutation, Copies::None), capacity)
}

/// The same, with further standbys. A spare follows behind the kill only, which is the same: it waits for events and
/// never for their absence.
#[must_use]
pub fn joint_with(cx: Context, capacity: Option<u8>) -> Report {
    let program = cx.program;
    let native = native(program);
    let mut report = Report::default();
    let mut paths = Paths::default();
    let mut queue = VecDeque::new();
    let mut seen = HashSet::new();
    let mut next = Successors::new();
    queue.push_back((initial(program), paths.add(0, None)));
    while let Some((world, node)) = queue.pop_front() {
        let outcomes = &mut report.outcomes;
        let verdict = match world.phase {
            Phase::Replay => follow(&cx, &world, capacity, &mut next),
            _ => judge(&cx, &world, &mut next, |outcome| {
                outcomes.insert(*outcome);
                (!native.contains(outcome)).then_some(Violation::NotNative)
            }),
        };
        if world.phase == Phase::Draining && cx.has(Mutation::PromotedBeforeFence) {
            (0..SLOTS).for_each(|t| primary::steps(&cx, &world, t, &mut next));
        }
        match verdict {
            Verdict::Bad(violation) => {
                report.failure = Some(Failure { violation, trace: paths.trace(&cx, node) });
                break;
            }
            Verdict::Refused => report.refusals += 1,
            Verdict::Good => {}
        }
        copies::clone(&cx, &world, &mut next);
        for (w, label) in next.drain(..) {
            if seen.insert(Fingerprint::of(w)) {
                queue.push_back((w, paths.add(node, Some(label))));
            }
        }
    }
    report.standby_states = seen.len();
    report
}

/// One step of a live primary, of the standby behind it, or the kill.
fn follow(cx: &Context, world: &World, capacity: Option<u8>, next: &mut Successors) -> Verdict {
    if let Some(bad) = world.bad {
        return Verdict::Bad(bad);
    }
    next.clear();
    (0..SLOTS).for_each(|t| primary::steps(cx, world, t, next));
    next.retain(|(w, _)| (0..SLOTS).all(|t| capacity.is_none_or(|c| w.rings.tail[t] - w.head[t] <= c)));
    (0..SLOTS).for_each(|t| standby::steps(cx, world, t, next));
    stranger::steps(cx, world, next);
    if world.copies > 0 && cx.has(Mutation::SpareClosesGapsLate) {
        promote::skip_gaps(cx, world, next);
    }
    // Behind a primary that lives a standby comes to the end of what there is.
    if next.is_empty() && (!world.primary.has_ended() || world.unapplied() > 0) {
        return Verdict::Bad(Violation::Deadlock);
    }
    let mut dead = *world;
    dead.phase = Phase::Draining;
    if !cx.has(Mutation::PromotedBeforeFence) {
        // What the primary's memory held no longer matters: let such worlds be one.
        dead.primary = initial(cx.program).primary;
    }
    next.push((dead, Label::poller("sees that the primary is dead")));
    Verdict::Good
}

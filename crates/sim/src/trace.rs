//! One promotion, step by step, for people.
//!
//! A schedule of the primary is drawn from a seed, it is killed behind one of its steps, and a standby drains its
//! log, settles what was in doubt, and goes on. What came long before the kill is left out: the standby has applied
//! it.

use std::fmt::Write as _;

use crate::explore::{Context, Copies, Label, Successors};
use crate::local::initial;
use crate::program::Program;
use crate::walk::Random;
use crate::world::*;
use crate::{primary, promote, settle, standby, words};

/// Which run of a program is shown.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// The schedule.
    pub seed: u64,
    /// The step of the primary behind which it is killed; without it the first behind which most calls are in doubt,
    /// and most of these done; in the middle where there are none.
    pub kill_at: Option<usize>,
    /// Steps of the primary that are shown.
    pub before: usize,
    /// Steps that are shown of those who act behind the promotion.
    pub after: usize,
    /// Where further standbys come from.
    pub copies: Copies,
}

impl Default for Choice {
    fn default() -> Self {
        Self { seed: 0, kill_at: None, before: 12, after: 10, copies: Copies::None }
    }
}

/// The trace of one run, as text.
#[must_use]
pub fn trace(program: &Program, choice: Choice) -> String {
    let cx = Context::new(program, None, choice.copies);
    let run = run_primary(&cx, choice.seed);
    let richness: Vec<_> = run.iter().map(|(world, _)| doubts(&cx, world)).collect();
    let mut richest = (0..run.len()).rev().max_by_key(|at| richness[*at]).unwrap_or(0);
    if richness[richest].0 == 0 {
        richest = run.len() / 2;
    }
    let kill = choice.kill_at.unwrap_or(richest).min(run.len() - 1);
    let mut out = Text { program, text: String::new(), steps: 0 };
    out.head(choice, kill, run.len() - 1);
    let first = kill.saturating_sub(choice.before);
    out.steps = first;
    let mut world = run[first].0;
    catch_up(&cx, &mut world, (first > 0).then_some(&mut out));
    for (next, label) in &run[first + 1..=kill] {
        // The standby waits meanwhile: it may be as late as it likes.
        let mut shown = *next;
        (shown.standby, shown.head) = (world.standby, world.head);
        (shown.spare, shown.spare_head) = (world.spare, world.spare_head);
        out.step(&world, &shown, label);
        world = shown;
    }
    out.section("the primary is killed: its rings are final");
    world.phase = Phase::Draining;
    out.promotion(&cx, world, &mut Random::new(choice.seed), choice.after);
    out.text
}

/// Every world of the primary that the seed leads to, and how; the standby stays at the beginning.
fn run_primary(cx: &Context, seed: u64) -> Vec<(World, Label)> {
    let mut random = Random::new(seed);
    let mut run = vec![(initial(cx.program), Label::poller("begins"))];
    let mut next = Successors::new();
    loop {
        next.clear();
        let world = run.last().expect("the beginning").0;
        (0..SLOTS).for_each(|t| primary::steps(cx, &world, t, &mut next));
        if next.is_empty() {
            return run;
        }
        run.push(next[random.below(next.len())]);
    }
}

/// How many calls have entered the kernel and say nothing yet, and how many of them turn out to be done.
fn doubts(cx: &Context, world: &World) -> (usize, usize) {
    let mut drained = *world;
    catch_up(cx, &mut drained, None);
    let all = settle::explain(cx, &drained);
    (all.iter().filter(|doubt| doubt.entered).count(), all.iter().filter(|doubt| doubt.completed).count())
}

/// The standby applies what there is.
fn catch_up(cx: &Context, world: &mut World, out: Option<&mut Text>) {
    let mut next = Successors::new();
    loop {
        next.clear();
        (0..SLOTS).for_each(|t| standby::steps(cx, world, t, &mut next));
        let Some((following, _)) = next.first() else { break };
        *world = *following;
    }
    (world.spare, world.spare_head) = (world.standby, world.head);
    if let Some(out) = out {
        out.section("the primary's last steps; the standby has applied what came before");
    }
}

struct Text<'a> {
    program: &'a Program,
    text: String,
    steps: usize,
}

impl Text<'_> {
    fn line(&mut self, line: std::fmt::Arguments) {
        let mut text = String::new();
        let _ = write!(text, "{line}");
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn section(&mut self, what: &str) {
        self.line(format_args!("\n== {what}"));
    }

    fn head(&mut self, choice: Choice, kill: usize, last: usize) {
        let program = self.program;
        self.line(format_args!("{}: {}", program.name, program.why));
        self.line(format_args!("seed {}, killed behind step {kill} of {last}", choice.seed));
        for (pc, op) in program.code.iter().enumerate() {
            let entry = program.entries.iter().position(|entry| usize::from(*entry) == pc);
            let whose = entry.map_or(String::new(), |t| format!("T{t}"));
            self.line(format_args!("  {whose:>3} {pc:>3}  {op}"));
        }
    }

    /// One numbered line: who, at which operation, does what; and behind it what has changed for others.
    fn step(&mut self, before: &World, after: &World, label: &Label) {
        self.steps += 1;
        let (who, thread, op) = label.place(self.program);
        let n = self.steps;
        let seen = changes(before, after).join("; ");
        let seen = if seen.is_empty() { seen } else { format!("  [{seen}]") };
        self.line(format_args!("{n:>4} {who:<8} {thread:<2} {op:<30} {}{seen}", label.what()));
    }

    fn promotion(&mut self, cx: &Context, mut world: World, random: &mut Random, after: usize) {
        let mut next = Successors::new();
        let (mut acting, mut left) = (false, after);
        loop {
            next.clear();
            let follows = world.phase == Phase::Replay;
            if follows {
                (0..SLOTS).for_each(|t| primary::steps(cx, &world, t, &mut next));
            } else {
                (0..SLOTS).for_each(|t| standby::steps(cx, &world, t, &mut next));
                promote::steps(cx, &world, &mut next);
            }
            if next.is_empty() {
                break;
            }
            // Who drains goes on as long as it can; those who act are drawn.
            let acts = follows || world.phase == Phase::Live;
            if acts && left == 0 {
                return self.rest(cx, world, random);
            }
            left -= usize::from(acts);
            let (chosen, label) = next[if acts { random.below(next.len()) } else { 0 }];
            if acts && !acting {
                self.section("live: the successor's first steps");
            }
            acting = acts;
            if matches!(chosen.phase, Phase::Settled) && world.phase != Phase::Settled {
                self.settlement(cx, &world);
            }
            self.step(&world, &chosen, &label);
            world = chosen;
        }
        self.end(&world);
    }

    fn settlement(&mut self, cx: &Context, world: &World) {
        self.section("settlement: what each call in doubt came to");
        let explained = settle::explain(cx, world);
        if explained.is_empty() {
            self.line(format_args!("     nothing is in doubt"));
        }
        for settle::Explained { t, evidence, outcome, .. } in explained {
            let op = self.program.code[usize::from(world.standby.threads[t].pc)];
            self.line(format_args!("     T{t} {op}: {evidence} => {outcome}"));
        }
    }

    /// The steps that are not shown, and how all ends.
    fn rest(&mut self, cx: &Context, mut world: World, random: &mut Random) {
        let mut next = Successors::new();
        let mut steps = 0;
        loop {
            next.clear();
            match world.phase {
                Phase::Replay => (0..SLOTS).for_each(|t| primary::steps(cx, &world, t, &mut next)),
                _ => (0..SLOTS).for_each(|t| standby::steps(cx, &world, t, &mut next)),
            }
            if next.is_empty() {
                break;
            }
            world = next[random.below(next.len())].0;
            steps += 1;
        }
        self.line(format_args!("     ... and {steps} more steps"));
        self.end(&world);
    }

    fn end(&mut self, world: &World) {
        self.section("the end");
        for object in 0..usize::from(world.kernel.made) {
            let bytes = &world.kernel.out[object][..usize::from(world.kernel.out_len[object])];
            let read = world.kernel.consumed[object];
            self.line(format_args!(
                "     object {object}: the outside has received {bytes:?}, {read} bytes were read"
            ));
        }
        let side = if world.phase == Phase::Replay { &world.primary } else { &world.standby };
        self.line(format_args!("     variables {:?}", side.vars));
    }
}

/// What a step has changed that others can see.
fn changes(before: &World, after: &World) -> Vec<String> {
    let mut seen = Vec::new();
    for t in 0..SLOTS {
        let (from, to) = (before.rings.tail[t], after.rings.tail[t]);
        for at in from..to {
            seen.push(format!("ring {t} + {}", after.rings.events[t][usize::from(at)]));
        }
        let moved = [(before.head[t], after.head[t]), (before.spare_head[t], after.spare_head[t])];
        if let Some((head, _)) = moved.iter().find(|(from, to)| from < to) {
            seen.push(format!("ring {t} - {}", before.rings.events[t][usize::from(*head)]));
        }
    }
    for (number, (from, to)) in before.standby.clocks.iter().zip(after.standby.clocks).enumerate() {
        if *from != to {
            let name = words::clock(u8::try_from(number).expect("few clocks"));
            seen.push(format!("{name} clock {from} -> {to}"));
        }
    }
    kernel_changes(&before.kernel, &after.kernel, &mut seen);
    seen
}

fn kernel_changes(before: &Kernel, after: &Kernel, seen: &mut Vec<String>) {
    for (number, (from, to)) in before.fds.iter().zip(after.fds).enumerate() {
        match to {
            _ if *from == to => {}
            0 => seen.push(format!("number {number} is free")),
            object => seen.push(format!("number {number} is object {}", object - 1)),
        }
    }
    for object in 0..OBJECTS {
        let sent = usize::from(before.out_len[object])..usize::from(after.out_len[object]);
        for byte in &after.out[object][sent] {
            seen.push(format!("the outside receives {byte}"));
        }
        if before.consumed[object] != after.consumed[object] {
            seen.push(format!("byte {} is consumed", after.consumed[object]));
        }
    }
}

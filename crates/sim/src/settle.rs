//! Settlement: where the kernel shows that a call in doubt was done, the missing `Return` is appended to the dead
//! thread's ring. The rules are those of `us-world`.

use us_world::maker::{self, Class, Descriptors, Fate, Maker, Number, Orphan, Place};
use us_world::{Copy, Direction, Identity, Part, Settled, Stream, Told, Verdict, Verdicts};

use crate::explore::Context;
use crate::local::{descriptor_of, is_kernel_call, makes_descriptor};
use crate::mutation::Mutation;
use crate::program::Op;
use crate::standby::at;
use crate::world::*;

/// A call in doubt.
#[derive(Clone, Copy)]
struct Doubt {
    t: usize,
    op: Op,
    number: usize,
    then: (u8, u8),
    /// Bytes that have been moved before this attempt.
    moved: u8,
    /// Whether the kernel had been entered.
    entered: bool,
}

fn doubts(cx: &Context, world: &World) -> Vec<Doubt> {
    (0..SLOTS)
        .filter_map(|t| {
            let thread = world.standby.threads[t];
            let op = cx.program.code[usize::from(thread.pc)];
            let open = thread.status == Status::Running && thread.phase == at::ENTERED && is_kernel_call(op);
            let number = descriptor_of(op).map_or(0, |r| usize::from(thread.regs[usize::from(r)]));
            let (moved, entered) = (thread.moved, world.rings.entered[t]);
            open.then_some(Doubt { t, op, number, then: thread.then, moved, entered })
        })
        .collect()
}

/// Settles every call in doubt from what the kernel knows. Nobody acts yet.
pub fn all(cx: &Context, world: &mut World) {
    world.phase = Phase::Settled;
    world.scan = None;
    if cx.has(Mutation::ReissueWithoutSettlement) {
        return;
    }
    let doubts = doubts(cx, world);
    // What moves bytes is judged before anything is completed.
    let verdicts = judge(cx, world, &doubts);
    // Closes first: a number whose close was not done is no orphan.
    let mut claimed = Vec::new();
    for doubt in doubts.iter().filter(|d| matches!(d.op, Op::Close(_))) {
        match settle_close(cx, world, doubt) {
            Settled::Reissue => claimed.push(doubt.number),
            _ => complete(world, doubt, Kind::Return, (0, 0)),
        }
    }
    settle_streams(cx, world, &doubts, &verdicts);
    settle_makers(cx, world, &doubts, &claimed);
}

/// What settlement says of one call in doubt.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The thread.
    pub t: usize,
    /// Whether its primary had entered the kernel.
    pub entered: bool,
    /// Whether its `Return` is appended.
    pub completed: bool,
    /// What the log and the kernel say.
    pub evidence: String,
    /// What follows.
    pub outcome: String,
}

/// The same as [`all`] comes to, in words.
#[must_use]
pub fn explain(cx: &Context, world: &World) -> Vec<Explained> {
    let mut settled = *world;
    all(cx, &mut settled);
    let explain = |doubt: &Doubt| {
        let completed = settled.rings.tail[doubt.t] > world.rings.tail[doubt.t];
        let event = settled.rings.events[doubt.t][usize::from(world.rings.tail[doubt.t])];
        let outcome = match completed {
            true => format!("completed: {event} is appended"),
            false => "not done: made again".into(),
        };
        let (t, entered) = (doubt.t, doubt.entered);
        Explained { t, entered, completed, evidence: evidence(cx, world, doubt), outcome }
    };
    doubts(cx, world).iter().map(explain).collect()
}

fn evidence(cx: &Context, world: &World, doubt: &Doubt) -> String {
    if !doubt.entered {
        return "no mark, the kernel was not entered".into();
    }
    let object = usize::from(doubt.then.0.max(1) - 1);
    let number = doubt.number;
    let noted = world.rings.noted[doubt.t];
    let keeps_count = matches!(cx.program.streams, us_world::Kind::TcpAccepted | us_world::Kind::Tcp);
    match doubt.op {
        Op::Write(..) | Op::Read(..) if !keeps_count => format!("its slot shows {noted} bytes"),
        Op::Write(..) => {
            let (sent, logged) = (world.kernel.out_len[object], world.standby.written[object]);
            format!("object {object} has sent {sent} bytes, the log accounts for {logged}")
        }
        Op::Read(..) => {
            let (read, logged) = (world.kernel.consumed[object], world.standby.read[object]);
            format!("of object {object} {read} bytes have been read, the log accounts for {logged}")
        }
        Op::Close(_) => match world.kernel.fds[number] {
            0 => format!("number {number} is free"),
            now if now == doubt.then.0 => format!("number {number} is still object {object}"),
            now => format!("number {number} is object {} by now", now - 1),
        },
        op if makes_descriptor(op) => {
            let unknown = |n: &usize| world.kernel.fds[*n] != 0 && world.standby.shadow[*n].object == 0;
            let orphans: Vec<_> = (0..FDS).filter(unknown).collect();
            format!("numbers that no log knows: {orphans:?}")
        }
        _ => String::new(),
    }
}

/// Appends the `Return` that the dead primary could not.
fn complete(world: &mut World, doubt: &Doubt, kind: Kind, (a, b): (u8, u8)) {
    let pc = world.standby.threads[doubt.t].pc;
    world.append(doubt.t, Event { kind, pc, a, b, ..NO_EVENT });
}

fn settle_close(cx: &Context, world: &World, doubt: &Doubt) -> Settled {
    let now = world.kernel.fds[doubt.number];
    let mut generation = world.standby.shadow[doubt.number].generation;
    if cx.has(Mutation::CloseByNumberOnly) {
        return if now == 0 { Settled::Done(0) } else { Settled::Reissue };
    }
    if cx.has(Mutation::CloseWithoutGeneration) {
        generation = doubt.then.1;
    }
    // The kernel's word for a socket or file says which object it is, never which of its openings.
    let then = Identity { object: doubt.then.0.into(), generation: doubt.then.1.into() };
    us_world::close(then, (now != 0).then_some(now.into()), generation.into())
}

fn class_of(op: Op) -> Option<Class> {
    match op {
        Op::Open(..) => Some(Class::Accepted),
        Op::Dup(..) | Op::DupTo(..) => Some(Class::Duplicate),
        Op::Make(_) => Some(Class::Anonymous),
        _ => None,
    }
}

/// Dup and open: descriptors of the table that the log does not know are given to the calls that made them.
fn settle_makers(cx: &Context, world: &mut World, doubts: &[Doubt], claimed: &[usize]) {
    let asks = |d: &&Doubt| !matches!(d.op, Op::DupTo(..)) || !cx.has(Mutation::NumberedDuplicateNotAsked);
    let calls = doubts.iter().filter(|d| class_of(d.op).is_some() && d.entered).filter(asks);
    let calls: Vec<_> = calls.copied().collect();
    if calls.is_empty() || cx.has(Mutation::OrphansIgnored) {
        return;
    }
    let is_orphan = |n: &usize| {
        let is_logged = world.standby.shadow[*n].object != 0;
        let is_claimed = claimed.contains(n) && !cx.has(Mutation::CloseClaimsNothing);
        maker::is_orphan(Number { is_logged, is_claimed })
    };
    let mut makers: Vec<_> = calls
        .iter()
        .map(|doubt| match class_of(doubt.op).expect("a call that makes descriptors") {
            Class::Duplicate if cx.has(Mutation::DuplicatesNotFirst) => Maker::of(Class::Accepted),
            class => Maker::of(class),
        })
        .collect();
    let orphans = (0..FDS).filter(|n| world.kernel.fds[*n] != 0).filter(is_orphan);
    let mut orphans: Vec<_> = orphans.map(|n| Orphan::of(i32::try_from(n).expect("few numbers"))).collect();
    maker::judge(&mut makers, &mut orphans, &mut Table { world, calls: &calls });
    for (doubt, maker) in calls.iter().zip(makers) {
        if let Some(fd) = maker.made {
            let number = u8::try_from(fd).expect("few numbers");
            let object = world.kernel.fds[usize::from(number)] - 1;
            complete(world, doubt, Kind::Return, (number, object));
        }
    }
    for orphan in orphans {
        match orphan.fate {
            Fate::Given => {}
            Fate::Closed if cx.has(Mutation::OrphanLeftOpen) => {}
            Fate::Closed => world.kernel.close_orphan(usize::try_from(orphan.fd).expect("few numbers")),
            Fate::Open if cx.has(Mutation::StrangersOrphanClosed) => {
                world.kernel.fds[usize::try_from(orphan.fd).expect("few numbers")] = 0;
            }
            Fate::Open if cx.program.stranger => {}
            // No call could have made it: the table and the log disagree.
            Fate::Open => world.refused = true,
        }
    }
}

/// The model's table, and the calls that may have added to it.
struct Table<'a> {
    world: &'a World,
    calls: &'a [Doubt],
}

impl Descriptors for Table<'_> {
    fn has_made(&mut self, maker: usize, fd: i32) -> bool {
        made_by(self.world, &self.calls[maker], usize::try_from(fd).expect("few numbers"))
    }

    fn class_of(&mut self, fd: i32) -> Class {
        match self.world.kernel.origin_of(usize::try_from(fd).expect("few numbers")) {
            ANONYMOUS => Class::Anonymous,
            // What else the model's programs open has an address.
            _ => Class::Accepted,
        }
    }
}

/// Whether a call has made this very descriptor, as far as the kernel can tell: a connection by the listener's
/// address, a duplicate by the open file.
fn made_by(world: &World, doubt: &Doubt, number: usize) -> bool {
    let place = match doubt.op {
        Op::Open(origin, _) => return world.kernel.origin_of(number) == origin,
        Op::Make(_) => return false,
        Op::DupTo(_, to, _) => Place::At(to.into()),
        _ => Place::Lowest,
    };
    world.kernel.fds[number] == doubt.then.0 && place.can_be(i32::try_from(number).expect("few numbers"))
}

/// What the rules of `us-world` may ask the model's kernel and its rings.
struct Asked<'a> {
    world: &'a World,
    kind: us_world::Kind,
}

impl Asked<'_> {
    fn object(&self, number: i32) -> usize {
        let number = usize::try_from(number).expect("few numbers");
        usize::from(self.world.kernel.fds[number].saturating_sub(1))
    }

    fn part(&self, doubt: &Doubt) -> Option<Part> {
        let (direction, len) = match doubt.op {
            Op::Write(_, _, len) => (Direction::Out, len - doubt.moved),
            Op::Read(..) => (Direction::In, 1),
            _ => return None,
        };
        let object = usize::from(doubt.then.0.saturating_sub(1));
        let noted = u32::from(self.world.rings.noted[doubt.t]);
        Some(Part {
            slot: u32::try_from(doubt.t).expect("few threads"),
            fd: i32::try_from(doubt.number).expect("few numbers"),
            direction,
            len: len.into(),
            entered: doubt.entered,
            is_told: false,
            is_in_slot: true,
            is_elsewhere: false,
            from: None,
            told: match self.kind.evidence(direction, true) {
                us_world::Evidence::Message if noted > 0 => Told::Moved(noted),
                us_world::Evidence::Message => Told::Nothing,
                _ => Told::None,
            },
            is_plain: false,
            copy: Copy::No,
            stream: Some(Stream {
                key: u32::try_from(object + 1).expect("few objects"),
                kind: self.kind,
                read: self.world.standby.read[object].into(),
                written: self.world.standby.written[object].into(),
                is_private: false,
                is_own: false,
                is_shut: false,
                has_failed: false,
            }),
        })
    }
}

impl us_world::Kernel for Asked<'_> {
    const PATTERN_MAX: u64 = 8;

    fn tcp(&mut self, number: i32) -> Option<us_world::TcpFigures> {
        const ESTABLISHED: u8 = 1;
        let object = self.object(number);
        Some(us_world::TcpFigures {
            state: ESTABLISHED,
            acked: self.world.kernel.out_len[object].into(),
            received: self.world.kernel.consumed[object].into(),
            ..us_world::TcpFigures::default()
        })
    }

    fn touched(&mut self, part: &Part) -> us_world::Touched {
        us_world::Touched::UpTo(self.world.rings.noted[part.slot as usize].into())
    }

    fn whole_records(&mut self, _part: &Part, bytes: u64) -> u64 {
        bytes
    }

    // The model has no pipes, eventfds or files.
    fn queued(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn event_count(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn position(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn size(&mut self, _number: i32) -> Option<u64> {
        None
    }
    fn set_position(&mut self, _number: i32, _position: u64) -> bool {
        false
    }
    fn lies_at(&mut self, _part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
        None
    }
    fn came_from(&mut self, _part: &Part, _from: u64, _bytes: u64) -> Option<bool> {
        None
    }
    fn first_word(&mut self, _part: &Part) -> u64 {
        0
    }
}

/// By the rules that the runtime has.
fn judge(cx: &Context, world: &World, doubts: &[Doubt]) -> [Option<Verdict>; SLOTS] {
    let mut list = [None; SLOTS];
    let mut verdicts = Verdicts::new(&mut list);
    let mut asked = Asked { world, kind: cx.program.streams };
    let parts: Vec<_> = doubts.iter().filter_map(|doubt| asked.part(doubt)).collect();
    us_world::judge(&parts, &mut asked, &mut verdicts);
    let of = |t: usize| verdicts.of(u32::try_from(t).expect("few threads"));
    std::array::from_fn(of)
}

fn settle_streams(cx: &Context, world: &mut World, doubts: &[Doubt], verdicts: &[Option<Verdict>; SLOTS]) {
    for doubt in doubts {
        let Some(mut verdict) = verdicts[doubt.t] else { continue };
        if cx.has(Mutation::SharedStreamGuessed) && verdict == Verdict::Unknown {
            verdict = Verdict::Again;
        }
        let object = doubt.then.0 - 1;
        let Verdict::Moved(moved) = verdict else {
            world.refused |= verdict != Verdict::Again;
            continue;
        };
        if let Op::Read(..) = doubt.op {
            let byte = world.rings.scratch[doubt.t];
            if moved > 0 {
                complete(world, doubt, Kind::Return, (byte, object));
            }
            continue;
        }
        let Op::Write(_, _, len) = doubt.op else { continue };
        let answer = |bytes: u64| (u8::try_from(bytes).expect("short writes"), object);
        match us_world::write((len - doubt.moved).into(), moved, false) {
            Settled::Done(bytes) => complete(world, doubt, Kind::Return, answer(bytes)),
            Settled::Continue(_) if cx.has(Mutation::PartialWriteRepeated) => {}
            Settled::Continue(bytes) => complete(world, doubt, Kind::Part, answer(bytes)),
            Settled::Reissue => {}
            Settled::Unknown => world.refused = true,
        }
    }
}

//! Two machines and what lies between them.

use ship::follower::Opened;
use ship::hello::{Commit, Hello, Here, Program};
use ship::wire::{FRAME_MAX, Frames, Message};
use ship::{Act, Broken, Copy, Follower, Leader, Limits, Log, Place};

const MS: u64 = 1_000_000;

/// What is tried.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    pub commit: Commit,
    /// Entries of the log.
    pub entries: usize,
    /// Another log stands where the copy should.
    pub is_foreign: bool,
    /// The leader's machine dies in the middle.
    pub dies: bool,
    pub limits: Limits,
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }
}

#[derive(Default)]
struct Entries {
    all: Vec<Vec<u8>>,
    ends: Vec<Place>,
    /// Entries are known by their number alone.
    is_lax: bool,
}

impl Entries {
    fn push(&mut self, bytes: Vec<u8>) {
        self.ends.push(self.end().behind(bytes.len()));
        self.all.push(bytes);
    }
    fn end(&self) -> Place {
        self.ends.last().copied().unwrap_or_default()
    }
    fn cut(&mut self, to: usize) {
        self.all.truncate(to);
        self.ends.truncate(to);
    }
}

impl Log for Entries {
    fn entry(&mut self, at: Place) -> Option<Vec<u8>> {
        let before = at.number.checked_sub(1).map_or(Place::default(), |last| self.ends[last as usize]);
        assert!(self.is_lax || before == at, "the leader asks where no entry begins");
        self.all.get(at.number as usize).cloned()
    }
    fn before(&mut self, at: Place) -> Option<u32> {
        let Some(last) = at.number.checked_sub(1) else { return (at.offset == 0).then_some(0) };
        let is_end = self.ends.get(last as usize) == Some(&at);
        is_end.then(|| crc32c::crc32c(&self.all[last as usize]))
    }
}

/// The follower's disk: what is written, and how much of that a power cut leaves.
#[derive(Default)]
struct Disk {
    copy: Entries,
    synced: usize,
    is_full: bool,
    /// A sync has failed, and what was not on the disk is not in the file either any more.
    has_failed: bool,
}

impl Copy for Disk {
    fn open(&mut self, _: &Hello) -> Result<Opened, String> {
        self.synced = self.copy.all.len();
        let at = self.copy.end();
        let last = self.copy.all.last().map_or(0, |last| crc32c::crc32c(last));
        Ok(Opened { at, disk: at, last, program: None })
    }
    fn append(&mut self, at: Place, bytes: &[u8]) -> Result<(), String> {
        if self.is_full {
            return Err("no space left on device".into());
        }
        assert_eq!(at, self.copy.end());
        self.copy.push(bytes.to_vec());
        Ok(())
    }
    fn sync(&mut self) -> Result<(), String> {
        if self.is_full && self.synced.is_multiple_of(3) && self.synced < self.copy.all.len() {
            self.copy.cut(self.synced);
            self.has_failed = true;
            return Err("input/output error".into());
        }
        self.synced = self.copy.all.len();
        Ok(())
    }
}

struct Packet {
    at: u64,
    link: u64,
    to_leader: bool,
    is_twin: bool,
    frame: Vec<u8>,
}

/// A link as both ends have it.
struct Link {
    number: u64,
    /// Whether the end still has it: the leader's, the follower's.
    ends: [bool; 2],
    /// When the other end hears of it.
    breaks: [Option<u64>; 2],
}

pub struct World {
    scene: Scene,
    rule: Option<Broken>,
    random: Random,
    now: u64,
    skew: u64,
    log: Entries,
    leader: Leader,
    is_alive: bool,
    disk: Disk,
    follower: Option<Follower>,
    /// The follower's machine or process is down until then.
    down: Option<u64>,
    link: Option<Link>,
    connects: Option<u64>,
    packets: Vec<Packet>,
    /// No link, and no message, until then.
    apart: u64,
    is_calm: bool,
    // What must hold.
    committed: u64,
    /// A machine has died with what it had in memory.
    forgiven: bool,
    /// Links up to this one may have told of what has died since.
    crashed_link: u64,
    beat_heard: u64,
    made: u64,
    pub talks: bool,
}

impl World {
    pub fn new(seed: u64, scene: Scene, rule: Option<Broken>) -> World {
        let mut random = Random(seed.wrapping_mul(0x1234_5678_9abc_def1));
        let hello = Hello {
            format: 1,
            stream: [1; 16],
            group: "group".into(),
            commit: scene.commit,
            build: "build".into(),
            program: Program { path: "/bin/program".into(), hash: [1; 32] },
            ..Hello::default()
        };
        let start = 1_000_000 * MS;
        let leader = Leader::new(hello, scene.limits, start);
        let mut disk = Disk::default();
        if scene.is_foreign {
            (0..5).for_each(|at| disk.copy.push(vec![200 + at; 50]));
            disk.synced = 5;
        }
        World {
            scene,
            rule,
            now: start,
            skew: random.below(1 << 50),
            random,
            log: Entries { is_lax: rule == Some(Broken::Unlike), ..Entries::default() },
            leader: match rule {
                Some(rule) => leader.breaking(rule),
                None => leader,
            },
            is_alive: true,
            disk,
            follower: None,
            down: None,
            link: None,
            connects: None,
            packets: Vec::new(),
            apart: 0,
            is_calm: false,
            committed: 0,
            forgiven: false,
            crashed_link: 0,
            beat_heard: 0,
            made: 0,
            talks: false,
        }
    }

    /// Until the log is there, or for long; what does not hold.
    pub fn run(mut self) -> Result<(), String> {
        let dies_at = self.random.below(3000);
        for step in 0..20_000 {
            self.is_calm = step > 3000;
            if self.scene.dies && step == dies_at {
                self.is_alive = false;
            }
            self.step();
            self.check()?;
            if self.leader.report(self.now).is_done && self.log.all.len() == self.scene.entries {
                let there = self.disk.synced;
                let all = self.scene.entries;
                return if there == all {
                    Ok(())
                } else {
                    Err(format!("done with {there} of {all} on the disk"))
                };
            }
            if self.scene.dies && step > dies_at + 2000 {
                return Ok(());
            }
        }
        let report = self.leader.report(self.now);
        if self.scene.is_foreign {
            return Ok(());
        }
        Err(format!("not done after long: {report:?}"))
    }

    /// Whether the follower was given up.
    pub fn run_or_give_up(mut self) -> bool {
        for _ in 0..5000 {
            self.step();
            self.check().unwrap();
            let report = self.leader.report(self.now);
            assert!(report.lag_bytes <= self.scene.limits.backlog + 2000 || report.is_given_up, "{report:?}");
            if report.is_given_up && self.leader.next(&mut self.log, self.now) != Some(Act::Disconnect) {
                assert_eq!(self.leader.due(), None);
                return true;
            }
        }
        false
    }

    fn step(&mut self) {
        self.now += self.random.below(4 * MS);
        match self.is_calm {
            true => self.disk.is_full = false,
            false => self.harm(),
        }
        self.grow();
        if self.down.is_some_and(|until| self.now >= until) {
            self.down = None;
        }
        self.make_link();
        self.break_link();
        self.deliver();
        self.act_leader();
        self.act_follower();
    }

    fn harm(&mut self) {
        if self.random.one_in(200) {
            self.apart = self.now + self.random.below(600 * MS);
        }
        if self.random.one_in(150) && self.link.is_some() {
            let both = self.random.below(60) * MS;
            let now = self.now;
            if let Some(link) = &mut self.link {
                link.breaks = [Some(now + both), Some(now + both / 2)];
            }
        }
        if self.random.one_in(60) {
            self.disk.is_full = !self.disk.is_full && self.random.one_in(3);
        }
        if self.random.one_in(250) && self.down.is_none() {
            self.crash();
        }
    }

    /// The follower's process, or its machine with what was not on the disk.
    fn crash(&mut self) {
        if self.random.one_in(2) {
            let kept = self.disk.synced as u64;
            let more = self.disk.copy.all.len() as u64 - kept;
            let kept = kept + self.random.below(more + 1);
            self.disk.copy.cut(kept as usize);
            self.forgiven |= self.scene.commit == Commit::Memory;
        }
        self.crashed_link = self.made;
        self.follower = None;
        self.down = Some(self.now + self.random.below(300 * MS));
        let now = self.now;
        let late = self.random.below(500 * MS);
        if let Some(link) = &mut self.link {
            link.ends[1] = false;
            link.breaks[0] = Some(now + late);
        }
    }

    fn grow(&mut self) {
        let grows = self.is_alive && self.log.all.len() < self.scene.entries;
        if grows && (self.random.one_in(25) || self.is_calm) {
            let number = self.log.all.len();
            let bytes = 1 + self.random.below(1500) as usize;
            self.log.push((0..bytes).map(|at| (number * 7 + at) as u8).collect());
            self.leader.grew(self.log.end(), self.now);
            if number + 1 == self.scene.entries {
                self.leader.finished();
            }
        }
    }

    fn make_link(&mut self) {
        if self.connects.is_none_or(|at| self.now < at) || !self.is_alive {
            return;
        }
        self.connects = None;
        if self.is_apart() || self.down.is_some() {
            return self.leader.broken("nobody listens", self.now);
        }
        self.made += 1;
        let here = Here { name: "n2".into(), format: 1, build: "build".into(), features: Vec::new() };
        let follower = Follower::new(here, self.scene.limits, self.now + self.skew);
        self.follower = Some(match self.rule {
            Some(rule) => follower.breaking(rule),
            None => follower,
        });
        self.link = Some(Link { number: self.made, ends: [true, true], breaks: [None, None] });
        self.leader.connected(self.now);
    }

    fn is_apart(&self) -> bool {
        !self.is_calm && self.now < self.apart
    }

    fn break_link(&mut self) {
        let now = self.now;
        let Some(link) = &mut self.link else { return };
        if link.breaks[0].is_some_and(|at| now >= at) && link.ends[0] {
            link.ends[0] = false;
            self.leader.broken("the link is gone", now);
        }
        if link.breaks[1].is_some_and(|at| now >= at) && link.ends[1] {
            link.ends[1] = false;
            self.follower = None;
        }
    }

    fn send(&mut self, message: &Message, to_leader: bool) {
        let Some(link) = &self.link else { return };
        let (link, frame) = (link.number, message.to_frame());
        if self.talks {
            let whom = if to_leader { "leader" } else { "follower" };
            let text = format!("{message:?}");
            println!("{} to {whom}: {}", self.now, &text[..text.len().min(120)]);
        }
        let mut delay = 200_000 + self.random.below(5 * MS);
        if self.is_calm {
            // In order.
            let behind =
                self.packets.iter().filter(|packet| packet.to_leader == to_leader && packet.link == link);
            let last = behind.map(|packet| packet.at).max().unwrap_or(0);
            let at = last.max(self.now) + 1000;
            return self.packets.push(Packet { at, link, to_leader, is_twin: false, frame });
        }
        if self.is_apart() || self.random.one_in(150) {
            return;
        }
        if !self.random.one_in(60) {
            // Mostly in order.
            let behind =
                self.packets.iter().filter(|packet| packet.to_leader == to_leader && packet.link == link);
            let last = behind.map(|packet| packet.at).max().unwrap_or(0);
            delay = delay.max((last + 1).saturating_sub(self.now));
        }
        if self.random.one_in(60) {
            let at = self.now + self.random.below(400 * MS);
            self.packets.push(Packet { at, link, to_leader, is_twin: true, frame: frame.clone() });
        }
        self.packets.push(Packet { at: self.now + delay, link, to_leader, is_twin: false, frame });
    }

    fn deliver(&mut self) {
        self.packets.sort_by_key(|packet| packet.at);
        while self.packets.first().is_some_and(|packet| packet.at <= self.now) {
            let packet = self.packets.remove(0);
            let is_old = self.link.as_ref().is_none_or(|link| link.number != packet.link);
            // Worse than any network does to a link.
            if is_old && (self.is_calm || self.random.one_in(2)) {
                continue;
            }
            let mut frames = Frames::new(FRAME_MAX);
            frames.push(&packet.frame);
            let message = frames.next_message().unwrap().unwrap();
            let end = usize::from(!packet.to_leader);
            if self.link.as_ref().is_none_or(|link| !link.ends[end]) {
                continue;
            }
            if packet.to_leader {
                if self.is_alive {
                    self.leader.heard(message, &mut self.log, self.now);
                }
            } else if let Some(follower) = &mut self.follower {
                if matches!(message, Message::Beat { .. }) {
                    self.beat_heard = self.now;
                }
                follower.heard(message, &mut self.disk, self.now + self.skew);
                if self.random.one_in(3) {
                    follower.settle(&mut self.disk);
                }
            }
        }
    }

    fn act_leader(&mut self) {
        while self.is_alive {
            match self.leader.next(&mut self.log, self.now) {
                Some(Act::Connect) => self.connects = Some(self.now + self.random.below(10 * MS)),
                Some(Act::Send(message)) => {
                    if self.link.as_ref().is_some_and(|link| link.ends[0]) {
                        self.send(&message, false);
                    }
                }
                Some(Act::Disconnect) => self.leave(0),
                None => return,
            }
        }
    }

    fn act_follower(&mut self) {
        while let Some(follower) = &mut self.follower {
            follower.settle(&mut self.disk);
            match follower.next(self.now + self.skew) {
                Some(Act::Send(message)) => {
                    if self.link.as_ref().is_some_and(|link| link.ends[1]) {
                        self.send(&message, true);
                    }
                }
                Some(Act::Disconnect) => {
                    self.leave(1);
                    self.follower = None;
                }
                Some(Act::Connect) => panic!("a follower connects to nobody"),
                None => return,
            }
        }
    }

    fn leave(&mut self, end: usize) {
        let late = self.now + 6 * MS + self.random.below(20 * MS);
        if let Some(link) = &mut self.link {
            link.ends[end] = false;
            link.breaks[1 - end].get_or_insert(late);
        }
    }

    fn check(&mut self) -> Result<(), String> {
        if std::mem::take(&mut self.disk.has_failed) {
            self.forgiven |= self.scene.commit == Commit::Memory;
            self.crashed_link = self.made;
        }
        let copy = &self.disk.copy.all;
        let own = if self.scene.is_foreign { 5 } else { 0 };
        let same = copy.iter().zip(&self.log.all).skip(own).all(|(copy, own)| copy == own);
        if !same || copy.len() > self.log.all.len().max(own) || own > 0 && copy.len() > own {
            return Err(format!("the copy of {} entries is not the log's", copy.len()));
        }
        let report = self.leader.report(self.now);
        let committed = report.committed.number;
        if committed < self.committed {
            return Err(format!("{} was committed and is taken back to {committed}", self.committed));
        }
        self.committed = committed;
        let link = self.link.as_ref().map_or(0, |link| link.number);
        let safe = if self.scene.commit == Commit::Disk { self.disk.synced } else { copy.len() } as u64;
        // What a dead machine has said last may still be on its way.
        self.forgiven &= safe < committed || link <= self.crashed_link;
        if safe < committed && !self.forgiven {
            return Err(format!("{committed} was committed, and is not there: {safe} is"));
        }
        let has = self.leader.follower_has().number;
        if report.is_linked && link > self.crashed_link && has > copy.len() as u64 && !self.scene.is_foreign {
            return Err(format!("the leader takes it for having {has} where it has {}", copy.len()));
        }
        if self.leader.leased_until() > self.beat_heard + self.scene.limits.silence {
            return Err("the leader has a lease that nobody gave".into());
        }
        let away =
            self.packets.iter().filter(|packet| packet.link == link && !packet.to_leader && !packet.is_twin);
        let bytes: usize = away.map(|packet| packet.frame.len()).sum();
        let most = self.scene.limits.window as usize + 1600 + 64 * 64;
        if bytes > most {
            return Err(format!("{bytes} bytes are on their way"));
        }
        Ok(())
    }
}

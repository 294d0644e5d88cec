//! Random sequences of sends, takings and promotions: the list of signals that wait is the same after each, by the rules here and by
//! the loops that stood in the runtime before. No difference.

use std::cell::RefCell;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use us_world::pending::{self, By, Known, Pending, Send, Siginfo, Taken, Target, To};

const ROOM: usize = 6;

/// Signal, code, value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Info(i32, i32, u64);

impl Siginfo for Info {
    fn signal(&self) -> i32 {
        self.0
    }
    fn code(&self) -> i32 {
        self.1
    }
    fn value(&self) -> u64 {
        self.2
    }
}

/// What stood in the runtime.
mod former {
    use super::Info;

    pub const PROCESS: u32 = u32::MAX;
    pub const NUMBERED: u32 = 1 << 31;
    pub const ANY: i32 = 0x7fff;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Sent {
        pub info: Info,
        pub target: u32,
        pub at: u64,
        pub queued: bool,
    }

    pub fn add(sent: &mut Vec<Sent>, new: Sent, room: usize) -> bool {
        let waiting = sent
            .iter_mut()
            .find(|sent| new.info.0 < 32 && sent.info.0 == new.info.0 && sent.target == new.target);
        if let Some(waiting) = waiting {
            waiting.at = waiting.at.max(new.at);
        } else if sent.len() < room {
            sent.push(new);
        } else {
            return false;
        }
        true
    }

    pub fn retract(sent: &mut Vec<Sent>, at: u64) {
        if let Some(found) = sent.iter().position(|sent| sent.at == at) {
            sent.remove(found);
        }
    }

    pub fn taken(sent: &mut Vec<Sent>, slot: u32, info: &Info, exact: bool, ticket: u64) {
        let fits = |sent: &Sent| {
            let direct = sent.target == slot;
            sent.info.0 == info.0
                && (sent.at < ticket || sent.info.1 == ANY)
                && (direct || sent.target == PROCESS)
                && (!exact || sent.info.1 == info.1 || sent.info.1 == ANY)
                && (!exact || info.0 < 32 || sent.info.2 == info.2)
        };
        let found = (0..sent.len())
            .filter(|index| fits(&sent[*index]))
            .min_by_key(|index| (sent[*index].target == PROCESS, sent[*index].at));
        if let Some(found) = found {
            sent.remove(found);
        }
    }

    pub fn forget(sent: &mut Vec<Sent>, is_one: impl Fn(&Sent) -> bool) {
        while let Some(found) = sent.iter().position(&is_one) {
            sent.remove(found);
        }
    }

    /// What is raised: signal, and the kernel's number of the thread, 0 for the process.
    pub fn raise_all(
        sent: &mut Vec<Sent>,
        tid_in: impl Fn(u32) -> u32,
        is_counted: impl Fn(&Sent) -> bool,
    ) -> Vec<(Info, u32)> {
        // Unstable there, on the same order of the same keys.
        sent.sort_unstable_by_key(|sent| sent.at);
        let (mut raised, mut later) = (Vec::new(), Vec::new());
        for sent_now in sent.iter() {
            let direct = sent_now.target != PROCESS;
            let has_place = sent_now.target & NUMBERED == 0;
            let tid = if has_place { tid_in(sent_now.target) } else { 0 };
            if sent_now.queued && is_counted(sent_now) {
                continue;
            }
            if sent_now.queued || (direct && tid == 0) {
                later.push(*sent_now);
                continue;
            }
            raised.push((sent_now.info, tid));
        }
        *sent = later;
        raised
    }

    pub fn by(code: i32, directed: bool) -> u8 {
        match (code, directed) {
            (0 | ANY, false) => 0,
            (-6, true) => 1,
            _ => 2,
        }
    }
}

fn target_of(target: u32) -> Target {
    match target {
        former::PROCESS => Target::PROCESS,
        target if target & former::NUMBERED != 0 => Target::numbered(target & !former::NUMBERED),
        slot => Target::slot(slot),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Add(former::Sent),
    Retract(u64),
    Taken(u32, Info, bool, u64),
    Forget(i32),
    ForgetThread(u32),
    Begun(u32, u32),
    Raise([u32; 3], bool),
    RaiseFor(u32),
    Requeue(u32),
}

fn infos() -> impl Strategy<Value = Info> {
    let signals = prop_oneof![Just(10), Just(12), Just(40), Just(41)];
    let codes = prop_oneof![Just(0), Just(-6), Just(-1), Just(former::ANY)];
    (signals, codes, 0u64..3).prop_map(|(signal, code, value)| Info(signal, code, value))
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let target =
        prop_oneof![Just(former::PROCESS), 0u32..3, (70u32..72).prop_map(|number| former::NUMBERED | number)];
    let sent = (infos(), target, 0u64..12, any::<bool>());
    let sent = sent.prop_map(|(info, target, at, queued)| former::Sent { info, target, at, queued });
    let step = prop_oneof![
        8 => sent.prop_map(Step::Add),
        1 => (0u64..12).prop_map(Step::Retract),
        5 => (0u32..3, infos(), any::<bool>(), 0u64..14).prop_map(|(a, b, c, d)| Step::Taken(a, b, c, d)),
        1 => (prop_oneof![Just(10), Just(40)]).prop_map(Step::Forget),
        1 => (0u32..3).prop_map(Step::ForgetThread),
        2 => (0u32..3, 70u32..72).prop_map(|(slot, number)| Step::Begun(slot, number)),
        1 => (proptest::array::uniform3(0u32..2), any::<bool>()).prop_map(|(a, b)| Step::Raise(a, b)),
        1 => (0u32..3).prop_map(Step::RaiseFor),
        1 => (0u32..3).prop_map(Step::Requeue),
    ];
    proptest::collection::vec(step, 1..24)
}

fn of(sent: &former::Sent) -> pending::Sent<Info> {
    pending::Sent { info: sent.info, target: target_of(sent.target), at: sent.at, queued: sent.queued }
}

#[test]
fn what_waits_and_what_is_raised_is_what_was() {
    const CASES: u32 = 20_000;
    let seen = RefCell::new([0u32; 3]);
    let mut config = ProptestConfig::with_cases(CASES);
    config.failure_persistence = None;
    let result = TestRunner::new(config).run(&steps(), |steps| {
        let mut before: Vec<former::Sent> = Vec::new();
        let nothing = pending::Sent { info: Info(0, 0, 0), target: Target::PROCESS, at: 0, queued: false };
        let (mut all, mut count) = ([nothing; ROOM], 0);
        let mut after = Pending::new(&mut all, &mut count);
        for step in steps {
            match step {
                Step::Add(sent) => {
                    let fits = after.add(of(&sent));
                    prop_assert_eq!(fits, former::add(&mut before, sent, ROOM));
                    seen.borrow_mut()[0] += u32::from(!fits);
                }
                Step::Retract(at) => {
                    former::retract(&mut before, at);
                    after.retract(at);
                }
                Step::Taken(slot, info, exact, ticket) => {
                    let had = before.len();
                    former::taken(&mut before, slot, &info, exact, ticket);
                    after.taken(Taken { slot, info: &info, exact, ticket });
                    seen.borrow_mut()[1] += u32::from(before.len() < had);
                }
                Step::Forget(signal) => {
                    former::forget(&mut before, |sent| sent.info.0 == signal);
                    after.forget(signal);
                }
                Step::ForgetThread(slot) => {
                    former::forget(&mut before, |sent| sent.target == slot);
                    after.forget_thread(slot);
                }
                Step::Begun(slot, number) => {
                    let own = before.iter_mut().filter(|sent| sent.target == former::NUMBERED | number);
                    own.for_each(|sent| sent.target = slot);
                    after.has_begun(slot, number);
                }
                Step::Raise(tids, is_counted) => {
                    let tid_in = |slot: u32| tids.get(slot as usize).map_or(0, |tid| tid * 500);
                    let counts = |info: Info| is_counted && info.1 == 0;
                    let was = former::raise_all(&mut before, tid_in, |sent| counts(sent.info));
                    let mut is = Vec::new();
                    after.raise_all(
                        |sent| Known {
                            is_counted: counts(sent.info),
                            tid: sent.target.its_slot().map_or(0, tid_in),
                        },
                        |sent, tid| is.push((sent.info, tid)),
                    );
                    seen.borrow_mut()[2] += u32::try_from(is.len()).expect("few");
                    prop_assert_eq!(is, was);
                }
                Step::RaiseFor(slot) => {
                    let is_its = |sent: &former::Sent| !sent.queued && sent.target == slot;
                    let was = before.iter().position(is_its).map(|found| before.remove(found));
                    let is = after.take(|sent| !sent.queued && sent.target == Target::slot(slot));
                    prop_assert_eq!(is, was.as_ref().map(of));
                }
                Step::Requeue(slot) => {
                    let is_its = |sent: &former::Sent| sent.queued && sent.target == slot;
                    let was = before.iter().position(is_its).map(|found| before.remove(found));
                    let is = after.take(|sent| sent.queued && sent.target == Target::slot(slot));
                    prop_assert_eq!(is, was.as_ref().map(of));
                }
            }
            let was: Vec<_> = before.iter().map(of).collect();
            prop_assert_eq!(after.waiting(), was.as_slice());
        }
        Ok(())
    });
    result.expect("the same");
    println!("{:?} found no room, were taken, were raised", seen.borrow());
    assert!(seen.borrow().iter().all(|count| *count > 100), "all of it comes up: {:?}", seen.borrow());
}

#[test]
fn what_is_small_is_what_it_was() {
    for code in [0, -1, -6, former::ANY, 0x80] {
        for directed in [false, true] {
            let is = match pending::sent_by(code, directed) {
                By::Kill => 0,
                By::Tgkill => 1,
                By::Queue => 2,
            };
            assert_eq!(is, former::by(code, directed));
        }
    }
    // SIGKILL, SIGALRM, SIGCHLD, SIGSTOP, SIGVTALRM, SIGPROF, SIGSYS
    let apart = 1u64 << 8 | 1 << 13 | 1 << 16 | 1 << 18 | 1 << 25 | 1 << 26 | 1 << 30;
    for bit in 0..64 {
        let waiting = 1u64 << bit;
        assert_eq!(pending::known_by_number(waiting), waiting & ((1 << 31) - 1) & !apart);
    }
    for unseen in [0, 1, 5, 5000] {
        assert_eq!(pending::raised_again(10, unseen, 4096), unseen.min(1));
        assert_eq!(pending::raised_again(40, unseen, 4096), unseen.min(4096));
    }
}

/// A send in doubt: what was done for it, and whether the sender was to have it again.
fn former_send(is_group: bool, with_itself: bool, other: bool, entered: bool) -> (bool, bool) {
    if is_group && entered {
        return (true, with_itself);
    }
    (other && entered, false)
}

#[test]
fn sends_in_doubt_are_done_as_they_were() {
    for entered in [false, true] {
        let is = |to| match pending::judge(to, entered) {
            Send::Again => (false, false),
            Send::Done { came_back } => (true, came_back),
        };
        assert_eq!(is(To::Itself), former_send(false, true, false, entered));
        assert_eq!(is(To::Others), former_send(false, false, false, entered));
        assert_eq!(is(To::Another), former_send(false, false, true, entered));
        for with_itself in [false, true] {
            assert_eq!(is(To::Group { with_itself }), former_send(true, with_itself, false, entered));
        }
    }
}

#[test]
fn a_record_of_a_signalfd_is_read_as_it_was() {
    let words: Vec<u32> = (0..32).map(|word| 0x0101_0101 * word + 1).collect();
    let word = |offset: u64| words[offset as usize / 4];
    let wide = |offset: u64| u64::from(word(offset)) | u64::from(word(offset + 4)) << 32;
    let former =
        [u64::from(word(0)) | u64::from(word(4)) << 32, u64::from(word(8)), u64::from(word(12)), wide(48)];
    assert_eq!(pending::of_record(word), former);
}

//! Random calls that make descriptors, and random orphans: the rules here say what the loops of the runtime said before.

use proptest::prelude::*;
use us_world::maker::{Class, Descriptors, Fate, Maker, Orphan, judge};

const CALLS: usize = 6;
const NUMBERS: usize = 6;
const CLASSES: [Class; 7] = [
    Class::Pipe,
    Class::Socket,
    Class::Anonymous,
    Class::Named,
    Class::Accepted,
    Class::Duplicate,
    Class::Anything,
];

/// Which call has made which number, as far as that can be seen, and what the numbers look like.
#[derive(Clone, Debug)]
struct Fake {
    made: [[bool; NUMBERS]; CALLS],
    like: [usize; NUMBERS],
}

impl Descriptors for Fake {
    fn has_made(&mut self, maker: usize, fd: i32) -> bool {
        self.made[maker][fd as usize]
    }
    fn class_of(&mut self, fd: i32) -> Class {
        CLASSES[self.like[fd as usize]]
    }
}

/// What was done before: the number that each call got, and those that were closed.
fn former(calls: &[Class], orphans: &[i32], fake: &mut Fake) -> (Vec<Option<i32>>, Vec<i32>) {
    let mut orphans = orphans.to_vec();
    let mut got = vec![None; calls.len()];
    let round_of = |class: Class| if class == Class::Duplicate { 0 } else { 1 };
    for round in 0..2 {
        for (call, class) in calls.iter().enumerate() {
            // What has been given is in doubt no longer.
            if got[call].is_some() || round_of(*class) != round {
                continue;
            }
            let fits = |at: &usize| orphans[*at] >= 0 && fake.has_made(call, orphans[*at]);
            if let Some(at) = (0..orphans.len()).find(fits) {
                got[call] = Some(orphans[at]);
                orphans[at] = -1;
            }
        }
    }
    let mut closed = Vec::new();
    for fd in orphans.iter().filter(|fd| **fd >= 0) {
        let looks = fake.class_of(*fd);
        let in_doubt = calls.iter().zip(&got).filter(|(_, got)| got.is_none());
        if in_doubt.map(|(class, _)| *class).any(|class| class == looks || class == Class::Anything) {
            closed.push(*fd);
        }
    }
    (got, closed)
}

#[test]
fn random_orphans_go_where_they_went() {
    const CASES: u32 = 20_000;
    let seen = std::cell::RefCell::new([0u32; 3]);
    let mut config = ProptestConfig::with_cases(CASES);
    config.failure_persistence = None;
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let row = proptest::array::uniform6(proptest::bool::weighted(0.3));
    let fake = (proptest::array::uniform6(row), proptest::array::uniform6(0..CLASSES.len()));
    let calls = proptest::collection::vec(0..CLASSES.len(), 0..=CALLS);
    let open = proptest::array::uniform6(any::<bool>());
    let result = runner.run(&(fake, calls, open), |((made, like), calls, open)| {
        let mut fake = Fake { made, like };
        let calls: Vec<_> = calls.into_iter().map(|at| CLASSES[at]).collect();
        let numbers: Vec<_> = (0..NUMBERS).filter(|fd| open[*fd]).map(|fd| fd as i32).collect();
        let (got, closed) = former(&calls, &numbers, &mut fake);
        let mut makers: Vec<_> = calls.iter().map(|class| Maker::of(*class)).collect();
        let mut orphans: Vec<_> = numbers.iter().map(|fd| Orphan::of(*fd)).collect();
        judge(&mut makers, &mut orphans, &mut fake);
        prop_assert_eq!(makers.iter().map(|maker| maker.made).collect::<Vec<_>>(), got);
        let is_closed = orphans.iter().filter(|orphan| orphan.fate == Fate::Closed);
        prop_assert_eq!(is_closed.map(|orphan| orphan.fd).collect::<Vec<_>>(), closed);
        for orphan in orphans {
            seen.borrow_mut()[match orphan.fate {
                Fate::Given => 0,
                Fate::Closed => 1,
                Fate::Open => 2,
            }] += 1;
        }
        Ok(())
    });
    result.expect("the same fates");
    println!("{:?} given, closed, left", seen.borrow());
    assert!(seen.borrow().iter().all(|count| *count > 1000), "every fate comes up: {:?}", seen.borrow());
}

//! Random changes of epoll sets in doubt: the rules here ask the kernel for the same, and answer the same, as the runtime before.

use proptest::prelude::*;
use us_world::set::{Answer, Change, Control, Good, Registrations, make_good};

const ADD: u64 = 1;
const DELETE: u64 = 2;
const MODIFY: u64 = 3;
const ENOENT: i64 = -2;
const EEXIST: i64 = -17;
const EINVAL: i64 = -22;
/// What the kernel may answer.
const RESULTS: [i64; 5] = [0, ENOENT, EEXIST, EINVAL, -9];

/// A table of registrations, a kernel that answers anything, and what it was asked for.
#[derive(Clone, Debug)]
struct Fake {
    newest: Option<u32>,
    count: usize,
    is_in_doubt: bool,
    answers: Vec<usize>,
    asked: Vec<(u32, u64)>,
}

impl Fake {
    fn control_kernel(&mut self, place: u32, operation: u64) -> i64 {
        self.asked.push((place, operation));
        RESULTS[self.answers[self.asked.len() - 1]]
    }
}

impl Registrations for Fake {
    fn newest(&mut self) -> Option<u32> {
        self.newest
    }
    fn count(&mut self) -> usize {
        self.count
    }
    fn is_in_doubt(&mut self, _registration: u32) -> bool {
        self.is_in_doubt
    }
    fn make(&mut self, registration: u32, change: Change) -> Answer {
        let operation = match change {
            Change::Add => ADD,
            Change::Delete => DELETE,
            Change::Modify => MODIFY,
        };
        match self.control_kernel(registration, operation) {
            0 => Answer::Done,
            ENOENT => Answer::Missing,
            EEXIST => Answer::There,
            EINVAL => Answer::Invalid,
            _ => Answer::Refused,
        }
    }
}

/// What was done before: the result, `None` if the call is made again.
fn former(op: u64, own: Option<u32>, fake: &mut Fake) -> Option<i64> {
    let failed = |result: i64| result < 0;
    let newest = fake.newest?;
    if op == DELETE {
        if fake.count > 1 && !fake.is_in_doubt {
            return Some(0);
        }
        let result = fake.control_kernel(newest, DELETE);
        return (!failed(result) || result == ENOENT).then_some(0);
    }
    let own = own?;
    if newest != own {
        return Some(0);
    }
    if op == ADD {
        let result = fake.control_kernel(own, ADD);
        if result != EEXIST {
            return (!failed(result)).then_some(0);
        }
        if fake.count > 1 {
            return Some(EEXIST);
        }
    }
    let result = fake.control_kernel(own, MODIFY);
    (!failed(result) || op == ADD && result == EINVAL).then_some(0)
}

#[test]
fn random_changes_are_made_good_as_before() {
    const CASES: u32 = 20_000;
    let seen = std::cell::RefCell::new([0u32; 3]);
    let mut config = ProptestConfig::with_cases(CASES);
    config.failure_persistence = None;
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let own = proptest::option::weighted(0.9, 0u32..2);
    let table = (own.clone(), 0usize..3, any::<bool>());
    let answers = proptest::collection::vec(0..RESULTS.len(), 2);
    let result = runner.run(&(table, answers, 1u64..6, own), |(table, answers, op, own)| {
        let (newest, count, is_in_doubt) = table;
        let mut before = Fake { newest, count, is_in_doubt, answers, asked: Vec::new() };
        let mut after = before.clone();
        let was = former(op, own, &mut before);
        let change = match op {
            ADD => Change::Add,
            DELETE => Change::Delete,
            _ => Change::Modify,
        };
        let good = make_good(Control { change, own }, &mut after);
        let is = match good {
            Good::Done => Some(0),
            Good::WasThere => Some(EEXIST),
            Good::Again => None,
        };
        prop_assert_eq!(is, was);
        prop_assert_eq!(&after.asked, &before.asked, "the kernel was asked for something else");
        seen.borrow_mut()[good as usize] += 1;
        Ok(())
    });
    result.expect("the same results");
    println!("{:?} done, was there, made again", seen.borrow());
    assert!(seen.borrow().iter().all(|count| *count > 20), "every outcome comes up: {:?}", seen.borrow());
}

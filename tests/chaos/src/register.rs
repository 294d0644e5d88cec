//! Histories of registers that several clients read and write at once, and whether some order of the operations
//! explains all answers and keeps what was over before something else began before it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use anyhow::{Result, ensure};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

/// An operation on one register, with what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// It holds this number; 0 for nothing yet.
    Read(u64),
    /// It holds this number now.
    Write(u64),
    /// It held the first number and holds the second now.
    Exchange(u64, u64),
}

/// A register of a number, at first 0.
struct Register;

impl Specification for Register {
    type State = u64;
    type Operation = Operation;

    fn init() -> u64 {
        0
    }

    fn apply(operation: &Operation, state: &u64) -> (bool, u64) {
        match *operation {
            Operation::Read(found) => (found == *state, *state),
            Operation::Write(new) => (true, new),
            Operation::Exchange(found, new) => (found == *state, new),
        }
    }
}

type Actions = Vec<(usize, Action<Operation>)>;

/// What all clients did, register by register, in the order in which they saw it.
#[derive(Default)]
pub struct Record {
    registers: Mutex<BTreeMap<u64, Actions>>,
}

impl Record {
    /// Client `client` begins `operation` on `register`; what it will find is not known and does not matter yet.
    pub fn begins(&self, client: usize, register: u64, operation: Operation) {
        self.add(client, register, Action::Call(operation));
    }

    /// Its answer is here.
    pub fn ends(&self, client: usize, register: u64, operation: Operation) {
        self.add(client, register, Action::Response(operation));
    }

    fn add(&self, client: usize, register: u64, action: Action<Operation>) {
        let mut registers = self.registers.lock().expect("no panic under this lock");
        registers.entry(register).or_default().push((client, action));
    }

    /// Fails with the first register whose history nothing explains. Says how much there was.
    pub fn judge(self) -> Result<String> {
        let registers = self.registers.into_inner().expect("no panic under this lock");
        let count = registers.len();
        let operations: usize = registers.values().map(|actions| actions.len() / 2).sum();
        for (register, actions) in registers {
            let tail: Vec<String> = actions.iter().rev().take(12).rev().map(|a| format!("{a:?}")).collect();
            ensure!(
                WGLChecker::<Register>::is_linearizable(History::from_actions(actions)),
                "the history of register {register} is not linearizable; it ends with {}",
                tail.join(", ")
            );
        }
        Ok(format!("{operations} operations on {count} registers linearizable"))
    }
}

#[cfg(test)]
mod tests {
    use super::{Operation, Record};

    #[test]
    fn overlapping_operations_may_take_any_order() {
        let record = Record::default();
        record.begins(0, 1, Operation::Write(7));
        record.begins(1, 1, Operation::Read(0));
        record.ends(1, 1, Operation::Read(7));
        record.begins(2, 1, Operation::Exchange(0, 9));
        record.ends(2, 1, Operation::Exchange(7, 9));
        record.ends(0, 1, Operation::Write(7));
        assert!(record.judge().is_ok());
    }

    #[test]
    fn a_write_that_is_lost_or_comes_twice_is_found() {
        for found in [0, 7] {
            let record = Record::default();
            for (operation, answer) in [
                (Operation::Write(7), Operation::Write(7)),
                (Operation::Write(8), Operation::Write(8)),
                (Operation::Read(0), Operation::Read(found)),
            ] {
                record.begins(0, 5, operation);
                record.ends(0, 5, answer);
            }
            assert!(record.judge().is_err());
        }
    }
}

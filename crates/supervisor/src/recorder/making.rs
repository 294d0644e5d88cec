//! Threads whose making has no end in the log: their maker was killed, or its process ended, before it could say that it had made
//! them. What such a thread has done is in the log all the same, and a replay makes a thread where the log says that it was made.

use std::collections::BTreeMap;

use us_abi::event::{ReturnHead, ThreadStart};
use us_abi::{CallArgs, EventKind};

use super::rings;

const CLONE: u16 = libc::SYS_clone as u16;
/// A header's bytes.
const HEAD: usize = 16;

/// The thread that is made: its slot, and above that which of the slot's threads it is. As the beginning of its making says it.
type Word = u64;

/// Of one image.
#[derive(Debug, Default)]
pub struct Making {
    /// What each slot's thread is about to make.
    begun: BTreeMap<u16, Word>,
    /// The last thread of each slot that has begun, and its number.
    started: BTreeMap<u32, (u32, u32)>,
}

impl Making {
    /// An event of a slot's.
    pub fn see(&mut self, slot: u16, event: &[u8]) {
        let call = event.get(2..4).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        match event.first().copied().and_then(EventKind::from_u8) {
            Some(EventKind::Enter) if call == Some(CLONE) => {
                if let Some(word) = word_at(event, HEAD + std::mem::offset_of!(CallArgs, len)) {
                    self.begun.insert(slot, word);
                }
            }
            Some(EventKind::Return) if call == Some(CLONE) => {
                self.begun.remove(&slot);
            }
            Some(EventKind::ThreadStart) => {
                let half = |offset| Some(u32::from_le_bytes(event.get(offset..offset + 4)?.try_into().ok()?));
                let tid = half(HEAD + std::mem::offset_of!(ThreadStart, tid));
                let generation = half(HEAD + std::mem::offset_of!(ThreadStart, generation));
                if let (Some(tid), Some(generation)) = (tid, generation) {
                    self.started.insert(slot.into(), (generation, tid));
                }
            }
            _ => {}
        }
    }

    /// The log has ended: for each making without an end whose thread has begun the slot of its maker, and the end.
    pub fn ends(&mut self) -> Vec<(u16, Vec<u8>)> {
        let started = std::mem::take(&mut self.started);
        std::mem::take(&mut self.begun)
            .into_iter()
            .filter_map(|(slot, word)| {
                let (generation, tid) = started.get(&(word as u32))?;
                (u64::from(*generation) == word >> 32).then(|| (slot, end(*tid)))
            })
            .collect()
    }
}

fn word_at(event: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(event.get(at..at + 8)?.try_into().ok()?))
}

fn end(tid: u32) -> Vec<u8> {
    let head = ReturnHead { result: 0, identity: tid.into() };
    let payload = [head.result.to_le_bytes(), head.identity.to_le_bytes()].concat();
    let mut event = rings::event(EventKind::Return, 0, &payload);
    event[2..4].copy_from_slice(&CLONE.to_le_bytes());
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn begins(slot: u32, generation: u32) -> Vec<u8> {
        let word = u64::from(slot) | u64::from(generation) << 32;
        let mut event = rings::event(EventKind::Enter, 0, &[[0; 8], word.to_le_bytes()].concat());
        event[2..4].copy_from_slice(&CLONE.to_le_bytes());
        event
    }

    fn starts(generation: u32, tid: u32) -> Vec<u8> {
        let payload = [tid.to_le_bytes(), generation.to_le_bytes(), [0; 4], [0; 4]].concat();
        rings::event(EventKind::ThreadStart, 0, &payload)
    }

    #[test]
    fn a_thread_that_has_begun_was_made() {
        let mut making = Making::default();
        making.see(1, &begins(2, 7));
        making.see(1, &end(70));
        making.see(2, &starts(7, 70));
        making.see(2, &starts(8, 80));
        making.see(1, &begins(2, 8));
        assert_eq!(making.ends(), [(1, end(80))]);
        assert_eq!(making.ends(), []);
    }

    #[test]
    fn one_that_has_not_may_not_have_been() {
        let mut making = Making::default();
        making.see(2, &starts(7, 70));
        making.see(1, &begins(2, 8));
        making.see(3, &begins(4, 1));
        assert_eq!(making.ends(), []);
        // What a program has written into its own ring is no event.
        making.see(0, &[EventKind::Enter as u8, 0, 56, 0]);
        making.see(0, &[]);
        assert_eq!(making.ends(), []);
    }
}

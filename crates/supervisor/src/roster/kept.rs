//! The roster in a checkpoint: what of it goes into the file, and back.
//!
//! A process's runtime remembers in its own memory of what the roster has told it, by places there. So each process that is listed
//! keeps its place, and with it what relatives have sent it.

use std::collections::HashMap;
use std::mem::offset_of;
use std::sync::atomic::Ordering;

use us_abi::{
    Mail, PROCESSES_MAX, Process, ROSTER_ADDRESS, ROSTER_BYTES, Roster as Shared, RosterHeader, end, kin,
};
use us_abi::{mail, process};

use super::Roster;
use crate::reap::Reaped;

/// Processes that have ended and that nobody has asked for: place, and how.
pub(crate) type Ends = HashMap<usize, Reaped>;

const HEADER_AT: usize = offset_of!(Shared, header);
const PROCESSES_AT: usize = offset_of!(Shared, processes);
const MAIL_AT: usize = offset_of!(Shared, mail);
const LETTERS_AT: usize = HEADER_AT + offset_of!(RosterHeader, letters);

impl Roster {
    /// What goes into a checkpoint of the processes at these places, while all of them stand still: addresses, and what stands
    /// there. Whoever goes on is nobody's child but the supervisor's, and of ends that only the kernel knows `ended` tells.
    pub(crate) fn keep(&self, members: &[usize], ended: &Ends) -> Vec<(u64, Vec<u8>)> {
        let used = (self.header().used.load(Ordering::Acquire) as usize).min(PROCESSES_MAX);
        let mut processes = self.bytes(PROCESSES_AT, used * size_of::<Process>());
        for (at, bytes) in processes.chunks_exact_mut(size_of::<Process>()).enumerate() {
            let state = word(bytes, offset_of!(Process, state));
            let is_over = word(bytes, offset_of!(Process, end)) == end::ENDED;
            let (is_member, how) = (members.contains(&at), ended.get(&at));
            if state != process::LISTED || !is_member && how.is_none() && !is_over {
                set(bytes, offset_of!(Process, state), process::FREE);
                continue;
            }
            set(bytes, offset_of!(Process, kin), kin::ADOPTED);
            set(bytes, offset_of!(Process, sending), 0);
            if let Some(how) = how {
                set(bytes, offset_of!(Process, end), end::ENDED);
                set(bytes, offset_of!(Process, status), how.status as u32);
                if let Some(whose) = how.whose {
                    set(bytes, offset_of!(Process, group), whose.group);
                    set(bytes, offset_of!(Process, session), whose.session + 1);
                    set(bytes, offset_of!(Process, user), whose.user);
                }
            } else if is_member {
                set(bytes, offset_of!(Process, end), end::NONE);
                set(bytes, offset_of!(Process, doomed), 0);
            }
        }
        let is_any =
            self.shared().mail.iter().any(|letter| letter.state.load(Ordering::Acquire) != mail::FREE);
        let letters = if is_any { size_of_val(&self.shared().mail) } else { 0 };
        let parts = [
            (PROCESSES_AT, processes),
            (LETTERS_AT, self.bytes(LETTERS_AT, size_of::<u64>())),
            (MAIL_AT, self.bytes(MAIL_AT, letters)),
        ];
        parts.map(|(at, bytes)| ((ROSTER_ADDRESS + at) as u64, bytes)).into()
    }

    /// Puts back a part of what [`keep`](Roster::keep) has kept, before anybody else has the file. False for bytes of anything else.
    pub(crate) fn put_back(&self, address: u64, bytes: &[u8]) -> bool {
        let Some(at) = (address as usize).checked_sub(ROSTER_ADDRESS) else { return false };
        let is_whole = |from: usize, size: usize, count: usize| {
            at >= from && at - from + bytes.len() <= size * count && bytes.len().is_multiple_of(8)
        };
        let are_processes = is_whole(PROCESSES_AT, size_of::<Process>(), PROCESSES_MAX);
        let is_known = are_processes
            || is_whole(LETTERS_AT, size_of::<u64>(), 1)
            || is_whole(MAIL_AT, size_of::<Mail>(), us_abi::MAIL_MAX);
        if !is_known {
            return false;
        }
        // SAFETY: inside the mapping, as has just been looked at; nobody else has the file yet.
        unsafe {
            let to = self.map.base().as_ptr().cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        if are_processes {
            let last = (at - PROCESSES_AT + bytes.len()).div_ceil(size_of::<Process>());
            self.header().used.fetch_max(last as u32, Ordering::AcqRel);
        }
        true
    }

    fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        assert!(at + len <= ROSTER_BYTES, "the roster has no such part");
        // SAFETY: inside the mapping; whoever writes there stands still, or writes one of its atomics.
        unsafe {
            let from = self.map.base().as_ptr().cast::<u8>().add(at);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len);
        }
        bytes
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4].try_into().map_or(0, u32::from_le_bytes)
}

fn set(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

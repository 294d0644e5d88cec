//! What a copy whose root has no `/proc` asks about itself, and what the kernel tells us of it.
//!
//! A copy hears of itself alone: of the segment's primary, or of its standby, as the supervisor knows them. What it is told it could
//! read itself, were there a `/proc` in its root.

use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::Ordering;

use us_abi::{ANSWER_BYTES, Inquiry, SegmentHeader, inquiry, subject};

use crate::proc;
use crate::segment::wake;
use crate::sentry::Shared;

/// Answers, if something is asked.
pub fn answer(shared: &Shared) {
    let asked = &shared.segment.header().inquiry;
    let question = asked.state.load(Ordering::Acquire);
    if question & inquiry::BITS != inquiry::ASKED {
        return;
    }
    let pid = asked.pid.load(Ordering::Relaxed);
    let is_known =
        pid != 0 && (shared.primary().map(|primary| primary.pid) == Some(pid) || shared.standby() == pid);
    let told = is_known.then(|| text(asked, pid)).flatten();
    let state = match &told {
        Some(text) => {
            let from = asked.from.load(Ordering::Relaxed);
            write(asked, text.get(from as usize..).unwrap_or(&[]));
            inquiry::ANSWERED
        }
        None => inquiry::UNKNOWN,
    };
    // Whoever asked may have given up meanwhile, and somebody else have asked: then this thread has been woken again.
    let answered = question & !inquiry::BITS | state;
    let _ = asked.state.compare_exchange(question, answered, Ordering::AcqRel, Ordering::Acquire);
    wake(&asked.state);
}

/// The primary is dead: if it was about to ask, it no longer is.
pub fn forget(header: &SegmentHeader) {
    header.inquiry.state.fetch_and(!inquiry::BITS, Ordering::Relaxed);
    header.inquiry.asker.store(0, Ordering::Release);
}

fn write(asked: &Inquiry, text: &[u8]) {
    let bytes = &text[..text.len().min(ANSWER_BYTES)];
    for (word, chunk) in asked.text.iter().zip(bytes.chunks(8)) {
        let mut eight = [0u8; 8];
        eight[..chunk.len()].copy_from_slice(chunk);
        word.store(u64::from_le_bytes(eight), Ordering::Relaxed);
    }
    asked.bytes.store(bytes.len() as u32, Ordering::Relaxed);
}

/// The whole text. `None` where the kernel does not tell it.
fn text(asked: &Inquiry, pid: u32) -> Option<Vec<u8>> {
    let number = asked.number.load(Ordering::Relaxed);
    let whole = |name: &str| proc::bytes(pid, name).ok();
    match asked.subject.load(Ordering::Relaxed) {
        subject::MAPS => whole("maps"),
        subject::DETAILS => whole("smaps"),
        subject::MEMORY => whole("statm"),
        subject::STAT => whole("stat"),
        subject::THREADS => numbers(pid, "task", number),
        subject::THREAD_STAT => whole(&format!("task/{number}/stat")),
        subject::THREAD_STATUS => whole(&format!("task/{number}/status")),
        subject::DESCRIPTORS => numbers(pid, "fd", number),
        subject::DESCRIPTOR => whole(&format!("fdinfo/{number}")),
        subject::OBJECT => {
            let link = proc::link(pid, format_args!("fd/{number}")).ok()?;
            Some(link.as_os_str().as_bytes().to_vec())
        }
        _ => None,
    }
}

/// A line for each name in a folder that is a number, from `least` on, the lowest first.
fn numbers(pid: u32, folder: &str, least: u32) -> Option<Vec<u8>> {
    let numbers = proc::numbers(pid, folder).ok()?;
    let numbers = numbers.iter().filter(|number| **number >= least);
    Some(numbers.flat_map(|number| format!("{number}\n").into_bytes()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_in_order_and_from_the_least() {
        let own = std::process::id();
        let all = numbers(own, "fd", 0).unwrap();
        let listed: Vec<u32> =
            std::str::from_utf8(&all).unwrap().lines().map(|line| line.parse().unwrap()).collect();
        assert!(listed.is_sorted() && listed.contains(&0));
        assert!(!numbers(own, "fd", 1).unwrap().starts_with(b"0\n"));
        assert_eq!(numbers(0, "fd", 0), None);
    }
}

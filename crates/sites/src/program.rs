//! What is an instruction beyond doubt in a text of which nothing is known.

use crate::decode::{Flow, decode_at};
use crate::entries::each_pair;
use crate::scan::{NR_LIMIT, ScanError, decide_all, error_check};
use crate::{Kind, Reason, Site};

/// [`scan`](crate::scan) for a text of which nothing is known: only what is an instruction beyond doubt, the time-stamp counter's too.
///
/// # Errors
///
/// As there; as many slots as [`has_program_sites`] says always do.
pub fn scan_program(text: &[u8], text_addr: u64, out: &mut [Site]) -> Result<usize, ScanError> {
    if text.len() > i32::MAX as usize {
        return Err(ScanError::TextTooLong);
    }
    let mut found = 0;
    each_program_site(text, |at, insn_len, kind| {
        if let Some(slot) = out.get_mut(found) {
            let at = at as u32;
            *slot = Site { at, insn_len, patch_start: at, kind, text_addr, ..Site::EMPTY };
        }
        found += 1;
    });
    if found > out.len() {
        return Err(ScanError::TooManySites(found));
    }
    // Few sites in a large text: some bytes that look like a branch to one of them are none.
    Ok(decide_all(text, out, found, true))
}

/// How many places [`scan_program`] would look at. It reads each byte once, and most texts have none.
pub fn has_program_sites(text: &[u8]) -> usize {
    let mut found = 0;
    each_program_site(text, |_, _, _| found += 1);
    found
}

/// Whether a program's text has futex calls of its own: locks that are atomics, as those of Rust's and Go's libraries, which are linked
/// into each program. The bytes must say so exactly. It is `syscall(202, word, operation, …)` with an operation on memory that
/// no other process shares, or the instruction itself with that number loaded just before it.
#[must_use]
pub fn has_own_futexes(text: &[u8]) -> bool {
    /// Bytes on either side in which the call's arguments are loaded.
    const NEAR: usize = 48;
    /// `mov $202, %edi` and `mov $202, %eax; syscall`.
    const FIRST: [u8; 5] = [0xbf, 202, 0, 0, 0];
    const DIRECT: [u8; 7] = [0xb8, 202, 0, 0, 0, 0x0f, 0x05];
    /// `FUTEX_WAIT`, `FUTEX_WAKE`, `FUTEX_WAIT_BITSET`, `FUTEX_WAKE_BITSET` with `FUTEX_PRIVATE_FLAG`; the third by the wall clock.
    const OPERATIONS: [u32; 5] = [0x80, 0x81, 0x89, 0x8a, 0x189];
    let loads_operation = |bytes: &[u8]| {
        let value = bytes.strip_prefix(&[0xba]).and_then(|value| <[u8; 4]>::try_from(value).ok());
        value.is_some_and(|value| OPERATIONS.contains(&u32::from_le_bytes(value)))
    };
    let mut has = false;
    each_pair(text, |first, second| ((first == 0xbf) | (first == 0xb8)) & (second == 202), &mut |at| {
        let behind = &text[at..];
        has |= behind.starts_with(&DIRECT)
            || behind.starts_with(&FIRST)
                && text[at.saturating_sub(NEAR)..text.len().min(at + NEAR)].windows(5).any(loads_operation);
    });
    has
}

/// Calls `found` with each place where the bytes leave no doubt: its offset, the instruction's length, and its kind as far as it
/// is known.
fn each_program_site(text: &[u8], mut found: impl FnMut(usize, u8, Kind)) {
    let unknown = Kind::Unpatchable(Reason::NoWindow);
    let mut look = |at: usize| match text.get(at + 1) {
        Some(0x05) if is_surely_syscall(text, at) => found(at, 2, unknown),
        Some(0x31) if is_surely_counter(text, at + 2) => found(at, 2, Kind::Counter),
        Some(0x01) if text.get(at + 2) == Some(&0xf9) && is_surely_counter(text, at + 3) => {
            found(at, 3, Kind::Counter);
        }
        _ => {}
    };
    let is_one = |first, second| (first == 0x0f) & ((second == 0x05) | (second == 0x31) | (second == 0x01));
    each_pair(text, is_one, &mut look);
}

/// Whether a number is loaded just before the `syscall` at `at`, or its result compared with an error just behind it.
fn is_surely_syscall(text: &[u8], at: usize) -> bool {
    let loads = |len: usize, opcode: &[u8]| {
        let before = at.checked_sub(len).and_then(|start| text.get(start..at));
        let number = before.and_then(|bytes| bytes.strip_prefix(opcode)).map(<[u8; 4]>::try_from);
        matches!(number, Some(Ok(number)) if u32::from_le_bytes(number) < NR_LIMIT)
    };
    error_check(text.get(at + 2..).unwrap_or_default()).is_some()
        || loads(5, &[0xb8])
        || loads(7, &[0x48, 0xc7, 0xc0])
}

/// Whether one of the next instructions, also behind a jump, moves a half of the counter's value to its place: `shl $32` of a
/// register.
fn is_surely_counter(text: &[u8], mut behind: usize) -> bool {
    const NEAR: usize = 4;
    for _ in 0..NEAR {
        if matches!(text.get(behind..behind + 4), Some([0x48 | 0x49, 0xc1, 0xe0..=0xe7, 0x20])) {
            return true;
        }
        match decode_at(text, behind) {
            Some((insn, _)) if insn.flow == Flow::Next => behind += usize::from(insn.len),
            Some((insn, code)) if insn.flow == Flow::Jump => {
                let target =
                    insn.target(&code, behind as i64).and_then(|target| usize::try_from(target).ok());
                let Some(target) = target else { return false };
                behind = target;
            }
            _ => return false,
        }
    }
    false
}

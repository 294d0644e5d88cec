//! The system calls that put a version into a process; see [`us_abi::upgrade`].

use us_abi::upgrade::{DESCRIPTOR, HEAD_BYTES, STEPS_MAGIC, STEPS_MAX, Step};

use super::link::{Linked, PAGE};

const READ: u64 = 1;
const WRITE: u64 = 2;
const EXECUTE: u64 = 4;

/// An older version's text, and the jumps that go into it.
type Jumps = ((u64, u64), Vec<(u64, [u8; 5])>);

/// The file: head, steps, the linked version from a page's beginning on, and the jumps. The version goes to `base`; `then`
/// is its function that is called last.
///
/// # Errors
/// When there are too many steps.
pub(super) fn write(linked: &Linked, base: u64, jumps: &[Jumps], then: u64) -> Result<Vec<u8>, String> {
    let content = ((HEAD_BYTES + STEPS_MAX) as u64).next_multiple_of(PAGE);
    let bytes = linked.bytes.len() as u64;
    let protect = |(start, bytes, how): (u64, u64, u64)| step(libc::SYS_mprotect, &[start, bytes, how], 0);
    let fill =
        |to: u64, bytes: u64, from: u64| step(libc::SYS_pread64, &[DESCRIPTOR, to, bytes, from], bytes);
    let mut steps = vec![protect((base, bytes, READ | WRITE)), fill(base, bytes, content)];
    steps.extend(linked.parts.iter().map(|part| protect(*part)));
    steps.extend(jumps.iter().map(|((start, len), _)| protect((*start, *len, READ | WRITE | EXECUTE))));
    let changes = steps.len() as u64;
    let mut at = content + bytes;
    for (_, jumps) in jumps {
        for (from, jump) in jumps {
            steps.push(fill(*from, jump.len() as u64, at));
            at += jump.len() as u64;
        }
    }
    steps.extend(jumps.iter().map(|((start, len), _)| protect((*start, *len, READ | EXECUTE))));
    if steps.len() * size_of::<Step>() > STEPS_MAX {
        return Err("it takes too many steps".into());
    }
    let mut file = Vec::new();
    for word in [STEPS_MAGIC, steps.len() as u64, changes, then] {
        file.extend(word.to_le_bytes());
    }
    file.resize(HEAD_BYTES, 0);
    for step in steps {
        for word in [step.number].into_iter().chain(step.arguments).chain([step.result]) {
            file.extend(word.to_le_bytes());
        }
    }
    file.resize(content as usize, 0);
    file.extend(&linked.bytes);
    file.extend(jumps.iter().flat_map(|(_, jumps)| jumps).flat_map(|(_, jump)| jump));
    Ok(file)
}

fn step(number: i64, given: &[u64], result: u64) -> Step {
    let mut arguments = [0; 6];
    arguments[..given.len()].copy_from_slice(given);
    Step { number: number as u64, arguments, result }
}

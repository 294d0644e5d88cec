//! exec: a new program in this process.
//!
//! The standby goes first: exec gives the primary a table of its own, while the standby would keep every
//! close-on-exec descriptor open, and a parent that waits for the end of such a pipe would hang. The new
//! image is told the way back into the group by its environment, and makes a standby of its own.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::event::{EventKind, NO_TICKET, ReturnHead};
use us_abi::{Cause, ENV_PRELOAD, ENV_SEGMENT, GroupState, leaving};

use crate::door::process;
use crate::log::Next;
use crate::raw::{self, call6, failed};
use crate::state::{self, Role};
use crate::sys::gate::Call;
use crate::sys::guest;
use crate::thread::{Mode, Thread};
use crate::{drop_standby, stop_logging};

const EXECVE: u16 = 59;
const EXECVEAT: u64 = 322;
const AT_FDCWD: u64 = -100i64 as u64;
const X_OK: u64 = 1;
const PATH_BYTES: usize = 4096;

/// Path of the runtime's library and of the segment, as the supervisor gave them: each with its NUL.
static PATHS: [[AtomicU64; PATH_BYTES / 8]; 2] = [const { [const { AtomicU64::new(0) }; PATH_BYTES / 8] }; 2];
const LIBRARY: usize = 0;
const SEGMENT: usize = 1;

/// Remembers the two paths, up to the first separator or the NUL. In the constructor.
///
/// # Safety
/// Both strings end with NUL.
pub unsafe fn remember(library: *const u8, segment: *const u8) {
    for (place, from) in [(LIBRARY, library), (SEGMENT, segment)] {
        let to = PATHS[place].as_ptr().cast_mut().cast::<u8>();
        for at in 0..PATH_BYTES - 1 {
            // SAFETY: the source ends with NUL, where the loop stops; the target is large enough, and no other
            // thread exists.
            unsafe {
                let byte = *from.add(at);
                if byte == 0 || (place == LIBRARY && byte == b':') {
                    break;
                }
                to.add(at).write(byte);
            }
        }
    }
}

/// execve, execveat.
pub fn exec(thread: &mut Thread, call: &Call) -> i64 {
    loop {
        match thread.calls() {
            // A primary whose standby is gone may be asked for another at this moment.
            Mode::Solo if is_waited_for() => return hopeless(call).unwrap_or_else(|| replace(call)),
            Mode::Solo => {
                // SAFETY: the guest's own call.
                return unsafe { call6(call.nr, call.args) };
            }
            Mode::Record => {
                // A search along PATH tries many names that do not exist: answered without giving anything up.
                if let Some(error) = hopeless(call) {
                    let head = ReturnHead { result: error, identity: 0 };
                    thread.append(EventKind::Call, 0, EXECVE, NO_TICKET, &head);
                    return error;
                }
                return replace(call);
            }
            Mode::Replay => match thread.expect(EventKind::Call, EXECVE) {
                Next::Live => continue,
                Next::Event(event) => {
                    let result = event.returned().0.result;
                    thread.close();
                    return result;
                }
            },
        }
    }
}

/// Whether this is a primary, with a standby or on its way to another.
fn is_waited_for() -> bool {
    state::role() == Role::Primary && state::header().is_some_and(|header| header.config.standbys != 0)
}

/// An error that the call would give anyway. `None` when it may succeed.
fn hopeless(call: &Call) -> Option<i64> {
    let (folder, path) =
        if call.nr == EXECVEAT { (call.args[0], call.args[1]) } else { (AT_FDCWD, call.args[0]) };
    if call.nr == EXECVEAT && call.args[4] & 0x1000 != 0 {
        return None;
    }
    // SAFETY: asks only.
    let result = unsafe { raw::call3(raw::nr::FACCESSAT, folder, path, X_OK) };
    failed(result).then_some(result)
}

/// Ends the standby and becomes the other program.
fn replace(call: &Call) -> i64 {
    let Some(header) = state::header() else { return raw::err::ENOENT };
    stop_logging();
    header.leaving.0.store(leaving::EXEC, Ordering::SeqCst);
    // A signal that asks a thread to park would end the new image, which has no handler for it.
    crate::clone::await_quiet(header);
    stop_logging();
    process::end_standby();
    header.state.0.store(GroupState::Starting as u32, Ordering::SeqCst);
    state::attention();
    let mut call = *call;
    let environment = if call.nr == EXECVEAT { 3 } else { 2 };
    if state::role() == Role::Primary
        && let Some(with_ours) = environment_with_ours(call.args[environment])
    {
        call.args[environment] = with_ours;
    }
    // SAFETY: the guest's own call, with two more variables that the new image's constructor takes out again.
    let result = unsafe { call6(call.nr, call.args) };
    header.leaving.0.store(leaving::NO, Ordering::SeqCst);
    drop_standby(Cause::Exec, &[b"the standby was given up for an exec that failed"]);
    result
}

/// A copy of an environment with our variables. `None` if there is no memory for it: the new image is then
/// not protected, and the supervisor says so.
fn environment_with_ours(from: u64) -> Option<u64> {
    const MAX: u64 = 1 << 16;
    let count = if from == 0 {
        0
    } else {
        (0..MAX).find(|index| guest::load::<u64>(from + index * 8).is_none_or(|entry| entry == 0))?
    };
    let table_bytes = (count + 4) * 8;
    let bytes = table_bytes + 5 * PATH_BYTES as u64;
    // SAFETY: new memory; it goes with this image.
    let memory = unsafe { raw::call6(raw::nr::MMAP, [0, bytes, 3, 0x22, u64::MAX, 0]) };
    if failed(memory) {
        return None;
    }
    let table = memory as *mut u64;
    let mut strings = Strings { at: (memory as u64 + table_bytes) as *mut u8, left: 5 * PATH_BYTES };
    let mut next = 0;
    let mut preloaded = false;
    for index in 0..count {
        let entry = guest::load::<u64>(from + index * 8)?;
        let mut start = [0u8; 11];
        let is_preload = guest::read(start.as_mut_ptr(), entry, 11) && &start == b"LD_PRELOAD=";
        let written = if is_preload {
            preloaded = true;
            // SAFETY: the table has room for all entries and four more.
            unsafe { table.add(next).write(strings.put(&[ENV_PRELOAD.as_bytes(), b"="], None, entry + 11)?) };
            next += 1;
            strings.put(&[b"LD_PRELOAD="], Some(LIBRARY), entry + 10)?
        } else {
            entry
        };
        // SAFETY: as above.
        unsafe { table.add(next).write(written) };
        next += 1;
    }
    let mut ours = [strings.put(&[ENV_SEGMENT.as_bytes(), b"="], Some(SEGMENT), 0)?, 0];
    if !preloaded {
        ours[1] = strings.put(&[b"LD_PRELOAD="], Some(LIBRARY), 0)?;
    }
    for entry in ours {
        // SAFETY: as above; a zero ends the table.
        unsafe { table.add(next).write(entry) };
        next += 1;
    }
    // SAFETY: as above.
    unsafe { table.add(next.min(count as usize + 3)).write(0) };
    Some(memory as u64)
}

/// Builds strings one behind the other.
struct Strings {
    at: *mut u8,
    left: usize,
}

impl Strings {
    /// A string of parts, one of the remembered paths, and a string of the guest's. The guest's begins with the
    /// `=` that becomes the separator where a path stands before it.
    fn put(&mut self, parts: &[&[u8]], path: Option<usize>, tail: u64) -> Option<u64> {
        let start = self.at;
        for part in parts {
            self.bytes(part.as_ptr(), part.len())?;
        }
        if let Some(path) = path {
            let path = PATHS[path].as_ptr().cast::<u8>();
            self.bytes(path, guest::string_len(path as u64))?;
        }
        if tail != 0 {
            let len = guest::string_len(tail);
            let place = self.at;
            self.bytes(tail as *const u8, len)?;
            if path.is_some() && len > 0 {
                // SAFETY: the byte has just been written.
                unsafe { place.write(b':') };
            }
        }
        self.bytes(c"".as_ptr().cast(), 1)?;
        Some(start as u64)
    }

    fn bytes(&mut self, from: *const u8, len: usize) -> Option<()> {
        if len > self.left || !guest::read(self.at, from as u64, len) {
            return None;
        }
        // SAFETY: inside the memory that was set aside.
        self.at = unsafe { self.at.add(len) };
        self.left -= len;
        Some(())
    }
}

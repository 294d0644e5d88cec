//! exec: a new program in this process.
//!
//! The standby goes first: exec gives the primary a table of its own, while the standby would keep every
//! close-on-exec descriptor open, and a parent that waits for the end of such a pipe would hang. The new
//! image is told the way back into the group by its environment, and makes a standby of its own.

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, EventKind, NO_TICKET, ReturnHead};
use us_abi::{Cause, ENV_LIMITS, ENV_PRELOAD, ENV_SEED, ENV_SEGMENT, GroupState, leaving};

use crate::above::above;
use crate::call::Call;
use crate::door::recorded::{take_begin, take_end};
use crate::door::{copies, limits, process, random};
use crate::fdtable::AT_FDCWD;
use crate::guest::GuestPtr;
use crate::kernel::X_OK;
use crate::raw::{self, call6, failed};
use crate::signal::{self, death};
use crate::state::{self, Role};
use crate::thread::spawn::Lent;
use crate::thread::{Mode, Thread, stop_logging};
use crate::verdict::drop_standby;
use crate::{bound, members, paths, recorder, seats, tls, turns};

const EXECVE: u16 = linux_raw_sys::general::__NR_execve as u16;
/// System call number.
pub const EXECVEAT: u64 = crate::raw::nr::EXECVEAT;
const FACCESSAT2: u64 = linux_raw_sys::general::__NR_faccessat2 as u64;
const EFFECTIVE: u64 = linux_raw_sys::general::AT_EACCESS as u64;

/// execve, execveat.
pub fn exec(thread: &mut Thread, call: &Call) -> i64 {
    random::about_to_make_another(thread);
    thread.attempt(|thread, mode| {
        match mode {
            // A primary whose standby is gone may be asked for another at this moment.
            Mode::Solo => {
                let waited_for = is_waited_for();
                let result =
                    hopeless(call).unwrap_or_else(|| if waited_for { replace(call) } else { make(call) });
                if result != raw::err::EINTR {
                    return Some(result);
                }
                // A signal came before the kernel was entered: its handler runs before the exec, as it would have natively.
                signal::deliver(thread);
                None
            }
            Mode::Record => {
                // A search along PATH tries many names that do not exist: answered without giving anything up.
                if let Some(error) = hopeless(call) {
                    let head = ReturnHead { result: error, identity: 0 };
                    thread.append(EventKind::Call, 0, EXECVE, NO_TICKET, &head);
                    return Some(error);
                }
                if recorder::is_recording() {
                    return Some(become_recorded(thread, call));
                }
                let result = replace(call);
                if result == raw::err::EINTR {
                    // Without a log by now.
                    signal::deliver(thread);
                    return None;
                }
                Some(result)
            }
            Mode::Replay if is_logged_whole() && is_begun(thread) => end_image(thread),
            Mode::Replay => {
                let event = thread.expect(EventKind::Call, EXECVE).event()?;
                let result = event.returned().0.result;
                thread.close();
                Some(result)
            }
        }
    })
}

/// Whether this is a primary, with a standby or on its way to another.
fn is_waited_for() -> bool {
    state::role() == Role::Primary && state::header().is_some_and(|header| header.config.standbys != 0)
}

/// The exec of a child that borrows its parent's memory. What it needs is put into that memory, and given back by the parent.
/// `hand_on` says what of the child's signals the new image gets, and takes it back where there is none.
pub fn borrowed(thread: &mut Thread, call: &Call, hand_on: impl Fn(&Thread, bool)) -> i64 {
    if let Some(error) = hopeless(call) {
        return error;
    }
    let mut call = *call;
    give_back(thread);
    thread.spawn.lent = add_ours(&mut call);
    hand_on(thread, true);
    signal::hand_on_ignored(true);
    limits::hand_on(true, thread.spawn.lent[1] != 0);
    // SAFETY: the guest's own call.
    let result = unsafe { call6(call.nr, call.args) };
    limits::hand_on(false, false);
    signal::hand_on_ignored(false);
    hand_on(thread, false);
    result
}

/// After a child has stopped to borrow this thread's block.
pub fn give_back(thread: &mut Thread) {
    release(core::mem::take(&mut thread.spawn.lent));
}

fn release([start, bytes]: Lent) {
    if bytes != 0 {
        // SAFETY: memory of ours that only a failed, or another process's, exec has looked at.
        unsafe { raw::call2(raw::nr::MUNMAP, start, bytes) };
    }
}

/// Makes an exec; returns if it fails. EINTR if a handler is to run before it.
fn make(call: &Call) -> i64 {
    let mut call = *call;
    // The new image may be one that the runtime is not in.
    let was_asked = members::is_not_asked();
    let memory = add_ours(&mut call);
    let is_ours = memory[1] != 0;
    death::hand_on(true);
    limits::hand_on(true, is_ours);
    // SAFETY: the calling thread's own block.
    let mut thread = unsafe { tls::current().as_mut() };
    if let Some(thread) = &mut thread {
        signal::hand_on_mask(thread, true);
        signal::hand_on_waiting(thread);
    }
    signal::hand_on_ignored(true);
    let result = match &thread {
        // What is due now is delivered now: the new image would never hear of it, and begin with it blocked.
        Some(thread) if thread.calls() == Mode::Solo => {
            // SAFETY: the guest's own call, with two more variables that the new image's constructor takes out again.
            unsafe { raw::blocking(call.nr, &call.args, &thread.pending) }
        }
        // SAFETY: as above.
        _ => unsafe { call6(call.nr, call.args) },
    };
    signal::hand_on_ignored(false);
    thread.inspect(|thread| signal::hand_on_mask(thread, false));
    limits::hand_on(false, false);
    death::hand_on(false);
    release(memory);
    if was_asked {
        members::may_be_asked();
    }
    result
}

/// Whether the image behind an exec could be of this group. Under a filter of the program's own the runtime's constructor might be
/// the end of it.
pub fn leads_into_group() -> bool {
    state::role() != Role::Outside && crate::members::header().is_some() && !bound::outlives_exec()
}

/// Adds our variables to the environment of an exec, if the new image could be of this group.
fn add_ours(call: &mut Call) -> Lent {
    let environment = if call.nr == EXECVEAT { 3 } else { 2 };
    let group = leads_into_group() && limits::leave_room();
    let Some(lent) = group.then(|| environment_with_ours(GuestPtr::at(call.args[environment]))).flatten()
    else {
        return [0; 2];
    };
    call.args[environment] = lent[0];
    lent
}

/// An error that the call would give anyway. `None` when it may succeed. Whether the file may be executed is asked for the effective
/// user, as exec does. Where a filter does not let that be asked, only the real one's rights are known, and what exec says counts.
fn hopeless(call: &Call) -> Option<i64> {
    let (folder, path) =
        if call.nr == EXECVEAT { (call.args[0], call.args[1]) } else { (AT_FDCWD, call.args[0]) };
    if call.nr == EXECVEAT && call.args[4] & 0x1000 != 0 {
        return None;
    }
    // SAFETY: asks only.
    let result = unsafe { raw::call4(FACCESSAT2, folder, path, X_OK, EFFECTIVE) };
    if !matches!(result, raw::err::ENOSYS | raw::err::EPERM) {
        return failed(result).then_some(result);
    }
    // SAFETY: as above.
    let result = unsafe { raw::call3(raw::nr::FACCESSAT, folder, path, X_OK) };
    (failed(result) && result != raw::err::EACCES).then_some(result)
}

/// Ends the standby and becomes the other program.
fn replace(call: &Call) -> i64 {
    let Some(header) = state::header() else { return raw::err::ENOENT };
    // SAFETY: the calling thread's own block.
    if let Some(thread) = unsafe { tls::current().as_mut() }
        && crate::members::of_family::is_member()
    {
        // Its standby gives the turn back as well, when it has come here.
        turns::pause(thread);
        crate::family::depart(thread);
    }
    seats::drop_spares(header, Cause::Exec, &[b"the program replaced itself"]);
    stop_logging();
    header.leaving.0.store(leaving::EXEC, Ordering::SeqCst);
    // A signal that asks a thread to park would end the new image, which has no handler for it.
    above().await_quiet(header);
    stop_logging();
    process::end_standby();
    header.state.0.store(GroupState::Starting as u32, Ordering::SeqCst);
    state::attention();
    let result = make(call);
    copies::ended_in_vain(header);
    header.leaving.0.store(leaving::NO, Ordering::SeqCst);
    drop_standby(Cause::Exec, &[b"the standby was given up for an exec that failed"]);
    result
}

/// As a recorded process: what the old image has logged is taken before the new one begins, and its standby is gone.
fn become_recorded(thread: &mut Thread, call: &Call) -> i64 {
    let Some(header) = state::header() else { return raw::err::ENOENT };
    thread.append(EventKind::Enter, 0, EXECVE, NO_TICKET, &ARGUMENTS);
    turns::give(thread);
    header.leaving.0.store(leaving::EXEC, Ordering::SeqCst);
    let protected = header.config.standbys != 0;
    if protected {
        seats::drop_spares(header, Cause::Exec, &[b"the program replaced itself"]);
        above().await_quiet(header);
        process::end_standby();
    }
    recorder::await_taken(header);
    if protected {
        header.state.0.store(GroupState::Starting as u32, Ordering::SeqCst);
        state::attention();
    }
    let result = make(call);
    copies::ended_in_vain(header);
    header.leaving.0.store(leaving::NO, Ordering::SeqCst);
    if protected {
        drop_standby(Cause::Exec, &[b"the standby was given up for an exec that failed"]);
    }
    thread.append(EventKind::Return, 0, EXECVE, NO_TICKET, &ReturnHead { result, identity: 0 });
    turns::take(thread);
    result
}

/// What the log says of an exec before it is made.
const ARGUMENTS: CallArgs = CallArgs { fd: -1, digest: 0, len: 0 };

/// Whether the log that this copy follows has an exec itself.
fn is_logged_whole() -> bool {
    state::is_detached() || state::is_recorded()
}

/// Whether the log says that an exec was tried here, rather than answered without trying.
fn is_begun(thread: &mut Thread) -> bool {
    loop {
        match thread.peek() {
            _ if thread.calls() != Mode::Replay => return false,
            Some(header) if header.kind == EventKind::Signal as u8 => thread.take_signal(),
            Some(header) if header.kind == EventKind::Yield as u8 => turns::follow_pause(thread),
            Some(header) => return header.kind == EventKind::Enter as u8,
            None => thread.wait_more(),
        }
    }
}

/// The exec failed, as the next event says, or this image ends here: in a replay the supervisor starts the next, and a
/// standby is about to be ended. `None` if it is to be made.
fn end_image(thread: &mut Thread) -> Option<i64> {
    let row = us_calls::row(u64::from(EXECVE))?;
    take_begin(thread, row, &ARGUMENTS)?;
    turns::give(thread);
    let result = take_end(thread, row, |_, head, _, _| head.result)?;
    turns::take(thread);
    Some(result)
}

/// A copy of an environment with our variables. `None` if there is no memory for it: the new image is then
/// not protected, and the supervisor says so.
fn environment_with_ours(from: GuestPtr<u64>) -> Option<Lent> {
    const MAX: u64 = 1 << 16;
    let count = if from.is_nowhere() {
        0
    } else {
        (0..MAX).find(|index| from.nth(*index).load().is_none_or(|entry| entry == 0))?
    };
    let table_bytes = (count + 6) * 8;
    let bytes = table_bytes + 6 * paths::PATH_BYTES as u64;
    // SAFETY: new memory; it goes with this image.
    let memory = unsafe { raw::call6(raw::nr::MMAP, [0, bytes, 3, 0x22, u64::MAX, 0]) };
    if failed(memory) {
        return None;
    }
    let table = memory as *mut u64;
    let mut strings = Strings { at: (memory as u64 + table_bytes) as *mut u8, left: 6 * paths::PATH_BYTES };
    let mut next = 0;
    let mut preloaded = false;
    for index in 0..count {
        const PRELOAD: &[u8; 11] = b"LD_PRELOAD=";
        let entry = from.nth(index).load()?;
        let is_preload = GuestPtr::<[u8; 11]>::at(entry).load().is_some_and(|start| &start == PRELOAD);
        let value = GuestPtr::<u8>::at(entry + PRELOAD.len() as u64);
        let written = if is_preload {
            preloaded = true;
            // SAFETY: the table has room for all entries and six more.
            unsafe { table.add(next).write(strings.put(&[ENV_PRELOAD.as_bytes(), b"="], value, &[])?) };
            next += 1;
            let separator: &[u8] = if value.string_len() == 0 { b"" } else { b":" };
            strings.put(&[PRELOAD], value, &[separator, paths::library()])?
        } else {
            entry
        };
        // SAFETY: as above.
        unsafe { table.add(next).write(written) };
        next += 1;
    }
    let name = state::Decimal::new(u64::from(paths::SEGMENT.load(Ordering::Relaxed)));
    let (dot, name): (&[u8], &[u8]) = if paths::SEGMENT.load(Ordering::Relaxed) == 0 || thread_is_borrowed() {
        (b"", b"")
    } else {
        (b".", name.bytes())
    };
    let path: [&[u8]; 6] = [ENV_SEGMENT.as_bytes(), b"=", paths::folder(), b"segment", dot, name];
    let mut ours = [strings.put(&path, GuestPtr::at(0), &[])?, 0, 0, 0];
    let mut last = 0;
    if !preloaded {
        last += 1;
        ours[last] = strings.put(&[b"LD_PRELOAD=", paths::library()], GuestPtr::at(0), &[])?;
    }
    if let Some(kept) = limits::kept() {
        last += 1;
        let [data, all] = kept.map(|of_one| of_one.map(state::Decimal::new));
        let [data, hard_data] = [data[0].bytes(), data[1].bytes()];
        let name_and_data: [&[u8]; 5] = [ENV_LIMITS.as_bytes(), b"=", data, b",", hard_data];
        let others: [&[u8]; 4] = [b",", all[0].bytes(), b",", all[1].bytes()];
        ours[last] = strings.put(&name_and_data, GuestPtr::at(0), &others)?;
    }
    if let Some(key) = random::key_of_image() {
        last += 1;
        let key = state::Decimal::new(key);
        ours[last] = strings.put(&[ENV_SEED.as_bytes(), b"=", key.bytes()], GuestPtr::at(0), &[])?;
    }
    for entry in ours {
        // SAFETY: as above; a zero ends the table.
        unsafe { table.add(next).write(entry) };
        next += 1;
    }
    // SAFETY: as above.
    unsafe { table.add(next.min(count as usize + 5)).write(0) };
    Some([memory as u64, bytes])
}

/// A child that borrows a member's memory has not its segment.
fn thread_is_borrowed() -> bool {
    tls::shared().is_some_and(|thread| thread.borrowed.load(Ordering::Relaxed) != 0)
}

/// Builds strings one behind the other.
struct Strings {
    at: *mut u8,
    left: usize,
}

impl Strings {
    /// A string of parts, a string of the guest's if there is one, and more parts.
    fn put(&mut self, parts: &[&[u8]], theirs: GuestPtr<u8>, more: &[&[u8]]) -> Option<u64> {
        let start = self.at;
        for part in parts {
            self.bytes(GuestPtr::at(part.as_ptr() as u64), part.len())?;
        }
        if !theirs.is_nowhere() {
            self.bytes(theirs, theirs.string_len())?;
        }
        for part in more.iter().chain([&b"\0"[..]].iter()) {
            self.bytes(GuestPtr::at(part.as_ptr() as u64), part.len())?;
        }
        Some(start as u64)
    }

    fn bytes(&mut self, from: GuestPtr<u8>, len: usize) -> Option<()> {
        if len > self.left || !from.copy_to(self.at, len) {
            return None;
        }
        // SAFETY: inside the memory that was set aside.
        self.at = unsafe { self.at.add(len) };
        self.left -= len;
        Some(())
    }
}

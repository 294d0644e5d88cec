//! The folder that a process is in, and the one that is its root.
//!
//! A standby follows into both, by the name that its primary said, and looks whether it has come to the same folder: a name may
//! lead elsewhere by then, or nowhere. Then the kernel's own links to the primary's folders lead there, or a descriptor does.

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, EventKind, ReturnHead};
use us_calls::Row;

use crate::call::Call;
use crate::door::recorded::{begin, return_ticket, take_begin, take_end};
use crate::fdtable::{AT_FDCWD, Stat};
use crate::raw::nr::CHROOT;
use crate::raw::{self, call6, nr};
use crate::state::{self, Decimal, joined};
use crate::thread::{Mode, Thread};
use crate::verdict;

const PATH_MAX: usize = linux_raw_sys::general::PATH_MAX as usize;
const NO_ARGUMENTS: CallArgs = CallArgs { fd: -1, digest: 0, len: 0 };

/// chdir, fchdir, chroot.
pub fn change(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    thread.attempt(|thread, mode| match mode {
        // SAFETY: the guest's own call.
        Mode::Solo => Some(unsafe { call6(call.nr, call.args) }),
        Mode::Record => {
            begin(thread, row, NO_ARGUMENTS);
            // SAFETY: the guest's own call.
            let result = unsafe { call6(call.nr, call.args) };
            let head = ReturnHead { result, identity: if result == 0 { identity_at(own(call)) } else { 0 } };
            let Some(place) = thread.reserve(size_of::<ReturnHead>() + PATH_MAX) else { return Some(result) };
            // SAFETY: reserved; the kernel writes a path of at most PATH_MAX bytes.
            let bytes = unsafe {
                place.cast::<ReturnHead>().write(head);
                raw::call2(nr::GETCWD, place.add(size_of::<ReturnHead>()) as u64, PATH_MAX as u64)
            };
            let bytes = size_of::<ReturnHead>() + bytes.max(0) as usize;
            thread.publish(EventKind::Return, 0, row.nr, return_ticket(row), bytes);
            Some(result)
        }
        Mode::Replay => {
            take_begin(thread, row, &NO_ARGUMENTS)?;
            take_end(thread, row, |_, head, path, _| {
                if head.result == 0 && state::is_detached() {
                    go(path.as_ptr() as u64, path.is_empty());
                } else if head.result == 0 {
                    follow(call, head.identity, path);
                }
                head.result
            })
        }
    })
}

/// What names, from inside, the folder that a call changes.
fn own(call: &Call) -> &'static [u8] {
    if call.nr == CHROOT { b"/\0" } else { b".\0" }
}

/// The identity of a folder, 0 of none. The path ends with NUL.
fn identity_at(path: &[u8]) -> u64 {
    of_path(path.as_ptr() as u64)
}

fn of_path(path: u64) -> u64 {
    Stat::at(AT_FDCWD, path, 0).map_or(0, |stat| stat.identity())
}

/// Descriptors that are looked at for a folder without a name.
const LOOKED_AT: i32 = 256;

fn is_open_for(fd: i32, wanted: u64) -> bool {
    Stat::of(fd).is_some_and(|stat| stat.identity() == wanted)
}

fn go(path: u64, is_nowhere: bool) {
    if !is_nowhere {
        // SAFETY: a path that ends with NUL; the folder is this copy's own.
        unsafe { raw::call1(nr::CHDIR, path) };
    }
}

/// As a standby: goes where its primary went.
fn follow(call: &Call, wanted: u64, path: &[u8]) {
    if call.nr == CHROOT {
        return follow_into_root(call, wanted);
    }
    let has_come = || identity_at(b".\0") == wanted;
    // SAFETY: the guest's own call, from the folder that its primary made it from; the descriptor may be another by now.
    unsafe { call6(call.nr, call.args) };
    if has_come() {
        return;
    }
    go(path.as_ptr() as u64, path.is_empty());
    if has_come() {
        return;
    }
    let primarys = of_primary(b"/cwd\0");
    go(primarys.as_ptr() as u64, false);
    if !has_come()
        && let Some(fd) = (0..LOOKED_AT).find(|fd| is_open_for(*fd, wanted))
    {
        use crate::raw::nr::FCHDIR;
        // SAFETY: the folder is this copy's own.
        unsafe { raw::call1(FCHDIR, fd as u64) };
    }
    // A primary that has gone on from there says where to in a later event; one that has died may not be asked any more, and a
    // copy that takes over from where it was is better than none.
    let may_not_ask = || {
        const EXISTS: u64 = 0;
        // SAFETY: asks only.
        let answer = unsafe { raw::call3(nr::FACCESSAT, AT_FDCWD, primarys.as_ptr() as u64, EXISTS) };
        answer == raw::err::EACCES
    };
    if !has_come() && may_not_ask() {
        verdict::give_up_standby(&[b"the folder that the program went to has no name that leads there"]);
    }
}

/// The same of its root. A copy outside of it must not act: the root is what holds the program.
fn follow_into_root(call: &Call, wanted: u64) {
    let primarys = of_primary(b"/root\0");
    let to = [call.args[0], primarys.as_ptr() as u64].into_iter().find(|path| of_path(*path) == wanted);
    if let Some(to) = to {
        // SAFETY: as in the primary, whose rights this copy has.
        unsafe { raw::call1(CHROOT, to) };
    }
    if identity_at(b"/\0") != wanted {
        verdict::give_up_standby(&[
            b"the folder that the program made its root has no name that leads there",
        ]);
    }
}

/// A link of the kernel's to a folder of the primary's.
fn of_primary(link: &[u8]) -> [u8; 40] {
    let pid = state::header().map_or(0, |header| header.primary_pid.load(Ordering::Acquire));
    joined(&[b"/proc/", Decimal::new(pid.into()).bytes(), link])
}

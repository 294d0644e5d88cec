//! Memory that processes share through the kernel, in a recording and its replay: a replay has files of its own in place of
//! what was shared, so that its processes see each other's stores.

use core::sync::atomic::Ordering;

use us_abi::Cause;
use us_abi::event::{CallArgs, ReturnHead};
use us_calls::Row;

use crate::call::Call;
use crate::door::memory;
use crate::door::recorded::{begin, end, recorded, take_begin, take_end};
use crate::door::refused::refused;
use crate::kernel::{MAP_FIXED_NOREPLACE, MAP_SHARED};
use crate::raw::{self, failed, nr};
use crate::thread::{Mode, Thread};
use crate::verdict::drop_standby;
use crate::{fdtable, own_file, paths, seats, state};

const PAGE: u64 = 4096;
const READ_WRITE: u64 = 3;
/// In the names of stand-ins: what is no file's identity, whose highest bits are never set.
const SYSTEM_V: u64 = 1 << 63;

/// The stand-in for a mapping of a file: the same file is the same memory for all that map it.
pub fn file(call: &Call, address: u64, fixed: u64) -> Option<i64> {
    let [_, bytes, prot, _, fd, offset] = call.args;
    let identity = fdtable::kept(fdtable::get(fd as i32)?.identity.load(Ordering::Relaxed));
    map(identity, address, [bytes, prot | READ_WRITE, MAP_SHARED | fixed, offset])
}

fn map(name: u64, address: u64, [bytes, prot, flags, offset]: [u64; 4]) -> Option<i64> {
    use crate::raw::nr::FTRUNCATE;
    let mut path = [0u8; paths::PATH_BYTES];
    paths::shared_path(name, &mut path)?;
    // SAFETY: a file of the replay's own, mapped where the guest's memory was; the descriptor does not stay.
    unsafe {
        let file = own_file::open(path.as_ptr(), own_file::MAKE_OR_FIND);
        if failed(file) {
            return None;
        }
        let end = offset + bytes.next_multiple_of(PAGE);
        // It only grows: another process may have more of it.
        if fdtable::size(file as i32).unwrap_or(0) < end {
            raw::call2(FTRUNCATE, file as u64, end);
        }
        let mapped = raw::call6(nr::MMAP, [address, bytes, prot, flags, file as u64, offset]);
        raw::call1(nr::CLOSE, file as u64);
        Some(mapped)
    }
}

/// shmat, shmdt.
pub fn system_v(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    use crate::raw::nr::SHMAT;
    super::code::before_by(call);
    if !state::is_recorded() && !state::is_detached() {
        return refused(thread, call, row.name);
    }
    if call.nr != SHMAT {
        return recorded(thread, row, call);
    }
    let id = call.args[0];
    let arguments = CallArgs { fd: -1, digest: 0, len: id };
    thread.attempt(|thread, mode| match mode {
        // SAFETY: the guest's own call.
        Mode::Solo => Some(unsafe { raw::call6(call.nr, call.args) }),
        Mode::Record if seats::is_followed() => {
            // A standby would see what others do to it at its own time.
            drop_standby(Cause::RefusedCall, &[b"system call shmat cannot be replayed"]);
            None
        }
        Mode::Record => {
            let bytes = size_of_segment(id);
            let mut args = call.args;
            if args[1] == 0 {
                args[1] = memory::offer(bytes);
            }
            begin(thread, row, arguments);
            // SAFETY: the guest's own call, at an address that is nobody's.
            let result = unsafe { raw::call6(call.nr, args) };
            end(thread, row, 0, ReturnHead { result, identity: bytes });
            Some(result)
        }
        Mode::Replay => {
            take_begin(thread, row, &arguments)?;
            let (result, bytes) = take_end(thread, row, |_, head, _, _| (head.result, head.identity))?;
            if !failed(result) && state::is_detached() {
                memory::follow(result as u64, bytes);
                let how = [bytes, READ_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, 0];
                if map(SYSTEM_V | id, result as u64, how) != Some(result) {
                    crate::verdict::report_divergence(
                        thread,
                        &[b"a shared segment's address was taken in the replay"],
                    );
                }
            }
            Some(result)
        }
    })
}

/// Bytes of a shared segment, by the kernel.
fn size_of_segment(id: u64) -> u64 {
    use crate::raw::nr::SHMCTL;
    let mut stat = Described::default();
    // SAFETY: the kernel writes one of these.
    unsafe { raw::call3(SHMCTL, id, raw::IPC_STAT, &raw mut stat as u64) };
    stat.bytes
}

/// The kernel's `struct shmid64_ds`.
#[repr(C)]
#[derive(Default)]
struct Described {
    _permissions: [u64; 6],
    bytes: u64,
    _rest: [u64; 7],
}
const _: () = assert!(size_of::<Described>() == 112);

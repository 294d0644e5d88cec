//! Limits of the process that the runtime's own memory and files would run into.
//!
//! The segment alone is larger than many a limit: a program that allows itself 200 MiB of address space would get no
//! memory any more, and one whose files may have 100 KiB would be ended by SIGXFSZ in the middle of joining.

use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::{RING_BYTES, SEGMENT_BYTES, THREADS_MAX};

use crate::raw::{self, failed};
use crate::sys::gate::Call;
use crate::sys::guest;
use crate::{state, thread};

const GETRLIMIT: u64 = 97;
const SETRLIMIT: u64 = 160;
const PRLIMIT: u64 = 302;
const FSIZE: u64 = 1;
const AS: u64 = 9;
const INFINITY: u64 = u64::MAX;
const FAULT: i64 = -14;

/// Soft and hard limit, as the kernel has them.
type Limit = [u64; 2];

/// What was added to the guest's limit of address space, bytes; 0 while the guest has set none. Kept once it is set:
/// a process that may not raise its hard limit asks for the same number again.
static ADDED: AtomicU64 = AtomicU64::new(0);

/// Library, poller, coordinator and the like, generously.
const SMALL_BYTES: u64 = 64 << 20;

/// Address space that is the runtime's.
fn own_bytes() -> u64 {
    let rings =
        u64::from(thread::SLOTS.load(Ordering::Relaxed).min(THREADS_MAX as u32)) * 2 * RING_BYTES as u64;
    SEGMENT_BYTES as u64 + rings + SMALL_BYTES
}

/// The guest's question for, or change of, its own limit of address space: without ours. `None` for any other call.
pub fn address_space(call: &Call) -> Option<i64> {
    let (whom, which, new, old) = match call.nr {
        GETRLIMIT => (0, call.args[0], 0, call.args[1]),
        SETRLIMIT => (0, call.args[0], call.args[1], 0),
        PRLIMIT => (call.args[0], call.args[1], call.args[2], call.args[3]),
        _ => return None,
    };
    let own = whom as u32 == 0 || whom as u32 == state::GUEST_PID.load(Ordering::Relaxed);
    if !own || which as u32 as u64 != AS {
        return None;
    }
    let added = ADDED.load(Ordering::Relaxed);
    let to_add = if added == 0 { own_bytes() } else { added };
    let more = |bytes: u64| if bytes == INFINITY { INFINITY } else { bytes.saturating_add(to_add) };
    let less = |bytes: u64| if bytes == INFINITY { INFINITY } else { bytes.saturating_sub(added) };
    let wanted = match new {
        0 => None,
        address => match guest::load::<Limit>(address) {
            Some(limit) => Some(limit.map(more)),
            None => return Some(FAULT),
        },
    };
    let mut before: Limit = [0; 2];
    let result = set(AS, wanted.as_ref(), &mut before);
    if failed(result) {
        return Some(result);
    }
    if wanted.is_some() {
        ADDED.store(to_add, Ordering::Relaxed);
    }
    if old != 0 && !guest::store(old, &before.map(less)) {
        return Some(FAULT);
    }
    Some(result)
}

/// Asks for a limit of this process and sets another, if one is given.
fn set(which: u64, new: Option<&Limit>, before: &mut Limit) -> i64 {
    let new = new.map_or(0, |limit| limit.as_ptr() as u64);
    // SAFETY: the kernel reads and writes two words each.
    unsafe { raw::call4(PRLIMIT, 0, which, new, before.as_mut_ptr() as u64) }
}

/// While it lives the process may make files of some size. By the only thread of a process.
pub struct FileRoom(Option<Limit>);

impl FileRoom {
    /// `None` if the limit is lower and cannot be raised: the kernel would end the process for trying.
    pub fn make(bytes: u64) -> Option<FileRoom> {
        let mut limit: Limit = [0; 2];
        if failed(set(FSIZE, None, &mut limit)) || limit[0] >= bytes {
            return Some(FileRoom(None));
        }
        let hard = if limit[1] >= bytes { limit[1] } else { INFINITY };
        let raised = set(FSIZE, Some(&[hard; 2]), &mut [0; 2]);
        (!failed(raised)).then_some(FileRoom(Some(limit)))
    }
}

impl Drop for FileRoom {
    fn drop(&mut self) {
        if let Some(limit) = &self.0 {
            set(FSIZE, Some(limit), &mut [0; 2]);
        }
    }
}

//! Another version of the runtime is put into this process while all its threads stand still.
//!
//! The supervisor has linked it: its instructions refer to this process's data, and its text lies in the berth of the first
//! one. What is left is a [`Head`] in a file of the group's folder: system calls that put it in place, and lead the entries of
//! the older versions to its own. So the version that makes the calls need not know what the other one is.

use core::sync::atomic::Ordering;

use us_abi::upgrade::{DESCRIPTOR, HEAD_BYTES, Head, STEPS_MAGIC, STEPS_MAX, Step};
use us_abi::{Cause, SegmentHeader};

use super::Obstacle;
use crate::door::spawn;
use crate::raw::{self, failed, nr};
use crate::{own_file, paths, recorder, tls, verdict};

/// By the coordinator, while all threads stand still.
pub fn perform(header: &SegmentHeader) -> Result<(), Obstacle> {
    if recorder::is_recording() {
        return Err((b"the program is being recorded, and a recording has one version of the runtime", 0));
    }
    if tls::may_be_foreign() {
        // It would run in a text that is being changed.
        return Err((spawn::OUTSIDE, 0));
    }
    let mut path = [0u8; paths::PATH_BYTES];
    paths::upgrade_path(&mut path).ok_or((b"it has no folder" as &[u8], 0))?;
    // SAFETY: the path ends with NUL; what is opened and mapped here goes away here.
    unsafe {
        let file = own_file::open(path.as_ptr(), own_file::READ);
        if failed(file) {
            return Err((b"the file of the upgrade cannot be opened", 0));
        }
        const READ: u64 = 1;
        const PRIVATE: u64 = 2;
        let bytes = (HEAD_BYTES + STEPS_MAX) as u64;
        let head = raw::call6(nr::MMAP, [0, bytes, READ, PRIVATE, file as u64, 0]);
        let result = match failed(head) {
            true => Err((b"the file of the upgrade cannot be mapped" as &[u8], 0)),
            false => follow(header, head as u64, file as u64),
        };
        if !failed(head) {
            raw::call2(nr::MUNMAP, head as u64, bytes);
        }
        raw::call1(nr::CLOSE, file as u64);
        result
    }
}

/// Makes the calls. Where one fails that has changed nothing of what was there, the others are left out; behind that none is: an
/// entry that still leads to an older version leads to one that works.
///
/// # Safety
/// A file of the supervisor's for this process has been mapped there, with room for all steps.
unsafe fn follow(header: &SegmentHeader, at: u64, file: u64) -> Result<(), Obstacle> {
    // SAFETY: the caller's promise.
    let head = unsafe { (at as *const Head).read() };
    if head.magic != STEPS_MAGIC || head.steps as usize > STEPS_MAX / size_of::<Step>() {
        return Err((b"the steps of the upgrade are none", 0));
    }
    for index in 0..head.steps {
        // SAFETY: inside the mapped bytes.
        let step = unsafe { ((at + HEAD_BYTES as u64) as *const Step).add(index as usize).read() };
        let arguments = step.arguments.map(|word| if word == DESCRIPTOR { file } else { word });
        // SAFETY: the supervisor's word for it that the program has nothing there but what the call is to change.
        let result = unsafe { raw::call6(step.number, arguments) };
        if result as u64 != step.result && index < head.changes {
            return Err((b"the kernel refuses a step of the upgrade", 0));
        }
    }
    // SAFETY: a function of the version that has just been put there.
    let then: extern "C" fn() = unsafe { core::mem::transmute(head.then) };
    then();
    if header.dropped.0.load(Ordering::Acquire) == 0 {
        let why = b"another version of the runtime has been put into the process";
        verdict::drop_standby(Cause::Upgraded, &[why]);
    }
    Ok(())
}

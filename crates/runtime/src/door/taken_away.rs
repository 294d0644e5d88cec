//! What calls that take an object of the kernel's away find before them: a second one fails as the first would have where
//! there was none.

use core::ffi::CStr;

use crate::inquiry;
use crate::proc;
use crate::raw;
use crate::raw::nr::{INOTIFY_RM_WATCH, MQ_UNLINK, MSGCTL, SEMCTL, SHMCTL, UMOUNT2};
use crate::state::{Decimal, joined};
use crate::sys::own_table::with_own_table;

/// What such a call takes away.
enum Object {
    /// A System V object, by the call that asks about it: where its command lies.
    Keyed(usize),
    /// A POSIX message queue's name.
    Queue,
    /// A watch.
    Watch,
    /// A mount, of which nothing is known before.
    Mount,
}

#[inline]
fn object(nr: u64, args: &[u64; 6]) -> Option<Object> {
    const IPC_RMID: u64 = 0;
    let removes = |command: usize| args[command] & 0xffff_ffff == IPC_RMID;
    match nr {
        SHMCTL | MSGCTL if removes(1) => Some(Object::Keyed(1)),
        SEMCTL if removes(2) => Some(Object::Keyed(2)),
        MQ_UNLINK => Some(Object::Queue),
        INOTIFY_RM_WATCH => Some(Object::Watch),
        UMOUNT2 => Some(Object::Mount),
        _ => None,
    }
}

/// Whether there is what a call is about to take away; `false` for every call that takes nothing away.
#[inline]
pub fn is_there(nr: u64, args: &[u64; 6]) -> bool {
    match object(nr, args) {
        None => false,
        Some(Object::Keyed(command)) => has_key(nr, args[0], command),
        Some(Object::Queue) => has_queue(args[0]),
        Some(Object::Watch) => has_watch(args[0], args[1]),
        Some(Object::Mount) => true,
    }
}

/// Whether a call that is made again has failed because the first has taken away what there was.
pub fn is_echo(nr: u64, args: &[u64; 6], was_there: bool, error: i64) -> bool {
    const ENOENT: i64 = linux_raw_sys::errno::ENOENT as i64;
    const EINVAL: i64 = linux_raw_sys::errno::EINVAL as i64;
    const EIDRM: i64 = linux_raw_sys::errno::EIDRM as i64;
    let errors: &[i64] = match object(nr, args) {
        None => return false,
        Some(Object::Keyed(_)) => &[EINVAL, EIDRM],
        Some(Object::Queue) => &[ENOENT],
        Some(Object::Watch | Object::Mount) => &[EINVAL],
    };
    was_there && errors.contains(&error)
}

#[cold]
fn has_key(nr: u64, id: u64, command: usize) -> bool {
    /// It is there, and not for us to look at.
    const EACCES: i64 = crate::raw::err::EACCES;
    let mut stat = [0u64; 16];
    let mut args = [id, 0, 0, 0, 0, 0];
    (args[command], args[command + 1]) = (raw::IPC_STAT, stat.as_mut_ptr() as u64);
    // SAFETY: the kernel writes a struct shmid64_ds, semid64_ds or msqid64_ds of 120 bytes at most.
    let result = unsafe { raw::call6(nr, args) };
    result == EACCES || !raw::failed(result)
}

#[cold]
fn has_queue(name: u64) -> bool {
    use crate::raw::nr::MQ_OPEN;
    const NEW: u64 = 0o100 | 0o200; // O_CREAT, O_EXCL
    use crate::raw::err::EEXIST;
    // No queue can be made like that: the call says only whether there is one.
    let impossible = [-1i64; 8];
    // SAFETY: the kernel reads the guest's name and our attributes.
    (unsafe { raw::call4(MQ_OPEN, name, NEW, 0, impossible.as_ptr() as u64) }) == EEXIST
}

#[cold]
fn has_watch(fd: u64, watch: u64) -> bool {
    let path = joined(&[b"/proc/self/fdinfo/", Decimal::new(fd & 0xffff_ffff).bytes()]);
    let Ok(path) = CStr::from_bytes_until_nul(&path) else { return false };
    let mut found = false;
    with_own_table(|| {
        let file = proc::File { path, subject: inquiry::DESCRIPTOR, number: fd as u32 };
        proc::each_line(&file, |line| {
            let number =
                line.strip_prefix(b"inotify wd:").and_then(|rest| rest.split(|byte| *byte == b' ').next());
            found |= number.and_then(proc::hex) == Some(watch & 0xffff_ffff);
        });
        0
    });
    found
}

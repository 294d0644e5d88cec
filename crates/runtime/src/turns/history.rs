//! Whether the file that this process executes is known to race, by what the supervisor has remembered of earlier runs.

use us_abi::races::{RECORD_BYTES, RECORDS_MAX};

use crate::fdtable::Stat;
use crate::raw::{self, failed, nr};
use crate::{own_file, paths};

/// In the constructor. A process that may not read the group's files, or has no `/proc`, knows nothing.
pub fn races() -> bool {
    let Some(own) = record() else { return false };
    let mut known = [[0u64; RECORD_BYTES / 8]; RECORDS_MAX];
    let read = read(&mut known).unwrap_or(0);
    known[..read].contains(&own)
}

/// The records that there are, and how many.
fn read(known: &mut [[u64; RECORD_BYTES / 8]; RECORDS_MAX]) -> Option<usize> {
    let mut path = [0u8; paths::PATH_BYTES];
    paths::races_path(&mut path)?;
    // SAFETY: the path ends with NUL; reads into the caller's memory, and the descriptor does not stay.
    unsafe {
        let file = own_file::open_here(path.as_ptr(), own_file::READ);
        if failed(file) {
            return None;
        }
        let got = raw::call3(nr::READ, file as u64, known.as_mut_ptr() as u64, size_of_val(known) as u64);
        raw::call1(nr::CLOSE, file as u64);
        usize::try_from(got).ok().map(|got| got / RECORD_BYTES)
    }
}

/// What the supervisor would remember of this process. By calls that the constructor makes in any case: a filter may allow no others.
fn record() -> Option<[u64; RECORD_BYTES / 8]> {
    const PATH_CLOEXEC: u64 = 0o12_000_000;
    // SAFETY: a path that ends with NUL; the descriptor does not stay.
    let stat = unsafe {
        let file = raw::call3(nr::OPEN, c"/proc/self/exe".as_ptr() as u64, PATH_CLOEXEC, 0);
        if failed(file) {
            return None;
        }
        let stat = Stat::of(file as i32);
        raw::call1(nr::CLOSE, file as u64);
        stat?
    };
    let [modified_ns, _] = stat.times_ns();
    Some([stat.dev, stat.ino, stat.size, modified_ns])
}

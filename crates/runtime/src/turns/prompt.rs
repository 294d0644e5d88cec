//! Which calls that may wait will not: where the order of turns is computed others wait for those.
//!
//! A call that waits for the world leaves the race, and comes back at a moment of the world's. One of which it is known beforehand that
//! the kernel answers at once keeps its place: the write of a line does not make the order another one.

use us_calls::{Door, Policy, Row};

use crate::fdtable::Stat;
use crate::guest::GuestPtr;
use crate::kernel::TIMER_ABSTIME;
use crate::raw::{self, Timespec, nr};
use crate::thread::turn::Waits;
use crate::turns::logical::Until;

const POLLIN: u64 = 1;
const POLLOUT: u64 = 4;
const POLLNVAL: u64 = 32;

/// What a call with these arguments waits for, as far as can be known.
pub fn waits(row: &Row, args: &[u64; 6]) -> Waits {
    if matches!(row.policy, Policy::Special(Door::Sleep)) {
        return sleep(row, args).map_or(Waits::ForWorld, Waits::For);
    }
    if is_prompt(row, args) { Waits::ForNobody } else { Waits::ForWorld }
}

fn is_prompt(row: &Row, args: &[u64; 6]) -> bool {
    let events = match row.policy {
        Policy::Special(Door::Read | Door::Recv | Door::Readv) => POLLIN,
        Policy::Special(Door::Write | Door::Send | Door::Writev) => POLLOUT,
        Policy::Special(Door::Open | Door::Close) => return true,
        _ => return is_of_file(row, args),
    };
    // What is no descriptor is an error at once.
    raw::poll(args[0] as i32, events) & (events | POLLNVAL) as i64 != 0
}

/// Calls about a file's contents wait for a disk at the most.
fn is_of_file(row: &Row, args: &[u64; 6]) -> bool {
    const OF_FILES: [&str; 6] = ["fsync", "fdatasync", "pread64", "pwrite64", "sendfile", "copy_file_range"];
    OF_FILES.contains(&row.name) && Stat::of(args[0] as i32).is_some_and(|stat| stat.is_regular())
}

/// How long a sleep is, ns.
fn sleep(row: &Row, args: &[u64; 6]) -> Option<u64> {
    let of_clock = u64::from(row.nr) == nr::CLOCK_NANOSLEEP;
    let time = GuestPtr::<Timespec>::at(args[if of_clock { 2 } else { 0 }]).load()?;
    if of_clock && args[1] & TIMER_ABSTIME != 0 {
        return Some(Until { clock: args[0], time }.left_ns());
    }
    Some(time.ns())
}

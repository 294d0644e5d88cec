//! Which files are the same to the program: it may have asked for the numbers of one, and compares them later. Those of this
//! machine are other ones, so it is told the ones that it knows.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general as k;

use super::call;
use crate::guest;

/// Files that are known by other numbers.
const FILES: usize = 8192;
/// Files that a program may have open when another machine joins.
const OPEN: usize = 256;
/// Places at which one is looked for.
const PROBES: usize = 16;

/// Device and inode here, and those that the program knows.
struct Known([AtomicU64; 4]);

static KNOWN: [Known; FILES] = [const { Known([const { AtomicU64::new(0) }; 4]) }; FILES];
/// Whether there is any.
static ANY: AtomicBool = AtomicBool::new(false);

/// Whether a file may be known by other numbers than the kernel's.
#[inline(always)]
pub fn differ() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Where a call's answer lies, and whether that is a `struct statx`.
fn answer(number: u32, args: &[u64; 6]) -> Option<(u64, bool)> {
    match number {
        k::__NR_stat | k::__NR_fstat | k::__NR_lstat => Some((args[1], false)),
        k::__NR_newfstatat => Some((args[2], false)),
        k::__NR_statx => Some((args[4], true)),
        _ => None,
    }
}

fn places((device, inode): (u64, u64)) -> impl Iterator<Item = &'static Known> {
    let from = (device.rotate_left(32) ^ inode).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    (0..PROBES).map(move |step| &KNOWN[(from as usize + step) % FILES])
}

/// Device, as one number, and inode of an answer that is about a file or a folder.
fn numbers(at: u64, is_extended: bool) -> Option<(u64, u64)> {
    const KINDS: u32 = k::S_IFMT;
    let is_file = |mode: u32| matches!(mode & KINDS, k::S_IFREG | k::S_IFDIR);
    if is_extended {
        let mode = u32::from(guest::load::<u16>(at + 28)?);
        let [major, minor] = guest::load::<[u32; 2]>(at + 136)?.map(u64::from);
        let device = minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12;
        return is_file(mode).then_some((device, guest::load(at + 32)?));
    }
    let [device, inode, _] = guest::load::<[u64; 3]>(at)?;
    is_file(guest::load(at + 24)?).then_some((device, inode))
}

/// In a process that was put together on this machine: `each` says of descriptors by which numbers the program's last machine knew their
/// files. What that one had been told of others is what the program knows.
pub(super) fn rename(each: impl Fn(&mut dyn FnMut(i32, [u64; 2]))) {
    // By the files of the last machine, which are nobody's here.
    let told = |[device, inode]: [u64; 2]| {
        let words = |known: &Known| core::array::from_fn(|at| known.0[at].load(Ordering::Relaxed));
        let known: Option<[u64; 4]> =
            places((device, inode)).map(words).find(|known| known[..2] == [device, inode]);
        known.map_or((device, inode), |known| (known[2], known[3]))
    };
    // Not on the stack, which may be small.
    static OPENED: [Known; OPEN] = [const { Known([const { AtomicU64::new(0) }; 4]) }; OPEN];
    let mut count = 0;
    each(&mut |fd, known| {
        let ours = crate::fdtable::Stat::of(fd).filter(|_| known != [0; 2]);
        if let (Some(stat), Some(place)) = (ours, OPENED.get(count)) {
            let (device, inode) = told(known);
            let all = [stat.dev, stat.ino, device, inode];
            place.0.iter().zip(all).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
            count += 1;
        }
    });
    KNOWN.iter().flat_map(|known| &known.0).for_each(|word| word.store(0, Ordering::Relaxed));
    ANY.store(false, Ordering::Relaxed);
    for opened in &OPENED[..count] {
        let [ours, ours_there, theirs, theirs_there] =
            core::array::from_fn(|at| opened.0[at].load(Ordering::Relaxed));
        know((ours, ours_there), (theirs, theirs_there));
    }
}

/// A file of ours is the one that the program knows by these numbers.
fn know(ours: (u64, u64), theirs: (u64, u64)) {
    let words = |known: &Known| [0, 1].map(|at| known.0[at].load(Ordering::Relaxed));
    let known = places(ours).find(|known| words(known) == [ours.0, ours.1]);
    if ours == theirs && known.is_none() {
        return;
    }
    let Some(place) = known.or_else(|| places(ours).find(|known| words(known) == [0, 0])) else { return };
    let all = [ours.0, ours.1, theirs.0, theirs.1];
    place.0.iter().zip(all).for_each(|(to, word)| to.store(word, Ordering::Relaxed));
    ANY.store(true, Ordering::Relaxed);
}

/// A call has asked about a file. At its turn, while it is followed.
pub(super) fn follow(number: u32, args: &[u64; 6]) {
    let Some((at, is_extended)) = answer(number, args) else { return };
    let Some(theirs) = numbers(at, is_extended) else { return };
    let mut own = [0u64; 32];
    let mut asked = *args;
    let place = args.iter().position(|arg| *arg == at).unwrap_or(0);
    asked[place] = own.as_mut_ptr() as u64;
    if call(number, asked) != 0 {
        return;
    }
    let Some(ours) = numbers(own.as_ptr() as u64, is_extended) else { return };
    know(ours, theirs);
}

/// A call has asked about a file, in a copy that acts.
#[cold]
pub fn tell(number: u64, args: &[u64; 6], result: i64) {
    let asked = answer(number as u32, args).filter(|_| result == 0);
    let Some((at, is_extended)) = asked else { return };
    let Some(ours) = numbers(at, is_extended) else { return };
    let is_it = |known: &&Known| {
        known.0[0].load(Ordering::Relaxed) == ours.0 && known.0[1].load(Ordering::Relaxed) == ours.1
    };
    let Some(known) = places(ours).find(is_it) else { return };
    let (device, inode) = (known.0[2].load(Ordering::Relaxed), known.0[3].load(Ordering::Relaxed));
    if is_extended {
        guest::store(at + 32, &inode);
        let (major, minor) = (device >> 8 & 0xfff, device & 0xff | device >> 12 & !0xff);
        guest::store(at + 136, &[major as u32, minor as u32]);
    } else {
        guest::store(at, &[device, inode]);
    }
}

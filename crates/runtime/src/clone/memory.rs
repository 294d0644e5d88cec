//! Memory that a fork does not separate, or does not freeze.
//!
//! A shared mapping is shared with the copy as well; a private mapping of a file shows what is in the file when
//! it is first touched, which for a standby is the primary's future (7 where 6 was right). The coordinator lists
//! such mappings while everything stands still, and the copy puts its own bytes in their place before anybody goes
//! on. Those of files that nobody changes ([`quiet`]) stay as they are. Of a shared mapping the copy keeps the mapping
//! itself too, out of the guest's sight ([`crate::mapping::views`]).

use us_abi::SegmentHeader;

use crate::door::memory::keeps_for_itself;
use crate::door::{common, quiet, sync};
use crate::mapping::touched::Touched;
use crate::mapping::views::{self, View};
use crate::mapping::{pieces, unforked};
use crate::members::{self, of_family};
use crate::proc;
use crate::raw::{self, failed, nr};
use crate::sys::room::Room;
use crate::{fdtable, guest, recorder, seats, twins};

/// Bytes that are copied at most: the program stands still meanwhile.
const BYTES_MAX: u64 = 1 << 30;

#[derive(Clone, Copy)]
struct Mapping {
    start: u64,
    end: u64,
    protection: u64,
    /// Writable and shared: what is written there belongs to others as well.
    written_through: bool,
    /// Device and inode of the file of a private mapping, zeros for a shared one.
    private_of: (u64, u64),
    /// The file of a shared mapping, as the shadows of descriptors know it; 0 for a private one.
    shared_of: u64,
    /// Where in the file it begins.
    offset: u64,
    /// Memory that processes of the group may share, and nobody else: not in a file that others could open.
    is_common: bool,
    /// Shared memory in no file on a disk: a page that nobody has touched has zeros.
    is_sparse: bool,
    /// Pages of it are mapped at another place as well, and are stored in by a mapping.
    is_mapped_again: bool,
    /// Device and inode of the file, and where its path lies in [`PATHS`].
    file: (u64, u64),
    path: (usize, usize),
}

impl Mapping {
    fn len(&self) -> u64 {
        self.end - self.start
    }

    /// Bytes that are to be copied.
    fn bytes_there(&self) -> u64 {
        if self.is_sparse { Touched::new().bytes(self.start, self.len()) } else { self.len_there() }
    }

    /// How far there is anything to read: not behind the end of a file, natively as here. Looked for by halves, since each page
    /// behind it costs a fault, and a database may have mapped a gigabyte for a file of some pages.
    fn len_there(&self) -> u64 {
        let is_there = |page: u64| {
            let mut byte = 0u8;
            guest::read(&raw mut byte, twins::source(self.start + page * PAGE), 1)
        };
        let (mut there, mut beyond) = (0, self.len() / PAGE);
        if self.is_sparse || beyond == 0 || is_there(beyond - 1) {
            return self.len();
        }
        while there < beyond {
            let middle = there.midpoint(beyond);
            if is_there(middle) {
                there = middle + 1;
            } else {
                beyond = middle;
            }
        }
        there * PAGE
    }

    /// Whether it is of the same shared memory as another one.
    fn is_of(&self, other: &Mapping) -> bool {
        self.shared_of != 0 && self.is_sparse == other.is_sparse && self.shared_of == other.shared_of
    }

    /// Whether a page of the same shared memory is in another one as well.
    fn overlaps(&self, other: &Mapping) -> bool {
        self.is_of(other)
            && self.start != other.start
            && self.offset < other.offset + other.len()
            && other.offset < self.offset + self.len()
    }

    /// Copies what is there to `to`.
    ///
    /// # Safety
    /// New memory of the same length; nobody uses the mapping meanwhile.
    unsafe fn copy(&self, to: u64) {
        let mut touched = Touched::new();
        for page in (0..self.len_there()).step_by(PAGE as usize) {
            if !self.is_sparse || touched.has(self.start + page) {
                guest::read((to + page) as *mut u8, twins::source(self.start + page), PAGE as usize);
            }
        }
    }

    /// Whether a shared mapping can never be written through: the file was opened to be read. While everybody stands still.
    fn is_read_only(&self) -> bool {
        let protect = |how| {
            // SAFETY: the guest's own mapping, that nobody uses; it is put back below.
            !failed(unsafe { raw::call3(nr::MPROTECT, self.start, PAGE, how) })
        };
        let may_be_written = protect(self.protection | proc::WRITE);
        if may_be_written {
            protect(self.protection);
        }
        !may_be_written
    }
}

/// What the copy is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To follow.
    Standby,
    /// To follow, in a family that is being formed.
    Family,
    /// To be written down. Memory that processes of the group may share stays as it is: the supervisor copies it while all stand
    /// still.
    Checkpoint,
    /// To be written down, and to follow a recording from there. Nobody tells it what becomes of files and of memory that others
    /// have, and it is read while the program goes on: it has all of that for itself.
    Replay,
}

/// Filled by the coordinator and read by the copy's leader, while nobody else runs.
static LIST: Room<Mapping> = Room::new();

const NO_MEMORY: &[u8] = b"no memory for the list of what is advised about forks";

/// Files with an executable mapping: the program and its libraries, whose private data pages nobody changes. The
/// coordinator's.
static PROGRAMS: Room<(u64, u64)> = Room::new();

/// The paths of files that are mapped, one behind the other. The coordinator's.
static PATHS: Room<u8> = Room::new();

/// Lists what has to be copied. By the coordinator, while every thread stands still.
pub fn list(header: &SegmentHeader, purpose: Purpose) -> Result<(), &'static [u8]> {
    let mut all = true;
    LIST.clear();
    PROGRAMS.clear();
    PATHS.clear();
    if !seats::is_followed() {
        quiet::forget();
    }
    let (mut last, mut path) = ((0, 0), (0, 0));
    let read = proc::each_mapping(|line| {
        let Some(map) = proc::Line::parse(line) else { return };
        if map.protection & proc::EXEC != 0 && map.inode != 0 {
            all &= PROGRAMS.push((map.device, map.inode));
        }
        if is_ours(map.start) || map.protection & proc::READ == 0 || !(map.shared || map.inode != 0) {
            return;
        }
        if last != (map.device, map.inode) {
            // Most files are mapped in several parts, side by side.
            last = (map.device, map.inode);
            let begins = line.iter().position(|byte| *byte == b'/').unwrap_or(line.len());
            let first = PATHS.count();
            all &= line[begins..].iter().all(|byte| PATHS.push(*byte));
            path = (first, PATHS.count());
        }
        all &= LIST.push(Mapping {
            file: (map.device, map.inode),
            path,
            start: map.start,
            end: map.end,
            protection: map.protection,
            written_through: map.shared && map.protection & proc::WRITE != 0,
            private_of: if map.shared { (0, 0) } else { (map.device, map.inode) },
            shared_of: if map.shared {
                fdtable::kept(fdtable::identity_of(map.device, map.inode))
            } else {
                0
            },
            offset: map.offset,
            is_common: map.shared && map.protection & proc::WRITE != 0 && proc::is_common(line),
            is_sparse: map.shared && proc::is_common(line),
            is_mapped_again: false,
        });
    });
    // SAFETY: the coordinator's own while everybody stands still.
    let (list, programs) = unsafe { (LIST.all_mut(), PROGRAMS.all_mut()) };
    programs.sort_unstable();
    // A library's first mapping comes before its executable one: only now is it known what is one.
    let (mut kept, mut bytes) = (0, 0);
    let (mut asked, mut is_quiet) = ((0, 0), false);
    for at in 0..list.len() {
        if programs.binary_search(&list[at].private_of).is_err() {
            let Mapping { file: (device, inode), path, .. } = list[at];
            if list[at].file != asked {
                // SAFETY: as above.
                let paths = unsafe { PATHS.all() };
                asked = list[at].file;
                is_quiet =
                    purpose != Purpose::Replay && quiet::is_quiet_at(&paths[path.0..path.1], device, inode);
            }
            if purpose == Purpose::Checkpoint && list[at].is_sparse {
                continue;
            }
            if is_quiet && (list[at].shared_of == 0 || list[at].is_read_only()) {
                quiet::note(fdtable::kept(fdtable::identity_of(device, inode)));
                continue;
            }
            list[kept] = list[at];
            bytes += list[at].bytes_there();
            kept += 1;
        }
    }
    LIST.truncate(kept);
    if !read {
        return Err(b"the list of mappings cannot be read");
    }
    for at in 0..kept {
        let one = &list[at];
        if one.shared_of == 0 {
            continue;
        }
        let same = || list[..kept].iter().filter(|other| other.is_of(one));
        // What nobody stores in by a mapping is the same in each place.
        let is_stored_in = one.is_sparse || same().any(|other| other.written_through);
        let is_mapped_again = is_stored_in && same().any(|other| other.overlaps(one));
        // Code of its own making, which the process has mapped a second time to run it, is nobody else's.
        let is_code = same().any(|other| other.protection & proc::EXEC != 0);
        list[at].is_mapped_again = is_mapped_again;
        list[at].is_common &= !is_code;
    }
    if matches!(purpose, Purpose::Checkpoint | Purpose::Replay) {
        // Whoever follows goes on following, by what was chosen for it.
        return match unforked::list() {
            true => is_room(all, bytes),
            false => Err(NO_MEMORY),
        };
    }
    let in_family = share(&list[..kept], purpose == Purpose::Family)?;
    let shared = || list[..kept].iter().filter(|mapping| mapping.written_through && !in_family);
    let shares = shared().next().is_some();
    seats::decide(header, in_family, shares);
    if shares && seats::is_followed() {
        // The twins begin anew at a clone, and whoever follows has the old ones.
        return Err(b"memory that processes share is kept alike for one standby only");
    }
    // Of several threads one would log what another is about to write, and their standby's would write it once more. libc says
    // that there are several when the first other one is made; who is about to make it has stopped the twins before.
    let is_alone = !sync::is_threaded();
    let alike = || shared().filter(|_| is_alone).map(|mapping| (mapping.start, mapping.end));
    common::forget_notes();
    if !twins::choice::at_clone(alike(), recorder::went_on_at_clone()) {
        twins::choose(alike());
    }
    if !unforked::list() {
        return Err(NO_MEMORY);
    }
    is_room(all, bytes)
}

fn is_room(all: bool, bytes: u64) -> Result<(), &'static [u8]> {
    if !all || bytes > BYTES_MAX {
        return Err(b"more is mapped of files or shared than can be copied");
    }
    Ok(())
}

/// Whether the process is of a family, of which its shared memory then is.
fn share(list: &[Mapping], is_forming: bool) -> Result<bool, &'static [u8]> {
    let common = || list.iter().filter(|mapping| mapping.is_common);
    keeps_for_itself(0);
    if is_forming {
        pieces::begin();
        for mapping in common() {
            pieces::add(mapping.start, mapping.end - mapping.start, mapping.shared_of, mapping.offset)?;
        }
        return Ok(true);
    }
    if of_family::is_member() {
        let is_known =
            |mapping: &Mapping| pieces::copy_of(mapping.start, mapping.end - mapping.start).is_some();
        return if common().all(is_known) {
            Ok(true)
        } else {
            Err(b"memory is shared that is newer than the family")
        };
    }
    pieces::forget();
    let bytes: u64 = common().map(|mapping| mapping.end - mapping.start).sum();
    let wanted = bytes >= of_family::least_bytes() && members::may_have_relatives() && of_family::may_be();
    if wanted && of_family::want() {
        return Err(of_family::WHY);
    }
    keeps_for_itself(bytes);
    Ok(false)
}

/// Whether there is nothing to copy.
pub fn is_empty() -> bool {
    // SAFETY: filled before the fork.
    unsafe { LIST.all() }.is_empty()
}

fn is_ours(address: u64) -> bool {
    us_abi::is_of_group(address as usize) || views::is_kept(address) || pieces::is_copy(address)
}

/// In the copy, by its only thread: puts own bytes in place of everything that is listed.
pub fn make_own() -> bool {
    pieces::keeps_nothing();
    // SAFETY: filled before the fork.
    let list = unsafe { LIST.all() };
    let are_own = list.iter().enumerate().all(|(index, mapping)| {
        let is_one_of_several = !(of_family::is_member()
            && pieces::copy_of(mapping.start, mapping.len()).is_some())
            && list.iter().any(|other| other.is_mapped_again && other.is_of(mapping));
        let is_first = !list[..index].iter().any(|other| other.is_of(mapping));
        if !is_one_of_several {
            // SAFETY: nobody else runs in this copy.
            return unsafe { make_one_own(*mapping) };
        }
        // SAFETY: the same.
        !is_first || unsafe { make_own_together(list, mapping) }
    });
    twins::in_copy();
    are_own
}

/// What the guest has mapped in several places, to write code in one of them and run it in another, say: what it stores in one place
/// is in the others as well, in the copy too.
///
/// # Safety
/// Nobody uses the mappings meanwhile.
unsafe fn make_own_together(list: &[Mapping], first: &Mapping) -> bool {
    const SHARED_ANONYMOUS_NORESERVE: u64 = 0x4021;
    let all = || list.iter().filter(|mapping| mapping.is_of(first));
    let from = all().map(|mapping| mapping.offset).min().unwrap_or(0);
    let to = all().map(|mapping| mapping.offset + mapping.len()).max().unwrap_or(0);
    let room = |bytes| [0, bytes, proc::READ | proc::WRITE, SHARED_ANONYMOUS_NORESERVE, u64::MAX, 0];
    // SAFETY: new memory; parts of it take the places of mappings of the same lengths. An old length of zero makes a second mapping
    // of shared pages.
    unsafe {
        // The guest may lengthen one of them, and store behind the end that it had.
        let mapped = [to - from + GROWS, to - from]
            .into_iter()
            .map(|bytes| (raw::call6(nr::MMAP, room(bytes)), bytes))
            .find(|(own, _)| !failed(*own));
        let Some((own, bytes)) = mapped else { return false };
        let own = own as u64;
        all().for_each(|mapping| mapping.copy(own + (mapping.offset - from)));
        let are_put = all().all(|mapping| {
            let (part, len) = (own + (mapping.offset - from), mapping.len());
            keep(*mapping)
                && !failed(raw::call6(nr::MREMAP, [part, 0, len, MAYMOVE | FIXED, mapping.start, 0]))
                && (mapping.protection == proc::READ | proc::WRITE
                    || !failed(raw::call3(nr::MPROTECT, mapping.start, len, mapping.protection)))
        });
        raw::call2(nr::MUNMAP, own, bytes);
        are_put
    }
}

/// Bytes by which such memory may grow in a copy.
const GROWS: u64 = 256 << 20;
const MAYMOVE: u64 = 1;
const FIXED: u64 = 2;

/// # Safety
/// Nobody uses the mapping meanwhile.
unsafe fn make_one_own(mapping: Mapping) -> bool {
    let len = mapping.len();
    if let Some(copy) = pieces::copy_of(mapping.start, len).filter(|_| of_family::is_member()) {
        // SAFETY: an old length of zero makes a second mapping of shared pages, here in place of the guest's.
        return unsafe {
            keep(mapping)
                && !failed(raw::call6(nr::MREMAP, [copy, 0, len, MAYMOVE | FIXED, mapping.start, 0]))
                && (mapping.protection == proc::READ | proc::WRITE
                    || !failed(raw::call3(nr::MPROTECT, mapping.start, len, mapping.protection)))
        };
    }
    // SAFETY: new memory takes the place of a mapping of the same length.
    unsafe {
        let own = raw::call6(nr::MMAP, [0, len, proc::READ | proc::WRITE, 0x22, u64::MAX, 0]);
        if failed(own) {
            return false;
        }
        let own = own as u64;
        mapping.copy(own);
        if mapping.protection != proc::READ | proc::WRITE {
            raw::call3(nr::MPROTECT, own, len, mapping.protection);
        }
        if mapping.shared_of != 0 && !keep(mapping) {
            return false;
        }
        let to = [own, len, len, MAYMOVE | FIXED, mapping.start, 0];
        !failed(raw::call6(nr::MREMAP, to))
    }
}

/// Whether the kernel reads a byte there. Where a filter does not let it, it says so of any.
fn is_readable(address: u64) -> bool {
    let mut byte = 0u8;
    let [own, there] = [[&raw mut byte as u64, 1], [address, 1]];
    // SAFETY: asks for a number.
    let pid = unsafe { raw::call1(nr::GETPID, 0) } as u64;
    let args = [pid, own.as_ptr() as u64, 1, there.as_ptr() as u64, 1, 0];
    // SAFETY: the kernel writes one byte of ours.
    unsafe { raw::call6(nr::PROCESS_VM_READV, args) == 1 }
}

/// # Safety
/// A mapping of the guest's, about to be replaced.
unsafe fn keep(mapping: Mapping) -> bool {
    let len = mapping.len();
    let (how, wanted) = match pieces::place_for(mapping.start, len) {
        Some(address) => (MAYMOVE | FIXED, address),
        None => (MAYMOVE, 0),
    };
    // SAFETY: an old length of zero makes a second mapping of shared pages.
    let mut at = unsafe { raw::call6(nr::MREMAP, [mapping.start, 0, len, how, wanted, 0]) };
    // The ring of a packet socket has its pages in the first mapping alone: the program would die of the second, once promoted.
    if !failed(at) && is_readable(mapping.start) && !is_readable(at as u64) {
        // SAFETY: of ours alone.
        unsafe { raw::call2(nr::MUNMAP, at as u64, len) };
        at = crate::raw::err::EFAULT;
    }
    // What cannot be mapped twice (a device's memory) stays as it is now, unless stores of the guest's belong there.
    if failed(at) && mapping.written_through {
        return false;
    }
    views::add(&View {
        start: mapping.start,
        bytes: len,
        at: if failed(at) { 0 } else { at as u64 },
        offset: mapping.offset,
        file: mapping.shared_of,
        protection: mapping.protection,
    })
}

const PAGE: u64 = 4096;

//! Files of `/proc` that are about a process: by the number in their path, and for as long as it lives.
//!
//! The guest names processes and threads by the group's numbers, also in a path. Such a file that is open at a promotion is
//! about the dead primary, and tells nothing more: it is opened again, about this process, at the same position.

use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

use us_abi::SegmentHeader;
use us_calls::{Door, In, Policy, Row};

use crate::door::numbers;
use crate::fdtable::{self, Kind};
use crate::guest::GuestPtr;
use crate::kernel::{F_GETFD, SEEK_SET};
use crate::state::{self, Decimal};
use crate::{proc, raw, seats};

const FOLDER: &[u8] = b"/proc/";
/// Longest path that is looked at, bytes.
const PATH_MAX: usize = 128;

/// Set once the guest has opened anything by such a path.
static ANY: AtomicBool = AtomicBool::new(false);

/// A path in the making, with its NUL.
pub struct Path {
    bytes: MaybeUninit<[u8; PATH_MAX]>,
}

impl Default for Path {
    /// Room for one: most calls have no use for it.
    fn default() -> Path {
        Path { bytes: MaybeUninit::uninit() }
    }
}

/// Parts of a path, put together.
struct Writer<'a> {
    bytes: &'a mut [u8; PATH_MAX],
    used: usize,
}

impl Writer<'_> {
    /// False where there is no room, for the NUL included.
    fn put(&mut self, part: &[u8]) -> bool {
        let end = self.used + part.len();
        if end >= PATH_MAX {
            return false;
        }
        self.bytes[self.used..end].copy_from_slice(part);
        self.bytes[end] = 0;
        self.used = end;
        true
    }
}

/// The path that a call names, if it is one in `/proc`.
fn path_in(row: &Row, args: &[u64; 6]) -> Option<(usize, GuestPtr<u8>)> {
    /// symlink, symlinkat: what they name first is a text.
    const TEXTS: [u16; 2] = [88, 266];
    let arg = row.inputs.iter().find_map(|input| match *input {
        In::Str { arg } => Some(arg as usize),
        _ => None,
    })?;
    // The shortest that names a process has eight bytes, the NUL included.
    let path = GuestPtr::<[u8; 8]>::at(args[arg]);
    let start = path.load()?;
    (start.starts_with(FOLDER) && !TEXTS.contains(&row.nr)).then_some((arg, path.bytes()))
}

/// A call has opened something, in every copy.
pub fn opened(row: &Row, args: &[u64; 6]) {
    if matches!(row.policy, Policy::Special(Door::Open)) && path_in(row, args).is_some() {
        ANY.store(true, Ordering::Relaxed);
    }
}

/// Replaces the argument of a call that is a path in `/proc` by the path with the kernel's numbers. `path` has to live as
/// long as the call.
pub fn translate(row: &Row, args: &mut [u64; 6], path: &mut Path) {
    let Some((arg, from)) = path_in(row, args) else { return };
    let len = from.string_len();
    if len >= PATH_MAX {
        return;
    }
    let mut text = [0u8; PATH_MAX];
    if !from.fill(&mut text[..len]) {
        return;
    }
    let to_kernel = |number: u32| numbers::to_kernel(number.into()) as u32;
    if renumbered(&text[..len], path.bytes.write([0; PATH_MAX]), to_kernel, to_kernel) {
        args[arg] = path.bytes.as_ptr() as u64;
    }
}

/// Puts other numbers of process and thread into `/proc/NUMBER/task/NUMBER/REST`. False if there are none, or if they stay as
/// they are.
fn renumbered(
    from: &[u8],
    to: &mut [u8; PATH_MAX],
    process: impl Fn(u32) -> u32,
    thread: impl Fn(u32) -> u32,
) -> bool {
    let Some(mut rest) = from.strip_prefix(FOLDER) else { return false };
    let mut path = Writer { bytes: to, used: 0 };
    let mut changed = false;
    let mut fits = path.put(FOLDER);
    let mut put = |number: (u32, usize), other: u32, rest: &mut &[u8], path: &mut Writer| {
        changed |= number.0 != other;
        *rest = &rest[number.1..];
        path.put(Decimal::new(other.into()).bytes())
    };
    if let Some(number) = number_at(rest) {
        fits &= put(number, process(number.0), &mut rest, &mut path);
    } else if let Some(behind) = rest.strip_prefix(b"self") {
        fits &= path.put(b"self");
        rest = behind;
    }
    if let Some(behind) = rest.strip_prefix(b"/task/")
        && let Some(number) = number_at(behind)
    {
        fits &= path.put(b"/task/");
        rest = behind;
        fits &= put(number, thread(number.0), &mut rest, &mut path);
    }
    fits &= path.put(rest);
    changed && fits
}

/// The decimal number that a name is, or that a path begins with as a name, and its length.
fn number_at(path: &[u8]) -> Option<(u32, usize)> {
    let len = path.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if len == 0 || len > 9 || !matches!(path.get(len), None | Some(b'/')) {
        return None;
    }
    Some((path[..len].iter().fold(0, |number, digit| number * 10 + u32::from(digit - b'0')), len))
}

/// At a promotion, before anybody acts: files about the dead primary become files about this process.
pub fn open_again(header: &SegmentHeader) {
    if !ANY.load(Ordering::Relaxed) {
        return;
    }
    let mut is_ready = false;
    fdtable::for_open(|fd| {
        // Neither a socket nor a pipe; a folder is of the other kind.
        let wanted = fdtable::get(fd).is_some_and(|shadow| matches!(shadow.kind(), Kind::File | Kind::Other));
        if wanted {
            replace(fd, header, &mut is_ready);
        }
    });
}

/// Gives the threads their names, which they take themselves only when they go live: what such a file says at a position is
/// made when the position is set, and a program reads the rest of that.
fn name_threads() {
    use crate::kernel::O_WRONLY;
    crate::thread::for_each(|thread| {
        let tid = seats::tid(thread.slot()).load(Ordering::Relaxed);
        let number = Decimal::new(u64::from(tid));
        let path = state::joined(&[b"/proc/self/task/", number.bytes(), b"/comm"]);
        let name = thread.place.name();
        let len = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        // SAFETY: a file of our own process, and bytes that live until then.
        unsafe {
            let file = raw::call3(raw::nr::OPEN, path.as_ptr() as u64, O_WRONLY, 0);
            if tid != 0 && !raw::failed(file) {
                raw::call3(raw::nr::WRITE, file as u64, name.as_ptr() as u64, len as u64);
            }
            if !raw::failed(file) {
                raw::call1(raw::nr::CLOSE, file as u64);
            }
        }
    });
}

/// Opens the file behind a number again if it is about the dead process, or about a standby that was to take over before this
/// one and was killed on its way. `is_ready`: the threads have their names.
fn replace(fd: i32, header: &SegmentHeader, is_ready: &mut bool) {
    const GONE: &[u8] = b" (deleted)";
    let own = state::REAL_PID.load(Ordering::Relaxed);
    let mut name = [0u8; PATH_MAX];
    let Some(name) = proc::object_name(fd, &mut name) else { return };
    // The kernel says so once the dead process has been reaped.
    let name = name.strip_suffix(GONE).unwrap_or(name);
    let mut path = [0u8; PATH_MAX];
    let is_ours =
        |number: u32| number == header.primary_pid.load(Ordering::Relaxed) || seats::is_taker(header, number);
    let process = |number: u32| if is_ours(number) { own } else { number };
    let thread = |number: u32| successor_of(header, number);
    if !renumbered(name, &mut path, process, thread) || !is_of_proc(fd) {
        return;
    }
    // Only where there is such a file: behind the doubts hardly ever, and a program may have thousands of threads.
    if !core::mem::replace(is_ready, true) {
        name_threads();
        seats::takes(header);
    }
    // A duplicate that has been replaced already: they share the position.
    let Some(shadow) = fdtable::get(fd) else { return };
    let other = (0..fd).find(|other| {
        fdtable::get(*other).is_some_and(|other| other.same_stream(shadow) && other.kind() != Kind::None)
    });
    match other {
        Some(other) => take_number(other, fd),
        None => {
            const NEW_ONLY: u64 = 0o100 | 0o200 | 0o1000; // O_CREAT, O_EXCL, O_TRUNC
            use crate::kernel::O_CLOEXEC;
            // SAFETY: opens a path of our own.
            let new = unsafe {
                let flags = fdtable::status_flags(fd) as u64 & !NEW_ONLY;
                raw::call3(raw::nr::OPEN, path.as_ptr() as u64, flags | O_CLOEXEC, 0)
            };
            if raw::failed(new) {
                return;
            }
            let position = fdtable::position(fd).unwrap_or(0);
            // SAFETY: sets a position, and closes a number that is nobody's.
            unsafe {
                raw::call3(raw::nr::LSEEK, new as u64, position, SEEK_SET);
                take_number(new as i32, fd);
                raw::call1(raw::nr::CLOSE, new as u64);
            }
        }
    }
    shadow.identity.store(fdtable::kept(fdtable::identify(fd).0), Ordering::Relaxed);
}

/// Makes `fd` stand for the open file of `from`; whether it is closed at an exec stays.
fn take_number(from: i32, fd: i32) {
    use crate::kernel::FD_CLOEXEC;
    use crate::raw::nr::DUP3;
    // SAFETY: nobody acts yet, so nobody uses the number meanwhile.
    unsafe {
        let closes = raw::call2(raw::nr::FCNTL, fd as u64, F_GETFD) as u64 & FD_CLOEXEC;
        raw::call3(DUP3, from as u64, fd as u64, closes * 0o2000000);
    }
}

/// The thread that stands in for one of the dead process.
fn successor_of(header: &SegmentHeader, tid: u32) -> u32 {
    let mut found = tid;
    crate::thread::for_each(|thread| {
        let is_its = || {
            // A primary that was killed a moment after it took over has not said so of its threads.
            thread.entry().primary_tid.load(Ordering::Relaxed) == tid
                || seats::was_of_taker(header, thread.slot(), tid)
        };
        if thread.has_ring() && is_its() {
            found = seats::tid(thread.slot()).load(Ordering::Relaxed);
        }
    });
    found
}

/// Whether a descriptor is one of procfs, wherever that is mounted.
fn is_of_proc(fd: i32) -> bool {
    use crate::raw::nr::FSTATFS;
    const PROC_MAGIC: u64 = 0x9fa0;
    let mut about = [0u64; 15];
    // SAFETY: the kernel writes one struct statfs of 120 bytes.
    (unsafe { raw::call2(FSTATFS, fd as u64, about.as_mut_ptr() as u64) }) == 0 && about[0] == PROC_MAGIC
}

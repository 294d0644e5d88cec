//! Files of a mirror: in the folders that it is to keep alike (*volumes*) it does what the log says was done. Others are opened as
//! they are found, and nothing is changed there.

use core::cell::UnsafeCell;

use super::{LOCK, Thing, call, close, connection, give_up, put, streams, thing};
use crate::fdtable::{AT_FDCWD, status_flags};
use crate::kernel::{
    F_SETFL, O_ACCMODE, O_CLOEXEC, O_CREAT, O_DIRECTORY, O_EXCL, O_NOCTTY, O_NONBLOCK, O_PATH, O_RDONLY,
    O_TRUNC, SEEK_CUR,
};
use crate::raw::{self, failed, nr};
use crate::sys::spans::Source;
use crate::{guest, own_file, paths, state};

const O_TMPFILE: u64 = 0o20_000_000;

const PATH_BYTES: usize = 4096;

/// Memory for paths, for who holds the lock: the program's stacks may be small.
struct Room(UnsafeCell<[u8; PATH_BYTES]>);
// SAFETY: used under the module's lock, and before there is another thread.
unsafe impl Sync for Room {}
static PATH: Room = Room(UnsafeCell::new([0; PATH_BYTES]));
/// Whole paths of folders, each with a NUL behind it.
static VOLUMES: Room = Room(UnsafeCell::new([0; PATH_BYTES]));

/// At the beginning: reads the volumes, which the supervisor has written into the group's folder.
pub(super) fn begin() {
    // SAFETY: no other thread exists.
    let volumes = unsafe { &mut *VOLUMES.0.get() };
    let file = open_in_folder(b"volumes\0", own_file::READ);
    if !failed(file) {
        let args = [file as u64, volumes.as_mut_ptr() as u64, PATH_BYTES as u64 - 1, 0, 0, 0];
        call(linux_raw_sys::general::__NR_read, args);
        close(file);
    }
}

/// Opens a file that the supervisor has made in the group's folder; its name ends with NUL. At the beginning.
pub(super) fn open_in_folder(name: &[u8], how: u64) -> i64 {
    // SAFETY: no other thread exists.
    let path = unsafe { &mut *PATH.0.get() };
    let folder = paths::folder();
    let bytes = folder.len() + name.len();
    if bytes > PATH_BYTES {
        return raw::err::ENOENT;
    }
    path[..folder.len()].copy_from_slice(folder);
    path[folder.len()..bytes].copy_from_slice(name);
    // SAFETY: it ends with NUL.
    unsafe { own_file::open(path.as_ptr(), how) }
}

/// Whether a whole path lies in a volume, or is one.
fn is_in_volume(path: &[u8]) -> bool {
    // SAFETY: written before there was another thread.
    let volumes = unsafe { &*VOLUMES.0.get() };
    let volumes = volumes.split(|byte| *byte == 0).take_while(|volume| !volume.is_empty());
    let is_in = |volume: &[u8]| {
        path.strip_prefix(volume).is_some_and(|rest| rest.is_empty() || rest[0] == b'/' || volume == b"/")
    };
    volumes.into_iter().any(is_in)
}

/// Whether an open file lies in one, by its whole path.
fn lies_in_volume(fd: i64) -> bool {
    let link = state::joined(&[b"/proc/self/fd/", state::Decimal::new(fd as u64).bytes()]);
    // SAFETY: under the lock.
    let path = unsafe { &mut *PATH.0.get() };
    // SAFETY: the kernel writes a path of fewer bytes than that.
    let got = unsafe {
        raw::call3(nr::READLINK, link.as_ptr() as u64, path.as_mut_ptr() as u64, PATH_BYTES as u64 - 1)
    };
    got > 0 && is_in_volume(&path[..got as usize])
}

/// Whether the folder that a path says a file is in, or would be made in, lies in a volume.
fn is_made_in_volume(at: u64, path: u64) -> bool {
    // SAFETY: under the lock.
    let room = unsafe { &mut *PATH.0.get() };
    let bytes = guest::string_len_within(path, PATH_BYTES - 1);
    if bytes == 0 || bytes >= PATH_BYTES - 1 || !guest::read(room.as_mut_ptr(), path, bytes) {
        return false;
    }
    let name = room[..bytes].iter().rposition(|byte| *byte != b'/').map_or(0, |at| at + 1);
    match room[..name].iter().rposition(|byte| *byte == b'/') {
        Some(end) => room[if end == 0 { 1 } else { end }] = 0,
        None => room[..2].copy_from_slice(b".\0"),
    }
    let args = [at, room.as_ptr() as u64, O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 0, 0];
    let folder = call(linux_raw_sys::general::__NR_openat, args);
    if failed(folder) {
        return false;
    }
    let is_in = lies_in_volume(folder);
    close(folder);
    is_in
}

/// A call about files. False if it is none of those.
pub(super) fn follow(number: u32, args: &[u64; 6], result: i64) -> bool {
    use linux_raw_sys::general as k;
    let [a, b, c, d, ..] = *args;
    let fd = result as i32;
    match number {
        k::__NR_open => open(AT_FDCWD, a, b, c, fd),
        k::__NR_openat => open(a, b, c, d, fd),
        k::__NR_creat => open(AT_FDCWD, a, O_CREAT | O_TRUNC | 1, b, fd),
        k::__NR_openat2 => {
            let Some([flags, mode, _]) = guest::load::<[u64; 3]>(c) else { return true };
            open(a, b, flags, mode, fd);
        }
        k::__NR_lseek => {
            if matches!(thing(a as i32), Thing::Written | Thing::Read) {
                call(number, [a, result as u64, 0, 0, 0, 0]);
            }
        }
        k::__NR_ftruncate | k::__NR_fallocate | k::__NR_fchmod | k::__NR_fchown => {
            if thing(a as i32) == Thing::Written {
                call(number, *args);
            }
        }
        k::__NR_fsync | k::__NR_fdatasync => {
            if thing(a as i32) == Thing::Written && failed(call(number, *args)) {
                give_up(&[b"a volume of this machine does not keep what was written"]);
            }
        }
        k::__NR_flock => _ = call(number, [a, b | 4, 0, 0, 0, 0]),
        k::__NR_sendfile => {
            if c == 0 {
                passed(b as i32, result as u64);
            }
        }
        k::__NR_truncate
        | k::__NR_unlink
        | k::__NR_rmdir
        | k::__NR_mkdir
        | k::__NR_chmod
        | k::__NR_chown
        | k::__NR_lchown
        | k::__NR_mknod => change(number, args, &[(AT_FDCWD, a)]),
        k::__NR_unlinkat
        | k::__NR_mkdirat
        | k::__NR_fchmodat
        | k::__NR_fchownat
        | k::__NR_mknodat
        | k::__NR_utimensat => {
            if b != 0 {
                change(number, args, &[(a, b)]);
            } else if thing(a as i32) == Thing::Written {
                call(number, *args);
            }
        }
        k::__NR_rename | k::__NR_link => change(number, args, &[(AT_FDCWD, a), (AT_FDCWD, b)]),
        k::__NR_renameat | k::__NR_renameat2 | k::__NR_linkat => change(number, args, &[(a, b), (c, d)]),
        k::__NR_symlink => change(number, args, &[(AT_FDCWD, b)]),
        k::__NR_symlinkat => change(number, args, &[(b, c)]),
        k::__NR_copy_file_range | k::__NR_splice | k::__NR_tee | k::__NR_vmsplice => {
            if thing(c as i32) == Thing::Written {
                give_up(&[us_calls::name(number.into()).as_bytes(), b" into a volume is not followed"]);
            }
        }
        _ => return false,
    }
    true
}

/// A call that changes what paths lead to, if all of them lie in volumes.
fn change(number: u32, args: &[u64; 6], paths: &[(u64, u64)]) {
    let inside = paths.iter().filter(|(at, path)| is_made_in_volume(*at, *path)).count();
    if inside == 0 {
        return;
    }
    let done = if inside == paths.len() { call(number, *args) } else { -18 };
    if failed(done) {
        give_up(&[
            us_calls::name(number.into()).as_bytes(),
            b" in a volume did not do on this machine what it did there",
        ]);
    }
}

/// Opens the file that the primary has opened, where it is.
fn open(at: u64, path: u64, flags: u64, mode: u64, number: i32) {
    use linux_raw_sys::general::{__NR_fcntl, __NR_ftruncate, __NR_openat};
    let openat = |flags: u64, mode: u64| call(__NR_openat, [at, path, flags | O_NOCTTY, mode, 0, 0]);
    let is_nameless = flags & O_TMPFILE == O_TMPFILE;
    // A FIFO would wait for its other end.
    let waits = if flags & (O_PATH | O_NONBLOCK) == 0 { O_NONBLOCK } else { 0 };
    let mut made = match is_nameless {
        true => openat(flags, mode),
        false => openat(flags & !(O_CREAT | O_EXCL | O_TRUNC) | waits, 0),
    };
    if failed(made) && flags & O_CREAT != 0 && is_made_in_volume(at, path) {
        made = openat(flags & !O_EXCL | waits, mode);
    }
    if failed(made) {
        // Something has to have its number.
        made = call(__NR_openat, [AT_FDCWD, c"/dev/null".as_ptr() as u64, 2 | flags & O_CLOEXEC, 0, 0, 0]);
        if failed(made) {
            give_up(&[b"no file can be opened on this machine"]);
        }
        return put(made, number, Thing::Other);
    }
    let is_regular = crate::fdtable::Stat::of(made as i32).is_some_and(|stat| stat.is_regular());
    let writes = flags & O_ACCMODE != O_RDONLY && flags & O_PATH == 0;
    let what = match is_regular {
        true if is_nameless || writes && lies_in_volume(made) => Thing::Written,
        true => Thing::Read,
        false => Thing::Other,
    };
    if what == Thing::Written && flags & O_TRUNC != 0 {
        call(__NR_ftruncate, [made as u64, 0, 0, 0, 0, 0]);
    }
    if waits != 0 {
        let now = status_flags(made as i32);
        if now >= 0 {
            call(__NR_fcntl, [made as u64, F_SETFL, now as u64 & !O_NONBLOCK, 0, 0, 0]);
        }
    }
    put(made, number, what);
}

/// So many bytes have been passed in a file, by a call that uses its position.
pub(super) fn passed(number: i32, bytes: u64) {
    call(linux_raw_sys::general::__NR_lseek, [number as u64, bytes, SEEK_CUR, 0, 0, 0]);
}

/// An output has moved so many bytes, at this place if it has said one. At its turn.
pub fn wrote(number: i32, at: Option<u64>, source: Source, bytes: u64) {
    use linux_raw_sys::general::{__NR_pwrite64, __NR_write};
    match thing(number) {
        Thing::Stream => LOCK.with(|| streams::put_in(number, source, bytes)),
        Thing::Connection => LOCK.with(|| connection::has_sent(number, source, bytes)),
        Thing::Read if at.is_none() => passed(number, bytes),
        Thing::Written => {
            let mut to = at;
            streams::for_pieces(source, bytes, |mut base, mut left| {
                while left > 0 {
                    let done = match to {
                        None => call(__NR_write, [number as u64, base, left, 0, 0, 0]),
                        Some(to) => call(__NR_pwrite64, [number as u64, base, left, to, 0, 0]),
                    };
                    if failed(done) || done == 0 {
                        give_up(&[b"a file of a volume cannot be written on this machine"]);
                    }
                    base += done as u64;
                    left -= done as u64;
                    to = to.map(|to| to + done as u64);
                }
            });
        }
        _ => {}
    }
}

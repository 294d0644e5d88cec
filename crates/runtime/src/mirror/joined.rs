//! A mirror that has not followed from the log's beginning: its process was put together from an image of the program. Its objects have
//! been made by the supervisor, which says in a file of the group's folder what each number stands for ([`world::Row`]).

use core::sync::atomic::Ordering;

use us_abi::world::{self, Row, thing};

use super::{
    ALL, STANDARD, THINGS, Thing, close, connection, files, forget, identity, set_thing, socket, streams,
};
use crate::kernel::F_DUPFD_CLOEXEC;
use crate::raw::failed;
use crate::{own_file, state};

/// The file's name, with its NUL.
const FILE: &[u8] = b"world\0";
const _: () = assert!(world::NAME.len() + 1 == FILE.len());

/// By the only thread of such a process, before it follows. What the memory of the program had of a mirror is of another machine: the
/// program may have been one there.
pub fn begin_joined() {
    THINGS.iter().for_each(|place| place.store(thing::NONE as u8, Ordering::Relaxed));
    STANDARD.iter().for_each(|place| place.store(0, Ordering::Relaxed));
    streams::forget();
    socket::forget();
    forget();
    state::IS_RESTORED.store(false, Ordering::Relaxed);
    files::begin();
    connection::begin();
    let file = files::open_in_folder(FILE, own_file::READ);
    if failed(file) {
        crate::verdict::last_words(&[b"nobody says what its descriptors stand for"]);
    }
    // What the program calls a file it may know from another machine than the one that has said it.
    identity::rename(|add| each(file, |row| add(row.fd, row.known)));
    each(file, take);
    close(file);
}

/// Calls `f` with each row.
fn each(file: i64, mut f: impl FnMut(&Row)) {
    use linux_raw_sys::general::__NR_pread64;
    let mut row = Row::NONE;
    const BYTES: u64 = size_of::<Row>() as u64;
    for at in 0.. {
        let got = super::call(__NR_pread64, [file as u64, &raw mut row as u64, BYTES, at * BYTES, 0, 0]);
        if got != BYTES as i64 {
            return;
        }
        f(&row);
    }
}

fn take(row: &Row) {
    use linux_raw_sys::general::__NR_fcntl;
    if row.thing == thing::SHOWN {
        // Out of the program's way, which has no such number.
        let kept = super::call(__NR_fcntl, [row.fd as u64, F_DUPFD_CLOEXEC, 800, 0, 0, 0]);
        close(row.fd.into());
        if let Some(place) = STANDARD.get(row.backlog as usize).filter(|_| !failed(kept)) {
            place.store(kept as u32 + 1, Ordering::Relaxed);
        }
        return;
    }
    let what = ALL.get(row.thing as usize).copied().unwrap_or(Thing::Other);
    set_thing(row.fd, what);
    match what {
        Thing::Socket => socket::note(row),
        Thing::Connection => connection::join(row),
        _ => {}
    }
}

//! How far the calls in doubt that move bytes came. `crates/world` judges; this collects what it judges by.

use us_calls::{Door, Policy};
use us_world::{Copy, Direction, Kind, Part, Stream, Told, Verdict, Verdicts};

use crate::door::{pattern, spawn, witness};
use crate::fdtable::{self, Shadow};
use crate::standby::kernel::Own;
use crate::standby::settle::{Doubt, for_doubts, makes_process};
use crate::sys::room::Room;
use crate::sys::spans::{self, Source, Vector};

const WRITE: u16 = linux_raw_sys::general::__NR_write as u16;
const READ: u16 = linux_raw_sys::general::__NR_read as u16;
const WRITEV: u16 = linux_raw_sys::general::__NR_writev as u16;
const SENDFILE: u16 = linux_raw_sys::general::__NR_sendfile as u16;
const SPLICE: u16 = linux_raw_sys::general::__NR_splice as u16;
const TEE: u16 = linux_raw_sys::general::__NR_tee as u16;
const COPY_FILE_RANGE: u16 = linux_raw_sys::general::__NR_copy_file_range as u16;

/// The parts of all calls in doubt. The poller's, like the list below: it alone settles.
static PARTS: Room<Part> = Room::new();
/// What is known of each call, by slot.
static VERDICTS: Room<Option<Verdict>> = Room::new();

/// The streams that a call in doubt moves bytes on: where they go, then where they come from.
fn parts_of(doubt: &Doubt, is_lent: bool) -> [Option<Part>; 2] {
    let Policy::Special(door) = doubt.row.policy else { return [None; 2] };
    let place = doubt.place();
    let told = witness::told(place, doubt.entered());
    let part = |fd: u64, direction, len, copy| Part {
        slot: doubt.slot,
        fd: fd as i32,
        direction,
        len,
        entered: doubt.entered(),
        is_told: doubt.so_far > 0,
        is_in_slot: doubt.row.nr == READ && !witness::is_elsewhere(place),
        is_elsewhere: witness::is_elsewhere(place),
        from: witness::position_before(place),
        told,
        is_plain: match direction {
            // To a pipe that others share it is put out piece by piece, and the slot tells; before the first piece
            // nothing was entered.
            Direction::Out => matches!(doubt.row.nr, WRITE | WRITEV) && told == Told::None,
            Direction::In => pattern::is_plain_read(place),
        },
        copy,
        stream: fdtable::get(fd as i32).map(|shadow| match shadow.logged() {
            logged if is_lent => Stream { is_private: false, ..logged },
            logged => logged,
        }),
    };
    let into = |fd: u64, len, copy| part(fd, Direction::Out, len, copy);
    let from = |fd: u64, len, copy| part(fd, Direction::In, len, copy);
    let (fd, len, asked) = (doubt.args.fd as u64, doubt.args.len, &doubt.asked);
    match door {
        _ if doubt.has_position() => [None; 2],
        Door::Write | Door::Writev | Door::Send | Door::SendMsg => {
            let added = fdtable::get(fd as i32).is_some_and(|shadow| shadow.kind() == Kind::Event);
            let source = match doubt.row.nr {
                WRITEV => Source::Vectors(asked[1], asked[2]),
                _ => Source::Span(Vector { base: asked[1], len: asked[2] }),
            };
            [Some(into(fd, if added { source.first_word() } else { len }, Copy::No)), None]
        }
        Door::Read | Door::Readv | Door::Recv | Door::RecvMsg => {
            [Some(from(fd, len.saturating_sub(doubt.so_far), Copy::No)), None]
        }
        // What names its place in a file does not move the file's position.
        Door::Sendfile | Door::Splice | Door::Vmsplice => match doubt.row.nr {
            SENDFILE => [
                Some(into(asked[0], asked[3], Copy::Undoable)),
                (asked[2] == 0).then(|| from(asked[1], asked[3], Copy::Undoable)),
            ],
            SPLICE | COPY_FILE_RANGE => {
                let copy = if doubt.row.nr == SPLICE { Copy::Kept } else { Copy::Undoable };
                [
                    (asked[3] == 0).then(|| into(asked[2], asked[4], copy)),
                    (asked[1] == 0).then(|| from(asked[0], asked[4], copy)),
                ]
            }
            TEE => [Some(into(asked[1], asked[2], Copy::No)), None],
            _ => {
                let bytes = spans::vector_bytes(asked[1], asked[2]);
                let is_out = fdtable::get(fd as i32).is_some_and(Shadow::is_write_end);
                let side = if is_out { Direction::Out } else { Direction::In };
                [Some(part(fd, side, bytes, Copy::No)), None]
            }
        },
        _ => [None; 2],
    }
}

/// Looks at every call in doubt that moves bytes.
pub fn verdicts() -> Verdicts<'static> {
    PARTS.clear();
    VERDICTS.clear();
    let mut fits = true;
    // A child that has been made may have any of them.
    let mut is_lent = false;
    for_doubts(|doubt| is_lent |= makes_process(&doubt) && spawn::may_have_forked(doubt.place()));
    for_doubts(|doubt| {
        for part in parts_of(&doubt, is_lent).into_iter().flatten() {
            fits &= PARTS.push(part);
        }
        while fits && VERDICTS.count() <= doubt.slot as usize {
            fits = VERDICTS.push(None);
        }
    });
    // SAFETY: the poller's lists, which nothing below adds to.
    let (parts, list) = unsafe { (PARTS.all(), VERDICTS.all_mut()) };
    if !fits {
        // Some would be missing where bytes are shared out: without a place, every verdict is Unknown.
        return Verdicts::new(&mut []);
    }
    let mut verdicts = Verdicts::new(list);
    us_world::judge(parts, &mut Own, &mut verdicts);
    verdicts
}

//! The calls in doubt, by the streams on which they move bytes.

use crate::kind::{Direction, Kind};
use crate::verdict::{Verdict, Verdicts};

/// What a dead primary's slot tells of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing: the call was made in another way.
    None,
    /// The call had moved nothing.
    Nothing,
    /// It had moved this many bytes.
    Moved(u32),
}

/// What the log says of an open file, under however many numbers it is known; of a pipe, both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Which one: two descriptors with the same key are the same stream. 0 where the log does not say.
    pub key: u32,
    /// What it is.
    pub kind: Kind,
    /// Bytes read, as logged.
    pub read: u64,
    /// Bytes written, or the position, as logged.
    pub written: u64,
    /// Nobody outside this process can have moved bytes here.
    pub is_private: bool,
    /// It was made by this process, and has come to nobody but its children: what they have not moved is counted.
    pub is_own: bool,
    /// The group has ended its half of a connection.
    pub is_shut: bool,
    /// A call of the group's has been told that the connection has failed.
    pub has_failed: bool,
}

impl Stream {
    /// What a pipe or an eventfd of the group's holds by the log; `None` if more came out than went in.
    pub(crate) fn held(&self) -> Option<u64> {
        self.written.checked_sub(self.read)
    }
}

/// How a call that copies from one stream to another has its two parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copy {
    /// The call has one part.
    No,
    /// One of two, of a call that nobody sees if it is undone: from file to file.
    Undoable,
    /// One of two, or of the one that has a position, of any other.
    Kept,
}

/// One call's part in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Slot of the call's thread.
    pub slot: u32,
    /// Descriptor.
    pub fd: i32,
    /// Which way the bytes go.
    pub direction: Direction,
    /// Bytes, or what is added to an eventfd.
    pub len: u64,
    /// The kernel had been entered. If not, the call was not made.
    pub entered: bool,
    /// A part of a long read has been told: the kernel has been through all of it, though not at this slot.
    pub is_told: bool,
    /// It reads into its slot.
    pub is_in_slot: bool,
    /// What it reads is not in its slot, and dies with the primary.
    pub is_elsewhere: bool,
    /// Where the file was before, if the primary has noted it.
    pub from: Option<u64>,
    /// What its slot tells.
    pub told: Told,
    /// On a pipe: its primary had the pipe to itself when it made the call, and made it in the plain way.
    pub is_plain: bool,
    /// Whether it is one side of a copy. The part that puts out comes first.
    pub copy: Copy,
    /// What the log says of the stream; `None` for a descriptor that is not shadowed.
    pub stream: Option<Stream>,
}

impl Part {
    /// Whether bytes go out.
    pub fn is_output(&self) -> bool {
        self.direction == Direction::Out
    }

    fn is_on(&self, fd: i32, stream: &Stream) -> bool {
        match self.stream {
            Some(own) if own.key != 0 || stream.key != 0 => own.key == stream.key,
            Some(_) => self.fd == fd,
            None => false,
        }
    }
}

/// The calls in doubt on one stream.
#[derive(Clone, Copy)]
pub struct Sharers<'a> {
    all: &'a [Part],
    /// A descriptor of it.
    pub(crate) fd: i32,
    /// What the log says of it.
    pub(crate) stream: &'a Stream,
}

impl<'a> Sharers<'a> {
    /// Those of `all` that are on the same stream as `fd`.
    pub fn new(all: &'a [Part], fd: i32, stream: &'a Stream) -> Sharers<'a> {
        Sharers { all, fd, stream }
    }

    /// All of them.
    pub fn parts(self) -> impl Iterator<Item = &'a Part> + Clone {
        self.all.iter().filter(move |part| part.is_on(self.fd, self.stream))
    }

    /// Whether there is no other.
    pub(crate) fn is_one(self) -> bool {
        self.parts().nth(1).is_none()
    }

    /// Those that go one way.
    pub(crate) fn side(self, direction: Direction) -> impl Iterator<Item = &'a Part> + Clone {
        self.parts().filter(move |part| part.direction == direction)
    }

    /// The same, of those that the kernel was entered with.
    pub(crate) fn entered(self, direction: Direction) -> impl Iterator<Item = &'a Part> + Clone {
        self.side(direction).filter(|part| part.entered)
    }

    /// Shares `total` out among the calls of one side: into `verdicts`.
    pub(crate) fn share(self, direction: Direction, total: Option<u64>, verdicts: &mut Verdicts) {
        self.share_by(direction, total, |part, verdict| verdicts.put(part.slot, verdict));
    }

    /// Shares `total` out among the calls of one side. What a slot tells is its call's own; the rest belongs to those whose slots
    /// tell nothing. Where it cannot be told whose it is, they are Unknown.
    pub(crate) fn share_by(
        self,
        direction: Direction,
        total: Option<u64>,
        mut put: impl FnMut(&Part, Verdict),
    ) {
        let mut left = total;
        for part in self.side(direction) {
            match part.told {
                Told::Moved(moved) => {
                    left = left.and_then(|left| left.checked_sub(moved.into()));
                    put(part, Verdict::Moved(moved.into()));
                }
                Told::Nothing => put(part, Verdict::Again),
                Told::None if !part.entered => put(part, Verdict::Again),
                Told::None => {}
            }
        }
        let silent = self.entered(direction).filter(|part| part.told == Told::None);
        let lens = silent.clone().map(|part| part.len);
        let choice = left.and_then(|left| choose(direction, left, lens));
        for (at, part) in silent.enumerate() {
            put(
                part,
                choice.as_ref().map_or(Verdict::Unknown, |choice| Verdict::Moved(choice.of(at, part.len))),
            );
        }
    }
}

/// So many calls are told apart by what they sum up to.
const TOLD_APART: usize = 16;

/// Which calls a total belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    /// There is one call: so many bytes are its.
    One(u64),
    /// These are done whole, by their places; the others not at all.
    Whole(u32),
    /// All are done whole.
    All,
    /// None is.
    Nobody,
}

impl Choice {
    fn of(self, at: usize, len: u64) -> u64 {
        match self {
            Choice::One(moved) => moved,
            Choice::Whole(chosen) if chosen >> at & 1 != 0 => len,
            Choice::Whole(_) | Choice::Nobody => 0,
            Choice::All => len,
        }
    }
}

/// Tells which of several calls have moved `total` bytes; `None` if more than one answer is possible, or none.
///
/// One call may have done a part. Of several outputs, each is taken as whole or not done, which short writes are. An input ends
/// with what is there: of several, only "all whole" and "none" say whose the bytes are.
fn choose(direction: Direction, total: u64, lens: impl Iterator<Item = u64> + Clone) -> Option<Choice> {
    let mut each = [0u64; TOLD_APART];
    let mut count = 0;
    let mut all = Some(0u64);
    let mut any_empty = false;
    for len in lens {
        if let Some(place) = each.get_mut(count) {
            *place = len;
        }
        count += 1;
        all = all.and_then(|all| all.checked_add(len));
        any_empty |= len == 0;
    }
    if count == 1 {
        return (total <= each[0]).then_some(Choice::One(total));
    }
    if count > TOLD_APART || (direction == Direction::In && count > 1) {
        return match total {
            0 => Some(Choice::Nobody),
            _ if all == Some(total) && !any_empty => Some(Choice::All),
            _ => None,
        };
    }
    let mut found = None;
    for chosen in 0u32..1 << count {
        let whole = each[..count].iter().enumerate().filter(|(at, _)| chosen >> at & 1 != 0);
        let sum = whole.fold(0u64, |sum, (_, len)| sum.saturating_add(*len));
        if sum == total && found.replace(chosen).is_some() {
            return None;
        }
    }
    found.map(Choice::Whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `moved` gets each one's part. `false` if it cannot be told whose the total is.
    fn shares(direction: Direction, total: u64, lens: &[u64], moved: &mut [u64]) -> bool {
        let Some(choice) = choose(direction, total, lens.iter().copied()) else { return false };
        moved.iter_mut().zip(lens).enumerate().for_each(|(at, (moved, len))| *moved = choice.of(at, *len));
        true
    }

    #[test]
    fn shares_are_found_where_they_are_the_only_ones() {
        let out = Direction::Out;
        let mut moved = [0; 3];
        assert!(shares(out, 0, &[3, 4, 5], &mut moved) && moved == [0, 0, 0]);
        assert!(shares(out, 12, &[3, 4, 5], &mut moved) && moved == [3, 4, 5]);
        assert!(shares(out, 9, &[3, 4, 5], &mut moved) && moved == [0, 4, 5]);
        assert!(!shares(out, 4, &[4, 4, 5], &mut moved));
        assert!(shares(out, 2, &[3], &mut moved[..1]) && moved[0] == 2);
        assert!(!shares(out, 4, &[3], &mut moved[..1]) && !shares(out, 1, &[], &mut []));
        assert!(shares(out, 0, &[], &mut []));
    }

    /// Of two readers the one with the larger buffer may have got few bytes.
    #[test]
    fn of_several_inputs_a_part_of_the_total_is_nobodys() {
        let into = Direction::In;
        let mut moved = [0; 2];
        assert!(!shares(into, 10, &[10, 20], &mut moved));
        assert!(shares(into, 30, &[10, 20], &mut moved) && moved == [10, 20]);
        assert!(shares(into, 0, &[10, 20], &mut moved) && moved == [0, 0]);
        assert!(shares(into, 7, &[10], &mut moved[..1]) && moved[0] == 7);
    }

    #[test]
    fn many_are_told_apart_only_at_the_ends() {
        let (lens, mut moved) = ([4; 40], [9; 40]);
        for direction in [Direction::In, Direction::Out] {
            assert!(shares(direction, 0, &lens, &mut moved) && moved == [0; 40]);
            assert!(shares(direction, 160, &lens, &mut moved) && moved == lens);
            assert!(!shares(direction, 4, &lens, &mut moved) && !shares(direction, 156, &lens, &mut moved));
        }
    }
}

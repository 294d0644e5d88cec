//! What a child that is made like vfork keeps of its parent's pipes, eventfds and files: the descriptors that it still has when it
//! has executed its file. What is counted of the others is still all that there is: nobody but this process moves bytes there.
//!
//! A child with memory of its own may use all that was open until it ends: see [`fdtable::child_made`].

use super::wait::{WEXITED, WNOHANG, WNOWAIT, look};
use crate::fdtable::{self, AT_FDCWD, Stat};
use crate::state::{self, Decimal};
use crate::{members, raw};

/// So many are named in the log; of a child that keeps more it says that it has kept all.
const MOST: usize = 8;
/// A child with more descriptors is not looked at one by one.
const LOOKS: usize = 256;
/// Bytes that it takes in a payload: pairs of words, of which the first is one of the two below.
pub const BYTES: usize = MOST * 16;
/// The second word is a descriptor.
const ONE: u64 = 1 << 32;
/// All that was open when the child was made.
const ALL: u64 = 1 << 33;

/// By this process's numbers.
#[derive(Debug)]
pub struct Kept {
    pairs: [[u64; 2]; MOST],
    count: usize,
}

impl Kept {
    /// None of it.
    pub const NOTHING: Kept = Kept { pairs: [[0; 2]; MOST], count: 0 };

    /// All that was open, of a child at which nobody could look.
    fn everything() -> Kept {
        let mut kept = Kept { count: 1, ..Kept::NOTHING };
        kept.pairs[0] = [ALL, 0];
        kept
    }

    /// Looks at a child that has just executed its file, or ended, and notes what it has in this copy, which made it.
    pub fn by(child: i64) -> Kept {
        let mut kept = Kept::seen(child);
        // The kernel lets a parent go on a moment before it closes what the new image is not to have.
        if kept.count > 0 {
            kept = if waits_for(|| is_through(child)) { Kept::seen(child) } else { Kept::everything() };
        }
        kept.note()
    }

    /// The same of the child of a dead primary, in the copy that has taken over. It executes its file soon: its parent has slept
    /// until then.
    pub fn by_orphan(child: i64) -> Kept {
        let is_another = || begun_with(Decimal::new(child as u64).bytes()) != begun_with(b"self");
        let has_left = || Some(is_through(child)? && is_another());
        let kept = if waits_for(has_left) { Kept::seen(child) } else { Kept::everything() };
        kept.note()
    }

    fn note(self) -> Kept {
        self.pairs().iter().copied().for_each(follow);
        self
    }

    /// What a child has now.
    fn seen(child: i64) -> Kept {
        let (mut kept, mut looks) = (Kept::NOTHING, 0);
        let number = Decimal::new(child as u64);
        let path = state::joined(&[b"/proc/", number.bytes(), b"/fd"]);
        let Ok(folder) = core::ffi::CStr::from_bytes_until_nul(&path) else { return Kept::everything() };
        let seen = raw::each_number(folder, |fd, _| {
            looks += 1;
            if looks <= LOOKS {
                kept.look(&[b"/proc/", number.bytes(), b"/fd/", Decimal::new(fd).bytes()]);
            }
        });
        match seen {
            true if looks <= LOOKS && kept.count <= MOST => kept,
            false if has_ended(child) => Kept::NOTHING,
            _ => Kept::everything(),
        }
    }

    fn look(&mut self, path: &[&[u8]]) {
        let path = state::joined(path);
        let Some(stat) = Stat::at(AT_FDCWD, path.as_ptr() as u64, 0) else { return };
        let identity = fdtable::kept(stat.identity());
        fdtable::for_known(|fd, shadow| {
            let pair = [ONE, fd as u64];
            let is_new = !self.pairs.iter().take(self.count).any(|known| *known == pair);
            // All eventfds have one identity, with whatever else has no name: then any of them may be meant.
            if shadow.is_private() && shadow.identity() == identity && is_new {
                if let Some(place) = self.pairs.get_mut(self.count) {
                    *place = pair;
                }
                self.count += 1;
            }
        });
    }

    /// For the payload.
    pub fn pairs(&self) -> &[[u64; 2]] {
        &self.pairs[..self.count]
    }

    /// As the payload has it, and its length.
    pub fn bytes(&self) -> ([u8; BYTES], usize) {
        let mut bytes = [0; BYTES];
        for (place, pair) in bytes.chunks_exact_mut(16).zip(self.pairs()) {
            let (first, second) = place.split_at_mut(8);
            first.copy_from_slice(&pair[0].to_le_bytes());
            second.copy_from_slice(&pair[1].to_le_bytes());
        }
        (bytes, self.pairs().len() * 16)
    }
}

/// One pair of a payload, in a copy that follows.
pub fn follow(pair: [u64; 2]) {
    match pair {
        [ONE, fd] => {
            if let Some(shadow) = fdtable::get(fd as i32) {
                shadow.set_private(false);
            }
        }
        [ALL, _] => fdtable::child_made(),
        _ => {}
    }
}

/// How often one looks whether a child is through its exec, and how long one waits in between, ns.
const PATIENCE: u32 = 200;
const PAUSE_NS: u64 = 100_000;
/// How often at a child at which nobody may look: it is ending, which takes no time, or has another user's rights, and stays so.
const UNSEEN: u32 = 10;

fn waits_for(mut is_so: impl FnMut() -> Option<bool>) -> bool {
    let mut unseen = 0;
    for look in 0..PATIENCE {
        if look > 0 {
            raw::nap(PAUSE_NS);
        }
        match is_so() {
            Some(true) => return true,
            None if unseen == UNSEEN => return false,
            None => unseen += 1,
            Some(false) => {}
        }
    }
    false
}

/// Whether a child is through its exec, or has ended; `None` if nobody may look at it. The kernel writes down what an image has
/// begun with behind everything else.
fn is_through(child: i64) -> Option<bool> {
    match begun_with(Decimal::new(child as u64).bytes()) {
        None => has_ended(child).then_some(true),
        Some((words, bytes)) => Some(bytes == 0 || words[0] != 0),
    }
}

/// Whether a child has ended: somebody has been told, or nobody yet. Only root may look into the `/proc` of one that waits to be
/// reaped.
fn has_ended(child: i64) -> bool {
    use crate::kernel::{__WALL, P_PID};
    let how = WEXITED | WNOHANG | WNOWAIT | __WALL;
    look(P_PID, child as u32, how).is_some() || !members::exists(child as u32)
}

/// The words that a process has begun with.
fn begun_with(process: &[u8]) -> Option<([u64; 64], i64)> {
    let path = state::joined(&[b"/proc/", process, b"/auxv"]);
    let mut words = [0u64; 64];
    // SAFETY: opens a file of the kernel's, reads into our buffer, closes it.
    unsafe {
        let file = raw::call3(raw::nr::OPEN, path.as_ptr() as u64, 0o2000000, 0);
        if raw::failed(file) {
            return None;
        }
        let room = size_of_val(&words) as u64;
        let bytes = raw::call3(raw::nr::READ, file as u64, words.as_mut_ptr() as u64, room);
        raw::call1(raw::nr::CLOSE, file as u64);
        (!raw::failed(bytes)).then_some((words, bytes))
    }
}

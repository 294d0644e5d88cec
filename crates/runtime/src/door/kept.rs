//! What a child that is made like vfork keeps of its parent's pipes, eventfds and files: the descriptors that it still has when it
//! has executed its file. What is counted of the others is still all that there is: nobody but this process moves bytes there.
//!
//! A child with memory of its own may use all that was open until it ends: see [`fdtable::child_made`].

use crate::fdtable::{self, AT_FDCWD, Stat};
use crate::raw;
use crate::state::{self, Decimal};

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
        follow(kept.pairs[0]);
        kept
    }

    /// Looks at a child that has just executed its file, or ended, and notes what it has in this copy, which made it.
    pub fn by(child: i64) -> Kept {
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
        if seen && looks <= LOOKS && kept.count <= MOST { kept } else { Kept::everything() }
    }

    fn look(&mut self, path: &[&[u8]]) {
        let path = state::joined(path);
        let Some(stat) = Stat::at(AT_FDCWD, path.as_ptr() as u64, 0) else { return };
        let identity = fdtable::kept(fdtable::identity_of(stat.dev, stat.ino));
        fdtable::for_known(|fd, shadow| {
            // All eventfds have one identity, with whatever else has no name: then any of them may be meant.
            if shadow.is_private() && shadow.identity() == identity {
                if let Some(pair) = self.pairs.get_mut(self.count) {
                    *pair = [ONE, fd as u64];
                }
                self.count += 1;
                shadow.set_private(false);
            }
        });
    }

    /// For the payload.
    pub fn pairs(&self) -> &[[u64; 2]] {
        &self.pairs[..self.count]
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

/// As a payload: a child at which nobody has looked, and nobody can any more.
pub fn everything_kept() -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&ALL.to_le_bytes());
    bytes
}

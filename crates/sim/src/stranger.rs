//! A process that shares the table of descriptors and is no copy: nobody logs what it does, and it does not die.
//!
//! Once the program has opened something it opens something of its own, uses it, and closes it. What no call in doubt can have made
//! is somebody's, and stays open.

use crate::explore::{Context, Label, Successors};
use crate::local::install;
use crate::world::*;

/// The byte that it sends.
const WORD: u8 = 9;

/// Adds its next step, at any time.
pub fn steps(cx: &Context, world: &World, out: &mut Successors) {
    if !cx.program.stranger {
        return;
    }
    let mut next = *world;
    let kernel = &mut next.kernel;
    let what = match kernel.stranger {
        Stranger::Waits if kernel.made > 1 => {
            let object = kernel.made;
            kernel.made += 1;
            kernel.origin[usize::from(object)] = STRANGERS;
            kernel.stranger = Stranger::Has(install(kernel, object), object);
            "opens something of its own"
        }
        Stranger::Has(number, object) if kernel.fds[usize::from(number)] == object + 1 => {
            let sent = &mut kernel.out_len[usize::from(object)];
            kernel.out[usize::from(object)][usize::from(*sent)] = WORD;
            *sent += 1;
            kernel.fds[usize::from(number)] = 0;
            kernel.stranger = Stranger::Done;
            "uses what it has opened, and closes it"
        }
        Stranger::Has(..) => {
            next.blame(Violation::WrongDescriptor);
            "finds its number closed, or somebody else's"
        }
        Stranger::Waits | Stranger::Done => return,
    };
    out.push((next, Label::stranger(what)));
}

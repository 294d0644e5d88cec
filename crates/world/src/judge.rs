//! All calls in doubt that move bytes, judged together.

use crate::kernel::Kernel;
use crate::kind::Kind;
use crate::part::{Copy, Part, Sharers};
use crate::verdict::{Verdict, Verdicts};

/// Judges the calls in doubt whose parts these are. They are looked at together and before the first of them is completed: a write
/// and a read in doubt explain a stream only together.
///
/// The parts of one call lie side by side, where it puts out first. Every slot with a part has a verdict afterwards.
pub fn judge(parts: &[Part], kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
    // Copies between files first: they are undone, and their files have then no more to tell.
    for pair in parts.windows(2) {
        if let [to, from] = pair
            && to.slot == from.slot
            && to.copy == Copy::Undoable
        {
            undo_copy([to, from], kernel, verdicts);
        }
    }
    for call in parts.chunk_by(|one, next| one.slot == next.slot) {
        let first = &call[0];
        if verdicts.of(first.slot).is_none() {
            if let Some(stream) = &first.stream {
                stream.kind.judge(Sharers::new(parts, first.fd, stream), kernel, verdicts);
            }
            verdicts.put(first.slot, if first.entered { Verdict::Unknown } else { Verdict::Again });
        }
        let source = call.iter().find(|part| part.copy != Copy::No && !part.is_output());
        if let Some(from) = source {
            ask_source(from, parts, kernel, verdicts);
        }
    }
}

/// sendfile and copy_file_range from file to file: bytes that nobody has seen at the same places again.
fn undo_copy(both: [&Part; 2], kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
    let streams = both.map(|part| part.stream.filter(|stream| stream.kind == Kind::File));
    let [Some(into), Some(out_of)] = streams else { return };
    for (part, stream) in both.into_iter().zip([into, out_of]) {
        let moved = kernel.position(part.fd).and_then(|now| now.checked_sub(stream.written));
        if part.entered && moved.is_some_and(|moved| moved > 0 && moved <= part.len) {
            kernel.set_position(part.fd, stream.written);
        }
    }
    verdicts.put(both[0].slot, Verdict::Again);
}

/// sendfile, splice: where they put the bytes tells nothing; where they took them from does, if nobody else takes from there.
fn ask_source(from: &Part, parts: &[Part], kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
    let Some(stream) = from.stream.as_ref() else { return };
    if !Sharers::new(parts, from.fd, stream).is_one() {
        return;
    }
    match stream.kind.taken(from.fd, stream, kernel) {
        Some(0) => verdicts.learn(from.slot, Verdict::Again),
        Some(moved) => verdicts.learn(from.slot, Verdict::Moved(moved)),
        None => {}
    }
}

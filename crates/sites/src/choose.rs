//! The choice among all windows around one site.

use crate::decode::{Flow, LONGEST, decode_at};
use crate::scan::{ZONE_BEFORE, bit, previous, writes_rax};
use crate::{JUMP_LEN, Kind, Reason, Site};

/// Which side of the `syscall` is displaced.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    After,
    Number,
    Mixed,
}

/// A window, by offsets into the text.
pub(crate) struct Choice {
    pub start: usize,
    pub end: usize,
    pub shape: Shape,
    pub cost: u32,
}

/// Looks through all windows around a site for the one that changes least.
pub(crate) fn choose(text: &[u8], site: &Site, floor: usize) -> Result<Choice, Reason> {
    let at = site.at as usize;
    let mut best = Err(Reason::NoWindow);
    let mut start = at;
    let (mut before, mut fixups) = (0, 0);
    loop {
        best = best_from(text, site, start, 4 * before + 16 * fixups, before, best);
        // A jump before a reading of the counter chooses among readings: Go has one with a fence and one without, which go on
        // at the same place, so that neither has a window behind it.
        let may_branch = site.kind == Kind::Counter;
        match previous(text, site, start) {
            Some((earlier, insn, _))
                if earlier >= floor
                    && at + usize::from(site.insn_len) - earlier <= LONGEST
                    && (matches!(insn.flow, Flow::Next | Flow::Nop)
                        || may_branch && insn.flow == Flow::Cond) =>
            {
                start = earlier;
                before += 1;
                fixups += u32::from(insn.rip_at != 0 || insn.flow == Flow::Cond);
            }
            _ => return best,
        }
    }
}

/// The better of `best` and the best window that begins at `start`, `before` instructions before the
/// `syscall`. Of two reasons to refuse, the one that was nearer to a window.
fn best_from(
    text: &[u8],
    site: &Site,
    start: usize,
    base_cost: u32,
    before: u32,
    mut best: Result<Choice, Reason>,
) -> Result<Choice, Reason> {
    let at = site.at as usize;
    // A jump table could name what lies before the number's load (see the crate's head).
    let is_near = |start| match site.kind {
        Kind::Counter => belongs_to_counter(text, start),
        _ => loads_rax(text, start) || keeps_r11(text, start),
    };
    let too_far_back =
        site.switch_near && !(before == 0 || is_near(start) && before == 1 || loads_constant(text, start));
    let behind = at + usize::from(site.insn_len);
    let mut ends = Ends::new(text, behind);
    while let Some(end) = ends.next(start + LONGEST) {
        if end - start < JUMP_LEN {
            continue;
        }
        let shape = match before {
            0 => Shape::After,
            1 if end == behind && loads_constant(text, start) => Shape::Number,
            _ => Shape::Mixed,
        };
        let cost = base_cost + 16 * ends.fixups + ends.displaced;
        best = match best {
            Err(Reason::NoWindow) if lands_inside(site, start, end) => Err(Reason::BranchTarget),
            other if lands_inside(site, start, end) => other,
            Err(_) if too_far_back => Err(Reason::SwitchNear),
            Ok(choice) if too_far_back || choice.cost <= cost => Ok(choice),
            _ => Ok(Choice { start, end, shape, cost }),
        };
    }
    best
}

fn loads_rax(text: &[u8], at: usize) -> bool {
    decode_at(text, at).is_some_and(|(insn, code)| writes_rax(&insn, &code))
}

/// `mov %r11,N(%rsp)`: saves what the `syscall` behind it destroys. Who came to that without this would have lost it.
fn keeps_r11(text: &[u8], at: usize) -> bool {
    matches!(text.get(at..at + 4), Some([0x4c, 0x89, 0x5c, 0x24]))
}

/// A jump that chooses how the counter is read, or a fence: nobody comes to the reading by another way than past that.
fn belongs_to_counter(text: &[u8], at: usize) -> bool {
    let is_fence = matches!(text.get(at..at + 3), Some([0x0f, 0xae, 0xe8 | 0xf0]));
    is_fence || decode_at(text, at).is_some_and(|(insn, _)| insn.flow == Flow::Cond)
}

fn loads_constant(text: &[u8], at: usize) -> bool {
    matches!(text.get(at..at + 3), Some([0xb8, ..] | [0x48, 0xc7, 0xc0]))
}

/// Whether a branch arrives strictly between `start` and `end`.
fn lands_inside(site: &Site, start: usize, end: usize) -> bool {
    let origin = site.at as usize;
    (start + 1..end).any(|p| site.targets & bit(p + ZONE_BEFORE - origin) != 0)
}

/// The ends a window may have: behind the `syscall`, and behind each instruction that may follow it.
struct Ends<'a> {
    text: &'a [u8],
    end: usize,
    first: bool,
    /// Control does not fall through any more: only padding may still be taken.
    closed: bool,
    displaced: u32,
    /// Displaced instructions that must be written anew for their new address.
    fixups: u32,
}

impl<'a> Ends<'a> {
    fn new(text: &'a [u8], end: usize) -> Ends<'a> {
        Ends { text, end, first: true, closed: false, displaced: 0, fixups: 0 }
    }

    fn next(&mut self, limit: usize) -> Option<usize> {
        if core::mem::take(&mut self.first) {
            return Some(self.end);
        }
        let (insn, _) = decode_at(self.text, self.end)?;
        match insn.flow {
            Flow::Nop => {}
            _ if self.closed => return None,
            Flow::Next => self.fixups += u32::from(insn.rip_at != 0),
            Flow::Cond => self.fixups += 1,
            Flow::Jump => {
                self.fixups += 1;
                self.closed = true;
            }
            Flow::Stop => {
                self.fixups += u32::from(insn.rip_at != 0);
                self.closed = true;
            }
            Flow::Fixed | Flow::Switch | Flow::Syscall | Flow::Refuse => return None,
        }
        self.end += usize::from(insn.len);
        self.displaced += 1;
        (self.end <= limit).then_some(self.end)
    }
}

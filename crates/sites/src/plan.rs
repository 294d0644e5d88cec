//! What a scan has decided, in a form that another image can take over.
//!
//! A scan of the C library costs about as much as a short program, and a shell starts the same library a thousand
//! times. A *plan* says where the windows are, by offsets, so that it holds wherever the text is mapped.
//!
//! # Why a plan may be believed
//!
//! Whether a window is safe depends on the whole text: a branch may come from anywhere. So a plan is for a text of
//! a certain length and [`fingerprint`], which the reader takes of all bytes that it has mapped, and not of a
//! file that may have changed its name or its contents since. A plan that was damaged does not have its own
//! check. And every window is looked at once more, before the first is used: its `syscall` is there, and it is
//! made of whole instructions that may be moved. One that is not, and none of the plan is used.

use crate::decode::{Flow, LONGEST, decode_at};
use crate::{JUMP_LEN, Kind, Site};

/// Words before the windows: mark, length and fingerprint of the text, counts, check.
const HEAD: usize = 5;

/// The most words that a plan of `sites` sites has.
pub const fn plan_words(sites: usize) -> usize {
    HEAD + sites
}

/// Begins every plan. Another rule for windows, or another layout, is another mark.
const MARK: u64 = u64::from_le_bytes(*b"USPLAN_2");

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// One step. For a given word it is one to one, and for a given state too: two texts that differ in a single word
/// never come out alike.
#[inline(always)]
const fn step(state: u64, word: u64) -> u64 {
    (state.rotate_left(29) ^ word).wrapping_mul(FACTOR)
}

/// Sixty-four bits that stand for all bytes of a text.
pub fn fingerprint(text: &[u8]) -> u64 {
    const LANES: usize = 8;
    let mut lanes = [1u64, 2, 3, 4, 5, 6, 7, 8];
    // Several at a time, since each step waits for a multiplication.
    let mut chunks = text.chunks_exact(8 * LANES);
    for chunk in &mut chunks {
        for (lane, bytes) in lanes.iter_mut().zip(chunk.chunks_exact(8)) {
            *lane = step(*lane, u64::from_le_bytes(bytes.try_into().unwrap_or([0; 8])));
        }
    }
    let rest = chunks.remainder().iter().fold(text.len() as u64, |state, byte| step(state, u64::from(*byte)));
    digest(rest, &lanes)
}

fn digest(seed: u64, words: &[u64]) -> u64 {
    let mut state = words.iter().fold(seed, |state, word| step(state, *word));
    // A multiplication carries upwards only.
    state ^= state >> 32;
    state = state.wrapping_mul(FACTOR);
    state ^ state >> 29
}

/// Writes the plan of a scanned text to the front of `out`, and returns its length in words. `None` if there is not
/// enough room, for which [`plan_words`] of all sites is always enough.
pub fn write_plan(sites: &[Site], text_len: usize, fingerprint: u64, out: &mut [u64]) -> Option<usize> {
    let mut len = HEAD;
    for site in sites.iter().filter(|site| site.is_patchable()) {
        *out.get_mut(len)? = pack(site)?;
        len += 1;
    }
    let counts = (sites.len() as u64) << 32 | (len - HEAD) as u64;
    let head = [MARK, text_len as u64, fingerprint, counts];
    let check = digest(digest(0, &head), out.get(HEAD..len)?);
    out[..HEAD - 1].copy_from_slice(&head);
    out[HEAD - 1] = check;
    Some(len)
}

/// A plan that fits the text it was looked up for.
#[derive(Clone, Copy, Debug)]
pub struct Plan<'a> {
    text: &'a [u8],
    windows: &'a [u64],
    found: usize,
}

/// Looks for the plan of a text with this fingerprint among plans that lie one behind the other. The number is
/// how many words of `kept` are whole plans: what comes behind is damaged, or nothing, and may be overwritten.
pub fn find_plan<'a>(kept: &'a [u64], text: &'a [u8], fingerprint: u64) -> (Option<Plan<'a>>, usize) {
    let mut at = 0;
    while let Some((head, windows)) = whole(&kept[at..]) {
        let found = (head[3] >> 32) as usize;
        if head[1] == text.len() as u64 && head[2] == fingerprint && found >= windows.len() {
            let plan = Plan { text, windows, found };
            return (plan.is_sound().then_some(plan), at);
        }
        at += HEAD + windows.len();
    }
    (None, at)
}

/// The head and the windows of the plan at the front, if there is one and it is as it was written.
fn whole(kept: &[u64]) -> Option<(&[u64], &[u64])> {
    let (head, rest) = kept.split_at_checked(HEAD)?;
    let windows = rest.get(..(head[3] & 0xffff_ffff) as usize)?;
    let check = digest(digest(0, &head[..HEAD - 1]), windows);
    (head[0] == MARK && head[HEAD - 1] == check).then_some((head, windows))
}

impl Plan<'_> {
    /// How many sites the text has, those without a window among them.
    pub fn found(&self) -> usize {
        self.found
    }

    /// The sites that have a window, for the text mapped at `text_addr`.
    pub fn sites(&self, text_addr: u64) -> impl Iterator<Item = Site> {
        self.windows.iter().filter_map(move |packed| unpack(*packed, self.text, text_addr))
    }

    fn is_sound(&self) -> bool {
        let mut floor = 0;
        self.windows.iter().all(|packed| {
            let Some(site) = unpack(*packed, self.text, 0) else { return false };
            let is_behind = site.first_written() >= floor;
            floor = site.behind_written();
            is_behind
        })
    }
}

const AFTER: u64 = 0;
const BEFORE: u64 = 1;
const MIXED: u64 = 2;
const CLONE_LIKE: u64 = 3;
/// A window of two bytes, and padding near it.
const HOP: u64 = 4;

/// A constant in place of a number that is not known: more than any that [`scan`](crate::scan) takes for one.
const UNKNOWN: u64 = 0xffff;

/// From the lowest bit: offset of the `syscall` 32, bytes of the window before it 4, of the window 4, kind 4, number 16. For a
/// [`HOP`] the first of these and the four highest bits say how far the padding is from the window's end.
fn pack(site: &Site) -> Option<u64> {
    let kind = match site.kind {
        Kind::After if site.hop != 0 => HOP,
        Kind::After => AFTER,
        Kind::Before { .. } => BEFORE,
        Kind::Mixed => MIXED,
        Kind::CloneLike => CLONE_LIKE,
        Kind::Counter | Kind::Atomic | Kind::SigReturn | Kind::Unpatchable(_) => return None,
    };
    let nr = site.nr.map_or(UNKNOWN, u64::from);
    let len = u64::from(site.patch_len) << 4;
    let (low, high) = match i64::from(site.hop) - i64::from(site.at) - 2 {
        distance if kind == HOP => {
            let distance = i8::try_from(distance).ok()? as u8;
            (u64::from(distance & 15), u64::from(distance >> 4))
        }
        _ => (site.syscall_at() as u64, 0),
    };
    Some(u64::from(site.at) | (low | len) << 32 | kind << 40 | nr << 44 | high << 60)
}

/// The site of a packed window, if the text has one there: a `syscall` among whole instructions that may be moved.
fn unpack(packed: u64, text: &[u8], text_addr: u64) -> Option<Site> {
    let at = packed as u32;
    let (before, len) = ((packed >> 32 & 15) as u32, (packed >> 36 & 15) as usize);
    let high = (packed >> 60) as u32;
    let nr = match packed >> 44 & 0xffff {
        UNKNOWN => None,
        nr => Some(u32::try_from(nr).ok()?),
    };
    let kind = match (packed >> 40 & 15, nr) {
        (AFTER, _) => Kind::After,
        (BEFORE, Some(nr)) => Kind::Before { nr },
        (MIXED, _) => Kind::Mixed,
        (CLONE_LIKE, _) => Kind::CloneLike,
        (HOP, _) => return hop(at, (before | high << 4) as u8 as i8, nr, text, text_addr),
        _ => return None,
    };
    if high != 0 {
        return None;
    }
    let patch_start = at.checked_sub(before)?;
    let window = text.get(patch_start as usize..)?.get(..len)?;
    if !(JUMP_LEN..=LONGEST).contains(&len) || !is_movable(window, before as usize) {
        return None;
    }
    let mut bytes = [0; LONGEST];
    bytes[..len].copy_from_slice(window);
    Some(Site { at, patch_start, patch_len: len as u8, kind, nr, text_addr, bytes, ..Site::EMPTY })
}

/// The site of a window of two bytes whose padding is so far from its end.
fn hop(at: u32, distance: i8, nr: Option<u32>, text: &[u8], text_addr: u64) -> Option<Site> {
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    let hop = at.checked_add(2)?.checked_add_signed(distance.into())?;
    let padding = text.get(hop as usize..)?;
    let mut end = 0;
    while end < JUMP_LEN {
        let (insn, _) = decode_at(padding, end).filter(|(insn, _)| insn.flow == Flow::Nop)?;
        end += usize::from(insn.len);
    }
    let mut bytes = [0; LONGEST];
    bytes[..2].copy_from_slice(text.get(at as usize..)?.get(..2).filter(|found| *found == SYSCALL)?);
    let kind = Kind::After;
    Some(Site { at, patch_start: at, patch_len: 2, kind, nr, text_addr, hop, bytes, ..Site::EMPTY })
}

/// Whether a window consists of whole instructions, its only `syscall` at that offset and all others movable.
fn is_movable(window: &[u8], syscall_at: usize) -> bool {
    let mut at = 0;
    let mut is_there = false;
    while at < window.len() {
        let Some((insn, _)) = decode_at(window, at) else { return false };
        match insn.flow {
            Flow::Syscall if at == syscall_at => is_there = true,
            Flow::Next | Flow::Nop => {}
            Flow::Cond | Flow::Jump | Flow::Stop if at > syscall_at => {}
            _ => return false,
        }
        at += usize::from(insn.len);
    }
    is_there
}

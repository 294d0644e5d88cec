//! The pass over a text: candidates, boundaries and branch targets, then one decision per site.

use crate::choose::{Choice, Shape, choose};
use crate::decode::{Flow, Insn, LONGEST, decode_at, window};
use crate::{JUMP_LEN, Kind, Reason, Site};

/// After a byte that starts no instruction, this many bytes are not trusted: long enough that decoding has
/// fallen into step again (it takes a handful of instructions), short enough to cost nothing.
pub const DOUBT: usize = 64;

/// How far from an indirect jump, in bytes, its `case` labels are expected.
pub const SWITCH_REACH: usize = 4096;

/// What is remembered around a `syscall`: 64 bytes, one bit each.
pub(crate) const ZONE_BEFORE: usize = 40;
const ZONE_AFTER: usize = 24;

/// How far a branch with one byte of displacement can be from its target, its own length included.
const SHORT: usize = 130;

/// Decoding from an unknown place gets this many bytes to fall into step.
const SETTLE: usize = 64;

/// `rt_sigreturn`, `clone`, `vfork` and `clone3` on x86-64.
const SIGRETURN: u32 = 15;
const CLONE: u32 = 56;
const VFORK: u32 = 58;
const CLONE3: u32 = 435;

/// Larger constants are no system call numbers.
pub(crate) const NR_LIMIT: u32 = 1024;

/// Why [`scan`] gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScanError {
    /// `out` is too short. The number of slots that would do is given: an upper bound, since two bytes that
    /// look like a `syscall` may turn out to be a part of something else.
    TooManySites(usize),
    /// The text is longer than 2 GiB, more than any jump could span.
    TextTooLong,
}

impl core::fmt::Display for ScanError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            ScanError::TooManySites(needed) => {
                write!(f, "scan of a text for system calls: room for {needed} sites is needed")
            }
            ScanError::TextTooLong => {
                write!(f, "scan of a text for system calls: the text is longer than 2 GiB")
            }
        }
    }
}

impl core::error::Error for ScanError {}

/// Finds every `syscall` instruction of an executable segment and decides what to do about each.
///
/// `text` are the segment's bytes, starting at an instruction (a segment starts with one), and `text_addr`
/// is the address of its first. The sites are written to the front of `out` in rising order, with windows
/// that do not overlap; their number is returned. The rest of `out` is used as scratch.
///
/// # Errors
///
/// [`ScanError`], and then nothing in `out` means anything.
pub fn scan(text: &[u8], text_addr: u64, out: &mut [Site]) -> Result<usize, ScanError> {
    if text.len() > i32::MAX as usize {
        return Err(ScanError::TextTooLong);
    }
    let found = candidates(text, text_addr, out)?;
    Ok(decide_all(text, out, found, false))
}

/// Decides about the candidates at the front of `out`, and returns how many of them are sites. `confirms`: what looks like a far
/// branch to one of them is looked at once more.
pub(crate) fn decide_all(text: &[u8], out: &mut [Site], found: usize, confirms: bool) -> usize {
    let sites = &mut out[..found];
    if found == 0 {
        return 0;
    }
    let near = Near::new(sites);
    far_branches(text, &near, sites, confirms);
    neighbourhoods(text, &near, sites);

    let mut kept = 0;
    let mut floor = 0;
    for i in 0..found {
        let mut site = sites[i];
        // The pass has not stopped here: the two bytes are the inside of another instruction.
        if site.starts & bit(ZONE_BEFORE) == 0 {
            continue;
        }
        decide(text, &mut site, floor);
        if site.is_patchable() {
            floor = site.behind_written();
        }
        sites[kept] = site;
        kept += 1;
    }
    kept
}

pub(crate) fn bit(offset: usize) -> u64 {
    1 << offset
}

/// Every place where the bytes `0f 05` stand, whatever they are.
fn candidates(text: &[u8], text_addr: u64, out: &mut [Site]) -> Result<usize, ScanError> {
    let mut found = 0;
    each_word(text, |at, word, next| {
        let mut hits = zero_bytes(word ^ each_byte(0x0f)) & zero_bytes(next ^ each_byte(0x05));
        while let Some(byte) = take_lowest(&mut hits) {
            if let Some(slot) = out.get_mut(found) {
                let at = (at + byte) as u32;
                *slot = Site { at, patch_start: at, text_addr, ..Site::EMPTY };
            }
            found += 1;
        }
    });
    if found > out.len() { Err(ScanError::TooManySites(found)) } else { Ok(found) }
}

/// Calls `look` with every eight bytes of the text as a word, and the eight bytes that start one later.
/// Looking at eight at a time is what keeps the scan of a text of a megabyte and a half near a millisecond.
#[inline]
fn each_word(text: &[u8], mut look: impl FnMut(usize, u64, u64)) {
    let mut at = 0;
    while let Some(bytes) = text.get(at..at + 9) {
        let (word, next) = (&bytes[..8], &bytes[1..]);
        look(
            at,
            u64::from_le_bytes(word.try_into().unwrap_or([0; 8])),
            u64::from_le_bytes(next.try_into().unwrap_or([0; 8])),
        );
        at += 8;
    }
    let rest = window(text, at);
    let word = u128::from_le_bytes(rest);
    look(at, word as u64, (word >> 8) as u64);
}

const fn each_byte(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

/// The top bit of each byte that is zero, exactly: no carry crosses from one byte to the next.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    const LOW: u64 = each_byte(0x7f);
    !(((word & LOW) + LOW) | word | LOW)
}

/// Removes the lowest bit of a mask of bytes and returns that byte's index.
#[inline]
fn take_lowest(mask: &mut u64) -> Option<usize> {
    let byte = (*mask != 0).then(|| mask.trailing_zeros() as usize / 8)?;
    *mask &= *mask - 1;
    Some(byte)
}

/// Tells quickly that a branch target is near no candidate, which is so for 98 of 100.
struct Near {
    bits: [u64; Near::WORDS],
}

impl Near {
    const WORDS: usize = 1024;
    const SHIFT: u32 = 5;

    fn new(sites: &[Site]) -> Near {
        let mut near = Near { bits: [0; Near::WORDS] };
        for site in sites {
            let at = site.at as usize;
            let first = at.saturating_sub(ZONE_BEFORE) >> Near::SHIFT;
            for bucket in first..=(at + ZONE_AFTER) >> Near::SHIFT {
                near.bits[(bucket >> 6) % Near::WORDS] |= 1 << (bucket & 63);
            }
        }
        near
    }

    #[inline]
    fn maybe(&self, target: usize) -> bool {
        let bucket = target >> Near::SHIFT;
        self.bits[(bucket >> 6) % Near::WORDS] >> (bucket & 63) & 1 != 0
    }
}

/// Notes every far branch and every indirect jump, by their bytes and at every offset: what is none in truth
/// can only cost a window, and so few are wrong (see the tests) that decoding the whole text would buy
/// nothing for five times the price.
fn far_branches(text: &[u8], near: &Near, sites: &mut [Site], confirms: bool) {
    each_word(text, |at, word, next| {
        let call_or_jump = zero_bytes((word & each_byte(0xfe)) ^ each_byte(0xe8));
        let conditional =
            zero_bytes(word ^ each_byte(0x0f)) & zero_bytes((next & each_byte(0xf0)) ^ each_byte(0x80));
        let indirect = zero_bytes(!word) & zero_bytes((next & each_byte(0x38)) ^ each_byte(0x20));
        // Where the opcode ends: the displacement follows.
        let mut hits = call_or_jump;
        while let Some(byte) = take_lowest(&mut hits) {
            far_branch(text, at + byte, 1, near, sites, confirms);
        }
        let mut hits = conditional;
        while let Some(byte) = take_lowest(&mut hits) {
            far_branch(text, at + byte, 2, near, sites, confirms);
        }
        let mut hits = indirect;
        while let Some(byte) = take_lowest(&mut hits) {
            // Through a register, or through memory with an index.
            if matches!(text.get(at + byte + 1), Some(0xe0..=0xe7 | 0x24 | 0x64 | 0xa4)) {
                mark_switch(at + byte, sites);
            }
        }
    });
}

/// Notes a branch at `at` whose four bytes of displacement stand behind an opcode of so many bytes.
#[inline]
fn far_branch(text: &[u8], at: usize, opcode: usize, near: &Near, sites: &mut [Site], confirms: bool) {
    let end = at + opcode + 4;
    let Some(Ok(rel)) = text.get(at + opcode..end).map(<[u8; 4]>::try_from) else { return };
    let target = end as i64 + i64::from(i32::from_le_bytes(rel));
    if !confirms || near.maybe(target as usize) && may_start(text, at) {
        mark_target(target, near, sites);
    }
}

/// Whether an instruction may start at `at`: false only if decoding has fallen into step well before, met no nonsense on the
/// way, and stepped over it.
fn may_start(text: &[u8], at: usize) -> bool {
    let (mut p, certain) = settle(text, at.saturating_sub(3 * SETTLE));
    while p < at {
        match decode_at(text, p) {
            Some((insn, _)) => p += usize::from(insn.len),
            None => return true,
        }
    }
    !certain || p == at
}

/// Decodes the neighbourhood of every candidate: as far as a short branch to it could be.
fn neighbourhoods(text: &[u8], near: &Near, sites: &mut [Site]) {
    let mut first = 0;
    while first < sites.len() {
        let start = (sites[first].at as usize).saturating_sub(ZONE_BEFORE + SHORT + SETTLE);
        let mut last = first;
        let reach = |site: &Site| site.at as usize + ZONE_AFTER + SHORT;
        // A new start costs about as much as decoding the ground between, so nearby sites share one.
        while sites.get(last + 1).is_some_and(|s| (s.at as usize) < reach(&sites[last]) + SHORT) {
            last += 1;
        }
        let end = reach(&sites[last]).min(text.len());
        sweep(text, start, end, near, sites, first);
        first = last + 1;
    }
}

/// Finds an instruction's start at or behind `from`, and whether it is certain.
///
/// No instruction is longer than 15 bytes, so one of any 15 offsets in a row is a start. All of them are
/// followed at once, until all decodings that have met no nonsense have become one: that one is the truth.
fn settle(text: &[u8], from: usize) -> (usize, bool) {
    if from == 0 {
        return (0, true);
    }
    let mut p = from;
    let mut open: u32 = (1 << LONGEST) - 1;
    while open != 0 && p < from + SETTLE {
        if open & 1 != 0 {
            if open == 1 {
                return (p, true);
            }
            if let Some((insn, _)) = decode_at(text, p) {
                open |= 1 << insn.len;
            }
        }
        open >>= 1;
        p += 1;
    }
    (p, false)
}

/// Walks from `start` to `end`, instruction by instruction, and writes down at each candidate from `current`
/// on which instructions start around it, and which branches land there.
fn sweep(text: &[u8], start: usize, end: usize, near: &Near, sites: &mut [Site], mut current: usize) {
    let (mut p, certain) = settle(text, start);
    (start..p).for_each(|q| raw_branch(text, q, near, sites));
    let mut trusted_from = if certain { p } else { p + DOUBT };
    let mut zone = zone_start(sites, current);
    while p < end {
        let insn = decode_at(text, p);
        if p >= zone {
            mark_start(sites, current, p, p < trusted_from);
            while sites.get(current).is_some_and(|s| s.at as usize + ZONE_AFTER <= p) {
                current += 1;
            }
            zone = zone_start(sites, current);
        }
        let Some((insn, code)) = insn else {
            trusted_from = p + 1 + DOUBT;
            raw_branch(text, p, near, sites);
            p += 1;
            continue;
        };
        let len = usize::from(insn.len);
        // The long ones are known already.
        if insn.rel == 1
            && let Some(target) = insn.target(&code, p as i64)
        {
            mark_target(target, near, sites);
        }
        if p < trusted_from {
            (p..p + len).for_each(|q| raw_branch(text, q, near, sites));
        }
        p += len;
    }
}

/// Where the next candidate's surroundings begin.
fn zone_start(sites: &[Site], current: usize) -> usize {
    sites.get(current).map_or(usize::MAX, |s| (s.at as usize).saturating_sub(ZONE_BEFORE))
}

fn mark_start(sites: &mut [Site], current: usize, p: usize, doubtful: bool) {
    for site in &mut sites[current..] {
        let at = site.at as usize;
        if at > p + ZONE_BEFORE {
            break;
        }
        if p < at + ZONE_AFTER {
            site.starts |= bit(p + ZONE_BEFORE - at);
            site.doubtful |= doubtful && p <= at;
        }
    }
}

/// Notes a branch to `target`, an offset from the start of the text that may lie outside.
#[inline]
fn mark_target(target: i64, near: &Near, sites: &mut [Site]) {
    // A negative one wraps to something beyond every site.
    if near.maybe(target as usize) {
        mark_near_target(target as usize, sites);
    }
}

#[cold]
fn mark_near_target(target: usize, sites: &mut [Site]) {
    let first = sites.partition_point(|s| s.at as usize + ZONE_AFTER <= target);
    for site in &mut sites[first..] {
        let at = site.at as usize;
        if at > target + ZONE_BEFORE {
            break;
        }
        site.targets |= bit(target + ZONE_BEFORE - at);
    }
}

fn mark_switch(p: usize, sites: &mut [Site]) {
    let first = sites.partition_point(|s| s.at as usize + SWITCH_REACH < p);
    for site in &mut sites[first..] {
        if site.at as usize > p + SWITCH_REACH {
            break;
        }
        site.switch_near = true;
    }
}

/// Takes the bytes at `at` for a branch if they could be one, whether or not an instruction starts there.
fn raw_branch(text: &[u8], at: usize, near: &Near, sites: &mut [Site]) {
    let code = window(text, at);
    let (len, rel) = match (code[0], code[1]) {
        (0x70..=0x7f | 0xe0..=0xe3 | 0xeb, rel) => (2, i64::from(rel as i8)),
        (0xe8 | 0xe9, _) => (5, i64::from(i32::from_le_bytes([code[1], code[2], code[3], code[4]]))),
        (0x0f, 0x80..=0x8f) => (6, i64::from(i32::from_le_bytes([code[2], code[3], code[4], code[5]]))),
        _ => return,
    };
    mark_target(at as i64 + len + rel, near, sites);
}

/// Chooses the window of one site, no part of which may lie before `floor`, and its kind.
fn decide(text: &[u8], site: &mut Site, floor: usize) {
    if site.kind == Kind::Counter {
        let choice = if site.doubtful { Err(Reason::Doubt) } else { choose(text, site, floor) };
        match choice {
            Ok(choice) => site.displace(text, &choice),
            Err(reason) => site.kind = Kind::Unpatchable(reason),
        }
        return;
    }
    let before = Before::new(text, site);
    site.nr = before.nr;
    if site.nr == Some(SIGRETURN) {
        site.kind = Kind::SigReturn;
        return;
    }
    let at = site.at as usize;
    let after = text.get(at + 2..).unwrap_or_default();
    if site.doubtful {
        site.kind = Kind::Unpatchable(Reason::Doubt);
        return;
    }
    if !before.loads_rax && !looks_at_result(after) {
        site.kind = Kind::Unpatchable(Reason::NoContext);
        return;
    }
    match choose(text, site, floor) {
        Err(reason) => match padding_near(text, site, floor) {
            Some(hop) if !is_clone_like(site.nr, after) => {
                site.displace(text, &Choice { start: at, end: at + 2, shape: Shape::After, cost: 0 });
                (site.hop, site.kind) = (hop as u32, Kind::After);
            }
            _ => site.kind = Kind::Unpatchable(reason),
        },
        Ok(choice) => {
            site.displace(text, &choice);
            site.kind = match (is_clone_like(site.nr, after), choice.shape, site.nr) {
                (true, _, _) => Kind::CloneLike,
                (_, Shape::After, _) => Kind::After,
                (_, Shape::Number, Some(nr)) => Kind::Before { nr },
                _ => Kind::Mixed,
            };
        }
    }
}

/// Padding that nobody comes to, long enough for a jump and within the reach of a short one: in the site's zone, where all that
/// arrives is known.
fn padding_near(text: &[u8], site: &Site, floor: usize) -> Option<usize> {
    let origin = (site.at as usize).checked_sub(ZONE_BEFORE)?;
    let mut run = None;
    let mut is_dead = false;
    let starts = (0..ZONE_BEFORE + ZONE_AFTER).filter(|at| site.starts & bit(*at) != 0);
    for offset in starts {
        let at = origin + offset;
        let (insn, _) = decode_at(text, at)?;
        if site.targets & bit(offset) != 0 {
            (run, is_dead) = (None, false);
        }
        match insn.flow {
            Flow::Nop if is_dead => {
                let start = *run.get_or_insert(at);
                let is_whole = at + usize::from(insn.len) - start >= JUMP_LEN;
                let is_known = start + JUMP_LEN <= origin + ZONE_BEFORE + ZONE_AFTER;
                let is_quiet = (start..start + JUMP_LEN).all(|place| {
                    let offset = place - origin;
                    offset >= 64 || site.targets & bit(offset) == 0
                });
                if is_whole && is_known && is_quiet && start >= floor {
                    return Some(start);
                }
            }
            flow => (run, is_dead) = (None, matches!(flow, Flow::Jump | Flow::Stop)),
        }
    }
    None
}

impl Site {
    /// Takes this window.
    fn displace(&mut self, text: &[u8], choice: &Choice) {
        self.patch_start = choice.start as u32;
        self.patch_len = (choice.end - choice.start) as u8;
        self.bytes[..choice.end - choice.start].copy_from_slice(&text[choice.start..choice.end]);
    }
}

/// Whether the child would run on another stack than a gate's caller.
///
/// `vfork` shares its stack with a parent that has popped its return address, always. `clone` and `clone3`
/// do so only when given a new stack. Then nothing compiled can follow, since the child has no frame, and
/// glibc's assembly asks for three outcomes with one `test %rax,%rax`. Compiled code, such as `fork` with
/// its inline `clone`, asks for an error first, with the same `cmp $-4096,%rax` as any other system call.
/// What is neither is taken for the dangerous kind: its stub is right for both.
fn is_clone_like(nr: Option<u32>, after: &[u8]) -> bool {
    match nr {
        Some(VFORK) => true,
        Some(CLONE | CLONE3) => error_check(after).is_none(),
        _ => false,
    }
}

/// The length of a `cmp $-4096,%rax` (or `$-4095`, or `%eax`) at the start of `code`.
pub(crate) fn error_check(code: &[u8]) -> Option<usize> {
    match code {
        [0x48, 0x3d, 0 | 1, 0xf0, 0xff, 0xff, ..] => Some(6),
        [0x3d, 0 | 1, 0xf0, 0xff, 0xff, ..] => Some(5),
        _ => None,
    }
}

/// Whether the code behind a system call reads its result at once: a comparison, a test, a negation, or a
/// copy of `rax`.
fn looks_at_result(code: &[u8]) -> bool {
    let code = if let [0x48, rest @ ..] = code { rest } else { code };
    error_check(code).is_some() || matches!(code, [0x85, 0xc0, ..] | [0xf7, 0xd8, ..] | [0x83, 0xf8, ..])
}

/// What the instructions before a `syscall` say about `rax`.
struct Before {
    nr: Option<u32>,
    loads_rax: bool,
}

impl Before {
    /// Walks back over the boundaries that the pass has seen, to the last instruction that writes `rax`.
    fn new(text: &[u8], site: &Site) -> Before {
        let nothing = Before { nr: None, loads_rax: false };
        let mut next = site.at as usize;
        while let Some((start, insn, code)) = previous(text, site, next) {
            let op = &code[usize::from(insn.op_at)..];
            match (insn.op, op) {
                (0xb8, [_, a, b, c, d, ..]) if insn.rex == 0 && insn.len == 5 => {
                    return Before::constant(u32::from_le_bytes([*a, *b, *c, *d]));
                }
                (0xc7, [_, 0xc0, a, b, c, d, ..]) if insn.rex & 1 == 0 && insn.len >= 6 => {
                    return Before::constant(u32::from_le_bytes([*a, *b, *c, *d]));
                }
                (0x31 | 0x33, [_, 0xc0, ..]) if insn.rex & 5 == 0 => return Before::constant(0),
                _ if writes_rax(&insn, &code) => return Before { nr: None, loads_rax: true },
                // Behind a jump or a call nothing is known of what came before.
                _ if !matches!(insn.flow, Flow::Next | Flow::Nop) => return nothing,
                _ => next = start,
            }
        }
        nothing
    }

    fn constant(nr: u32) -> Before {
        Before { nr: (nr < NR_LIMIT).then_some(nr), loads_rax: true }
    }
}

/// The instruction that ends where `next` starts, if the pass has seen it within the zone.
pub(crate) fn previous(text: &[u8], site: &Site, next: usize) -> Option<(usize, Insn, [u8; 16])> {
    let next_bit = next + ZONE_BEFORE - site.at as usize;
    let below = site.starts & (bit(next_bit) - 1);
    let distance = next_bit - below.checked_ilog2()? as usize;
    let start = next.checked_sub(distance)?;
    let (insn, code) = decode_at(text, start)?;
    (start + usize::from(insn.len) == next).then_some((start, insn, code))
}

/// Whether an instruction writes `rax` or a part of it. Errs towards yes for the common forms; instructions
/// that no compiler puts between the number and the call are not listed.
pub(crate) fn writes_rax(insn: &Insn, code: &[u8; 16]) -> bool {
    let modrm = code[(usize::from(insn.op_at) + 1) & 15];
    let reg_is_rax = modrm & 0x38 == 0 && insn.rex & 4 == 0;
    let rm_is_rax = modrm & 0xc7 == 0xc0 && insn.rex & 1 == 0;
    match insn.op {
        // Arithmetic on two operands, by direction; comparisons (38 to 3d) write nothing.
        0x00..=0x37 if insn.op & 7 < 2 => rm_is_rax,
        0x00..=0x37 if insn.op & 7 < 4 => reg_is_rax,
        0x00..=0x37 if insn.op & 7 < 6 => true,
        0x80..=0x83 => rm_is_rax && modrm & 0x38 != 0x38,
        0x86..=0x89 | 0xc0 | 0xc1 | 0xc6 | 0xc7 | 0xd0..=0xd3 | 0xfe | 0xff => {
            rm_is_rax || (insn.op < 0x88 && reg_is_rax)
        }
        0xf6 | 0xf7 => rm_is_rax || modrm & 0x38 >= 0x20,
        0x63 | 0x69 | 0x6b | 0x8a | 0x8b | 0x8d => reg_is_rax,
        0x58 | 0xb0 | 0xb8 => insn.rex & 1 == 0,
        0x91..=0x97 | 0x98 | 0xa0 | 0xa1 | 0xac | 0xad => true,
        // Conditional moves, `imul`, `movzx`, `movsx`, bit scans and counts.
        0x0f40..=0x0f4f | 0x0faf | 0x0fb6..=0x0fb8 | 0x0fbc..=0x0fbf => reg_is_rax,
        0x0f90..=0x0f9f | 0x0fc0 | 0x0fc1 | 0x0fb0 | 0x0fb1 => true,
        0x0f2c | 0x0f2d | 0x0f50 | 0x0fd7 | 0x0fc5 => reg_is_rax,
        0x0f7e | 0x0fa2 | 0x0f31 => true,
        // Vector instructions of the longer maps may write a general register: a few, of no interest here.
        0xff00 => reg_is_rax || rm_is_rax,
        _ => false,
    }
}

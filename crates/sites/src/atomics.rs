//! Atomic instructions: where a program orders its threads by itself, past every function that could be a door.
//!
//! A `lock` prefix and an `xchg` with memory are too short, and too often the inside of something else, to be looked for by
//! their bytes. So whole functions are decoded: the table for unwinders says where each begins and ends. In the same pass
//! every direct branch is noted, those of all functions, since the cold part of one jumps into the middle of another.
//!
//! # Why a window is safe
//!
//! A window begins at the instruction itself, where anybody may arrive. It takes whole instructions behind it until there
//! is room for a jump, none of them a call and none a branch's target. What stands behind one of a `switch` may be the next
//! `case`: in a function with an indirect jump only an instruction that reads the flags is taken along, and no `case` does
//! that. All others are left to a trap, which needs one byte.

use crate::decode::{Flow, Insn, LONGEST, decode_at, window};
use crate::scan::writes_rax;
use crate::{JUMP_LEN, Kind, ScanError, Site};

/// What an atomic instruction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicOp {
    /// `xchg`.
    Exchange = 0,
    /// `cmpxchg`: of a value as wide as a register.
    CompareExchange = 1,
    /// `xadd`.
    ExchangeAdd = 2,
    /// Changes memory, and says nothing but by the flags.
    Change = 3,
    /// `bts`, `btr`, `btc`: the old bit is in the carry flag.
    Bit = 4,
    /// `cmpxchg8b` and `cmpxchg16b`.
    CompareExchangeWide = 5,
}

/// An atomic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Atomic {
    /// Where it is, and its window: the instruction alone if it [is trapped](Atomic::is_trapped).
    pub site: Site,
    /// What it does.
    pub op: AtomicOp,
    /// Bytes of memory that it works on.
    pub size: u8,
    /// The register that it takes a value from, and gives one back in: 0 is rax, 8 is r8. 16 for none.
    pub register: u8,
    /// What a `cmpxchg` compares with is a constant: nobody has read it from memory.
    pub expects_constant: bool,
    /// There is no room for a jump: one byte becomes an `int3`.
    pub is_trapped: bool,
}

impl Atomic {
    /// A slot to be filled by [`scan_atomics`].
    pub const EMPTY: Atomic = Atomic {
        site: Site::EMPTY,
        op: AtomicOp::Change,
        size: 0,
        register: NO_REGISTER,
        expects_constant: false,
        is_trapped: false,
    };
}

/// [`Atomic::register`] of an instruction that has none.
pub const NO_REGISTER: u8 = 16;

/// What [`scan_atomics`] has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Atomics {
    /// Sites in `out`.
    pub found: usize,
    /// Those of them without a window.
    pub trapped: usize,
    /// Atomic instructions that are left as they are: fences, and what works on a thread's own storage.
    pub left: usize,
    /// Functions that do not decode. What is in them is not known.
    pub opaque: usize,
}

/// Words of the bitmap that [`scan_atomics`] needs for a text of so many bytes.
pub const fn target_words(text_len: usize) -> usize {
    text_len / 64 + 1
}

/// Finds the atomic instructions of the functions of a text.
///
/// `functions` gives the offset of each function's start and its length, in rising order. `targets` has [`target_words`]
/// zeros. The sites are written to the front of `out`, in rising order; their windows do not overlap.
///
/// # Errors
///
/// [`ScanError`]: `TooManySites` says how many there are.
pub fn scan_atomics(
    text: &[u8],
    text_addr: u64,
    functions: impl Iterator<Item = (usize, usize)>,
    targets: &mut [u64],
    out: &mut [Atomic],
) -> Result<Atomics, ScanError> {
    if text.len() > i32::MAX as usize || targets.len() < target_words(text.len()) {
        return Err(ScanError::TextTooLong);
    }
    let mut pass = Pass { text, text_addr, targets, out, found: 0, left: 0, opaque: 0 };
    let mut behind = 0;
    for (start, len) in functions {
        let end = start.saturating_add(len).min(text.len());
        if start < behind || start >= end {
            continue;
        }
        (behind..start).for_each(|at| pass.may_branch(at));
        pass.function(start, end);
        behind = end;
    }
    (behind..text.len()).for_each(|at| pass.may_branch(at));
    let Pass { targets, out, found, left, opaque, .. } = pass;
    let Some(sites) = out.get_mut(..found) else { return Err(ScanError::TooManySites(found)) };
    let mut trapped = 0;
    for atomic in sites {
        decide(text, atomic, targets);
        trapped += usize::from(atomic.is_trapped);
    }
    Ok(Atomics { found, trapped, left, opaque })
}

struct Pass<'a> {
    text: &'a [u8],
    text_addr: u64,
    targets: &'a mut [u64],
    out: &'a mut [Atomic],
    found: usize,
    left: usize,
    opaque: usize,
}

impl Pass<'_> {
    fn mark(&mut self, target: i64) {
        if let Ok(at) = usize::try_from(target)
            && at < self.text.len()
        {
            self.targets[at / 64] |= 1 << (at % 64);
        }
    }

    /// Between functions: what looks like a branch counts as one, wherever it begins.
    fn may_branch(&mut self, at: usize) {
        let code = window(self.text, at);
        let far = |from: usize| i64::from(i32::from_le_bytes([0, 1, 2, 3].map(|byte| code[from + byte])));
        let (len, rel) = match (code[0], code[1]) {
            (0x70..=0x7f | 0xe0..=0xe3 | 0xeb, rel) => (2, i64::from(rel as i8)),
            (0xe8 | 0xe9, _) => (5, far(1)),
            (0x0f, 0x80..=0x8f) => (6, far(2)),
            _ => return,
        };
        self.mark(at as i64 + len + rel);
    }

    fn function(&mut self, start: usize, end: usize) {
        let (found, left) = (self.found, self.left);
        let (mut at, mut has_switch, mut is_constant) = (start, false, false);
        while at < end {
            let Some((insn, code)) = decode_at(self.text, at) else {
                (self.found, self.left) = (found, left);
                self.opaque += 1;
                return (start..end).for_each(|at| self.may_branch(at));
            };
            if let Some(target) = insn.target(&code, at as i64) {
                self.mark(target);
            }
            has_switch |= insn.flow == Flow::Switch;
            match atomic_at(&insn, &code) {
                Is::None => {}
                Is::Left => self.left += 1,
                Is::Site(mut atomic) => {
                    atomic.expects_constant = is_constant && atomic.op == AtomicOp::CompareExchange;
                    atomic.site = Site {
                        at: at as u32,
                        insn_len: insn.len,
                        patch_start: at as u32,
                        kind: Kind::Atomic,
                        text_addr: self.text_addr,
                        // Where its function ends: nothing behind that is taken.
                        hop: end as u32,
                        ..Site::EMPTY
                    };
                    if let Some(slot) = self.out.get_mut(self.found) {
                        *slot = atomic;
                    }
                    self.found += 1;
                }
            }
            is_constant = loads_constant(&insn, &code)
                || is_constant
                    && !writes_rax(&insn, &code)
                    && !matches!(
                        insn.flow,
                        Flow::Fixed | Flow::Refuse | Flow::Jump | Flow::Stop | Flow::Switch
                    );
            at += usize::from(insn.len);
        }
        if has_switch {
            let last = self.found.min(self.out.len());
            self.out[found.min(last)..last].iter_mut().for_each(|atomic| atomic.site.switch_near = true);
        }
    }
}

/// Whether eax is a constant behind this instruction.
fn loads_constant(insn: &Insn, code: &[u8; 16]) -> bool {
    let modrm = code[(usize::from(insn.op_at) + 1) & 15];
    match insn.op {
        0x31 | 0x33 => modrm == 0xc0 && insn.rex & 5 == 0,
        0xb8 => insn.rex & 1 == 0,
        0xc7 => modrm == 0xc0 && insn.rex & 1 == 0,
        _ => false,
    }
}

enum Is {
    None,
    Left,
    Site(Atomic),
}

/// Whether this is an atomic instruction.
fn atomic_at(insn: &Insn, code: &[u8; 16]) -> Is {
    let op_at = usize::from(insn.op_at);
    let modrm = code[(op_at + 1) & 15];
    let prefixes = &code[..op_at - usize::from(insn.op > 0xff)];
    let has = |byte: u8| prefixes.contains(&byte);
    let (is_locked, is_exchange) = (has(0xf0), matches!(insn.op, 0x86 | 0x87));
    if modrm >> 6 == 3 || !(is_locked || is_exchange) || insn.op == 0xff00 {
        return Is::None;
    }
    let group = modrm >> 3 & 7;
    let (op, has_register) = match insn.op {
        0x86 | 0x87 => (AtomicOp::Exchange, true),
        0x0fb0 | 0x0fb1 => (AtomicOp::CompareExchange, true),
        0x0fc0 | 0x0fc1 => (AtomicOp::ExchangeAdd, true),
        0x0fab | 0x0fb3 | 0x0fbb => (AtomicOp::Bit, true),
        0x0fba if group >= 5 => (AtomicOp::Bit, false),
        0x0fc7 if group == 1 => (AtomicOp::CompareExchangeWide, false),
        0x00..=0x35 if insn.op & 7 < 2 => (AtomicOp::Change, true),
        0x80 | 0x81 | 0x83 if group < 7 => (AtomicOp::Change, false),
        0xfe | 0xff if group < 2 => (AtomicOp::Change, false),
        0xf6 | 0xf7 if group == 2 || group == 3 => (AtomicOp::Change, false),
        _ => return Is::None,
    };
    let is_wide = insn.rex & 8 != 0;
    let size = match insn.op {
        0x0fc7 => 8 << u8::from(is_wide),
        0x0fab | 0x0fb3 | 0x0fbb | 0x0fba => word_size(is_wide, has(0x66)),
        op if op & 1 == 0 => 1,
        _ => word_size(is_wide, has(0x66)),
    };
    let register = if has_register { group | (insn.rex & 4) << 1 } else { NO_REGISTER };
    // `lock or $0,(%rsp)`, say: it orders the thread's own stores, and changes nothing.
    let is_fence = matches!(insn.op, 0x80 | 0x81 | 0x83)
        && matches!(group, 0 | 1 | 5 | 6)
        && code[usize::from(insn.len) - if insn.op == 0x81 { 4 } else { 1 }..usize::from(insn.len)]
            .iter()
            .all(|byte| *byte == 0);
    // A thread's own storage; addresses of four bytes; ah to bh.
    let is_odd =
        has(0x64) || has(0x65) || has(0x67) || size == 1 && insn.rex == 0 && (4..8).contains(&register);
    if is_fence || is_odd {
        return Is::Left;
    }
    Is::Site(Atomic { op, size, register, ..Atomic::EMPTY })
}

const fn word_size(is_wide: bool, is_narrow: bool) -> u8 {
    match (is_wide, is_narrow) {
        (true, _) => 8,
        (false, true) => 2,
        (false, false) => 4,
    }
}

/// Chooses the window.
fn decide(text: &[u8], atomic: &mut Atomic, targets: &[u64]) {
    let site = &mut atomic.site;
    let function_end = core::mem::take(&mut site.hop) as usize;
    let (at, alone) = (site.at as usize, usize::from(site.insn_len));
    let is_target = |at: usize| targets[at / 64] & 1 << (at % 64) != 0;
    let end = window_end(text, at, at + alone, function_end, site.switch_near)
        .filter(|end| !(at + 1..*end).any(is_target));
    atomic.is_trapped = end.is_none();
    let len = end.map_or(alone, |end| end - at);
    site.patch_len = len as u8;
    site.bytes[..len].copy_from_slice(&text[at..at + len]);
}

/// Where a window ends that has room for a jump.
fn window_end(
    text: &[u8],
    at: usize,
    mut end: usize,
    function_end: usize,
    has_switch: bool,
) -> Option<usize> {
    let (mut is_closed, mut taken) = (false, 0);
    while end - at < JUMP_LEN {
        let (insn, code) = decode_at(text, end)?;
        let is_plain = match insn.flow {
            Flow::Nop => true,
            _ if is_closed => false,
            Flow::Jump | Flow::Stop => {
                is_closed = true;
                true
            }
            Flow::Next | Flow::Cond => true,
            Flow::Fixed | Flow::Switch | Flow::Syscall | Flow::Refuse => false,
        };
        // Another one needs a window of its own.
        let is_other = !matches!(atomic_at(&insn, &code), Is::None);
        if !is_plain || is_other || has_switch && (taken != 0 || !reads_flags(&insn)) {
            return None;
        }
        end += usize::from(insn.len);
        taken += 1;
    }
    (end - at <= LONGEST && end <= function_end).then_some(end)
}

/// Whether an instruction is nothing without the flags of the one before.
fn reads_flags(insn: &Insn) -> bool {
    matches!(insn.flow, Flow::Cond) || matches!(insn.op, 0x0f40..=0x0f4f | 0x0f90..=0x0f9f)
}

//! Where a text might enter the kernel, and what stands there.
//!
//! Two bytes do it: `syscall`, `sysenter`, `int $0x80`. In a text of some megabytes the same bytes occur a few times inside
//! other instructions, and in tables of constants between functions. Which of these a place is, the compiler has said: the
//! table for unwinders (`.eh_frame_hdr`) has the start of every function, from where instructions can be counted.
//!
//! What is not looked at: a jump into the middle of an instruction.

use crate::decode::decode_at;
use crate::elf::{self, Image, Segment};

/// What the bytes at a place are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// A part of another instruction.
    Inside,
    /// The way into the kernel that they look like.
    Real,
    /// `rt_sigreturn`, as a handler returns.
    SigReturn,
    /// No function that is known has them: a table, or code of which the compiler has said nothing.
    Unknown,
}

/// Calls `found` with the offset of each pair of bytes that may be a way into the kernel.
pub fn each_entry(text: &[u8], mut found: impl FnMut(usize)) {
    each_pair(
        text,
        |first, second| {
            (first == 0x0f) & ((second == 0x05) | (second == 0x34)) | (first == 0xcd) & (second == 0x80)
        },
        &mut found,
    );
}

/// Calls `found` with the offset of each two bytes in a row that `is_one` takes. Sixty-four at a time, and without a branch:
/// a text of some megabytes is read by every image that has it.
#[inline(always)]
pub(crate) fn each_pair(text: &[u8], is_one: impl Fn(u8, u8) -> bool, found: &mut dyn FnMut(usize)) {
    const STEP: usize = 64;
    let mut at = 0;
    while let (Some(first), Some(second)) = (text.get(at..at + STEP), text.get(at + 1..at + 1 + STEP)) {
        let pairs = || first.iter().zip(second);
        let hits = pairs().fold(0u8, |hits, (first, second)| hits | u8::from(is_one(*first, *second)));
        if hits != 0 {
            pairs()
                .enumerate()
                .filter(|(_, (first, second))| is_one(**first, **second))
                .for_each(|(k, _)| found(at + k));
        }
        at += STEP;
    }
    text[at..]
        .windows(2)
        .enumerate()
        .filter(|(_, two)| is_one(two[0], two[1]))
        .for_each(|(k, _)| found(at + k));
}

/// What stands at offset `at` of a text, in a function that begins at offset `start`.
#[must_use]
pub fn judge(text: &[u8], start: usize, at: usize) -> Entry {
    const SIGRETURN: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    let mut here = start;
    while here < at + 2 {
        let Some((insn, _)) = decode_at(text, here) else { return Entry::Unknown };
        let enters = matches!(insn.op, 0x0f05 | 0x0f34 | 0xcd);
        // Before the opcode there may be prefixes, which change nothing.
        let opcode = here + usize::from(insn.op_at) - usize::from(insn.op > 0xff);
        if enters && opcode == at {
            let before = at.checked_sub(7).and_then(|from| text.get(from..at + 2));
            return if before == Some(&SIGRETURN) { Entry::SigReturn } else { Entry::Real };
        }
        here += usize::from(insn.len);
        if here > at {
            return Entry::Inside;
        }
    }
    Entry::Unknown
}

/// The functions of an object in memory, by its table for unwinders. All reading goes through what it is given, which says
/// no where there is no memory.
#[derive(Clone, Copy, Debug)]
pub struct Functions {
    /// Where the table lies in memory.
    table: u64,
    /// How many functions it has.
    count: u64,
}

/// Reads memory: so many bytes from an address. False where there is none.
pub trait Memory {
    /// See there.
    fn read(&self, from: u64, to: &mut [u8]) -> bool;

    /// A number of four bytes.
    fn word(&self, from: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(from, &mut bytes).then_some(u32::from_le_bytes(bytes))
    }

    /// A distance of four bytes, added to an address.
    fn far(&self, from: u64, base: u64) -> Option<u64> {
        Some(base.wrapping_add_signed(i64::from(self.word(from)? as i32)))
    }

    /// A byte.
    fn byte(&self, from: u64) -> Option<u8> {
        let mut byte = [0];
        self.read(from, &mut byte).then_some(byte[0])
    }
}

const PAGE: u64 = 4096;
/// `PT_GNU_EH_FRAME`
const UNWIND_TABLE: u32 = 0x6474_e550;
/// Encodings of a pointer: a distance of four bytes from where it stands, or from the table.
const FROM_HERE: u8 = 0x1b;
const FROM_TABLE: u8 = 0x3b;
const FOUR_BYTES: u8 = 0x03;

impl Functions {
    /// Of the object whose text is mapped at `start`, from this offset of its file. `None` if there is no table, or none of the
    /// usual kind.
    pub fn find(memory: &impl Memory, start: u64, offset: u64) -> Option<Functions> {
        /// Linkers put a text a few pages further in memory than in the file.
        const SHIFTS: u64 = 16;
        let guess = start.checked_sub(offset)?;
        (0..SHIFTS).find_map(|pages| Functions::at(memory, guess.checked_sub(pages * PAGE)?, start, offset))
    }

    fn at(memory: &impl Memory, base: u64, start: u64, offset: u64) -> Option<Functions> {
        let mut head = [0u8; 1024];
        if !memory.read(base, &mut head) {
            return None;
        }
        let image = Image::parse(&head)?;
        let is_text = |segment: &Segment| {
            segment.kind == elf::LOAD
                && segment.flags & elf::EXECUTABLE != 0
                && segment.offset & !(PAGE - 1) == offset
        };
        let bias = start.wrapping_sub(image.segments().find(is_text)?.addr & !(PAGE - 1));
        let first = image.segments().find(|segment| segment.kind == elf::LOAD && segment.offset == 0)?;
        if bias.wrapping_add(first.addr) != base {
            return None;
        }
        let table = bias.wrapping_add(image.segments().find(|segment| segment.kind == UNWIND_TABLE)?.addr);
        let mut kinds = [0; 4];
        let is_usual = memory.read(table, &mut kinds)
            && kinds[0] == 1
            && kinds[1] == FROM_HERE
            && kinds[2..] == [FOUR_BYTES, FROM_TABLE];
        is_usual.then_some(Functions { table, count: u64::from(memory.word(table + 8)?) })
    }

    /// Start and bytes of each function that the table has, in the order of their addresses.
    pub fn each<M: Memory>(&self, memory: &M) -> impl Iterator<Item = (u64, u64)> {
        let table = self.table;
        (0..self.count).filter_map(move |index| {
            let record = memory.far(table + 12 + index * 8 + 4, table)?;
            extent(memory, record)
        })
    }

    /// Where the function begins that has this address; `None` between functions.
    pub fn start_of(&self, memory: &impl Memory, address: u64) -> Option<u64> {
        let entry = |index: u64| self.table + 12 + index * 8;
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if memory.far(entry(middle), self.table)? <= address {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        let index = low.checked_sub(1)?;
        let start = memory.far(entry(index), self.table)?;
        let (told, bytes) = extent(memory, memory.far(entry(index) + 4, self.table)?)?;
        (told == start && address - start < bytes).then_some(start)
    }
}

/// Start and bytes of the function that a record of `.eh_frame` is about.
fn extent(memory: &impl Memory, record: u64) -> Option<(u64, u64)> {
    let distance = memory.word(record + 4)?;
    let common = (record + 4).checked_sub(u64::from(distance))?;
    if memory.word(record)? == u32::MAX || distance == 0 || encoding(memory, common)? != FROM_HERE {
        return None;
    }
    Some((memory.far(record + 8, record + 8)?, u64::from(memory.word(record + 12)?)))
}

/// How the records that belong to a common one write their addresses.
fn encoding(memory: &impl Memory, common: u64) -> Option<u8> {
    const LETTERS: usize = 8;
    let version = memory.byte(common + 8)?;
    let mut letters = [0; LETTERS];
    if !memory.read(common + 9, &mut letters) || !matches!(version, 1 | 3) || letters[0] != b'z' {
        return None;
    }
    let count = letters.iter().position(|letter| *letter == 0)?;
    let mut at = common + 9 + count as u64 + 1;
    // Two factors, the register of the return address, and how long what follows is.
    for is_number in [true, true, version == 3, true] {
        while memory.byte(at)? & 0x80 != 0 && is_number {
            at += 1;
        }
        at += 1;
    }
    for letter in &letters[1..count] {
        match letter {
            b'R' => return memory.byte(at),
            b'L' => at += 1,
            b'P' => {
                at += match memory.byte(at)? & 0x0f {
                    0x00 | 0x04 | 0x0c => 9,
                    0x02 | 0x0a => 3,
                    0x03 | 0x0b => 5,
                    _ => return None,
                }
            }
            b'S' | b'B' => {}
            _ => return None,
        }
    }
    None
}

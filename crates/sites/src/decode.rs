//! Lengths and control flow of x86-64 instructions, and nothing else about them.
//!
//! A general disassembler needs an allocator and answers far more than is asked here: where does the next
//! instruction start, may control go elsewhere, and is an operand relative to the instruction pointer. Two
//! tables of 256 bytes answer that for everything a compiler emits, fast enough to walk the whole of glibc
//! while a program starts. The tests hold it against `iced-x86`, instruction by instruction, on the C
//! library of the machine.

/// The longest instruction the processor accepts, in bytes.
pub(crate) const LONGEST: usize = 15;

/// What an instruction does to the instruction pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Falls through to the next instruction and means the same at any address.
    Next,
    /// A `nop` of any length: padding, if control cannot fall into it.
    Nop,
    /// `jcc`: may be written anew elsewhere, as `rel32`.
    Cond,
    /// `jmp rel8` or `jmp rel32`.
    Jump,
    /// `call rel32`, `loop`, `jrcxz`, `xbegin`: has a target, and may not be executed from another place
    /// (a call pushes its own address, which unwinders read; the others have no longer form).
    Fixed,
    /// `ret`, `hlt`, `jmp *memory`: control does not reach the next instruction.
    Stop,
    /// An indirect jump through a register or an indexed table: a compiled `switch`, perhaps.
    Switch,
    /// `syscall`.
    Syscall,
    /// May not be moved: pushes its own address, enters the kernel, traps, or is a marked landing place.
    Refuse,
}

/// One decoded instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Insn {
    /// Length in bytes, 1 to 15.
    pub len: u8,
    pub flow: Flow,
    /// Offset of a `disp32` relative to the instruction pointer within the instruction, 0 if there is none.
    pub rip_at: u8,
    /// Offset of the opcode's last byte.
    pub op_at: u8,
    /// The `REX` byte, 0 if there is none.
    pub rex: u8,
    /// The opcode, with `0x0f00` set for the two-byte map and `0xff00` for all others.
    pub op: u16,
    /// Bytes of the branch displacement that ends the instruction: 0, 1 or 4.
    pub rel: u8,
}

impl Insn {
    /// Where a direct branch at `offset` goes, if this is one and the target does not leave 64 bits.
    pub(crate) fn target(&self, code: &[u8; 16], offset: i64) -> Option<i64> {
        let len = usize::from(self.len);
        let rel = match self.rel {
            1 => i64::from(code[len - 1] as i8),
            4 => i64::from(i32::from_le_bytes([code[len - 4], code[len - 3], code[len - 2], code[len - 1]])),
            _ => return None,
        };
        offset.checked_add(self.len.into())?.checked_add(rel)
    }
}

const MODRM: u8 = 0x01;
const IMM8: u8 = 0x02;
/// Two bytes with an operand size prefix, else four.
const IMMZ: u8 = 0x04;
/// Control flow or an irregular length: looked at by hand.
const ODD: u8 = 0x10;
const BAD: u8 = 0x20;
const PREFIX: u8 = 0x40;
const REX: u8 = 0x80;

const ONE: [u8; 256] = one_byte_map();
const TWO: [u8; 256] = two_byte_map();

const fn one_byte_map() -> [u8; 256] {
    let mut map = [0u8; 256];
    let mut op = 0usize;
    while op < 256 {
        map[op] = match op {
            0x26 | 0x2e | 0x36 | 0x3e | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3 => PREFIX,
            0x0f | 0x62 | 0xc4 | 0xc5 => ODD,
            0x00..=0x3f => match op & 7 {
                0..=3 => MODRM,
                4 => IMM8,
                5 => IMMZ,
                _ => BAD,
            },
            0x40..=0x4f => REX,
            0x60 | 0x61 | 0x82 | 0x9a | 0xce | 0xd4..=0xd6 | 0xea => BAD,
            0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf | 0xfe => MODRM,
            0x8f => MODRM | ODD,
            0x68 | 0xa9 => IMMZ,
            0x69 | 0x81 => MODRM | IMMZ,
            0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 | 0xc6 => MODRM | IMM8,
            0x6a | 0xa8 | 0xb0..=0xb7 | 0xe4..=0xe7 => IMM8,
            0x70..=0x7f | 0xe0..=0xe3 | 0xeb | 0xcd => IMM8 | ODD,
            0xc7 => MODRM | IMMZ | ODD,
            0xf6 | 0xf7 | 0xff => MODRM | ODD,
            0x90 | 0xa0..=0xa3 | 0xb8..=0xbf | 0xc2 | 0xc3 | 0xc8 | 0xca..=0xcc | 0xcf => ODD,
            0xe8 | 0xe9 | 0xf1 | 0xf4 => ODD,
            _ => 0,
        };
        op += 1;
    }
    map
}

const fn two_byte_map() -> [u8; 256] {
    let mut map = [MODRM; 256];
    let mut op = 0usize;
    while op < 256 {
        map[op] = match op {
            0x04 | 0x0a | 0x0c | 0x24..=0x27 | 0x36 | 0x39 | 0x3b..=0x3f | 0x7a | 0x7b | 0xa6 | 0xa7 => BAD,
            0x05 | 0x07 | 0x0b | 0x34 | 0x35 | 0x37 | 0x78 | 0x80..=0x8f | 0xaa => ODD,
            0x01 | 0x1e | 0x1f | 0xb9 | 0xff => MODRM | ODD,
            0x06 | 0x08 | 0x09 | 0x0e | 0x30..=0x33 | 0x77 | 0xa0..=0xa2 | 0xa8 | 0xa9 | 0xc8..=0xcf => 0,
            // Control registers: the operand is a register whatever `modrm` says.
            0x20..=0x23 => IMM8 | ODD,
            0x0f | 0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => MODRM | IMM8,
            _ => MODRM,
        };
        op += 1;
    }
    map
}

/// Copies the instruction's bytes into a fixed window, so that the decoder never looks past the text.
/// Bytes past the end read as zero; [`decode_at`] refuses an instruction that would need them.
pub(crate) fn window(text: &[u8], at: usize) -> [u8; 16] {
    if let Some(Ok(bytes)) = text.get(at..at + 16).map(<[u8; 16]>::try_from) {
        return bytes;
    }
    let mut bytes = [0; 16];
    let rest = text.get(at..).unwrap_or_default();
    bytes[..rest.len()].copy_from_slice(rest);
    bytes
}

/// Decodes the instruction at `at`; `None` if the bytes are none, or if it does not end within the text.
pub(crate) fn decode_at(text: &[u8], at: usize) -> Option<(Insn, [u8; 16])> {
    let code = window(text, at);
    let insn = decode(&code)?;
    (usize::from(insn.len) <= text.len().saturating_sub(at)).then_some((insn, code))
}

/// Decodes one instruction. Every index is masked instead of checked: a length over 15 is refused at the
/// end, and a masked read before that costs nothing and cannot panic.
#[inline]
pub(crate) fn decode(code: &[u8; 16]) -> Option<Insn> {
    let mut at = 0usize;
    let (mut narrow, mut short_address, mut rep, mut rex) = (false, false, false, 0u8);
    loop {
        let byte = code[at & 15];
        let class = ONE[usize::from(byte)];
        if class & (PREFIX | REX) == 0 {
            break;
        }
        rex = if class & REX != 0 { byte } else { 0 };
        narrow |= byte == 0x66;
        short_address |= byte == 0x67;
        rep |= byte == 0xf3;
        at += 1;
        if at >= LONGEST {
            return None;
        }
    }

    // A wide operand prevails over a narrow one.
    narrow &= rex & 8 == 0;

    let first = code[at & 15];
    let (op, class) = match first {
        0x0f => {
            at += 1;
            let second = code[at & 15];
            match second {
                0x38 | 0x3a => {
                    at += 1;
                    (0xff00, if second == 0x3a { MODRM | IMM8 } else { MODRM })
                }
                _ => (0x0f00 | u16::from(second), TWO[usize::from(second)]),
            }
        }
        0xc4 | 0xc5 | 0x62 => {
            let (skip, class) = vector_class(first, code, at)?;
            at += skip;
            (0xff00, class)
        }
        _ => (u16::from(first), ONE[usize::from(first)]),
    };
    if class & BAD != 0 {
        return None;
    }

    let op_at = at;
    let mut insn = Insn { len: 0, flow: Flow::Next, rip_at: 0, op_at: op_at as u8, rex, op, rel: 0 };
    at += 1;
    let modrm = code[at & 15];
    if class & MODRM != 0 {
        let (bytes, rip) = operand_bytes(modrm, code[(at + 1) & 15]);
        insn.rip_at = if rip { at as u8 + 1 } else { 0 };
        at += bytes;
    }
    if class & IMM8 != 0 {
        at += 1;
    } else if class & IMMZ != 0 {
        at += if narrow { 2 } else { 4 };
    }
    if class & ODD != 0 {
        at += odd(&mut insn, modrm, code[(op_at + 2) & 15], narrow, short_address, rep)?;
    }
    insn.len = at as u8;
    (at <= LONGEST).then_some(insn)
}

/// The opcode class behind a VEX or EVEX prefix at `at`, and how many bytes lie before the opcode.
fn vector_class(first: u8, code: &[u8; 16], at: usize) -> Option<(usize, u8)> {
    let payload = code[(at + 1) & 15];
    let (skip, map) = match first {
        0xc5 => (2, 1),
        0xc4 => (3, payload & 0x1f),
        _ => (4, payload & 0x07),
    };
    let op = code[(at + skip) & 15];
    let class = match (map, first) {
        // Of the two-byte map only its data instructions exist in this form: no branch, no `syscall`.
        (1, 0x62) if matches!(op, 0x78 | 0x7a | 0x7b) => MODRM,
        (1, _) => TWO[usize::from(op)] & !ODD,
        (2, _) | (5 | 6, 0x62) => MODRM,
        (3, _) => MODRM | IMM8,
        _ => return None,
    };
    Some((skip, class))
}

/// Bytes of `modrm`, `sib` and displacement, and whether the displacement counts from the next instruction.
#[inline]
fn operand_bytes(modrm: u8, sib: u8) -> (usize, bool) {
    let (mode, rm) = (modrm >> 6, modrm & 7);
    let indexed = mode != 3 && rm == 4;
    let displacement = match mode {
        0 if rm == 5 || (indexed && sib & 7 == 5) => 4,
        1 => 1,
        2 => 4,
        _ => 0,
    };
    (1 + usize::from(indexed) + displacement, mode == 0 && rm == 5)
}

/// Fills in flow and returns the bytes that the tables do not count.
fn odd(insn: &mut Insn, modrm: u8, sib: u8, narrow: bool, short_address: bool, rep: bool) -> Option<usize> {
    let group = (modrm >> 3) & 7;
    let mut branch = |flow, rel: u8| {
        insn.flow = flow;
        insn.rel = rel;
        usize::from(rel)
    };
    let more = match insn.op {
        // The tables have counted the byte of a short branch already.
        0x70..=0x7f => branch(Flow::Cond, 1) - 1,
        0xeb => branch(Flow::Jump, 1) - 1,
        0xe0..=0xe3 => branch(Flow::Fixed, 1) - 1,
        0xe8 => branch(Flow::Fixed, 4),
        0xe9 => branch(Flow::Jump, 4),
        0x0f80..=0x0f8f => branch(Flow::Cond, 4),
        0xc7 if modrm == 0xf8 && !narrow => branch(Flow::Fixed, 4) - 4,
        0xc7 if group == 0 => 0,
        0x8f if group == 0 => 0,
        0xc7 | 0x8f => return None,
        0x90 => {
            // `xchg %r8,%rax` shares the byte; `pause` shares it too and is as harmless as a nop.
            insn.flow = if insn.rex & 1 == 0 { Flow::Nop } else { Flow::Next };
            0
        }
        0xa0..=0xa3 => {
            if short_address {
                4
            } else {
                8
            }
        }
        0xb8..=0xbf => match (insn.rex & 8 != 0, narrow) {
            (true, _) => 8,
            (false, true) => 2,
            (false, false) => 4,
        },
        0xf6 if group < 2 => 1,
        0xf7 if group < 2 => {
            if narrow {
                2
            } else {
                4
            }
        }
        0xf6 | 0xf7 => 0,
        0xc3 | 0xf4 => {
            insn.flow = Flow::Stop;
            0
        }
        0xc2 => {
            insn.flow = Flow::Stop;
            2
        }
        0xca => {
            insn.flow = Flow::Refuse;
            2
        }
        0xc8 => 3,
        0xff => {
            insn.flow = indirect(modrm, sib)?;
            0
        }
        0x0f05 => {
            insn.flow = Flow::Syscall;
            0
        }
        0x0f1f => {
            insn.flow = Flow::Nop;
            0
        }
        // `endbr64`, the mark of a place that indirect jumps may reach, and the shadow stack's pointer.
        0x0f1e if rep => {
            insn.flow = Flow::Refuse;
            0
        }
        0x0f1e => {
            insn.flow = Flow::Nop;
            0
        }
        // `vmread`, or one vendor's bit fields of another length: no program here has either.
        0x0f78 => return None,
        // `xgetbv`, `xend` and the like are plain, but the group also enters hypervisors and enclaves.
        _ => {
            insn.flow = Flow::Refuse;
            0
        }
    };
    Some(more)
}

/// The flow of `ff /n`.
fn indirect(modrm: u8, sib: u8) -> Option<Flow> {
    Some(match (modrm >> 3) & 7 {
        0 | 1 | 6 => Flow::Next,
        2 | 3 | 5 => Flow::Refuse,
        4 => {
            let table = modrm >> 6 == 3 || (modrm & 7 == 4 && sib & 0x38 != 0x20);
            if table { Flow::Switch } else { Flow::Stop }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};
    use proptest::prelude::*;

    fn iced(code: &[u8], ip: u64) -> Option<Instruction> {
        let insn = Decoder::with_ip(64, code, ip, DecoderOptions::NONE).decode();
        (!insn.is_invalid()).then_some(insn)
    }

    /// Everything the crate believes about an instruction, against iced.
    fn compare(code: &[u8; 16], ours: &Insn, theirs: &Instruction) {
        let ip = theirs.ip();
        assert_eq!(usize::from(ours.len), theirs.len(), "{code:02x?}: length");
        let target = ours.target(code, ip as i64).map_or(0, |t| t as u64);
        assert_eq!(target, theirs.near_branch_target(), "{code:02x?}: target");
        assert_eq!(ours.rip_at != 0, theirs.is_ip_rel_memory_operand(), "{code:02x?}: relative to rip");
        assert_eq!(ours.flow == Flow::Syscall, theirs.mnemonic() == Mnemonic::Syscall, "{code:02x?}");
        let flow = theirs.flow_control();
        let movable = match ours.flow {
            Flow::Next => flow == FlowControl::Next,
            Flow::Nop => matches!(theirs.mnemonic(), Mnemonic::Nop | Mnemonic::Pause | Mnemonic::Reservednop),
            Flow::Cond => flow == FlowControl::ConditionalBranch && theirs.is_jcc_short_or_near(),
            Flow::Jump => flow == FlowControl::UnconditionalBranch,
            Flow::Stop => {
                matches!(flow, FlowControl::Return | FlowControl::IndirectBranch)
                    || code_is(theirs, Mnemonic::Hlt)
            }
            Flow::Switch => flow == FlowControl::IndirectBranch,
            Flow::Fixed => theirs.op0_kind() == OpKind::NearBranch64,
            Flow::Syscall | Flow::Refuse => true,
        };
        assert!(movable, "{code:02x?}: {:?}, and {flow:?}", ours.flow);
        // A table jump that is not seen would let a `case` be overwritten.
        if theirs.is_jmp_near_indirect() && theirs.memory_index() != iced_x86::Register::None {
            assert_eq!(ours.flow, Flow::Switch, "{code:02x?}");
        }
    }

    fn code_is(insn: &Instruction, mnemonic: Mnemonic) -> bool {
        insn.mnemonic() == mnemonic
    }

    /// Every instruction of the machine's C library, where hardly any vector extension is missing.
    #[test]
    fn agrees_with_iced_on_glibc() {
        let file = std::fs::read("/lib/x86_64-linux-gnu/libc.so.6").expect("a C library");
        let image = crate::elf::Image::parse(&file).expect("an ELF file");
        let mut count = 0;
        for (text, addr) in image.executable() {
            let mut at = 0;
            while at < text.len() {
                let code = window(text, at);
                let Some(theirs) = iced(&text[at..], addr + at as u64) else {
                    assert!(decode_at(text, at).is_none(), "{at:#x}: {code:02x?} is no instruction");
                    at += 1;
                    continue;
                };
                let (ours, code) = decode_at(text, at).unwrap_or_else(|| panic!("{at:#x}: {code:02x?}"));
                compare(&code, &ours, &theirs);
                count += 1;
                at += theirs.len();
            }
        }
        println!("{count} instructions agree");
        assert!(count > 200_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 60_000, failure_persistence: None, ..ProptestConfig::default() })]

        /// Where both take random bytes for an instruction they take them for the same one.
        #[test]
        fn agrees_with_iced_on_random_bytes(code: [u8; 16], prefix in 0u8..10) {
            let mut code = code;
            match prefix {
                0 => code[0] = 0x0f,
                1 => code[..2].copy_from_slice(&[0x66, 0x0f]),
                2 => code[0] = 0x48,
                3 => code[..2].copy_from_slice(&[0xf3, 0x0f]),
                4 => code[0] = 0xc4,
                5 => code[0] = 0xc5,
                6 => code[0] = 0x62,
                7 => code[0] = 0x66,
                _ => {}
            }
            if let (Some(ours), Some(theirs)) = (decode(&code), iced(&code, 0x1000_0000)) {
                compare(&code, &ours, &theirs);
            }
        }
    }
}

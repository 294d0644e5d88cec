//! The stub of an atomic instruction.
//!
//! ```text
//!   head     32 bytes that describe the instruction, for the gates
//!   enter:   what the gates destroy is saved; the address of the memory goes to rcx
//!            jmp *enter          goes on at one of the two below
//!   go:      what was saved is loaded; the instruction itself
//!            the same, with the flags that it has left
//!            jmp *leave
//!   done:    what was saved is loaded; what the window had behind it; jmp back
//! ```
//!
//! Nothing is written to the stack: the code may stand a few bytes above the end of a coroutine's. Four registers' worth goes to the
//! thread's own storage, at a fixed distance from its pointer.

use crate::emit::{EmitError, Writer};
use crate::{Atomic, AtomicOp, NO_REGISTER};

/// No stub of an atomic instruction is longer than this, in bytes, its head included.
pub const ATOMIC_STUB_MAX: usize = 320;
/// Bytes of a stub's head; its code begins behind it.
pub const ATOMIC_HEAD: usize = 40;

/// Words of a thread's own storage that a stub and the gates use: rax, rcx, rdx, the flags, where the gate goes on, and the value
/// of the instruction's register.
pub const ATOMIC_WORDS: usize = 6;
const RAX: i32 = 0;
const RCX: i32 = 8;
const RDX: i32 = 16;
const FLAGS: i32 = 24;
const VALUE: i32 = 40;

/// Where a stub finds what it needs.
#[derive(Clone, Copy, Debug)]
pub struct Ways {
    /// Distance of the [`ATOMIC_WORDS`] from the thread pointer.
    pub words: i32,
    /// Address of eight bytes that hold the address of the gate before the instruction.
    pub enter_slot: u64,
    /// The same behind it.
    pub leave_slot: u64,
}

/// Writes the stub of `atomic`, to be placed at `stub_addr`. Its length; the jump goes to [`ATOMIC_HEAD`] bytes behind its beginning.
///
/// The head has, from its start: the address of the instruction, of `go`, and of `done`, eight bytes each; operation, size,
/// register, and whether it expects a constant, a byte each; then the address behind the instruction, from byte 32 on.
///
/// # Errors
///
/// [`EmitError`]; `out` then holds nothing of use.
pub fn emit_atomic_stub(
    atomic: &Atomic,
    stub_addr: u64,
    ways: &Ways,
    out: &mut [u8],
) -> Result<usize, EmitError> {
    /// `lahf; seto %al`
    const TAKE_FLAGS: [u8; 4] = [0x9f, 0x0f, 0x90, 0xc0];
    let site = &atomic.site;
    let mut code = Writer::new(site, stub_addr, out)?;
    code.put(&[0; ATOMIC_HEAD])?;
    code.store(0, RAX, ways)?;
    code.store(1, RCX, ways)?;
    code.store(2, RDX, ways)?;
    code.operand_to_rcx()?;
    code.put(&TAKE_FLAGS)?;
    code.store(0, FLAGS, ways)?;
    code.head_to_rdx(stub_addr)?;
    code.through(ways.enter_slot)?;
    let go = code.here();
    code.load_all(ways)?;
    code.displaced(0..site.behind_at())?;
    if atomic.register != NO_REGISTER {
        code.store(atomic.register, VALUE, ways)?;
    }
    code.store(0, RAX, ways)?;
    code.store(1, RCX, ways)?;
    code.store(2, RDX, ways)?;
    code.put(&TAKE_FLAGS)?;
    code.store(0, FLAGS, ways)?;
    code.head_to_rdx(stub_addr)?;
    code.through(ways.leave_slot)?;
    let done = code.here();
    code.load_all(ways)?;
    code.displaced(site.behind_at()..site.window().len())?;
    code.jump(site.back_addr())?;
    let len = code.len();
    let kind = [atomic.op as u8, atomic.size, atomic.register, u8::from(atomic.expects_constant), 0, 0, 0, 0];
    let behind = site.patch_addr() + site.behind_at() as u64;
    let head =
        [site.syscall_addr().to_le_bytes(), go.to_le_bytes(), done.to_le_bytes(), kind, behind.to_le_bytes()];
    out.iter_mut().zip(head.into_iter().flatten()).for_each(|(to, from)| *to = from);
    Ok(len)
}

impl Writer<'_> {
    /// `mov %register,%fs:word`
    fn store(&mut self, register: u8, word: i32, ways: &Ways) -> Result<(), EmitError> {
        let rex = 0x48 | (register & 8) >> 1;
        self.put(&[0x64, rex, 0x89, 0x04 | (register & 7) << 3, 0x25])?;
        self.put(&ways.words.wrapping_add(word).to_le_bytes())
    }

    /// `mov %fs:word,%register`
    fn load(&mut self, register: u8, word: i32, ways: &Ways) -> Result<(), EmitError> {
        self.put(&[0x64, 0x48, 0x8b, 0x04 | register << 3, 0x25])?;
        self.put(&ways.words.wrapping_add(word).to_le_bytes())
    }

    /// The flags and the three registers, as they were.
    fn load_all(&mut self, ways: &Ways) -> Result<(), EmitError> {
        /// `add $0x7f,%al`, which overflows if al is 1; `sahf`.
        const GIVE_FLAGS: [u8; 3] = [0x04, 0x7f, 0x9e];
        self.load(0, FLAGS, ways)?;
        self.put(&GIVE_FLAGS)?;
        self.load(0, RAX, ways)?;
        self.load(1, RCX, ways)?;
        self.load(2, RDX, ways)
    }

    /// `lea head(%rip),%rdx`
    fn head_to_rdx(&mut self, head: u64) -> Result<(), EmitError> {
        self.put(&[0x48, 0x8d, 0x15])?;
        self.relative(head)
    }

    /// `jmp *slot(%rip)`
    fn through(&mut self, slot: u64) -> Result<(), EmitError> {
        self.put(&[0xff, 0x25])?;
        self.relative(slot)
    }

    /// `lea operand,%rcx` of the site's instruction, before any register is changed.
    fn operand_to_rcx(&mut self) -> Result<(), EmitError> {
        const RCX_FIELD: u8 = 1 << 3;
        let (insn, code) = self.first().ok_or(EmitError::NotPatchable)?;
        let at = usize::from(insn.op_at) + 1;
        let modrm = code[at];
        let (mode, rm) = (modrm >> 6, modrm & 7);
        // The base's and the index's upper bits.
        let rex = 0x48 | insn.rex & 3;
        self.put(&[rex, 0x8d, modrm & 0xc7 | RCX_FIELD])?;
        if insn.rip_at != 0 {
            let place = usize::from(insn.rip_at);
            let rel = i32::from_le_bytes([0, 1, 2, 3].map(|byte| code[place + byte]));
            return self.relative(self.end_of_first().wrapping_add_signed(rel.into()));
        }
        let is_indexed = rm == 4;
        let displacement = match mode {
            0 if is_indexed && code[at + 1] & 7 == 5 => 4,
            0 => 0,
            1 => 1,
            _ => 4,
        };
        let len = usize::from(is_indexed) + displacement;
        self.put(&code[at + 1..at + 1 + len])
    }
}

/// Whether the old value is what a `cmpxchg` leaves in rax (and rdx) where it fails.
#[must_use]
pub const fn is_compare(op: u8) -> bool {
    op == AtomicOp::CompareExchange as u8 || op == AtomicOp::CompareExchangeWide as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scan_atomics, target_words};
    use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind};

    const TEXT: u64 = 0x40_0000;
    const STUB: u64 = 0x50_0000;
    const WAYS: Ways = Ways { words: -64, enter_slot: 0x4f_0000, leave_slot: 0x4f_0008 };

    /// The only atomic instruction of `text`, and the instructions of its stub.
    fn stub(text: &[u8]) -> (Atomic, std::vec::Vec<Instruction>) {
        let mut targets = std::vec![0; target_words(text.len())];
        let mut all = [Atomic::EMPTY; 2];
        let found = scan_atomics(text, TEXT, [(0, text.len())].into_iter(), &mut targets, &mut all).unwrap();
        assert_eq!(found.found, 1);
        let mut out = [0; ATOMIC_STUB_MAX];
        let len = emit_atomic_stub(&all[0], STUB, &WAYS, &mut out).unwrap();
        let from = STUB + ATOMIC_HEAD as u64;
        let decoder = Decoder::with_ip(64, &out[ATOMIC_HEAD..len], from, DecoderOptions::NONE);
        (all[0], decoder.into_iter().collect())
    }

    fn memory(insn: &Instruction) -> (u32, u32, u32, u64) {
        let base = if insn.is_ip_rel_memory_operand() { 0 } else { insn.memory_base() as u32 };
        (base, insn.memory_index() as u32, insn.memory_index_scale(), insn.memory_displacement64())
    }

    #[test]
    fn the_address_is_that_of_the_instruction() {
        let texts: [&[u8]; 7] = [
            &[0xf0, 0x0f, 0xb1, 0x17, 0x75, 0x00, 0xc3],
            &[0xf0, 0x48, 0x0f, 0xc1, 0x44, 0x24, 0x10, 0xc3],
            &[0xf0, 0x83, 0x05, 0x10, 0, 0, 0, 1, 0xc3],
            &[0xf0, 0x49, 0xff, 0x44, 0xd5, 0x40, 0xc3],
            &[0xf0, 0x4e, 0x0f, 0xb1, 0x8c, 0xc3, 0x00, 0x10, 0, 0, 0xc3],
            &[0x87, 0x04, 0xcd, 0x78, 0x56, 0x34, 0x12, 0xc3],
            &[0xf0, 0x41, 0x0f, 0xb1, 0x0c, 0x24, 0xc3],
        ];
        for text in texts {
            let (atomic, insns) = stub(text);
            assert!(!atomic.is_trapped, "{text:02x?}");
            let original = Decoder::with_ip(64, text, TEXT, DecoderOptions::NONE).decode();
            let lea = insns.iter().find(|insn| insn.mnemonic() == Mnemonic::Lea).unwrap();
            assert_eq!(memory(lea), memory(&original), "{text:02x?}");
            let again = insns
                .iter()
                .find(|insn| insn.mnemonic() == original.mnemonic() && insn.op0_kind() == OpKind::Memory)
                .unwrap();
            assert_eq!(memory(again), memory(&original), "{text:02x?}");
        }
    }

    #[test]
    fn an_expected_constant_is_known() {
        let zero: &[u8] = &[0x31, 0xc0, 0xf0, 0x0f, 0xb1, 0x17, 0x75, 0x00, 0xc3];
        let read: &[u8] = &[0x8b, 0x07, 0xf0, 0x0f, 0xb1, 0x17, 0x75, 0x00, 0xc3];
        assert!(stub(zero).0.expects_constant);
        assert!(!stub(read).0.expects_constant);
    }

    #[test]
    fn what_may_be_arrived_at_is_not_overwritten() {
        // A loop back to the instruction behind; a call behind.
        let texts: [&[u8]; 2] =
            [&[0xf0, 0x0f, 0xb1, 0x17, 0x75, 0xfe, 0xc3], &[0xf0, 0x0f, 0xb1, 0x17, 0xe8, 0, 0, 0, 0, 0xc3]];
        for text in texts {
            let (atomic, _) = stub(text);
            assert!(atomic.is_trapped, "{text:02x?}");
            assert_eq!(atomic.site.window(), &text[..4]);
        }
    }
}

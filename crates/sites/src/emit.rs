//! The bytes of stubs and patches.

use crate::decode::{Flow, Insn, LONGEST, decode_at};
use crate::{JUMP_LEN, Site};

/// No stub is longer than this, in bytes: six displaced conditional jumps, grown from two bytes to six each,
/// around the call.
pub const STUB_MAX: usize = 72;

/// No patch is longer than this, in bytes.
pub const PATCH_MAX: usize = LONGEST;

/// `lea disp32(%rip),%rcx`: where the gate goes back to. A `syscall` destroys rcx in any case.
const BEHIND_TO_RCX: [u8; 3] = [0x48, 0x8d, 0x0d];
/// `lea disp32(%rip),%rax`: the same for a reading of the counter, which destroys rax and rdx only.
const BEHIND_TO_RAX: [u8; 3] = [0x48, 0x8d, 0x05];
/// `jmp *disp32(%rip)`
const JUMP_SLOT: [u8; 2] = [0xff, 0x25];
/// Bytes of such a jump.
const JUMP_SLOT_LEN: i32 = 6;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `mov %rax,%rdx; shr $32,%rdx; mov %eax,%eax`: the two halves of a counter's value, as the instruction leaves them.
const HALVES: [u8; 9] = [0x48, 0x89, 0xc2, 0x48, 0xc1, 0xea, 0x20, 0x89, 0xc0];
/// `nop disp32(%rax)`, where the gate goes back to: the distance from there to the end of the site's instruction. Unwinders
/// know nothing of stubs; by this the gate says that it was called at the site.
const NOP_WITH_DISTANCE: [u8; 3] = [0x0f, 0x1f, 0x80];
/// Bytes of a jump of one byte's reach: as many as a `syscall` has.
const SHORT_JUMP_LEN: u64 = 2;
/// `int3`. Nothing may arrive in the rest of a window. If something does, it must stop there and then, not
/// slide on as it would over `nop`.
const FILLER: u8 = 0xcc;

/// Why no bytes were produced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The site has no window.
    NotPatchable,
    /// `out` is shorter than the stub; [`STUB_MAX`] always does.
    NoRoom,
    /// A jump or a displaced operand does not reach from the stub to where it must: the stub lies more than
    /// 2 GiB away. Place the stubs next to the text.
    OutOfReach,
}

impl core::fmt::Display for EmitError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            EmitError::NotPatchable => "stub of a system call: the site has no window",
            EmitError::NoRoom => "stub of a system call: no room for its bytes",
            EmitError::OutOfReach => "stub of a system call: more than 2 GiB from the text",
        })
    }
}

impl core::error::Error for EmitError {}

/// What [`emit_clone_stub`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneStub {
    /// Bytes of the whole stub.
    pub len: usize,
    /// Where parent and child must go after the system call, each with its own registers.
    pub resume_addr: u64,
}

/// What [`emit_stub`] has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stub {
    /// Bytes of the whole stub.
    pub len: usize,
    /// Where the gate goes back to.
    pub behind_addr: u64,
}

/// Writes the stub of a site that enters the gate, to be placed at `stub_addr`. `gate_slot` is the address of eight bytes
/// that hold the gate's address.
///
/// The gate is entered with all registers as the guest left them before its `syscall`, but for rcx, which says where it goes
/// back to: by a jump, with rsp as it was. Three bytes behind that place stands how far from there the end of the site's
/// `syscall` instruction is, four bytes. Two bytes before it stands a `syscall` for calls that a gate cannot make: it goes
/// there instead. It may change `rax`, `rcx`, `r11` and the flags only: the kernel changes the first three, and no compiler
/// relies on flags across a system call.
///
/// # Errors
///
/// [`EmitError`]; `out` then holds nothing of use.
pub fn emit_stub(site: &Site, stub_addr: u64, gate_slot: u64, out: &mut [u8]) -> Result<Stub, EmitError> {
    let mut code = Writer::new(site, stub_addr, out)?;
    code.displaced(0..site.syscall_at())?;
    code.put(&BEHIND_TO_RCX)?;
    code.put(&(JUMP_SLOT_LEN + SYSCALL.len() as i32).to_le_bytes())?;
    code.put(&JUMP_SLOT)?;
    code.relative(gate_slot)?;
    code.put(&SYSCALL)?;
    code.behind(&[])
}

/// Writes the stub of a [`Kind::Counter`](crate::Kind::Counter), as [`emit_stub`] does for a `syscall`. Here rax says where
/// the gate goes back to. It may change rdx and the flags only, and leaves the counter's value in rax; behind an
/// `rdtscp` the number of the processor in rcx.
///
/// # Errors
///
/// [`EmitError`]; `out` then holds nothing of use.
pub fn emit_counter_stub(
    site: &Site,
    stub_addr: u64,
    gate_slot: u64,
    out: &mut [u8],
) -> Result<Stub, EmitError> {
    let mut code = Writer::new(site, stub_addr, out)?;
    code.displaced(0..site.syscall_at())?;
    code.put(&BEHIND_TO_RAX)?;
    code.put(&JUMP_SLOT_LEN.to_le_bytes())?;
    code.put(&JUMP_SLOT)?;
    code.relative(gate_slot)?;
    code.behind(&HALVES)
}

/// Writes the stub of a [`Kind::CloneLike`](crate::Kind::CloneLike) site: it touches neither stack nor
/// registers and goes to `enter`, where the runtime has `syscall; jmp *resume` of its own. What follows the
/// system call is at [`CloneStub::resume_addr`].
///
/// # Errors
///
/// [`EmitError`]; `out` then holds nothing of use.
pub fn emit_clone_stub(
    site: &Site,
    stub_addr: u64,
    enter_slot: u64,
    out: &mut [u8],
) -> Result<CloneStub, EmitError> {
    let mut code = Writer::new(site, stub_addr, out)?;
    code.displaced(0..site.syscall_at())?;
    // The runtime's text may be further away than 2 GiB.
    code.put(&JUMP_SLOT)?;
    code.relative(enter_slot)?;
    let resume_addr = code.here();
    code.displaced(site.behind_at()..site.window().len())?;
    code.jump(site.back_addr())?;
    Ok(CloneStub { len: code.len, resume_addr })
}

/// The bytes to write over the window, at [`Site::patch_addr`], and how many of them count.
///
/// # Errors
///
/// [`EmitError::NotPatchable`] or [`EmitError::OutOfReach`].
pub fn emit_patch(site: &Site, stub_addr: u64) -> Result<([u8; PATCH_MAX], usize), EmitError> {
    if !site.is_patchable() {
        return Err(EmitError::NotPatchable);
    }
    let mut bytes = [FILLER; PATCH_MAX];
    if let Some(hop) = site.hop_addr() {
        let from = site.patch_addr().wrapping_add(SHORT_JUMP_LEN);
        let rel = i8::try_from(hop.wrapping_sub(from) as i64).map_err(|_| EmitError::OutOfReach)?;
        bytes[..2].copy_from_slice(&[0xeb, rel as u8]);
        return Ok((bytes, usize::from(site.patch_len)));
    }
    let rel = displacement(site.patch_addr().wrapping_add(JUMP_LEN as u64), stub_addr)?;
    bytes[0] = 0xe9;
    bytes[1..JUMP_LEN].copy_from_slice(&rel.to_le_bytes());
    Ok((bytes, usize::from(site.patch_len)))
}

/// Where the padding is that a window of two bytes jumps to, and the jump to write there; `None` for any other window.
///
/// # Errors
///
/// [`EmitError::OutOfReach`].
pub fn emit_hop(site: &Site, stub_addr: u64) -> Result<Option<(u64, [u8; JUMP_LEN])>, EmitError> {
    let Some(hop) = site.hop_addr() else { return Ok(None) };
    let mut bytes = [0xe9; JUMP_LEN];
    bytes[1..].copy_from_slice(&displacement(hop.wrapping_add(JUMP_LEN as u64), stub_addr)?.to_le_bytes());
    Ok(Some((hop, bytes)))
}

/// The `rel32` that leads from the end of an instruction at `from` to `to`.
fn displacement(from: u64, to: u64) -> Result<i32, EmitError> {
    i32::try_from(to.wrapping_sub(from) as i64).map_err(|_| EmitError::OutOfReach)
}

pub(crate) struct Writer<'a> {
    site: &'a Site,
    addr: u64,
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    pub(crate) fn new(site: &'a Site, addr: u64, out: &'a mut [u8]) -> Result<Writer<'a>, EmitError> {
        if !site.is_patchable() {
            return Err(EmitError::NotPatchable);
        }
        Ok(Writer { site, addr, out, len: 0 })
    }

    pub(crate) fn here(&self) -> u64 {
        self.addr.wrapping_add(self.len as u64)
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The window's first instruction.
    pub(crate) fn first(&self) -> Option<(Insn, [u8; 16])> {
        decode_at(self.site.window(), 0)
    }

    /// Where it ends at its site.
    pub(crate) fn end_of_first(&self) -> u64 {
        self.site.patch_addr().wrapping_add(self.first().map_or(0, |(insn, _)| u64::from(insn.len)))
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let end = self.len + bytes.len();
        self.out.get_mut(self.len..end).ok_or(EmitError::NoRoom)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Four bytes that end an instruction and name `to` relative to that end.
    pub(crate) fn relative(&mut self, to: u64) -> Result<(), EmitError> {
        let rel = displacement(self.here().wrapping_add(4), to)?;
        self.put(&rel.to_le_bytes())
    }

    /// The place that the gate goes back to, and the stub's end.
    fn behind(mut self, first: &[u8]) -> Result<Stub, EmitError> {
        let site = self.site;
        let behind_addr = self.here();
        let end = site.patch_addr().wrapping_add(site.behind_at() as u64);
        let distance = displacement(behind_addr, end)?;
        self.put(&NOP_WITH_DISTANCE)?;
        self.put(&distance.to_le_bytes())?;
        self.put(first)?;
        self.displaced(site.behind_at()..site.window().len())?;
        self.jump(site.back_addr())?;
        Ok(Stub { len: self.len, behind_addr })
    }

    pub(crate) fn jump(&mut self, to: u64) -> Result<(), EmitError> {
        self.put(&[0xe9])?;
        self.relative(to)
    }

    /// The window's instructions in `range`, each so that it does here what it did there.
    pub(crate) fn displaced(&mut self, range: core::ops::Range<usize>) -> Result<(), EmitError> {
        let site = self.site;
        let window = site.window();
        let mut at = range.start;
        while at < range.end {
            let (insn, code) = decode_at(window, at).ok_or(EmitError::NotPatchable)?;
            let next = at + usize::from(insn.len);
            let old_end = site.patch_addr().wrapping_add(next as u64);
            self.one(&insn, &code, old_end)?;
            at = next;
        }
        Ok(())
    }

    fn one(&mut self, insn: &Insn, code: &[u8; 16], old_end: u64) -> Result<(), EmitError> {
        let len = usize::from(insn.len);
        // `target` of offset `-len` is the distance from the instruction's end.
        let target = insn.target(code, -(len as i64)).map(|rel| old_end.wrapping_add_signed(rel));
        match (insn.flow, target) {
            (Flow::Nop, _) => Ok(()),
            (Flow::Jump, Some(target)) => self.jump(target),
            (Flow::Cond, Some(target)) => {
                // The condition is the low half of the opcode, in the short form and in the long one.
                self.put(&[0x0f, 0x80 | (insn.op as u8 & 0x0f)])?;
                self.relative(target)
            }
            (Flow::Next | Flow::Stop, None) if insn.rip_at == 0 => self.put(&code[..len]),
            (Flow::Next | Flow::Stop, None) => {
                let field = usize::from(insn.rip_at);
                let rel =
                    i32::from_le_bytes([code[field], code[field + 1], code[field + 2], code[field + 3]]);
                let operand = old_end.wrapping_add_signed(rel.into());
                let rel = displacement(self.here().wrapping_add(len as u64), operand)?;
                let mut moved = *code;
                moved[field..field + 4].copy_from_slice(&rel.to_le_bytes());
                self.put(&moved[..len])
            }
            _ => Err(EmitError::NotPatchable),
        }
    }
}

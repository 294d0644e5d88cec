//! The bytes of stubs and patches.

use crate::decode::{Flow, Insn, LONGEST, decode_at};
use crate::{JUMP_LEN, Site};

/// No stub is longer than this, in bytes: six displaced conditional jumps, grown from two bytes to six each,
/// around the call.
pub const STUB_MAX: usize = 72;

/// No patch is longer than this, in bytes.
pub const PATCH_MAX: usize = LONGEST;

/// `lea -128(%rsp),%rsp`: leaf functions keep values below the stack pointer, where our call would write its
/// return address. `lea` leaves the flags alone, `sub` would not.
const SKIP_RED_ZONE: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, 0x80];
/// `lea 128(%rsp),%rsp`
const UNSKIP_RED_ZONE: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0];
/// `call *disp32(%rip)`
const CALL_SLOT: [u8; 2] = [0xff, 0x15];
/// `nop disp32(%rax)`, behind the call: the distance from there to the end of the site's `syscall` instruction. Unwinders
/// know nothing of stubs; by this the gate says that it was called at the site.
const NOP_WITH_DISTANCE: [u8; 3] = [0x0f, 0x1f, 0x80];
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

/// Writes the stub of a site that calls the gate, to be placed at `stub_addr`, and returns its length in
/// bytes. `gate_slot` is the address of eight bytes that hold the gate's address.
///
/// The gate is entered by a call, with all registers as the guest left them before its `syscall`, but `rsp`
/// 136 bytes lower. Three bytes behind its return address stands how far from there the end of the site's `syscall`
/// instruction is, four bytes. It returns with `ret` and may change `rax`, `rcx`, `r11` and the flags only: the kernel
/// changes the first three, and no compiler relies on flags across a system call.
///
/// # Errors
///
/// [`EmitError`]; `out` then holds nothing of use.
pub fn emit_stub(site: &Site, stub_addr: u64, gate_slot: u64, out: &mut [u8]) -> Result<usize, EmitError> {
    let mut code = Writer::new(site, stub_addr, out)?;
    code.displaced(0..site.syscall_at())?;
    code.put(&SKIP_RED_ZONE)?;
    code.put(&CALL_SLOT)?;
    code.relative(gate_slot)?;
    let behind = site.patch_addr().wrapping_add(site.syscall_at() as u64 + 2);
    let distance = displacement(code.here(), behind)?;
    code.put(&NOP_WITH_DISTANCE)?;
    code.put(&distance.to_le_bytes())?;
    code.put(&UNSKIP_RED_ZONE)?;
    code.displaced(site.syscall_at() + 2..site.window().len())?;
    code.jump(site.back_addr())?;
    Ok(code.len)
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
    // `jmp *disp32(%rip)`: the runtime's text may be further away than 2 GiB.
    code.put(&[0xff, 0x25])?;
    code.relative(enter_slot)?;
    let resume_addr = code.here();
    code.displaced(site.syscall_at() + 2..site.window().len())?;
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
    let rel = displacement(site.patch_addr().wrapping_add(JUMP_LEN as u64), stub_addr)?;
    bytes[0] = 0xe9;
    bytes[1..JUMP_LEN].copy_from_slice(&rel.to_le_bytes());
    Ok((bytes, usize::from(site.patch_len)))
}

/// The `rel32` that leads from the end of an instruction at `from` to `to`.
fn displacement(from: u64, to: u64) -> Result<i32, EmitError> {
    i32::try_from(to.wrapping_sub(from) as i64).map_err(|_| EmitError::OutOfReach)
}

struct Writer<'a> {
    site: &'a Site,
    addr: u64,
    out: &'a mut [u8],
    len: usize,
}

impl<'a> Writer<'a> {
    fn new(site: &'a Site, addr: u64, out: &'a mut [u8]) -> Result<Writer<'a>, EmitError> {
        if !site.is_patchable() {
            return Err(EmitError::NotPatchable);
        }
        Ok(Writer { site, addr, out, len: 0 })
    }

    fn here(&self) -> u64 {
        self.addr.wrapping_add(self.len as u64)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), EmitError> {
        let end = self.len + bytes.len();
        self.out.get_mut(self.len..end).ok_or(EmitError::NoRoom)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// Four bytes that end an instruction and name `to` relative to that end.
    fn relative(&mut self, to: u64) -> Result<(), EmitError> {
        let rel = displacement(self.here().wrapping_add(4), to)?;
        self.put(&rel.to_le_bytes())
    }

    fn jump(&mut self, to: u64) -> Result<(), EmitError> {
        self.put(&[0xe9])?;
        self.relative(to)
    }

    /// The window's instructions in `range`, each so that it does here what it did there.
    fn displaced(&mut self, range: core::ops::Range<usize>) -> Result<(), EmitError> {
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

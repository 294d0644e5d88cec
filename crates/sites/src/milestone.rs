//! Milestones: branches of the program's that a thread counts when it takes them.
//!
//! A `call`, `jmp` or `jcc` with a distance of four bytes is led to a stub that counts down and goes on to where the branch went. Only
//! the distance is written, so nothing is displaced, and whoever falls through notices nothing.
//!
//! ```text
//!   head     40 bytes that describe the milestone, for the gate; in front of them nothing
//!   enter:   rcx is saved; what is left is taken one down; rcx is loaded; jmp target
//!   none:    rax, rdx and the flags are saved;  jmp *slot      nothing is left
//!   done:    they are loaded; jmp target
//! ```
//!
//! No flag is changed, and nothing is written to the stack.

use crate::atomic_stub::ATOMIC_HEAD;

/// No stub of a milestone is longer than this, in bytes, its head included.
pub const MILESTONE_STUB_MAX: usize = 224;

/// A direct branch with a distance of four bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Branch {
    /// Bytes of the instruction; its last four are the distance.
    pub len: u8,
    /// Where it goes.
    pub target: u64,
}

/// The branch whose instruction begins with these bytes, at `address`; `None` if it is none of that kind.
#[must_use]
pub fn branch_at(bytes: &[u8; 6], address: u64) -> Option<Branch> {
    const CALL: u8 = 0xe8;
    const JUMP: u8 = 0xe9;
    let (len, distance) = match bytes {
        [CALL | JUMP, rest @ .., _] => (5, *rest),
        [0x0f, 0x80..=0x8f, rest @ ..] => (6, *rest),
        _ => return None,
    };
    let behind = address.wrapping_add(u64::from(len));
    Some(Branch { len, target: behind.wrapping_add_signed(i32::from_le_bytes(distance).into()) })
}

/// The distance that leads the branch at `address` to `to`; `None` if that is too far.
#[must_use]
pub fn distance_to(address: u64, branch: &Branch, to: u64) -> Option<[u8; 4]> {
    distance(address.wrapping_add(branch.len.into()), to)
}

fn distance(behind: u64, to: u64) -> Option<[u8; 4]> {
    i32::try_from(to.wrapping_sub(behind) as i64).ok().map(i32::to_le_bytes)
}

/// Where a stub finds what it needs.
#[derive(Clone, Copy, Debug)]
pub struct MilestoneWays {
    /// Distance of the [`crate::ATOMIC_WORDS`] from the thread pointer: rax, rcx, rdx and the flags are kept there.
    pub words: i32,
    /// The same of what is left to be counted down.
    pub left: i32,
    /// Address of eight bytes that hold the address of the gate.
    pub slot: u64,
}

/// Writes the stub of the branch at `address`, to be placed at `stub_addr`. Its length; the branch goes to [`ATOMIC_HEAD`] bytes behind
/// its beginning. `None` where something does not reach.
#[must_use]
pub fn emit_milestone_stub(
    address: u64,
    branch: &Branch,
    stub_addr: u64,
    ways: &MilestoneWays,
    out: &mut [u8; MILESTONE_STUB_MAX],
) -> Option<usize> {
    const RAX: i32 = 0;
    const RCX: i32 = 8;
    const RDX: i32 = 16;
    const FLAGS: i32 = 24;
    /// `mov %register,%fs:` and the other way round.
    const STORE_RAX: [u8; 5] = [0x64, 0x48, 0x89, 0x04, 0x25];
    const STORE_RCX: [u8; 5] = [0x64, 0x48, 0x89, 0x0c, 0x25];
    const STORE_RDX: [u8; 5] = [0x64, 0x48, 0x89, 0x14, 0x25];
    const LOAD_RAX: [u8; 5] = [0x64, 0x48, 0x8b, 0x04, 0x25];
    const LOAD_RCX: [u8; 5] = [0x64, 0x48, 0x8b, 0x0c, 0x25];
    const LOAD_RDX: [u8; 5] = [0x64, 0x48, 0x8b, 0x14, 0x25];
    /// `lea -1(%rcx),%rcx`
    const DOWN: [u8; 4] = [0x48, 0x8d, 0x49, 0xff];
    /// `jrcxz`, over the load of rcx and the jump.
    const IF_NONE: [u8; 2] = [0xe3, 9 + 5];
    /// `lahf; seto %al`, and `add $0x7f,%al; sahf`.
    const TAKE_FLAGS: [u8; 4] = [0x9f, 0x0f, 0x90, 0xc0];
    const GIVE_FLAGS: [u8; 3] = [0x04, 0x7f, 0x9e];
    const HEAD_TO_RDX: [u8; 3] = [0x48, 0x8d, 0x15];
    const THROUGH: [u8; 2] = [0xff, 0x25];
    const JUMP: [u8; 1] = [0xe9];

    let mut at = ATOMIC_HEAD;
    let mut put = |bytes: &[u8]| {
        out[at..at + bytes.len()].copy_from_slice(bytes);
        at += bytes.len();
        stub_addr + at as u64
    };
    let word = |at: i32| ways.words.wrapping_add(at).to_le_bytes();
    let left = ways.left.to_le_bytes();
    for (code, place) in [(STORE_RCX, word(RCX)), (LOAD_RCX, left)] {
        put(&code);
        put(&place);
    }
    put(&DOWN);
    put(&STORE_RCX);
    put(&left);
    put(&IF_NONE);
    put(&LOAD_RCX);
    put(&word(RCX));
    let here = put(&JUMP);
    put(&distance(here + 4, branch.target)?);
    for (code, place) in [(STORE_RAX, RAX), (STORE_RDX, RDX)] {
        put(&code);
        put(&word(place));
    }
    put(&TAKE_FLAGS);
    put(&STORE_RAX);
    put(&word(FLAGS));
    let here = put(&HEAD_TO_RDX);
    put(&distance(here + 4, stub_addr)?);
    let here = put(&THROUGH);
    let done = put(&distance(here + 4, ways.slot)?);
    put(&LOAD_RAX);
    put(&word(FLAGS));
    put(&GIVE_FLAGS);
    for (code, place) in [(LOAD_RAX, RAX), (LOAD_RCX, RCX), (LOAD_RDX, RDX)] {
        put(&code);
        put(&word(place));
    }
    let here = put(&JUMP);
    put(&distance(here + 4, branch.target)?);
    // As the head of an atomic instruction's stub.
    let words = [address, 0, done, 0, address + u64::from(branch.len)];
    out.iter_mut().zip(words.into_iter().flat_map(u64::to_le_bytes)).for_each(|(to, from)| *to = from);
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, Register};

    const AT: u64 = 0x40_0000;
    const STUB: u64 = 0x50_0000;
    const WAYS: MilestoneWays = MilestoneWays { words: -56, left: -8, slot: 0x4f_0000 };

    #[test]
    fn branches_with_four_bytes_are_found_and_no_others() {
        let call = branch_at(&[0xe8, 0x10, 0, 0, 0, 0x90], AT);
        assert_eq!(call, Some(Branch { len: 5, target: AT + 0x15 }));
        let back = branch_at(&[0x0f, 0x85, 0xfa, 0xff, 0xff, 0xff], AT);
        assert_eq!(back, Some(Branch { len: 6, target: AT }));
        for other in [[0x75, 0, 0, 0, 0, 0], [0x0f, 0x05, 0, 0, 0, 0], [0xff, 0x15, 0, 0, 0, 0]] {
            assert_eq!(branch_at(&other, AT), None);
        }
    }

    #[test]
    fn a_stub_goes_where_the_branch_went_and_changes_no_flag_on_its_way() {
        let branch = Branch { len: 5, target: 0x41_2345 };
        let mut out = [0; MILESTONE_STUB_MAX];
        let len = emit_milestone_stub(AT, &branch, STUB, &WAYS, &mut out).unwrap();
        let from = STUB + ATOMIC_HEAD as u64;
        let code = Decoder::with_ip(64, &out[ATOMIC_HEAD..len], from, DecoderOptions::NONE);
        let all: std::vec::Vec<Instruction> = code.into_iter().collect();
        assert!(all.iter().all(|insn| !insn.is_invalid()));
        let short = all.iter().position(|insn| insn.mnemonic() == Mnemonic::Jrcxz).unwrap();
        assert!(all[..=short + 2].iter().all(|insn| insn.rflags_modified() == 0));
        assert_eq!(all[short].near_branch64(), all[short + 3].ip());
        let jumps: std::vec::Vec<u64> =
            all.iter().filter(|insn| insn.is_jmp_near()).map(Instruction::near_branch64).collect();
        assert_eq!(jumps, [branch.target; 2]);
        assert!(all.iter().all(|insn| insn.memory_base() != Register::RSP));
        let gate = all.iter().find(|insn| insn.is_jmp_near_indirect()).unwrap();
        assert_eq!(gate.memory_displacement64(), WAYS.slot);
        let done = u64::from_le_bytes(out[16..24].try_into().unwrap());
        assert_eq!(done, gate.next_ip());
    }

    #[test]
    fn what_does_not_reach_is_refused() {
        let far = Branch { len: 5, target: AT + (1 << 33) };
        assert_eq!(emit_milestone_stub(AT, &far, STUB, &WAYS, &mut [0; MILESTONE_STUB_MAX]), None);
        assert_eq!(distance_to(AT, &Branch { len: 5, target: AT }, AT + (1 << 32)), None);
        assert_eq!(distance_to(AT, &Branch { len: 5, target: AT }, AT + 5), Some([0; 4]));
    }
}

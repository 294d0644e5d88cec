//! A whole text, instruction by instruction: what it refers to, and where its branches go.
//!
//! For a text of which every byte is an instruction, as that of a library written in a language that keeps its tables elsewhere.

use crate::decode::decode_at;

/// Something in a text; offsets are from its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// An instruction begins here.
    Start(usize),
    /// Four bytes here say how far an operand is from the end of the instruction: it is at this offset.
    Reference {
        /// Where the four bytes are.
        at: usize,
        /// What they refer to.
        target: i64,
    },
    /// A direct branch or call goes here.
    Branch(i64),
}

/// Walks through `text` and calls `found` with all there is, in order.
///
/// # Errors
/// The offset at which there is no instruction.
pub fn walk(text: &[u8], mut found: impl FnMut(Found)) -> Result<(), usize> {
    let mut at = 0;
    while at < text.len() {
        let (insn, code) = decode_at(text, at).ok_or(at)?;
        found(Found::Start(at));
        let end = at + usize::from(insn.len);
        if insn.rip_at != 0 {
            let place = usize::from(insn.rip_at);
            let bytes = [code[place], code[place + 1], code[place + 2], code[place + 3]];
            let target = end as i64 + i64::from(i32::from_le_bytes(bytes));
            found(Found::Reference { at: at + place, target });
        }
        if let Some(target) = insn.target(&code, at as i64) {
            found(Found::Branch(target));
        }
        at = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn references_are_from_the_end_of_their_instruction() {
        // cmp byte ptr [rip + 16], 1; mov rax, [rip - 14]; call -5; jmp 0; ret
        let text = [
            0x80, 0x3d, 16, 0, 0, 0, 1, 0x48, 0x8b, 0x05, 0xf2, 0xff, 0xff, 0xff, 0xe8, 0xfb, 0xff, 0xff,
            0xff, 0xeb, 0, 0xc3,
        ];
        let mut all = Vec::new();
        walk(&text, |found| all.push(found)).unwrap();
        let expected = [
            Found::Start(0),
            Found::Reference { at: 2, target: 23 },
            Found::Start(7),
            Found::Reference { at: 10, target: 0 },
            Found::Start(14),
            Found::Branch(14),
            Found::Start(19),
            Found::Branch(21),
            Found::Start(21),
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_is_no_instruction_is_told() {
        assert_eq!(walk(&[0x90, 0x06], |_| ()), Err(1));
        assert_eq!(walk(&[0x90, 0xe8, 0], |_| ()), Err(1));
    }
}

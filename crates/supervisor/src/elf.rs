//! As much of an ELF file as says whether the runtime can be preloaded into it. `us_sites::elf` reads the format.

use us_sites::elf::{self, Image};

/// What the head of a file says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A dynamically linked x86-64 program and the path of its loader.
    Dynamic(String),
    /// An x86-64 program without a loader: static, or statically linked and position independent.
    Static,
    /// An ELF file of another machine, class or type; the words complete "it is …".
    Foreign(String),
    /// A script: the path of its interpreter.
    Script(String),
    /// Something else.
    Unknown,
}

/// Looks at the first bytes of a file (4 KiB are enough for every linker's output).
pub fn kind(head: &[u8]) -> Kind {
    if let Some(line) = head.strip_prefix(b"#!") {
        return script(line);
    }
    if !head.starts_with(b"\x7fELF") {
        return Kind::Unknown;
    }
    elf(head).unwrap_or_else(|| Kind::Foreign("a damaged ELF file".into()))
}

fn script(line: &[u8]) -> Kind {
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line);
    match text.split_ascii_whitespace().next() {
        Some(interpreter) => Kind::Script(interpreter.into()),
        None => Kind::Unknown,
    }
}

fn elf(head: &[u8]) -> Option<Kind> {
    let (class, order) = (*head.get(4)?, *head.get(5)?);
    let (kind, machine) = elf::kind_and_machine(head)?;
    if (class, order, machine) != (2, 1, 62) {
        return Some(Kind::Foreign(format!("not an x86-64 program (ELF machine {machine})")));
    }
    if kind != 2 && kind != 3 {
        return Some(Kind::Foreign(format!("not a program (ELF type {kind})")));
    }
    let image = Image::parse(head)?;
    if let Some(loader) = image.segments().find(|segment| segment.kind == elf::INTERPRETER) {
        let bytes = image.content(&loader)?;
        let path = bytes.strip_suffix(&[0]).unwrap_or(bytes);
        return Some(Kind::Dynamic(String::from_utf8_lossy(path).into_owned()));
    }
    (image.segments().count() == image.segment_count()).then_some(Kind::Static)
}

/// The build id in the notes of an ELF file, if the first bytes hold it.
pub fn build_id(head: &[u8]) -> Option<Vec<u8>> {
    elf::build_id(head).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PHDR_BYTES: usize = 56;

    /// A head with one program header of the given type and, for a loader, its path.
    fn program(machine: u16, phdr_type: u32, loader: &str) -> Vec<u8> {
        let mut head = vec![0; 64 + PHDR_BYTES];
        head[..6].copy_from_slice(b"\x7fELF\x02\x01");
        head[16] = 3;
        head[18..20].copy_from_slice(&machine.to_le_bytes());
        head[32] = 64;
        head[54] = PHDR_BYTES as u8;
        head[56] = 1;
        head[64..68].copy_from_slice(&phdr_type.to_le_bytes());
        head[72] = (64 + PHDR_BYTES) as u8;
        head[96] = loader.len() as u8 + 1;
        head.extend_from_slice(loader.as_bytes());
        head.push(0);
        head
    }

    #[test]
    fn each_kind() {
        assert_eq!(kind(&program(62, 3, "/lib/ld.so")), Kind::Dynamic("/lib/ld.so".into()));
        assert_eq!(kind(&program(62, 1, "")), Kind::Static);
        assert!(matches!(kind(&program(183, 3, "/lib/ld.so")), Kind::Foreign(_)));
        assert_eq!(kind(b"#! /bin/sh -e\nexit 0"), Kind::Script("/bin/sh".into()));
        assert_eq!(kind(b"#!\n"), Kind::Unknown);
        assert_eq!(kind(b"hello"), Kind::Unknown);
        assert_eq!(kind(b""), Kind::Unknown);
    }

    #[test]
    fn no_prefix_of_a_head_panics() {
        let whole = program(62, 3, "/lib/ld.so");
        for length in 0..whole.len() {
            kind(&whole[..length]);
            build_id(&whole[..length]);
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] = 0xff;
            kind(&damaged);
            build_id(&damaged);
        }
    }
}

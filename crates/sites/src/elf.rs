//! As much of the ELF format as finding code and names takes. Every offset comes from the file and is
//! checked; a malformed file yields nothing, never a panic.

/// A 64-bit little-endian x86-64 ELF image, as a file or as the kernel maps its vDSO.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    bytes: &'a [u8],
    headers: usize,
    header_len: usize,
    header_count: usize,
}

/// One program header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// `p_type`.
    pub kind: u32,
    /// `p_flags`.
    pub flags: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Address before relocation.
    pub addr: u64,
    /// Bytes in the file.
    pub file_len: u64,
    /// Bytes in memory.
    pub mem_len: u64,
}

/// `PT_LOAD`
pub const LOAD: u32 = 1;
/// `PT_DYNAMIC`
pub const DYNAMIC: u32 = 2;
/// `PT_INTERP`
pub const INTERPRETER: u32 = 3;
/// `PT_NOTE`
pub const NOTE: u32 = 4;
/// `PF_X`
pub const EXECUTABLE: u32 = 1;

impl<'a> Image<'a> {
    /// Looks at the header; `None` if this is no image of the kind.
    pub fn parse(bytes: &'a [u8]) -> Option<Image<'a>> {
        const MACHINE_X86_64: u16 = 62;
        if bytes.get(..6)? != b"\x7fELF\x02\x01" || u16_at(bytes, 18)? != MACHINE_X86_64 {
            return None;
        }
        let headers = usize::try_from(u64_at(bytes, 32)?).ok()?;
        let header_len = usize::from(u16_at(bytes, 54)?);
        let header_count = usize::from(u16_at(bytes, 56)?);
        (header_len == 56).then_some(Image { bytes, headers, header_len, header_count })
    }

    /// How many program headers it says that it has.
    pub fn segment_count(&self) -> usize {
        self.header_count
    }

    /// A segment's bytes in the file, if it has them all.
    pub fn content(&self, segment: &Segment) -> Option<&'a [u8]> {
        let start = usize::try_from(segment.offset).ok()?;
        self.bytes.get(start..start.checked_add(usize::try_from(segment.file_len).ok()?)?)
    }

    /// The program headers, up to the first that lies outside the image.
    pub fn segments(&self) -> impl Iterator<Item = Segment> + use<'a> {
        let image = *self;
        (0..image.header_count).map_while(move |i| {
            let at = image.headers.checked_add(i.checked_mul(image.header_len)?)?;
            let b = image.bytes;
            Some(Segment {
                kind: u32_at(b, at)?,
                flags: u32_at(b, at.checked_add(4)?)?,
                offset: u64_at(b, at.checked_add(8)?)?,
                addr: u64_at(b, at.checked_add(16)?)?,
                file_len: u64_at(b, at.checked_add(32)?)?,
                mem_len: u64_at(b, at.checked_add(40)?)?,
            })
        })
    }

    /// The bytes of each executable segment, with its address: what [`scan`](crate::scan) wants.
    pub fn executable(&self) -> impl Iterator<Item = (&'a [u8], u64)> + use<'a> {
        let image = *self;
        let code = self.segments().filter(|s| s.kind == LOAD && s.flags & EXECUTABLE != 0);
        code.filter_map(move |s| Some((image.content(&s)?, s.addr)))
    }

    /// Where an address before relocation lies in the file.
    pub(crate) fn file_offset(&self, addr: u64) -> Option<usize> {
        self.segments().filter(|s| s.kind == LOAD).find_map(|s| {
            let into = addr.checked_sub(s.addr)?;
            let offset = s.offset.checked_add(into)?;
            if into < s.file_len { usize::try_from(offset).ok() } else { None }
        })
    }

    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// `e_type` and `e_machine`, of any ELF file.
pub fn kind_and_machine(bytes: &[u8]) -> Option<(u16, u16)> {
    Some((u16_at(bytes, 16)?, u16_at(bytes, 18)?))
}

/// The build id in an image's notes. The first bytes of a file are enough, if its notes are there.
pub fn build_id(bytes: &[u8]) -> Option<&[u8]> {
    const NT_GNU_BUILD_ID: u32 = 3;
    for note in Image::parse(bytes)?.segments().filter(|segment| segment.kind == NOTE) {
        let mut at = usize::try_from(note.offset).ok()?;
        let end = at.checked_add(usize::try_from(note.file_len).ok()?)?.min(bytes.len());
        while at < end {
            let (name, length) = (u32_at(bytes, at)? as usize, u32_at(bytes, at.checked_add(4)?)? as usize);
            let kind = u32_at(bytes, at.checked_add(8)?)?;
            let content = at.checked_add(12)?.checked_add(name.checked_next_multiple_of(4)?)?;
            if kind == NT_GNU_BUILD_ID
                && bytes.get(at.checked_add(12)?..at.checked_add(16)?) == Some(b"GNU\0")
            {
                return bytes.get(content..content.checked_add(length)?);
            }
            at = content.checked_add(length.checked_next_multiple_of(4)?)?;
        }
    }
    None
}

/// Where a file has its table of sections: its offset, and how many there are.
pub fn sections_at(head: &[u8]) -> Option<(u64, usize)> {
    Image::parse(head)?;
    let (each, count) = (usize::from(u16_at(head, 58)?), usize::from(u16_at(head, 60)?));
    (each == SECTION_BYTES).then_some((u64_at(head, 40)?, count))
}

/// Bytes of one entry of the table of sections.
pub const SECTION_BYTES: usize = 64;

/// `SHT_SYMTAB`
pub const SYMBOLS: u32 = 2;
/// `SHT_DYNSYM`
pub const DYNAMIC_SYMBOLS: u32 = 11;

/// A section that has something in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Section {
    /// `sh_type`.
    pub kind: u32,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Bytes in the file.
    pub len: u64,
    /// Number of the section that belongs to it: for symbols, the one with their names.
    pub link: u32,
}

/// The sections that a table of them names.
pub fn sections(table: &[u8]) -> impl Iterator<Item = Section> + '_ {
    table.chunks_exact(SECTION_BYTES).filter_map(|entry| {
        Some(Section {
            kind: u32_at(entry, 4)?,
            offset: u64_at(entry, 24)?,
            len: u64_at(entry, 32)?,
            link: u32_at(entry, 40)?,
        })
    })
}

/// A function's symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    /// Where its name is in the section with the names.
    pub name: u32,
    /// Address before relocation.
    pub addr: u64,
    /// Bytes, 0 if the symbol does not say.
    pub len: u64,
}

/// The functions among the symbols of a section.
pub fn functions(symbols: &[u8]) -> impl Iterator<Item = Function> + '_ {
    const SYMBOL_BYTES: usize = 24;
    const FUNCTION: u8 = 2;
    const INDIRECT: u8 = 10;
    symbols.chunks_exact(SYMBOL_BYTES).filter_map(|symbol| {
        let kind = symbol.get(4)? & 0xf;
        let is_here = u16_at(symbol, 6)? != 0;
        (is_here && matches!(kind, FUNCTION | INDIRECT)).then_some(Function {
            name: u32_at(symbol, 0)?,
            addr: u64_at(symbol, 8)?,
            len: u64_at(symbol, 16)?,
        })
    })
}

fn array_at<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    array_at(bytes, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    array_at(bytes, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    array_at(bytes, at).map(u64::from_le_bytes)
}

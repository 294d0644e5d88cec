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
        (header_len >= 56).then_some(Image { bytes, headers, header_len, header_count })
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
        let bytes = self.bytes;
        self.segments().filter(|s| s.kind == LOAD && s.flags & EXECUTABLE != 0).filter_map(move |s| {
            let start = usize::try_from(s.offset).ok()?;
            let end = start.checked_add(usize::try_from(s.file_len).ok()?)?;
            Some((bytes.get(start..end)?, s.addr))
        })
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

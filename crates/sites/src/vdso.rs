//! What the kernel's vDSO exports, so that each function can be made a jump to ours.
//!
//! The image is where `AT_SYSINFO_EHDR` says. Its length is not told, so ask [`image_len`] with the first
//! page, then read [`functions`] from the whole.

use crate::elf::{DYNAMIC, Image, LOAD, u16_at, u32_at, u64_at};

/// An exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function<'a> {
    /// Its name. One address often has two: `clock_gettime` and `__vdso_clock_gettime`.
    pub name: &'a [u8],
    /// Offset of its first byte from the start of the image.
    pub offset: usize,
    /// Its size in bytes: what may be overwritten.
    pub size: usize,
}

const DT_HASH: u64 = 4;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_STRSZ: u64 = 10;
const DT_GNU_HASH: u64 = 0x6fff_fef5;

const SYMBOL_LEN: usize = 24;
const TYPE_FUNC: u8 = 2;
/// The vDSO has a dozen symbols. A damaged count must not keep a starting process busy.
const SYMBOLS_MAX: usize = 4096;

/// How many bytes the image has in memory, from its headers alone: `first_page` must hold those, and one
/// page of 4096 bytes does.
pub fn image_len(first_page: &[u8]) -> Option<usize> {
    let end = Image::parse(first_page)?
        .segments()
        .filter(|s| s.kind == LOAD)
        .map(|s| s.offset.checked_add(s.mem_len))
        .try_fold(0, |longest, end| Some(u64::max(longest, end?)))?;
    usize::try_from(end).ok().filter(|&len| len != 0)
}

/// The functions that a vDSO image exports. Empty if the image makes no sense; a symbol that lies outside
/// the image is left out.
pub fn functions(image: &[u8]) -> impl Iterator<Item = Function<'_>> {
    let tables = Tables::find(image);
    let count = tables.as_ref().map_or(0, |t| t.symbol_count.min(SYMBOLS_MAX));
    (0..count).filter_map(move |i| tables.as_ref()?.function(i))
}

struct Tables<'a> {
    image: Image<'a>,
    symbols: usize,
    symbol_count: usize,
    strings: &'a [u8],
}

impl<'a> Tables<'a> {
    fn find(bytes: &'a [u8]) -> Option<Tables<'a>> {
        let image = Image::parse(bytes)?;
        let symbols = image.file_offset(dynamic(&image, DT_SYMTAB)?)?;
        let start = image.file_offset(dynamic(&image, DT_STRTAB)?)?;
        let len = usize::try_from(dynamic(&image, DT_STRSZ)?).ok()?;
        let strings = bytes.get(start..start.checked_add(len)?)?;
        Some(Tables { image, symbols, symbol_count: symbol_count(&image)?, strings })
    }

    fn function(&self, index: usize) -> Option<Function<'a>> {
        let bytes = self.image.bytes();
        let at = self.symbols.checked_add(index.checked_mul(SYMBOL_LEN)?)?;
        let symbol = bytes.get(at..at.checked_add(SYMBOL_LEN)?)?;
        let (info, section) = (symbol[4], u16_at(symbol, 6)?);
        // Undefined, or no function: the version's own name is an object, for instance.
        if info & 0xf != TYPE_FUNC || section == 0 {
            return None;
        }
        let name = self.strings.get(u32_at(symbol, 0)? as usize..)?;
        let name = &name[..name.iter().position(|&b| b == 0)?];
        let offset = self.image.file_offset(u64_at(symbol, 8)?)?;
        let size = usize::try_from(u64_at(symbol, 16)?).ok()?;
        bytes.get(offset..offset.checked_add(size)?)?;
        Some(Function { name, offset, size })
    }
}

/// The value of the dynamic entry with this tag.
fn dynamic(image: &Image<'_>, tag: u64) -> Option<u64> {
    let segment = image.segments().find(|s| s.kind == DYNAMIC)?;
    let start = usize::try_from(segment.offset).ok()?;
    let entries = image.bytes().get(start..)?;
    let len = usize::try_from(segment.file_len).ok()?.min(entries.len());
    let mut entries = entries[..len].chunks_exact(16);
    entries.find_map(|entry| (u64_at(entry, 0)? == tag).then(|| u64_at(entry, 8))?)
}

/// A dynamic symbol table does not say how long it is; its hash tables do. Kernels differ in which of the
/// two the vDSO has.
fn symbol_count(image: &Image<'_>) -> Option<usize> {
    let bytes = image.bytes();
    if let Some(hash) = dynamic(image, DT_HASH).and_then(|addr| image.file_offset(addr)) {
        return Some(u32_at(bytes, hash.checked_add(4)?)? as usize);
    }
    let hash = image.file_offset(dynamic(image, DT_GNU_HASH)?)?;
    let buckets = u32_at(bytes, hash)? as usize;
    let first = u32_at(bytes, hash.checked_add(4)?)? as usize;
    let bloom = (u32_at(bytes, hash.checked_add(8)?)? as usize).checked_mul(8)?;
    let bucket_at = hash.checked_add(16)?.checked_add(bloom)?;
    let chain_at = bucket_at.checked_add(buckets.checked_mul(4)?)?;
    let table = bytes.get(bucket_at..chain_at)?;
    let last_chain = table.chunks_exact(4).filter_map(|b| u32_at(b, 0)).max().unwrap_or(0) as usize;
    if last_chain < first {
        return Some(first);
    }
    // The last chain's end is the symbol whose hash has its lowest bit set.
    let hashes = bytes.get(chain_at.checked_add(last_chain.checked_sub(first)?.checked_mul(4)?)?..)?;
    let rest = hashes.chunks_exact(4).position(|b| b[0] & 1 != 0)?;
    last_chain.checked_add(rest)?.checked_add(1)
}

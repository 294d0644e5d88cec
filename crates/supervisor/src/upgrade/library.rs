//! A version of the runtime as its file has it: what it says of itself, where its parts are, and what it refers to.

use std::collections::HashMap;

use us_sites::elf::{self, Image, Segment};

/// Bytes of a build id.
pub(super) const BUILD_BYTES: usize = 20;

/// A section.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Section {
    pub(super) kind: u32,
    pub(super) address: u64,
    pub(super) offset: usize,
    pub(super) bytes: u64,
}

impl Section {
    pub(super) fn has(&self, address: u64) -> bool {
        address.wrapping_sub(self.address) < self.bytes
    }
}

/// A symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Symbol {
    pub(super) name: String,
    pub(super) address: u64,
    pub(super) bytes: u64,
    /// `STT_…`
    pub(super) kind: u8,
    /// Whether it is in this file.
    pub(super) is_here: bool,
}

/// A place that the loader fills.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) address: u64,
    /// `R_X86_64_…`
    pub(super) kind: u32,
    /// Index of a dynamic symbol, 0 for none.
    pub(super) symbol: usize,
    pub(super) addend: u64,
}

/// `STT_OBJECT`
pub(super) const OBJECT: u8 = 1;
/// `STT_FUNC`
pub(super) const FUNCTION: u8 = 2;
/// `STT_TLS`
pub(super) const THREADS: u8 = 6;

/// The file of a version.
pub(crate) struct Library {
    pub(super) bytes: Vec<u8>,
    pub(super) build: [u8; BUILD_BYTES],
    /// Its version, and the sum of how its data is laid out.
    pub(super) version: String,
    pub(super) state: String,
    pub(super) segments: Vec<Segment>,
    pub(super) sections: HashMap<String, Section>,
    pub(super) symbols: Vec<Symbol>,
    pub(super) dynamic: Vec<Symbol>,
    pub(super) filled: Vec<Filled>,
}

impl Library {
    /// Reads a file. What it returns otherwise completes "it is no runtime: …".
    pub(super) fn parse(bytes: Vec<u8>) -> Result<Library, &'static str> {
        let build = elf::build_id(&bytes).and_then(|id| id.try_into().ok());
        let build = build.ok_or("it has no build id of twenty bytes")?;
        let sections = sections(&bytes).ok_or("it is no whole ELF file")?;
        let about = sections.get(".us_about").and_then(|section| content(&bytes, section));
        let about = about.map(|text| String::from_utf8_lossy(text).into_owned());
        let about = about.ok_or("it does not say which version it is")?;
        let (version, state) = about.split_once(' ').ok_or("it does not say which version it is")?;
        let table = |symbols: &str, names: &str| -> Option<Vec<Symbol>> {
            read_symbols(content(&bytes, sections.get(symbols)?)?, content(&bytes, sections.get(names)?)?)
        };
        let symbols = table(".symtab", ".strtab").ok_or("its symbols have been stripped")?;
        let dynamic = table(".dynsym", ".dynstr").ok_or("it has no dynamic symbols")?;
        let filled = [".rela.dyn", ".rela.plt"].iter().map(|name| {
            let section = sections.get(*name)?;
            content(&bytes, section)?.chunks_exact(24).map(read_filled).collect::<Option<Vec<_>>>()
        });
        let filled: Vec<Filled> =
            filled.collect::<Option<Vec<_>>>().ok_or("its relocations are damaged")?.concat();
        let image = Image::parse(&bytes).ok_or("it is no whole ELF file")?;
        let segments = image.segments().filter(|it| it.kind == elf::LOAD).collect();
        let (version, state) = (version.to_owned(), state.to_owned());
        Ok(Library { build, version, state, segments, symbols, dynamic, filled, sections, bytes })
    }

    pub(super) fn section(&self, name: &str) -> Section {
        self.sections.get(name).copied().unwrap_or_default()
    }

    pub(super) fn content(&self, section: &Section) -> &[u8] {
        content(&self.bytes, section).unwrap_or_default()
    }

    /// The ways into it besides its exported functions: see the runtime's `wiring`.
    pub(super) fn ways(&self) -> Vec<u64> {
        let section = self.section(".us_ways");
        let of_way = |at: u64| self.filled.iter().find(|filled| filled.address == at).map(|way| way.addend);
        (section.address..section.address + section.bytes).step_by(8).filter_map(of_way).collect()
    }

    /// Its exported functions, by name.
    pub(super) fn exports(&self) -> impl Iterator<Item = &Symbol> {
        self.dynamic.iter().filter(|symbol| symbol.is_here && symbol.kind == FUNCTION)
    }

    /// Its variables: name, whether it begins as zeros, place in its section, and bytes.
    pub(super) fn variables(&self) -> Vec<(String, bool, u64, u64)> {
        let (data, zeros) = (self.section(".data"), self.section(".bss"));
        let mut all: Vec<_> = self
            .symbols
            .iter()
            .filter(|symbol| symbol.kind == OBJECT && symbol.is_here && !symbol.name.starts_with("DW.ref."))
            .filter_map(|symbol| {
                let is_zero = zeros.has(symbol.address);
                let section = if is_zero { &zeros } else { &data };
                let place = symbol.address.wrapping_sub(section.address);
                section.has(symbol.address).then(|| (plain(&symbol.name), is_zero, place, symbol.bytes))
            })
            .collect();
        all.sort_by_key(|(_, is_zero, place, _)| (*is_zero, *place));
        all
    }
}

/// A name without what depends on the compiler's run: the sum in it, and what a link puts behind it.
pub(super) fn plain(name: &str) -> String {
    let name = name.split(".llvm.").next().unwrap_or(name);
    let Some(at) = name.rfind("17h") else { return name.to_owned() };
    let (before, sum) = (&name[..at], &name[at + 3..]);
    match sum.split_once('E') {
        Some((digits, rest)) if digits.len() == 16 => format!("{before}E{rest}"),
        _ => name.to_owned(),
    }
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn content<'a>(bytes: &'a [u8], section: &Section) -> Option<&'a [u8]> {
    const NOBITS: u32 = 8;
    if section.kind == NOBITS {
        return None;
    }
    bytes.get(section.offset..section.offset.checked_add(usize::try_from(section.bytes).ok()?)?)
}

fn text(names: &[u8], at: usize) -> Option<String> {
    let rest = names.get(at..)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(String::from_utf8_lossy(&rest[..end]).into_owned())
}

fn sections(bytes: &[u8]) -> Option<HashMap<String, Section>> {
    const EACH: usize = 64;
    let (offset, count) = elf::sections_at(bytes)?;
    let offset = usize::try_from(offset).ok()?;
    let table = bytes.get(offset..offset.checked_add(count.checked_mul(EACH)?)?)?;
    let read = |entry: &[u8]| {
        Some(Section {
            kind: u32_at(entry, 4)?,
            address: u64_at(entry, 16)?,
            offset: usize::try_from(u64_at(entry, 24)?).ok()?,
            bytes: u64_at(entry, 32)?,
        })
    };
    let names = table.chunks_exact(EACH).nth(u16_at(bytes, 62)?.into()).and_then(read)?;
    let names = content(bytes, &names)?;
    table
        .chunks_exact(EACH)
        .map(|entry| Some((text(names, u32_at(entry, 0)? as usize)?, read(entry)?)))
        .collect()
}

fn read_symbols(table: &[u8], names: &[u8]) -> Option<Vec<Symbol>> {
    let read = |symbol: &[u8]| {
        Some(Symbol {
            name: text(names, u32_at(symbol, 0)? as usize)?,
            kind: symbol.get(4)? & 0xf,
            is_here: u16_at(symbol, 6)? != 0,
            address: u64_at(symbol, 8)?,
            bytes: u64_at(symbol, 16)?,
        })
    };
    table.chunks_exact(24).map(read).collect()
}

fn read_filled(entry: &[u8]) -> Option<Filled> {
    let info = u64_at(entry, 8)?;
    Some(Filled {
        address: u64_at(entry, 0)?,
        kind: info as u32,
        symbol: (info >> 32) as usize,
        addend: u64_at(entry, 16)?,
    })
}

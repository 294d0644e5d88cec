//! A version of the runtime is linked into a process that has another one.
//!
//! It gets a place in the berth behind the first version's head: a page with its own head, and all that lies behind its own berth, at
//! the same distances. Its variables are those of the first version, whose file has the same ones at the same distances: each
//! reference to one is changed. What the loader would have looked up, it has looked up for the first version.

use us_sites::elf::Segment;
use us_sites::references::{Found, walk};

use super::library::{FUNCTION, Filled, Library, Section, THREADS, plain, u64_at};

pub(super) const PAGE: u64 = 4096;
/// Bytes of a jump.
const JUMP: u64 = 5;

/// `PF_X`, `PF_W`
const EXECUTABLE: u32 = 1;
const WRITABLE: u32 = 2;

/// A version in a process.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) library: &'a Library,
    /// Where its head is.
    pub(super) base: u64,
    /// The program was started with it.
    pub(super) is_first: bool,
}

impl Library {
    fn berth(&self) -> Section {
        self.section(".us_berth")
    }

    /// Where what a later version has begins in its file's addresses, and where it ends.
    fn extent(&self) -> (u64, u64) {
        let berth = self.berth();
        let behind = self.segments.iter().map(|it| it.addr).filter(|at| *at >= berth.address + berth.bytes);
        let first = behind.min().unwrap_or(0) & !(PAGE - 1);
        (first, self.section(".bss").address.next_multiple_of(PAGE))
    }

    /// Bytes that it takes as a later version.
    pub(super) fn needs(&self) -> u64 {
        let (first, end) = self.extent();
        PAGE.wrapping_add(end.wrapping_sub(first))
    }

    fn text(&self) -> Option<Segment> {
        self.segments.iter().find(|it| it.flags & EXECUTABLE != 0).copied()
    }
}

impl Place<'_> {
    /// The address in the process of an address of the file.
    pub(super) fn of(&self, address: u64) -> u64 {
        match self.is_first || address < PAGE {
            true => self.base.wrapping_add(address),
            false => (self.base + PAGE).wrapping_add(address).wrapping_sub(self.library.extent().0),
        }
    }

    /// Its text in the process: start and length of the pages.
    pub(super) fn text(&self) -> (u64, u64) {
        let Some(text) = self.library.text() else { return (0, 0) };
        let (start, end) = (text.addr & !(PAGE - 1), (text.addr + text.mem_len).next_multiple_of(PAGE));
        (self.of(start), end - start)
    }

    /// Where it ends.
    pub(super) fn end(&self) -> u64 {
        self.base + self.library.needs()
    }
}

/// Says why one version cannot work on the data of the other.
pub(super) fn compare(old: &Library, new: &Library) -> Result<(), String> {
    let number = |text: &str| -> Vec<u64> { text.split('.').map(|part| part.parse().unwrap_or(0)).collect() };
    if number(&new.version) < number(&old.version) {
        return Err(format!("version {} is older than {}, which runs", new.version, old.version));
    }
    let other = |what: &str| Err(format!("its data is laid out in another way than that which runs: {what}"));
    if old.state != new.state {
        return other("a type, a variable or a constant differs");
    }
    let (before, behind) = (old.variables(), new.variables());
    if let Some(at) = (0..before.len().max(behind.len())).find(|at| before.get(*at) != behind.get(*at)) {
        let name = behind.get(at).or(before.get(at)).map_or("", |(name, ..)| name);
        return other(name);
    }
    let of_threads = |library: &Library| -> Vec<(String, u64, u64)> {
        let all = library.symbols.iter().filter(|symbol| symbol.kind == THREADS);
        let mut all: Vec<_> = all.map(|it| (plain(&it.name), it.address, it.bytes)).collect();
        all.sort();
        all
    };
    if of_threads(old) != of_threads(new) {
        return other("what each thread has");
    }
    if old.ways().len() != new.ways().len() || old.ways().is_empty() {
        return Err("it has other ways in than that which runs".into());
    }
    let exports = |name: &str| new.exports().any(|export| export.name == name);
    match old.exports().find(|export| !exports(&export.name)) {
        Some(missing) => Err(format!("it has no {}, which the program may call", missing.name)),
        None => Ok(()),
    }
}

/// What is mapped for a version: start, bytes, and protection.
pub(super) type Part = (u64, u64, u64);

/// A version that has been linked.
pub(super) struct Linked {
    /// All of it, from its place on.
    pub(super) bytes: Vec<u8>,
    pub(super) parts: Vec<Part>,
}

/// Links `new` for a process whose first version is `first`; `peek` reads a word of the process.
///
/// # Errors
/// What of it cannot be linked.
pub(super) fn link(first: &Place, new: &Place, peek: &dyn Fn(u64) -> Option<u64>) -> Result<Linked, String> {
    let linker = Linker { first, new, peek };
    let library = new.library;
    let mut bytes = vec![0; usize::try_from(library.needs()).map_err(|_| "it is too large")?];
    linker.copy(&mut bytes)?;
    for filled in &library.filled {
        let value = linker.value(filled)?;
        if let Some(at) = linker.offset(filled.address) {
            bytes
                .get_mut(at..at + 8)
                .ok_or("a relocation lies outside of it")?
                .copy_from_slice(&value.to_le_bytes());
        }
    }
    linker.refer(&mut bytes)?;
    Ok(Linked { bytes, parts: linker.parts() })
}

struct Linker<'a> {
    first: &'a Place<'a>,
    new: &'a Place<'a>,
    peek: &'a dyn Fn(u64) -> Option<u64>,
}

impl Linker<'_> {
    /// Where an address of the file is in the linked bytes.
    fn offset(&self, address: u64) -> Option<usize> {
        let (start, end) = self.new.library.extent();
        let is_inside = address < PAGE || (start..end).contains(&address);
        is_inside.then(|| usize::try_from(self.new.of(address) - self.new.base).ok())?
    }

    fn copy(&self, bytes: &mut [u8]) -> Result<(), String> {
        let library = self.new.library;
        let head = library.bytes.get(..PAGE as usize).ok_or("it has no head")?;
        bytes[..PAGE as usize].copy_from_slice(head);
        for segment in &library.segments {
            let Some(at) = self.offset(segment.addr).filter(|_| segment.addr >= PAGE) else { continue };
            let from = segment.offset as usize;
            let content = library.bytes.get(from..from + segment.file_len as usize);
            let content = content.ok_or("one of its segments is cut")?;
            bytes
                .get_mut(at..at + content.len())
                .ok_or("one of its segments is too large")?
                .copy_from_slice(content);
        }
        // To itself its segments are where they are, seen from its head.
        let count = usize::from(u16::from_le_bytes([head[56], head[57]]));
        let table = u64_at(head, 32).ok_or("it has no segments")? as usize;
        for at in (0..count).map(|index| table + 56 * index + 16) {
            let address = u64_at(bytes, at).ok_or("its table of segments is too long")?;
            if self.offset(address).is_some() {
                let seen = self.new.of(address) - self.new.base;
                bytes[at..at + 8].copy_from_slice(&seen.to_le_bytes());
            }
        }
        Ok(())
    }

    /// What of the process stands for an address of the file.
    fn meant(&self, address: u64) -> Result<u64, String> {
        let (old, new) = (self.first.library, self.new.library);
        // What begins behind the last variable is its end, where nothing else begins there.
        let own = new.section(".us_own");
        for name in [".data", ".bss", ".us_berth"] {
            let section = new.section(name);
            let is_end = address == section.address + section.bytes && name != ".us_berth";
            if section.has(address) || is_end && !own.has(address) {
                return Ok(self.first.of(old.section(name).address + (address - section.address)));
            }
        }
        match self.offset(address) {
            Some(_) => Ok(self.new.of(address)),
            None => Err(format!("it refers to {address:#x}, where it has nothing")),
        }
    }

    /// What the loader would put there.
    fn value(&self, filled: &Filled) -> Result<u64, String> {
        const ADDRESS: u32 = 1;
        const GLOBAL: u32 = 6;
        const JUMP_SLOT: u32 = 7;
        const RELATIVE: u32 = 8;
        const OF_THREAD: u32 = 18;
        let symbol = self.new.library.dynamic.get(filled.symbol).filter(|_| filled.symbol != 0);
        match filled.kind {
            RELATIVE => self.meant(filled.addend),
            ADDRESS | GLOBAL | JUMP_SLOT => {
                let symbol = symbol.ok_or("a relocation has no symbol")?;
                let (start, bytes) = self.first.text();
                let known = self.known(|name, kind| name == symbol.name && kind != OF_THREAD);
                match known {
                    // What comes out of the first version itself comes out of this one.
                    Some(value) if value.wrapping_sub(start) >= bytes => {
                        Ok(value.wrapping_add(filled.addend))
                    }
                    _ if symbol.is_here => Ok(self.meant(symbol.address)?.wrapping_add(filled.addend)),
                    _ => Err(format!("it needs {}, which that which runs does not know", symbol.name)),
                }
            }
            OF_THREAD => {
                let old = self.first.library;
                let same = |it: &&Filled| it.kind == OF_THREAD && it.addend == filled.addend;
                let slot = old.filled.iter().find(same).ok_or("it has other variables of threads")?;
                (self.peek)(self.first.of(slot.address)).ok_or("the process cannot be read".into())
            }
            kind => Err(format!("it has a relocation of kind {kind}")),
        }
    }

    /// What the loader has found for a symbol that the first version refers to.
    fn known(&self, is_it: impl Fn(&str, u32) -> bool) -> Option<u64> {
        let old = self.first.library;
        let of_symbol = |it: &&Filled| {
            let symbol = old.dynamic.get(it.symbol).filter(|_| it.symbol != 0 && it.addend == 0);
            symbol.is_some_and(|symbol| is_it(&symbol.name, it.kind))
        };
        old.filled.iter().find(of_symbol).and_then(|slot| (self.peek)(self.first.of(slot.address)))
    }

    /// Has every instruction refer to what it means in the process.
    fn refer(&self, bytes: &mut [u8]) -> Result<(), String> {
        let library = self.new.library;
        let section = library.section(".text");
        let base = self.offset(section.address).ok_or("it has no text")?;
        let mut places = Vec::new();
        each_reference(library, |at, target| places.push((at, target)))?;
        for (at, target) in places {
            let meant = self.meant(target)?;
            let at = base + at;
            let shift = meant.wrapping_sub(self.new.of(target)) as i64;
            if shift != 0 {
                let bytes = bytes.get_mut(at..at + 4).ok_or("its text is cut")?;
                let before = i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
                let far = || format!("{target:#x} is too far away");
                let behind = i32::try_from(i64::from(before) + shift).map_err(|_| far())?;
                bytes.copy_from_slice(&behind.to_le_bytes());
            }
        }
        Ok(())
    }

    fn parts(&self) -> Vec<Part> {
        const READ: u64 = 1;
        let library = self.new.library;
        let data = library.section(".data");
        let mut parts = vec![(self.new.base, PAGE, READ)];
        for segment in library.segments.iter().filter(|it| it.addr >= library.extent().0) {
            let end = (segment.addr + segment.mem_len).min(library.extent().1);
            let (start, end) = (segment.addr & !(PAGE - 1), end.next_multiple_of(PAGE));
            let protection = match segment.flags {
                flags if flags & EXECUTABLE != 0 => READ | 4,
                flags if flags & WRITABLE != 0 && data.address >= start && data.address < end => READ | 2,
                _ => READ,
            };
            parts.push((self.new.of(start), end - start, protection));
        }
        parts
    }
}

/// Calls `found` with each reference of the text: where its four bytes are in it, and the address that is meant.
fn each_reference(library: &Library, mut found: impl FnMut(usize, u64)) -> Result<(), String> {
    let section = library.section(".text");
    let text = library.content(&section);
    let mut starts = vec![false; text.len()];
    let walked = walk(text, |it| match it {
        Found::Start(at) => starts[at] = true,
        Found::Reference { at, target } => found(at, section.address.wrapping_add(target as u64)),
        Found::Branch(_) => {}
    });
    walked.map_err(|at| format!("its text has no instruction at {at:#x}"))?;
    let functions = library.symbols.iter().filter(|it| it.kind == FUNCTION && section.has(it.address));
    let is_start = |address: u64| starts.get((address - section.address) as usize) == Some(&true);
    let astray = functions.map(|it| it.address).find(|address| !is_start(*address));
    astray.map_or(Ok(()), |address| Err(format!("its text was read astray at {address:#x}")))
}

/// The jumps that lead the ways into an older version to the new one's: where, and their bytes.
///
/// # Errors
/// When one of them has no room for it.
pub(super) fn jumps(old: &Place, new: &Place) -> Result<Vec<(u64, [u8; JUMP as usize])>, String> {
    let ways = old.library.ways().into_iter().zip(new.library.ways()).skip(1);
    let mut pairs: Vec<(u64, u64)> = ways.collect();
    // Only the first version's functions are known to others by their names.
    if old.is_first {
        let of_new = |name: &str| new.library.exports().find(|it| it.name == name).map(|it| it.address);
        pairs.extend(old.library.exports().filter_map(|it| Some((it.address, of_new(&it.name)?))));
    }
    pairs.sort_unstable();
    pairs.dedup_by_key(|(from, _)| *from);
    check_room(old.library, &pairs)?;
    let jump = |(from, to): (u64, u64)| {
        let (from, to) = (old.of(from), new.of(to));
        let far = i32::try_from(to.wrapping_sub(from + JUMP) as i64).map_err(|_| "it is too far away")?;
        let mut bytes = [0xe9, 0, 0, 0, 0];
        bytes[1..].copy_from_slice(&far.to_le_bytes());
        Ok((from, bytes))
    };
    pairs.into_iter().map(jump).collect()
}

/// Whether nothing comes to the bytes behind the first of each way that a jump takes.
fn check_room(library: &Library, ways: &[(u64, u64)]) -> Result<(), String> {
    let section = library.section(".text");
    let within = |address: u64| {
        let at = ways.partition_point(|(from, _)| *from < address);
        at > 0 && address - ways[at - 1].0 < JUMP
    };
    let mut taken = ways.iter().map(|(from, _)| *from).find(|from| within(*from));
    walk(library.content(&section), |it| {
        if let Found::Branch(target) = it {
            let address = section.address.wrapping_add(target as u64);
            taken = taken.or(Some(address).filter(|address| within(*address)));
        }
    })
    .map_err(|at| format!("the text of that which runs has no instruction at {at:#x}"))?;
    let labels = library.symbols.iter().filter(|it| it.is_here && section.has(it.address));
    taken = taken.or(labels.map(|it| it.address).find(|address| within(*address)));
    taken.map_or(Ok(()), |address| Err(format!("that which runs has no room for a jump at {address:#x}")))
}

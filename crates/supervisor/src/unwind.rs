//! The call stack of a thread of another process, that stands still in the kernel.
//!
//! Nothing is stopped for it and no signal is sent: `/proc` says where a blocked thread stands, its memory is read, and the
//! tables that every library has for exceptions say how each function finds its caller's. The process may change or end
//! meanwhile, and writes all that is read here: whatever does not fit ends the list, and all of it is bounded.

use std::cell::Cell;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, EvaluationResult, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindExpression, UnwindSection, Value, X86_64,
};
use us_sites::elf::{self, Image};
use us_sites::maps;

use crate::proc;

/// Callers that are looked for, at most.
const FRAMES_MAX: usize = 32;

/// Bytes of unwinding tables that are read of all libraries, at most.
const TABLES_MAX: u64 = 64 << 20;

/// Bytes of `maps` that are read, and mappings with code that are looked at, at most.
const MAPS_MAX: u64 = 16 << 20;
const CODE_MAX: usize = 4096;

/// Single words that are read for one process, at most: a table may ask for any number of them.
const WORDS_MAX: u32 = 10_000;

/// Bytes of a stack that are copied at once.
const COPY_BYTES: usize = 64 << 10;

/// Registers that rules speak of: the sixteen general ones, and the return address.
const REGISTERS: usize = 17;

/// What is known of them.
type Registers = [Option<u64>; REGISTERS];

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// One function on a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Where it stands, as the processor counts.
    pub address: u64,
    /// The same as its file counts, without the place at which that is mapped.
    pub in_file: u64,
    /// Where the function begins, as the file counts; `None` where no table says it.
    pub function: Option<u64>,
    /// Path of the file; empty where the code is in no file.
    pub path: String,
}

/// A thread that stands in the kernel: its stack pointer, and where it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    sp: u64,
    pc: u64,
}

/// Where a thread stands; `None` while it runs, or when it may not be looked at.
pub fn place(pid: u32, tid: u32) -> Option<Place> {
    proc::stands(pid, tid).map(|(sp, pc)| Place { sp, pc })
}

/// The top of a stack, as it was at one moment: its thread goes on.
#[derive(Debug)]
pub struct Top {
    place: Place,
    bytes: Vec<u8>,
}

/// What a function's caller had in its registers.
struct Caller {
    registers: Registers,
    function: Option<u64>,
    was_interrupted: bool,
}

/// A file that is mapped, with code in it.
struct Library {
    path: String,
    /// First and last address of what is executable.
    code: Vec<(u64, u64)>,
    /// What is to be added to the file's addresses.
    bias: u64,
    start: u64,
    tables: Option<Tables>,
    looked_for_tables: bool,
}

/// A library's tables: the index, and the entries.
struct Tables {
    index: Vec<u8>,
    index_at: u64,
    entries: Vec<u8>,
    entries_at: u64,
}

/// A process whose threads are looked at.
pub struct Process {
    memory: File,
    libraries: Vec<Library>,
    words_left: Cell<u32>,
    tables_left: Cell<u64>,
}

impl Process {
    /// Reads what `pid` has mapped; `None` when it is gone, or may not be looked at.
    pub fn open(pid: u32) -> Option<Process> {
        let memory = proc::open(pid, "mem").ok()?;
        let mut maps = Vec::new();
        proc::open(pid, "maps").ok()?.take(MAPS_MAX).read_to_end(&mut maps).ok()?;
        let libraries = libraries(&maps);
        Some(Process {
            memory,
            libraries,
            words_left: Cell::new(WORDS_MAX),
            tables_left: Cell::new(TABLES_MAX),
        })
    }

    /// The same mappings, with the memory of `pid`, which is a copy of the same process.
    pub fn of_copy(self, pid: u32) -> Option<Process> {
        let memory = proc::open(pid, "mem").ok()?;
        Some(Process { memory, words_left: Cell::new(WORDS_MAX), ..self })
    }

    /// Copies what lies on a stack.
    pub fn top(pid: u32, place: Place) -> Option<Top> {
        let memory = proc::open(pid, "mem").ok()?;
        let mut bytes = vec![0; COPY_BYTES];
        let read = memory.read_at(&mut bytes, place.sp).ok()?;
        bytes.truncate(read);
        Some(Top { place, bytes })
    }

    /// The functions on a stack, the innermost first.
    pub fn stack(&mut self, top: &Top) -> Vec<Step> {
        let mut registers = [None; REGISTERS];
        registers[usize::from(X86_64::RSP.0)] = Some(top.place.sp);
        registers[usize::from(X86_64::RA.0)] = Some(top.place.pc);
        let mut steps = Vec::new();
        // The first address, and one that a signal has interrupted, are where the function goes on; any other is behind a call.
        let mut is_exact = true;
        while steps.len() < FRAMES_MAX {
            let Some(address) = registers[usize::from(X86_64::RA.0)] else { break };
            let Some(at) = self.library(address) else { break };
            let looked_up = address.wrapping_sub(u64::from(!is_exact));
            let caller = self.caller(at, looked_up, top, &registers);
            let library = &self.libraries[at];
            steps.push(Step {
                address,
                in_file: address.wrapping_sub(library.bias),
                function: caller
                    .as_ref()
                    .and_then(|caller| caller.function)
                    .map(|at| at.wrapping_sub(library.bias)),
                path: library.path.clone(),
            });
            let Some(caller) = caller.filter(|caller| caller.registers != registers) else { break };
            registers = caller.registers;
            is_exact = caller.was_interrupted;
        }
        steps
    }

    fn read(&self, at: u64, bytes: u64) -> Option<Vec<u8>> {
        self.tables_left.set(self.tables_left.get().checked_sub(bytes)?);
        let mut buffer = vec![0; usize::try_from(bytes).ok()?];
        self.memory.read_exact_at(&mut buffer, at).ok()?;
        Some(buffer)
    }

    fn word(&self, top: &Top, at: u64) -> Option<u64> {
        let copied = at.checked_sub(top.place.sp).and_then(|into| {
            let into = usize::try_from(into).ok()?;
            top.bytes.get(into..into.checked_add(8)?)?.try_into().ok()
        });
        if let Some(word) = copied {
            return Some(u64::from_le_bytes(word));
        }
        self.words_left.set(self.words_left.get().checked_sub(1)?);
        let mut word = [0; 8];
        self.memory.read_exact_at(&mut word, at).ok()?;
        Some(u64::from_le_bytes(word))
    }

    /// The library whose code has this address.
    fn library(&mut self, address: u64) -> Option<usize> {
        let has =
            |library: &Library| library.code.iter().any(|(start, end)| (*start..*end).contains(&address));
        let at = self.libraries.iter().position(has)?;
        if !self.libraries[at].looked_for_tables {
            self.libraries[at].looked_for_tables = true;
            let start = self.libraries[at].start;
            if let Some((bias, tables)) = self.tables(start) {
                self.libraries[at].bias = bias;
                self.libraries[at].tables = tables;
            }
        }
        Some(at)
    }

    /// The tables of what is mapped from `start` on, as its own headers say, and how far from its own addresses it is.
    fn tables(&self, start: u64) -> Option<(u64, Option<Tables>)> {
        const PAGE: u64 = 4096;
        const INDEX: u32 = libc::PT_GNU_EH_FRAME;
        let head = self.read(start, PAGE)?;
        let image = Image::parse(&head)?;
        let loads = || image.segments().filter(|segment| segment.kind == elf::LOAD);
        let first = loads().find(|segment| segment.offset < PAGE)?;
        let bias = start.wrapping_sub(first.addr & !(PAGE - 1));
        let tables = || {
            let index = image.segments().find(|segment| segment.kind == INDEX)?;
            let index_at = bias.wrapping_add(index.addr);
            let bytes = self.read(index_at, index.mem_len)?;
            let bases = BaseAddresses::default().set_eh_frame_hdr(index_at);
            let parsed = EhFrameHdr::new(&bytes, LittleEndian).parse(&bases, 8).ok()?;
            let entries_at = parsed.eh_frame_ptr().direct().ok()?;
            let load = loads().find(|load| {
                (load.addr..load.addr.saturating_add(load.mem_len)).contains(&entries_at.wrapping_sub(bias))
            })?;
            let left = bias.wrapping_add(load.addr).wrapping_add(load.file_len).wrapping_sub(entries_at);
            let entries = self.read(entries_at, left)?;
            Some(Tables { index: bytes, index_at, entries, entries_at })
        };
        Some((bias, tables()))
    }

    fn caller(&self, library: usize, address: u64, top: &Top, registers: &Registers) -> Option<Caller> {
        let tables = self.libraries[library].tables.as_ref();
        tables
            .and_then(|tables| self.by_tables(tables, address, top, registers))
            .or_else(|| self.by_frame(top, registers))
    }

    fn by_tables(&self, tables: &Tables, address: u64, top: &Top, registers: &Registers) -> Option<Caller> {
        let bases =
            BaseAddresses::default().set_eh_frame_hdr(tables.index_at).set_eh_frame(tables.entries_at);
        let index = EhFrameHdr::new(&tables.index, LittleEndian).parse(&bases, 8).ok()?;
        let entries = EhFrame::new(&tables.entries, LittleEndian);
        let entry = index
            .table()?
            .fde_for_address(&entries, &bases, address, |section, bases, at| {
                section.cie_from_offset(bases, at)
            })
            .ok()?;
        let mut context = UnwindContext::new();
        let row = entry.unwind_info_for_address(&entries, &bases, &mut context, address).ok()?;
        let known = |register: Register| registers.get(usize::from(register.0)).copied().flatten();
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => known(*register)?.wrapping_add_signed(*offset),
            CfaRule::Expression(expression) => self.value(&entries, expression, (top, registers), None)?,
        };
        let mut before = *registers;
        before[usize::from(X86_64::RSP.0)] = Some(cfa);
        // Nobody saves what a call may change.
        for register in [X86_64::RAX, X86_64::RCX, X86_64::RDX, X86_64::RSI, X86_64::RDI, X86_64::R8] {
            before[usize::from(register.0)] = None;
        }
        before[usize::from(X86_64::RA.0)] = None;
        for (register, rule) in row.registers() {
            let Some(value) = before.get_mut(usize::from(register.0)) else { continue };
            *value = match rule {
                RegisterRule::SameValue => known(*register),
                RegisterRule::Offset(offset) => self.word(top, cfa.wrapping_add_signed(*offset)),
                RegisterRule::ValOffset(offset) => Some(cfa.wrapping_add_signed(*offset)),
                RegisterRule::Register(other) => known(*other),
                RegisterRule::Expression(expression) => self
                    .value(&entries, expression, (top, registers), Some(cfa))
                    .and_then(|at| self.word(top, at)),
                RegisterRule::ValExpression(expression) => {
                    self.value(&entries, expression, (top, registers), Some(cfa))
                }
                RegisterRule::Constant(value) => Some(*value),
                _ => None,
            };
        }
        Some(Caller {
            registers: before,
            function: Some(entry.initial_address()),
            was_interrupted: entry.is_signal_trampoline(),
        })
    }

    /// The value of an expression of the tables.
    fn value(
        &self,
        entries: &EhFrame<Slice<'_>>,
        expression: &UnwindExpression<usize>,
        (top, registers): (&Top, &Registers),
        cfa: Option<u64>,
    ) -> Option<u64> {
        const STEPS_MAX: u32 = 1000;
        const UNIT: gimli::Encoding =
            gimli::Encoding { address_size: 8, format: gimli::Format::Dwarf32, version: 5 };
        let mut evaluation = expression.get(entries).ok()?.evaluation(UNIT);
        evaluation.set_max_iterations(STEPS_MAX);
        cfa.into_iter().for_each(|cfa| evaluation.set_initial_value(cfa));
        let mut result = evaluation.evaluate().ok()?;
        for _ in 0..STEPS_MAX {
            result = match result {
                EvaluationResult::Complete => {
                    return match evaluation.as_result() {
                        [gimli::Piece { location: gimli::Location::Address { address }, .. }] => {
                            Some(*address)
                        }
                        _ => None,
                    };
                }
                EvaluationResult::RequiresMemory { address, size: 8, .. } => {
                    evaluation.resume_with_memory(Value::Generic(self.word(top, address)?)).ok()?
                }
                EvaluationResult::RequiresRegister { register, .. } => {
                    let value = registers.get(usize::from(register.0)).copied().flatten()?;
                    evaluation.resume_with_register(Value::Generic(value)).ok()?
                }
                EvaluationResult::RequiresCallFrameCfa => evaluation.resume_with_call_frame_cfa(cfa?).ok()?,
                _ => return None,
            };
        }
        None
    }

    /// Code without tables may keep the old way: rbp points at the caller's, with the return address above it.
    fn by_frame(&self, top: &Top, registers: &Registers) -> Option<Caller> {
        let (frame, sp) = (registers[usize::from(X86_64::RBP.0)]?, registers[usize::from(X86_64::RSP.0)]?);
        if frame < sp || !frame.is_multiple_of(8) {
            return None;
        }
        let mut before = [None; REGISTERS];
        before[usize::from(X86_64::RBP.0)] = Some(self.word(top, frame)?);
        before[usize::from(X86_64::RA.0)] = Some(self.word(top, frame.checked_add(8)?)?);
        before[usize::from(X86_64::RSP.0)] = Some(frame.checked_add(16)?);
        Some(Caller { registers: before, function: None, was_interrupted: false })
    }
}

/// What `maps` says is executable, by file. Code in no file is a library of its own, without a path.
fn libraries(text: &[u8]) -> Vec<Library> {
    let mut all: Vec<Library> = Vec::new();
    // Where the mappings of a file begin, as they come: its headers lie in the first.
    let mut start_of_file = (String::new(), 0);
    let mut looked_at = 0;
    for (line, path) in proc::text::mappings(text) {
        let path = &*String::from_utf8_lossy(path);
        // A file may have room without bytes between its segments, as the runtime's has: that is no file's beginning.
        let is_named = !path.is_empty();
        if is_named && (line.offset == 0 || start_of_file.0 != path) {
            start_of_file = (path.to_owned(), line.start);
        }
        if line.protection & maps::EXEC == 0 {
            continue;
        }
        looked_at += 1;
        if looked_at > CODE_MAX {
            break;
        }
        let start = if is_named { start_of_file.1 } else { line.start };
        match all.iter_mut().find(|library| library.start == start && library.path == path) {
            Some(library) => library.code.push((line.start, line.end)),
            None => all.push(Library {
                path: path.to_owned(),
                code: vec![(line.start, line.end)],
                bias: start,
                start,
                tables: None,
                looked_for_tables: false,
            }),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn lines_of_maps() {
        let all = libraries(
            b"1000-2000 r--p 00000000 08:01 7 /a\n2000-3000 r-xp 00001000 08:01 7 /a\n\
             9000-a000 rwxp 00000000 00:00 0 \nb000-c000 r-xp 00000000 08:01 8 /b\n",
        );
        let told: Vec<_> = all.iter().map(|library| (library.path.as_str(), library.start)).collect();
        assert_eq!(told, [("/a", 0x1000), ("", 0x9000), ("/b", 0xb000)]);
        let all = libraries(
            b"1000-2000 r--p 00000000 08:01 7 /a\n2000-5000 r--p 00000000 00:00 0 \n\
             5000-6000 r-xp 00001000 08:01 7 /a\n6000-7000 r-xp 00000000 00:00 0 \n",
        );
        let told: Vec<_> = all.iter().map(|library| (library.path.as_str(), library.start)).collect();
        assert_eq!(told, [("/a", 0x1000), ("", 0x6000)]);
    }

    /// By a system call of its own: a function of the standard library keeps its caller's frame in a register, of which the kernel
    /// does not tell.
    #[inline(never)]
    extern "C" fn sleeps_here(pipe: &std::io::PipeReader) -> bool {
        std::hint::black_box(rustix::io::read(pipe, &mut [0u8; 1]) == Ok(0))
    }

    #[test]
    fn a_thread_of_ours_has_a_stack() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (tell, hear) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(rustix::thread::gettid()).unwrap();
            sleeps_here(&reader)
        });
        let tid = hear.recv().unwrap().as_raw_nonzero().get() as u32;
        let pid = std::process::id();
        let own = sleeps_here as *const () as u64;
        let begins_at = |step: &Step| step.function.map(|at| step.address - step.in_file + at);
        let found = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            let top = place(pid, tid).and_then(|place| Process::top(pid, place));
            let steps = top.and_then(|top| Some(Process::open(pid)?.stack(&top))).unwrap_or_default();
            steps.iter().any(|step| begins_at(step) == Some(own))
        });
        drop(writer);
        assert!(thread.join().unwrap());
        assert!(found, "a stack with the function that sleeps");
    }

    /// A process whose memory is a file: the image `bytes` from address 0 on, and a stack behind it.
    fn pretended(folder: &std::path::Path, bytes: &[u8], stack: &[u64]) -> (Process, Top) {
        const STACK_AT: u64 = 1 << 24;
        let path = folder.join("memory");
        let memory = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let image = Image::parse(bytes).unwrap();
        for load in image.segments().filter(|segment| segment.kind == elf::LOAD) {
            memory.write_all_at(image.content(&load).unwrap(), load.addr).unwrap();
        }
        let stack: Vec<u8> = stack.iter().flat_map(|word| word.to_le_bytes()).collect();
        memory.write_all_at(&stack, STACK_AT).unwrap();
        let libraries = libraries(b"0-1000 r--p 00000000 08:01 7 /a\n1000-f00000 r-xp 00001000 08:01 7 /a\n");
        let (words_left, tables_left) = (Cell::new(WORDS_MAX), Cell::new(TABLES_MAX));
        let top = Top { place: Place { sp: STACK_AT, pc: 0 }, bytes: stack };
        (Process { memory, libraries, words_left, tables_left }, top)
    }

    #[test]
    fn damaged_tables_end_the_list() {
        let bytes = std::fs::read("/bin/sh").unwrap();
        let folder = tempfile::tempdir().unwrap();
        let loads = Image::parse(&bytes).unwrap();
        let code = loads.executable().next().unwrap().1;
        let stack: Vec<u64> = (0..512).map(|at| code + at * 64).collect();
        let (mut whole, mut top) = pretended(folder.path(), &bytes, &stack);
        let index = loads.segments().find(|segment| segment.kind == 0x6474_e550).expect("an index");
        let index_at = index.addr;
        let mut frames = 0;
        let mut walk = |process: &mut Process, top: &mut Top| {
            for pc in (0..64).map(|at| code + at * 997) {
                top.place.pc = pc;
                frames += process.stack(top).len();
            }
        };
        walk(&mut whole, &mut top);
        assert!(whole.libraries[0].tables.is_some());
        // Any sixteen bytes of the index and of the tables behind it, which are not far.
        let mut seed = 1u64;
        for _ in 0..300 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let at = index_at + (seed >> 33) % (index.mem_len * 5);
            let mut was = [0; 16];
            whole.memory.read_exact_at(&mut was, at).unwrap();
            whole.memory.write_all_at(&seed.to_le_bytes().repeat(2), at).unwrap();
            let memory = whole.memory.try_clone().unwrap();
            let libraries =
                libraries(b"0-1000 r--p 00000000 08:01 7 /a\n1000-f00000 r-xp 00001000 08:01 7 /a\n");
            let mut damaged = Process {
                memory,
                libraries,
                words_left: Cell::new(WORDS_MAX),
                tables_left: Cell::new(TABLES_MAX),
            };
            walk(&mut damaged, &mut top);
            whole.memory.write_all_at(&was, at).unwrap();
        }
        assert!(frames > 64, "nothing was walked");
    }

    #[test]
    fn no_more_is_read_than_may_be() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = std::fs::read("/bin/sh").unwrap();
        let (process, top) = pretended(folder.path(), &bytes, &[1, 2]);
        assert_eq!(process.word(&top, top.place.sp + 8), Some(2));
        process.words_left.set(1);
        assert!(process.word(&top, 0).is_some() && process.word(&top, 0).is_none());
        process.tables_left.set(100);
        assert!(process.read(0, 101).is_none() && process.read(0, u64::MAX).is_none());
        assert!(process.read(0, 100).is_some() && process.read(0, 1).is_none());
    }

    #[test]
    fn who_is_not_there_has_no_stack() {
        assert_eq!(place(0, 0), None);
        assert!(Process::open(0).is_none() && Process::top(0, Place { sp: 1, pc: 1 }).is_none());
    }
}

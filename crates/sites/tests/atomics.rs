//! The atomic instructions of real texts, against another decoder, and what a stub of each does.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};
use us_sites::elf::{self, Image};
use us_sites::{Atomic, AtomicOp, Functions, Memory, scan_atomics, target_words};

struct Mapped(Vec<u8>);

impl Memory for Mapped {
    fn read(&self, from: u64, to: &mut [u8]) -> bool {
        let at = from as usize;
        let found = at.checked_add(to.len()).and_then(|end| self.0.get(at..end));
        found.is_some_and(|bytes| {
            to.copy_from_slice(bytes);
            true
        })
    }
}

/// The object as it would be mapped at 0, and where its text is: address, offset in the file, bytes.
fn map(path: &Path) -> Option<(Mapped, u64, u64, usize)> {
    const BASE: usize = 1 << 20;
    let file = std::fs::read(path).ok()?;
    let image = Image::parse(&file)?;
    let mut bytes = Vec::new();
    let mut text = None;
    let first = image.segments().find(|segment| segment.kind == elf::LOAD)?.addr;
    let base = if first == 0 { BASE } else { 0 };
    for segment in image.segments().filter(|segment| segment.kind == elf::LOAD) {
        let content = image.content(&segment)?;
        let start = base + segment.addr as usize;
        bytes.resize(bytes.len().max((start + segment.mem_len as usize).next_multiple_of(4096)), 0);
        bytes[start..][..content.len()].copy_from_slice(content);
        if segment.flags & elf::EXECUTABLE != 0 {
            text = Some((segment.addr & !4095, segment.offset & !4095, content.len()));
        }
    }
    let (addr, offset, len) = text?;
    Some((Mapped(bytes), base as u64 + addr, offset, len))
}

fn objects() -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = [
        "/usr/sbin/mariadbd",
        "/usr/sbin/haproxy",
        "/usr/sbin/nginx",
        "/usr/sbin/apache2",
        "/usr/bin/redis-server",
        "/lib/x86_64-linux-gnu/libc.so.6",
        "/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/lib/x86_64-linux-gnu/libcrypto.so.3",
        "/lib/x86_64-linux-gnu/libapr-1.so.0",
    ]
    .map(PathBuf::from)
    .to_vec();
    paths.push(std::env::current_exe().expect("this program"));
    paths.retain(|path| path.exists());
    paths
}

/// Whether an instruction changes memory that others may see, in one step.
fn is_atomic(insn: &Instruction) -> bool {
    let is_memory = (0..insn.op_count()).any(|op| insn.op_kind(op) == OpKind::Memory);
    is_memory && (insn.has_lock_prefix() || insn.mnemonic() == Mnemonic::Xchg)
}

/// What is left alone, see `Atomics::left`.
fn is_left(insn: &Instruction) -> bool {
    let is_own = !matches!(
        insn.segment_prefix(),
        Register::None | Register::DS | Register::ES | Register::CS | Register::SS
    );
    let is_high = |register| matches!(register, Register::AH | Register::BH | Register::CH | Register::DH);
    let is_fence = matches!(insn.mnemonic(), Mnemonic::Or | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Xor)
        && insn.op_count() == 2
        && matches!(insn.try_immediate(1), Ok(0));
    is_own || is_fence || is_high(insn.op_register(0)) || is_high(insn.op_register(1))
}

#[test]
fn finds_what_another_decoder_finds() {
    for path in objects() {
        let (object, start, offset, len) = map(&path).expect("an object");
        let text = &object.0[start as usize..][..len];
        let functions = Functions::find(&object, start, offset).expect("a table of functions");
        let ranges: Vec<(usize, usize)> = functions
            .each(&object)
            .filter(|(at, bytes)| *at >= start && at + bytes <= start + len as u64)
            .map(|(at, bytes)| ((at - start) as usize, bytes as usize))
            .collect();
        let mut targets = vec![0; target_words(len)];
        let mut sites = vec![Atomic::EMPTY; 100_000];
        let began = std::time::Instant::now();
        let all =
            scan_atomics(text, start, ranges.iter().copied(), &mut targets, &mut sites).expect("a scan");
        let took = began.elapsed();
        sites.truncate(all.found);

        let (mut expected, mut left, mut branches) = (BTreeSet::new(), 0, BTreeSet::new());
        for (from, bytes) in &ranges {
            let code = &text[*from..from + bytes];
            let mut decoder = Decoder::with_ip(64, code, start + *from as u64, DecoderOptions::NONE);
            for insn in &mut decoder {
                if matches!(
                    insn.flow_control(),
                    FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch | FlowControl::Call
                ) {
                    branches.insert(insn.near_branch_target());
                }
                if is_atomic(&insn) {
                    if is_left(&insn) { left += 1 } else { assert!(expected.insert(insn.ip())) }
                }
            }
        }
        let found: BTreeSet<u64> = sites.iter().map(|atomic| atomic.site.syscall_addr()).collect();
        let name = path.display();
        println!(
            "{name}: {} sites, {} of them trapped; {} left, {} functions not known, {} in all, {took:?}",
            all.found,
            all.trapped,
            all.left,
            all.opaque,
            ranges.len()
        );
        if all.opaque == 0 {
            assert_eq!(found, expected, "{name}");
            assert_eq!(all.left, left, "{name}");
        } else {
            assert!(found.is_subset(&expected) && all.opaque < 16, "{name}");
        }
        let mut behind = 0;
        for atomic in &sites {
            let site = &atomic.site;
            assert!(site.patch_addr() >= behind, "{name}: windows overlap");
            behind = site.back_addr();
            if atomic.is_trapped {
                continue;
            }
            assert!(site.window().len() >= 5, "{name}: {:#x}", site.patch_addr());
            let inside = branches.range(site.patch_addr() + 1..site.back_addr()).next();
            assert_eq!(inside, None, "{name}: a branch into the window at {:#x}", site.patch_addr());
        }
        describes(&sites, text, start);
    }
}

/// Operation, size and register of each, against the other decoder.
fn describes(sites: &[Atomic], text: &[u8], start: u64) {
    for atomic in sites {
        let at = atomic.site.syscall_addr();
        let insn = Decoder::with_ip(64, &text[(at - start) as usize..], at, DecoderOptions::NONE).decode();
        assert_eq!(usize::from(atomic.size), insn.memory_size().size(), "{insn:?}");
        let op = match insn.mnemonic() {
            Mnemonic::Xchg => AtomicOp::Exchange,
            Mnemonic::Cmpxchg => AtomicOp::CompareExchange,
            Mnemonic::Xadd => AtomicOp::ExchangeAdd,
            Mnemonic::Bts | Mnemonic::Btr | Mnemonic::Btc => AtomicOp::Bit,
            Mnemonic::Cmpxchg8b | Mnemonic::Cmpxchg16b => AtomicOp::CompareExchangeWide,
            _ => AtomicOp::Change,
        };
        assert_eq!(atomic.op, op, "{insn:?}");
        let register = (0..insn.op_count())
            .find(|op| insn.op_kind(*op) == OpKind::Register)
            .map(|op| insn.op_register(op).full_register() as u8 - Register::RAX as u8);
        assert_eq!(register.unwrap_or(16), atomic.register, "{insn:?}");
    }
}

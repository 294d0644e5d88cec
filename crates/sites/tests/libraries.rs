//! The scan against a full disassembly of real C libraries: what is found, and that every window is safe.

use iced_x86::{
    Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess, Register,
};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use us_sites::{
    Kind, Reason, STUB_MAX, Site, elf::Image, emit_clone_stub, emit_hop, emit_patch, emit_stub, scan,
};

const LIBRARIES: [&str; 2] = ["libc.so.6", "ld-linux-x86-64.so.2"];

/// One executable segment as iced sees it, from its first byte to its last.
struct Listing {
    instructions: BTreeMap<u64, Instruction>,
    branch_targets: BTreeSet<u64>,
}

impl Listing {
    fn new(text: &[u8], addr: u64) -> Listing {
        let mut listing = Listing { instructions: BTreeMap::new(), branch_targets: BTreeSet::new() };
        for insn in &mut Decoder::with_ip(64, text, addr, DecoderOptions::NONE) {
            if insn.near_branch_target() != 0 {
                listing.branch_targets.insert(insn.near_branch_target());
            }
            listing.instructions.insert(insn.ip(), insn);
        }
        listing
    }

    fn syscalls(&self) -> BTreeSet<u64> {
        let syscalls = self.instructions.values().filter(|i| i.mnemonic() == Mnemonic::Syscall);
        syscalls.map(Instruction::ip).collect()
    }

    /// The instructions of a window, which must be whole.
    fn window(&self, site: &Site) -> Vec<Instruction> {
        let (mut at, mut window) = (site.patch_addr(), Vec::new());
        while at < site.back_addr() {
            let insn =
                self.instructions.get(&at).unwrap_or_else(|| panic!("{at:#x}: not an instruction's start"));
            window.push(*insn);
            at = insn.next_ip();
        }
        assert_eq!(at, site.back_addr(), "the window ends inside an instruction");
        window
    }
}

fn sites_of(text: &[u8], addr: u64) -> Vec<Site> {
    let mut out = vec![Site::EMPTY; 4096];
    let found = scan(text, addr, &mut out).expect("4096 slots are enough for any C library");
    out.truncate(found);
    out
}

fn check_file(path: &Path) {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("reading {}: {e}", path.display()));
    let image = Image::parse(&bytes).expect("an x86-64 ELF file");
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    let (mut total, mut handled, mut excluded) = (0, 0, 0);
    for (text, addr) in image.executable() {
        let listing = Listing::new(text, addr);
        let sites = sites_of(text, addr);
        let found: BTreeSet<u64> = sites.iter().map(Site::syscall_addr).collect();
        assert_eq!(found, listing.syscalls(), "{}: system calls found, and by iced", path.display());
        for (i, site) in sites.iter().enumerate() {
            check_site(site, &listing);
            if let Some(next) = sites[i + 1..].iter().find(|s| s.is_patchable()) {
                assert!(!site.is_patchable() || site.back_addr() <= next.patch_addr(), "windows overlap");
            }
            total += 1;
            handled += usize::from(site.is_patchable());
            excluded += usize::from(site.kind == Kind::SigReturn);
            let kind = if let Kind::Before { .. } = site.kind {
                "Before".into()
            } else {
                format!("{:?}", site.kind)
            };
            *kinds.entry(kind).or_default() += 1;
        }
    }
    println!("{}: {total} system calls, {handled} patched: {kinds:?}", path.display());
    assert!(total > 40, "{}: a C library makes more system calls", path.display());
    // One that is not, and dispatch stays armed in every process.
    assert_eq!(handled + excluded, total, "{}: all but the return from handlers", path.display());
    assert_eq!(excluded, 1, "{}: __restore_rt, once", path.display());
    let is_libc = path.file_name().is_some_and(|name| name == "libc.so.6");
    let clone_like = kinds.get("CloneLike").copied().unwrap_or(0);
    assert_eq!(clone_like, if is_libc { 3 } else { 0 }, "clone, clone3 and vfork are in libc, once each");
}

fn check_site(site: &Site, listing: &Listing) {
    let at = site.syscall_addr();
    check_number(site, listing);
    if !site.is_patchable() {
        if site.kind == Kind::SigReturn {
            assert_eq!(site.nr, Some(15));
        }
        // Whatever is refused for a branch is refused because of a branch, or of bytes that look like one.
        assert!(matches!(site.kind, Kind::SigReturn | Kind::Unpatchable(_)), "{at:#x}");
        assert_ne!(site.kind, Kind::Unpatchable(Reason::Doubt), "{at:#x}: glibc's text is all code");
        return;
    }
    let window = listing.window(site);
    match site.hop_addr() {
        Some(hop) => check_padding(site, hop, listing),
        None => assert!((5..=15).contains(&site.patch_len), "{at:#x}"),
    }
    let mut inside = listing.branch_targets.range(site.patch_addr() + 1..site.back_addr());
    assert_eq!(inside.next(), None, "{at:#x}: a branch lands inside the window");
    assert_eq!(window.iter().filter(|i| i.mnemonic() == Mnemonic::Syscall).count(), 1, "{at:#x}");
    for insn in &window {
        let movable = matches!(
            insn.flow_control(),
            FlowControl::Next
                | FlowControl::ConditionalBranch
                | FlowControl::UnconditionalBranch
                | FlowControl::Return
                | FlowControl::IndirectBranch
        );
        assert!(movable || insn.ip() == at, "{at:#x}: {:?} is displaced", insn.mnemonic());
    }
    if let Kind::Before { nr } = site.kind {
        assert_eq!((window.len(), window[1].ip()), (2, at), "{at:#x}");
        assert_eq!(window[0].immediate(1), u64::from(nr), "{at:#x}");
    }
    check_stub(site, &window);
}

/// Where a short jump leads nobody else comes: nothing but padding, behind what control does not pass.
fn check_padding(site: &Site, hop: u64, listing: &Listing) {
    assert_eq!((site.patch_len, site.patch_addr()), (2, site.syscall_addr()));
    assert_eq!(
        listing.branch_targets.range(hop..hop + 5).next(),
        None,
        "{hop:#x}: a branch lands in the padding"
    );
    let mut at = hop;
    while at < hop + 5 {
        let insn = &listing.instructions[&at];
        assert_eq!(insn.mnemonic(), Mnemonic::Nop, "{at:#x}");
        at = insn.next_ip();
    }
    let (_, before) = listing.instructions.range(..hop).next_back().expect("something before");
    assert_eq!(before.next_ip(), hop);
    let ends = [FlowControl::UnconditionalBranch, FlowControl::Return, FlowControl::IndirectBranch]
        .contains(&before.flow_control());
    assert!(ends, "{hop:#x}: control comes to the padding");
}

/// The number claimed must be in `rax` when the `syscall` executes.
fn check_number(site: &Site, listing: &Listing) {
    let Some(nr) = site.nr else { return };
    let mut factory = InstructionInfoFactory::new();
    for (_, insn) in listing.instructions.range(..site.syscall_addr()).rev().take(16) {
        let info = factory.info(insn);
        let writes = info.used_registers().iter().any(|used| {
            let write = matches!(
                used.access(),
                OpAccess::Write | OpAccess::ReadWrite | OpAccess::CondWrite | OpAccess::ReadCondWrite
            );
            write && used.register().full_register() == Register::RAX
        });
        if writes {
            let zeroed = insn.mnemonic() == Mnemonic::Xor && nr == 0;
            let loaded = insn.mnemonic() == Mnemonic::Mov && insn.immediate(1) == u64::from(nr);
            assert!(zeroed || loaded, "{:#x}: {nr} is not what rax holds", site.syscall_addr());
            return;
        }
    }
    panic!("{:#x}: nothing near loads {nr}", site.syscall_addr());
}

/// What a displaced instruction does, wherever it stands.
fn meaning(insn: &Instruction) -> (Mnemonic, u64, Option<u64>, [Register; 4], u64, Option<u64>) {
    let memory = insn.is_ip_rel_memory_operand().then(|| insn.ip_rel_memory_address());
    let registers = [insn.op_register(0), insn.op_register(1), insn.memory_base(), insn.memory_index()];
    // A rip-relative operand's displacement is its address; any other is compared as it is.
    let displacement = if memory.is_some() { 0 } else { insn.memory_displacement64() };
    let immediate = (0..insn.op_count()).find_map(|i| insn.try_immediate(i).ok());
    (insn.mnemonic(), insn.near_branch_target(), memory, registers, displacement, immediate)
}

/// Disassembles the stub and compares: what stood before the `syscall`, the way to the gate, what stood behind, back.
fn check_stub(site: &Site, window: &[Instruction]) {
    // Before the text and away from it: displacements change, signs change.
    let stub_addr = site.text_addr.wrapping_add(0x3000_0000) + 8;
    let gate_slot = stub_addr + 0x1000;
    let mut stub = [0; STUB_MAX];
    let clone_like = site.kind == Kind::CloneLike;
    let mut behind_addr = 0;
    let len = if clone_like {
        emit_clone_stub(site, stub_addr, gate_slot, &mut stub).expect("in reach").len
    } else {
        let written = emit_stub(site, stub_addr, gate_slot, &mut stub).expect("in reach");
        behind_addr = written.behind_addr;
        written.len
    };
    let emitted: Vec<Instruction> =
        Decoder::with_ip(64, &stub[..len], stub_addr, DecoderOptions::NONE).into_iter().collect();
    let moved = |i: &&Instruction| i.mnemonic() != Mnemonic::Nop;
    let syscall = window.iter().position(|i| i.ip() == site.syscall_addr()).expect("in its window");
    let before: Vec<_> = window[..syscall].iter().filter(moved).map(meaning).collect();
    let after: Vec<_> = window[syscall + 1..].iter().filter(moved).map(meaning).collect();
    let (doors, call) = if clone_like { (1, 0) } else { (4, 1) };
    assert_eq!(emitted.len(), before.len() + doors + after.len() + 1, "{:#x}", site.syscall_addr());
    let (head, rest) = emitted.split_at(before.len());
    let (door, tail) = rest.split_at(doors);
    assert_eq!(head.iter().map(meaning).collect::<Vec<_>>(), before);
    let entry = door[call];
    assert_eq!(entry.ip_rel_memory_address(), gate_slot);
    assert_eq!(entry.mnemonic(), Mnemonic::Jmp);
    if !clone_like {
        assert_eq!((door[0].mnemonic(), door[0].op_register(0)), (Mnemonic::Lea, Register::RCX));
        assert_eq!(door[0].ip_rel_memory_address(), behind_addr);
        assert_eq!((door[2].mnemonic(), door[2].next_ip()), (Mnemonic::Syscall, behind_addr));
        assert_eq!(door[3].mnemonic(), Mnemonic::Nop);
        assert_eq!(
            behind_addr.wrapping_add(door[3].memory_displacement64()),
            site.syscall_addr() + 2,
            "where the gate was called, as it says"
        );
    }
    assert_eq!(tail[..after.len()].iter().map(meaning).collect::<Vec<_>>(), after);
    assert_eq!(tail[after.len()].near_branch_target(), site.back_addr());

    let (patch, len) = emit_patch(site, stub_addr).expect("in reach");
    let jump = Decoder::with_ip(64, &patch, site.patch_addr(), DecoderOptions::NONE).decode();
    let target = match emit_hop(site, stub_addr).expect("in reach") {
        Some((hop, bytes)) => {
            let jump = Decoder::with_ip(64, &bytes, hop, DecoderOptions::NONE).decode();
            assert_eq!((jump.mnemonic(), jump.near_branch_target()), (Mnemonic::Jmp, stub_addr));
            hop
        }
        None => stub_addr,
    };
    assert_eq!((jump.mnemonic(), jump.near_branch_target()), (Mnemonic::Jmp, target));
    assert_eq!((len, site.window().len()), (usize::from(site.patch_len), len));
    assert!(patch[len.min(5)..len].iter().all(|&b| b == 0xcc), "the rest of the window traps");
}

#[test]
fn the_machines_own_libraries() {
    let folder = Path::new("/lib/x86_64-linux-gnu");
    for name in LIBRARIES {
        check_file(&folder.join(name));
    }
}

#[test]
fn debian_13s_libraries() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("trixie-libc6");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fetch_trixie_libc.sh");
    let run = Command::new("sh").arg(script).arg(&folder).output().expect("sh runs");
    if run.status.code() == Some(77) {
        println!("skipped: {}", String::from_utf8_lossy(&run.stderr).trim());
        return;
    }
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    for name in LIBRARIES {
        check_file(&folder.join("usr/lib/x86_64-linux-gnu").join(name));
    }
}

/// Tables and constants in a text must not be taken for code: libcrypto has the two bytes as data.
#[test]
fn data_in_a_text_is_left_alone() {
    let folder = Path::new("/lib/x86_64-linux-gnu");
    for name in ["libcrypto.so.3", "libstdc++.so.6"] {
        let Ok(bytes) = std::fs::read(folder.join(name)) else {
            println!("skipped {name}: not installed");
            continue;
        };
        let image = Image::parse(&bytes).expect("an x86-64 ELF file");
        for (text, addr) in image.executable() {
            let pairs = text.windows(2).filter(|pair| *pair == [0x0f, 0x05]).count();
            let patched = sites_of(text, addr).iter().filter(|s| s.is_patchable()).count();
            println!("{name}: {pairs} times 0f 05, {patched} patched");
            assert_eq!(patched, 0, "{name} makes its system calls through libc");
        }
    }
}

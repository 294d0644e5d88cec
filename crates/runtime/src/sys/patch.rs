//! Patching the `syscall` sites of the C library and the loader, and what other texts have of the kind, before any thread
//! exists.

use core::arch::global_asm;
use core::sync::atomic::{AtomicU64, Ordering};

use us_sites::{Kind, Site};

use crate::sys::plans::Plans;
use crate::sys::text;
use crate::sys::{gate, point, program, trap};
use crate::{proc, state};

/// What the constructor has to know of the process's mappings, from one reading of `/proc/self/maps`.
#[derive(Clone, Copy, Debug)]
pub struct Maps {
    /// Executable range of the C library.
    pub libc: (u64, u64),
    /// Executable range of the loader.
    pub loader: (u64, u64),
    /// Executable range of the library that `malloc` comes from, if that is not the C library or the program.
    pub allocator: (u64, u64),
    /// Executable range of the program.
    pub program: (u64, u64),
    /// Writable range of the C library: its variables.
    pub libc_data: (u64, u64),
    /// Start of the first vDSO data mapping.
    pub vvar_start: u64,
    /// Start and end of the vDSO's text.
    pub vdso_start: u64,
    /// See `vdso_start`.
    pub vdso_end: u64,
    parts: [(u64, u64); 6],
    part_count: usize,
    /// Executable ranges of other files, and how many they are.
    others: [(u64, u64); OTHERS_MAX],
    other_count: usize,
}

/// Texts of a program and its libraries that are looked at. What a further one does is trapped.
const OTHERS_MAX: usize = 128;

impl Maps {
    /// The vDSO's mappings, data first.
    pub fn vdso_parts(&self) -> impl Iterator<Item = (u64, u64)> {
        self.parts.into_iter().take(self.part_count)
    }

    /// Reads the mappings. Each of the three addresses lies in the object that is looked for.
    pub fn read(in_libc: u64, in_loader: u64, in_allocator: u64, in_program: u64) -> Maps {
        let mut maps = Maps {
            libc: (0, 0),
            loader: (0, 0),
            allocator: (0, 0),
            program: (0, 0),
            libc_data: (0, 0),
            vvar_start: 0,
            vdso_start: 0,
            vdso_end: 0,
            parts: [(0, 0); 6],
            part_count: 0,
            others: [(0, 0); OTHERS_MAX],
            other_count: 0,
        };
        proc::each_mapping(|line| {
            let Some(mapping) = proc::Line::parse(line) else { return };
            let (start, end) = (mapping.start, mapping.end);
            let named = |name: &[u8]| line.ends_with(name);
            if named(b"[vvar]") || named(b"[vvar_vclock]") || named(b"[vdso]") {
                if maps.part_count < maps.parts.len() {
                    maps.parts[maps.part_count] = (start, end);
                    maps.part_count += 1;
                }
                if maps.vvar_start == 0 {
                    maps.vvar_start = start;
                }
                if named(b"[vdso]") {
                    (maps.vdso_start, maps.vdso_end) = (start, end);
                }
            }
            if mapping.protection == proc::READ | proc::WRITE && maps.libc.1 != 0 && start >= maps.libc.1 {
                match maps.libc_data {
                    (0, 0) => maps.libc_data = (start, end),
                    // What is zero at the start lies behind what is not, in a mapping without a name.
                    (_, last) if last == start => maps.libc_data.1 = end,
                    _ => {}
                }
            }
            if mapping.protection & proc::EXEC == 0 {
                return;
            }
            if mapping.is_text()
                && let Some(place) = maps.others.get_mut(maps.other_count)
            {
                *place = (start, end);
                maps.other_count += 1;
            }
            for (address, place) in [
                (in_libc, &mut maps.libc),
                (in_loader, &mut maps.loader),
                (in_allocator, &mut maps.allocator),
                (in_program, &mut maps.program),
            ] {
                if address >= start && address < end {
                    *place = (start, end);
                }
            }
        });
        if maps.allocator == maps.libc || maps.allocator == maps.program || maps.allocator == maps.loader {
            maps.allocator = (0, 0);
        }
        maps
    }
}

const SITES_MAX: usize = 2048;

/// Patches every site of the C library and the loader, and those of other texts that are instructions beyond doubt. Counts them
/// in the segment.
pub fn patch_all(maps: &Maps) {
    let mut plans = Plans::read();
    for (start, end) in [maps.libc, maps.loader] {
        if end > start {
            patch_text(start, end, plans.as_mut());
        }
    }
    // An allocator's calls are its own affair in each copy.
    let known = [maps.libc, maps.loader, maps.allocator];
    let (own, own_bytes) = trap::text_range();
    for (start, end) in maps.others.iter().take(maps.other_count).copied() {
        // A mapping begins with the page that the text begins in.
        let is_own = own < end && start < own + own_bytes;
        if !is_own && !known.contains(&(start, end)) {
            program::patch(start, end);
        }
    }
}

fn patch_text(start: u64, end: u64, plans: Option<&mut Plans>) {
    let stub_bytes = 16 + SITES_MAX * us_sites::STUB_MAX;
    // Before the scan's table, which not every image needs: what stays is at the same place with it and without.
    let Some(stubs) = text::map_new(stub_bytes as u64) else { return };
    // SAFETY: the mapped text of a library, which nobody writes while it is looked at.
    let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, (end - start) as usize) };
    each_site(bytes, start, plans, |found, sites| {
        text::rewrite(start, end - start, |shift| {
            let patched = apply(sites, stubs, shift);
            count(found, patched);
            text::finish(stubs, stub_bytes as u64);
        });
    });
}

/// Calls `patch` with the number of a text's sites and those that have a window: as an image before this one found
/// them, or by a scan.
fn each_site(
    bytes: &[u8],
    start: u64,
    plans: Option<&mut Plans>,
    patch: impl FnOnce(usize, &mut dyn Iterator<Item = Site>),
) {
    let plans = plans.filter(|plans| plans.are_kept());
    let fingerprint = plans.as_ref().map_or(0, |_| us_sites::fingerprint(bytes));
    if let Some(plan) = plans.as_ref().and_then(|plans| plans.find(bytes, fingerprint)) {
        return patch(plan.found(), &mut plan.sites(start));
    }
    text::with_sites(SITES_MAX, |sites| {
        if let Ok(found) = us_sites::scan(bytes, start, sites) {
            if let Some(plans) = plans {
                plans.keep(&sites[..found], bytes, fingerprint);
            }
            patch(found, &mut sites[..found].iter().copied().filter(Site::is_patchable));
        }
    });
}

fn count(found: usize, patched: usize) {
    if let Some(header) = state::header() {
        header.sites_found.fetch_add(found as u32, Ordering::Relaxed);
        header.sites_patched.fetch_add(patched as u32, Ordering::Relaxed);
    }
}

/// Writes stubs, and patches at this distance from the sites; returns how many sites are patched.
fn apply(sites: impl Iterator<Item = Site>, page: u64, shift: u64) -> usize {
    // The page begins with the gate's address: stubs call through it, since the runtime may be further than
    // 2 GiB from the library.
    // SAFETY: the start of our own new page.
    unsafe { (page as *mut u64).write(gate::gate as *const () as u64) };
    let mut at = page + 16;
    let mut patched = 0;
    for site in sites.take(SITES_MAX) {
        let site = &site;
        let mut stub = [0u8; us_sites::STUB_MAX];
        let emitted = match site.kind {
            Kind::CloneLike => clone_stub(site, at, &mut stub),
            _ => us_sites::emit_stub(site, at, page, &mut stub).ok().map(|made| {
                if is_cancellation_point(site) {
                    point::note_point(made.behind_addr);
                }
                made.len
            }),
        };
        let Some(len) = emitted.filter(|len| text::install(site, at, &stub[..*len], shift)) else { continue };
        at += (len as u64).next_multiple_of(16);
        patched += 1;
    }
    patched
}

/// Whether this is the one site of newer C libraries through which every call goes that a thread may be cancelled in. It is
/// written in assembly there, and nothing else moves a pointer from r11 into an argument's place just before a call.
fn is_cancellation_point(site: &Site) -> bool {
    const AROUND: [u8; 8] = [0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05, 0xc3];
    let Some(before) = (site.at as usize).checked_sub(5) else { return false };
    // SAFETY: inside the text that was scanned, in front of a return; it is not changed before this.
    let found = unsafe { ((site.text_addr as usize + before) as *const [u8; 8]).read_unaligned() };
    found == AROUND
}

const CLONE_SITES: usize = 12;

/// Where each clone-like site goes on after its system call.
static CLONE_RESUME: [AtomicU64; CLONE_SITES] = [const { AtomicU64::new(0) }; CLONE_SITES];
/// Entry points of the clone-like sites, for the stubs' indirect jumps.
static CLONE_ENTRIES: [AtomicU64; CLONE_SITES] = [const { AtomicU64::new(0) }; CLONE_SITES];

/// The entry of a site that goes on there.
pub fn entry_behind(resume: u64) -> Option<usize> {
    CLONE_RESUME.iter().position(|place| {
        let taken = place.compare_exchange(0, resume, Ordering::AcqRel, Ordering::Acquire);
        taken.is_ok() || taken == Err(resume)
    })
}

fn clone_stub(site: &Site, at: u64, stub: &mut [u8]) -> Option<usize> {
    let index = CLONE_RESUME.iter().position(|resume| resume.load(Ordering::Relaxed) == 0)?;
    // The slot must be near the stub: its address goes into the stub's own tail.
    let slot = at + (us_sites::STUB_MAX - 8) as u64;
    let emitted = us_sites::emit_clone_stub(site, at, slot, &mut stub[..us_sites::STUB_MAX - 8]).ok()?;
    let entry = clone_entry(index);
    stub[us_sites::STUB_MAX - 8..].copy_from_slice(&entry.to_le_bytes());
    CLONE_RESUME[index].store(emitted.resume_addr, Ordering::Release);
    CLONE_ENTRIES[index].store(entry, Ordering::Release);
    Some(us_sites::STUB_MAX)
}

#[allow(missing_docs)]
unsafe extern "C" {
    pub static us_clone_0: u8;
    pub static us_clone_1: u8;
    pub static us_clone_2: u8;
    pub static us_clone_3: u8;
    pub static us_clone_4: u8;
    pub static us_clone_5: u8;
    pub static us_clone_6: u8;
    pub static us_clone_7: u8;
    pub static us_clone_8: u8;
    pub static us_clone_9: u8;
    pub static us_clone_10: u8;
    pub static us_clone_11: u8;
    static us_thread_0: u8;
    static us_thread_1: u8;
}

/// Where a thread of the guest's own begins with its maker's registers.
pub fn thread_entry(index: usize) -> u64 {
    let (first, second) = (&raw const us_thread_0 as u64, &raw const us_thread_1 as u64);
    first + index as u64 * (second - first)
}

/// Where a clone is made from the runtime's text.
pub fn clone_entry(index: usize) -> u64 {
    let (first, second) = (&raw const us_clone_0 as u64, &raw const us_clone_1 as u64);
    first + index as u64 * (second - first)
}

// The system call of a clone-like site, made from the runtime's text with all registers as the site had
// them: the child returns on another stack, or on the parent's (vfork), and goes on behind the site. Such
// sites are functions of their own (`__clone`, `__clone3`, `vfork`), so no vector register is live.
//
// `before` may say that there is nothing to do and give the result (a standby makes no processes): rcx is
// then not zero and rax the result. `after` runs in the parent only. Both are a door's (`door::spawn`).
global_asm!(
    ".macro us_clone_entry number",
    ".balign 128",
    ".globl us_clone_\\number",
    ".hidden us_clone_\\number",
    "us_clone_\\number:",
    "lea rsp, [rsp - 128]",
    "call us_clone_before",
    "lea rsp, [rsp + 128]",
    "test rcx, rcx",
    "jnz 2f",
    "syscall",
    // A vfork keeps its return address there, and its call may have been made as another. No clone reads r9.
    "mov rdi, r9",
    "test rax, rax",
    "jz 2f",
    "lea rsp, [rsp - 128]",
    "call us_clone_after",
    "lea rsp, [rsp + 128]",
    "2: mov rcx, qword ptr [rip + {resume} + 8 * \\number]",
    "jmp rcx",
    ".endm",
    ".text",
    "us_clone_entry 0",
    "us_clone_entry 1",
    "us_clone_entry 2",
    "us_clone_entry 3",
    "us_clone_entry 4",
    "us_clone_entry 5",
    "us_clone_entry 6",
    "us_clone_entry 7",
    "us_clone_entry 8",
    "us_clone_entry 9",
    "us_clone_entry 10",
    "us_clone_entry 11",
    // A thread of the guest's own begins with its maker's registers, all of them.
    ".macro us_thread_entry number",
    ".balign 16",
    ".globl us_thread_\\number",
    ".hidden us_thread_\\number",
    "us_thread_\\number:",
    "syscall",
    "jmp qword ptr [rip + {resume} + 8 * \\number]",
    ".endm",
    "us_thread_entry 0",
    "us_thread_entry 1",
    "us_thread_entry 2",
    "us_thread_entry 3",
    "us_thread_entry 4",
    "us_thread_entry 5",
    "us_thread_entry 6",
    "us_thread_entry 7",
    "us_thread_entry 8",
    "us_thread_entry 9",
    "us_thread_entry 10",
    "us_thread_entry 11",
    // Both save the registers that the site's own code expects to survive, in the shape of `Call`.
    "us_clone_before:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 80",
    "and rsp, -16",
    "mov [rsp], rax",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], r10",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov qword ptr [rsp + 56], 0",
    "mov [rsp + 64], rdi",
    "mov rdi, rsp",
    "call us_before_clone",
    "mov rcx, rax",
    "mov rax, [rsp]",
    "mov rdi, [rsp + 8]",
    "mov rsi, [rsp + 16]",
    "mov rdx, [rsp + 24]",
    "mov r10, [rsp + 32]",
    "mov r8, [rsp + 40]",
    "mov r9, [rsp + 64]",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    "us_clone_after:",
    "push rbp",
    "mov rbp, rsp",
    "sub rsp, 80",
    "and rsp, -16",
    "mov [rsp], rax",
    "mov [rsp + 8], rdi",
    "mov [rsp + 16], rsi",
    "mov [rsp + 24], rdx",
    "mov [rsp + 32], r10",
    "mov [rsp + 40], r8",
    "mov [rsp + 48], r9",
    "mov rdi, rax",
    "call us_after_clone",
    "mov rax, [rsp]",
    "mov rdi, [rsp + 8]",
    "mov rsi, [rsp + 16]",
    "mov rdx, [rsp + 24]",
    "mov r10, [rsp + 32]",
    "mov r8, [rsp + 40]",
    "mov r9, [rsp + 48]",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    resume = sym CLONE_RESUME,
);

//! Patched code, executed: the same results in every register as unpatched, and the gate was passed.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::arch::global_asm;
use std::sync::atomic::{AtomicU64, Ordering};
use us_sites::{
    Kind, STUB_MAX, Site, emit_clone_stub, emit_counter_stub, emit_patch, emit_stub, has_program_sites, scan,
    scan_program,
};

/// How often [`us_sites_gate`] was entered. One counter per process: the tests below hold a lock.
#[unsafe(no_mangle)]
static US_SITES_GATE_PASSED: AtomicU64 = AtomicU64::new(0);
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

unsafe extern "C" {
    fn us_sites_gate();
    fn us_sites_counter();
    fn us_sites_sends_back();
    fn us_sites_enter();
    /// Holds where [`us_sites_enter`] goes after its system call.
    static US_SITES_RESUME: AtomicU64;
}

// The gates do what was asked and then are as rude as they may be: they write over the stack below the red zone, and over
// every register and flag that they may change.
global_asm!(
    ".pushsection .text.us_sites_gate, \"ax\"",
    "us_sites_gate:",
    "  lock inc qword ptr [rip + {passed}]",
    "  lea rsp, [rsp - 128]",
    "  push rcx",
    "  push rbx",
    "  mov rbx, -1",
    "  push rbx",
    "  push rbx",
    "  pop rbx",
    "  pop rbx",
    "  pop rbx",
    "  syscall",
    "  pop r11",
    "  lea rsp, [rsp + 128]",
    "  mov ecx, 0x5a5a5a5a",
    "  cmp rsp, 0",
    "  stc",
    "  jmp r11",
    "us_sites_counter:",
    "  lock inc qword ptr [rip + {passed}]",
    "  mov rdx, rax",
    "  movabs rax, 0x1122334455667788",
    "  cmp rsp, 0",
    "  stc",
    "  jmp rdx",
    "us_sites_sends_back:",
    "  sub rcx, 2",
    "  jmp rcx",
    "us_sites_enter:",
    "  syscall",
    "  jmp qword ptr [rip + US_SITES_RESUME]",
    ".popsection",
    ".pushsection .data.us_sites_resume, \"aw\"",
    ".balign 8",
    "US_SITES_RESUME: .quad 0",
    ".popsection",
    passed = sym US_SITES_GATE_PASSED,
);

/// What a probe reports: the general registers but rsp, rcx and r11, and two values of the red zone.
type Report = [u64; 15];

/// A function that fills all registers and the red zone, runs `$body`, and stores what it finds.
macro_rules! probe {
    ($name:ident, $end:ident, $($body:literal),+) => {
        unsafe extern "C" {
            fn $name(report: *mut Report);
            static $end: u8;
        }
        global_asm!(
            concat!(".pushsection .text.", stringify!($name), ", \"ax\""),
            concat!(stringify!($name), ":"),
            "push rbx", "push rbp", "push r12", "push r13", "push r14", "push r15", "push rdi",
            "mov rbx, 0x1111", "mov rbp, 0x2222", "mov rdx, 0x3333", "mov rsi, 0x4444", "mov rdi, 0x5555",
            "mov r8, 0x6666", "mov r9, 0x7777", "mov r10, 0x8888", "mov r12, 0x9999", "mov r13, 0xaaaa",
            "mov r14, 0xbbbb", "mov r15, 0xcccc",
            "mov qword ptr [rsp - 8], 0x1234567", "mov qword ptr [rsp - 128], 0x7654321",
            // The first comparison leaves carry clear, so that no body's `jc` is ever taken.
            "test eax, eax",
            $($body,)+
            "mov rcx, [rsp - 8]", "mov r11, [rsp - 128]",
            "push rax", "push rcx", "push r11", "push rdx", "push rbx", "push rbp", "push rsi", "push rdi",
            "push r8", "push r9", "push r10", "push r12", "push r13", "push r14", "push r15",
            "mov rdi, [rsp + 120]", "mov rsi, rsp", "mov ecx, 15", "cld", "rep movsq",
            "add rsp, 128",
            "pop r15", "pop r14", "pop r13", "pop r12", "pop rbp", "pop rbx",
            "ret",
            "90: ud2",
            "91: .quad 0x1122334455667788",
            concat!(stringify!($end), ":"),
            ".popsection",
        );
    };
}

// 110 is getppid: no argument, and an answer that is not zero.
probe!(after, after_end, "mov eax, 110", "syscall", ".byte 0x48, 0x3d, 0, 0xf0, 0xff, 0xff", "ja 90f");
probe!(before, before_end, "mov eax, 110", "syscall", "3: test rax, rax", "jc 3b");
probe!(mixed, mixed_end, "mov ecx, 110", "2: mov eax, ecx", "syscall", "3: test rax, rax", "jc 3b", "jc 2b");
// A branch to the `syscall` itself leaves only what follows, and that must be written anew.
probe!(condition, condition_end, "mov eax, 110", "2: syscall", "test eax, eax", "js 90f", "nop", "jc 2b");
probe!(
    relative,
    relative_end,
    "mov eax, 110",
    "2: syscall",
    "mov rdx, [rip + 91f]",
    "test eax, eax",
    "jc 2b"
);
probe!(
    jump,
    jump_end,
    "mov ecx, 110",
    "jmp 2f",
    "5: ud2",
    "2: mov eax, ecx",
    "syscall",
    "jmp 4f",
    "ud2",
    "4: nop"
);

/// Two pages: the code's copy, then the stub and the gate's slot.
struct Copy {
    base: *mut u8,
    len: usize,
}

const PAGES: usize = 8192;
const STUB: usize = 4096;
const SLOT: usize = 6144;

impl Copy {
    fn of(start: *const u8, end: *const u8) -> Copy {
        let len = end as usize - start as usize;
        assert!(len < STUB);
        // SAFETY: a new private mapping, owned by this struct.
        let base = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), PAGES, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        let base = base.cast::<u8>();
        // SAFETY: `start..end` is one function in the test's own text, and the mapping is long enough.
        unsafe { std::ptr::copy_nonoverlapping(start, base, len) };
        Copy { base, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is PAGES long, writable until `seal`, and borrowed for as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.base, PAGES) }
    }

    fn addr(&self, offset: usize) -> u64 {
        self.base as u64 + offset as u64
    }

    fn only_site(&mut self) -> Site {
        let mut sites = [Site::EMPTY; 4];
        let (len, addr) = (self.len, self.addr(0));
        assert_eq!(scan(&self.bytes()[..len], addr, &mut sites), Ok(1));
        sites[0]
    }

    fn write(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes()[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// Puts stub, slot and patch in place and makes it all executable.
    fn install(&mut self, site: &Site, stub: &[u8], slot: u64) {
        self.write(STUB, stub);
        self.write(SLOT, &slot.to_le_bytes());
        let (patch, len) = emit_patch(site, self.addr(STUB)).expect("in reach");
        self.write(site.patch_start as usize, &patch[..len]);
        // SAFETY: the mapping is ours; nothing borrows it.
        let sealed = unsafe { libc::mprotect(self.base.cast(), PAGES, libc::PROT_READ | libc::PROT_EXEC) };
        assert_eq!(sealed, 0);
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and ends here.
        unsafe { libc::munmap(self.base.cast(), PAGES) };
    }
}

type Probe = unsafe extern "C" fn(*mut Report);

fn run(probe: Probe) -> Report {
    let mut report = [0; 15];
    // SAFETY: a probe follows the C calling convention and writes one report.
    unsafe { probe(&mut report) };
    report
}

fn same_as_native(probe: Probe, end: *const u8, is_expected: fn(Kind) -> bool, window: usize) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let native = run(probe);
    // SAFETY: getppid has no conditions.
    assert_eq!(native[14], unsafe { libc::getppid() } as u64, "the probe itself works");

    let mut copy = Copy::of(probe as *const u8, end);
    let site = copy.only_site();
    assert!(is_expected(site.kind), "{:?}", site.kind);
    assert_eq!(site.window().len(), window, "{:02x?}", site.window());
    let mut stub = [0; STUB_MAX];
    let len = emit_stub(&site, copy.addr(STUB), copy.addr(SLOT), &mut stub).expect("in reach").len;
    copy.install(&site, &stub[..len], us_sites_gate as *const () as u64);

    let passed = US_SITES_GATE_PASSED.load(Ordering::SeqCst);
    // SAFETY: the mapping starts with a whole copy of the probe, position independent, now executable.
    let patched = run(unsafe { std::mem::transmute::<*mut u8, Probe>(copy.base) });
    assert_eq!(patched, native, "registers and red zone");
    assert_eq!(US_SITES_GATE_PASSED.load(Ordering::SeqCst), passed + 1, "through the gate, once");
}

#[test]
fn window_after() {
    same_as_native(after, &raw const after_end, |k| k == Kind::After, 8);
}

#[test]
fn window_before() {
    same_as_native(before, &raw const before_end, |k| k == Kind::Before { nr: 110 }, 7);
}

#[test]
fn window_mixed() {
    // `mov %ecx,%eax; syscall; test` and no more: two and two are not enough for a jump.
    same_as_native(mixed_wide, &raw const mixed_wide_end, |k| k == Kind::Mixed, 5);
}

// `mov %r9d,%eax` has three bytes, so that it makes five with the `syscall`.
probe!(
    mixed_wide,
    mixed_wide_end,
    "mov r9d, 110",
    "2: mov eax, r9d",
    "syscall",
    "3: test rax, rax",
    "jc 3b",
    "jc 2b"
);

#[test]
fn displaced_condition() {
    same_as_native(condition, &raw const condition_end, |k| k == Kind::After, 6);
}

#[test]
fn displaced_relative_operand() {
    same_as_native(relative, &raw const relative_end, |k| k == Kind::After, 9);
}

#[test]
fn displaced_jump() {
    same_as_native(jump, &raw const jump_end, |k| k == Kind::Mixed, 6);
}

// The counter's two halves made one, at once, or when something else has been done; what it does not destroy is told in rdx.
probe!(
    counter,
    counter_end,
    "mov rcx, 0x123",
    "mov r11, 0x456",
    "rdtsc",
    "shl rdx, 32",
    "or rax, rdx",
    "lea rdx, [rcx + r11]"
);
probe!(
    late_counter,
    late_counter_end,
    "mov r11, 0x579",
    "rdtsc",
    "mov r10, r11",
    "mov r11, rdx",
    "shl r11, 32",
    "or rax, r11",
    "mov rdx, r10",
    "mov r10, 0x8888"
);

// As Go has it: with the processor's number where that is known to wait, and with a fence where it is not.
macro_rules! chosen_counter {
    ($name:ident, $end:ident, $known:literal) => {
        probe!(
            $name,
            $end,
            "mov r11, 0x579",
            $known,
            "jne 3f",
            "rdtscp",
            "2: shl rdx, 32",
            "or rax, rdx",
            "mov rdx, r11",
            "mov ecx, 0x123",
            "jmp 4f",
            "3: mfence",
            "lfence",
            "rdtsc",
            "jmp 2b",
            "4: nop"
        );
    };
}
chosen_counter!(waiting_counter, waiting_counter_end, "cmp r11, 0x579");
chosen_counter!(fenced_counter, fenced_counter_end, "cmp r11, 0x578");

fn counter_is_the_gates(probe: Probe, end: *const u8, window: usize) {
    one_counter_is_the_gates(probe, end, window, 1, 0);
}

/// The same of the `nth` of some sites.
fn one_counter_is_the_gates(probe: Probe, end: *const u8, window: usize, of: usize, nth: usize) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let native = run(probe);
    let mut copy = Copy::of(probe as *const u8, end);
    let (len, addr) = (copy.len, copy.addr(0));
    let mut sites = [Site::EMPTY; 4];
    assert_eq!(has_program_sites(&copy.bytes()[..len]), of);
    assert_eq!(scan_program(&copy.bytes()[..len], addr, &mut sites), Ok(of));
    let site = sites[nth];
    assert_eq!((site.kind, site.window().len()), (Kind::Counter, window));
    let mut stub = [0; STUB_MAX];
    let len = emit_counter_stub(&site, copy.addr(STUB), copy.addr(SLOT), &mut stub).expect("in reach").len;
    copy.install(&site, &stub[..len], us_sites_counter as *const () as u64);

    let passed = US_SITES_GATE_PASSED.load(Ordering::SeqCst);
    // SAFETY: as in `same_as_native`.
    let mut patched = run(unsafe { std::mem::transmute::<*mut u8, Probe>(copy.base) });
    assert_eq!(patched[14], 0x1122_3344_5566_7788, "the value is the gate's, in both halves");
    assert_eq!(patched[11], 0x579, "what the instruction leaves alone");
    patched[14] = native[14];
    assert_eq!(patched, native, "registers and red zone");
    assert_eq!(US_SITES_GATE_PASSED.load(Ordering::SeqCst), passed + 1, "through the gate, once");
}

#[test]
fn counter_at_once() {
    counter_is_the_gates(counter, &raw const counter_end, 6);
}

#[test]
fn counter_with_something_between() {
    counter_is_the_gates(late_counter, &raw const late_counter_end, 5);
}

#[test]
fn counters_that_go_on_at_one_place() {
    one_counter_is_the_gates(waiting_counter, &raw const waiting_counter_end, 5, 2, 0);
    one_counter_is_the_gates(fenced_counter, &raw const fenced_counter_end, 5, 2, 1);
}

/// What looks like a jump behind a reading may lead anywhere.
#[test]
fn jumps_out_of_the_text() {
    let mut sites = [Site::EMPTY; 4];
    for far in [i32::MAX, i32::MIN, 0x40, 9, 8, -8, -9] {
        for reading in [&[0x0f, 0x31][..], &[0x0f, 0x01, 0xf9]] {
            let text = [reading, &[0xe9], &far.to_le_bytes()[..], &[0xcc; 2]].concat();
            assert_eq!(has_program_sites(&text), 0);
            assert_eq!(scan_program(&text, 0x1000, &mut sites), Ok(0));
        }
    }
}

/// A call that a gate cannot make is made in the stub, and what stands behind the site follows.
#[test]
fn a_stub_has_an_instruction_of_its_own() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let native = run(after);
    let mut copy = Copy::of(after as *const u8, &raw const after_end);
    let site = copy.only_site();
    let mut stub = [0; STUB_MAX];
    let len = emit_stub(&site, copy.addr(STUB), copy.addr(SLOT), &mut stub).expect("in reach").len;
    copy.install(&site, &stub[..len], us_sites_sends_back as *const () as u64);
    // SAFETY: as in `same_as_native`.
    assert_eq!(run(unsafe { std::mem::transmute::<*mut u8, Probe>(copy.base) }), native);
}

/// Two bytes and two, and branches to all that surrounds them: nothing can be done.
#[test]
fn no_window_is_left_alone() {
    let mut copy = Copy::of(mixed as *const u8, &raw const mixed_end);
    let site = copy.only_site();
    assert!(matches!(site.kind, Kind::Unpatchable(us_sites::Reason::BranchTarget)), "{:?}", site.kind);
}

// As glibc does it: the child returns first, over the parent's return address.
global_asm!(
    ".pushsection .text.us_sites_vfork, \"ax\"",
    "us_sites_vfork:",
    "  pop rdi",
    "  mov eax, 58",
    "  syscall",
    "  push rdi",
    "  .byte 0x3d, 0x01, 0xf0, 0xff, 0xff",
    "  jae 1f",
    "  ret",
    "1: ud2",
    "us_sites_vfork_end:",
    // Calls the function in rdi; its child exits at once with status 7.
    "us_sites_vfork_and_exit:",
    "  call rdi",
    "  test eax, eax",
    "  jnz 2f",
    "  mov edi, 7",
    "  mov eax, 60",
    "  syscall",
    "2: ret",
    ".popsection",
);

unsafe extern "C" {
    fn us_sites_vfork();
    static us_sites_vfork_end: u8;
    fn us_sites_vfork_and_exit(vfork: *const u8) -> i32;
}

#[test]
fn vfork_returns_twice() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
    let mut copy = Copy::of(us_sites_vfork as *const u8, &raw const us_sites_vfork_end);
    let site = copy.only_site();
    assert_eq!((site.kind, site.nr), (Kind::CloneLike, Some(58)));
    let mut stub = [0; STUB_MAX];
    let written = emit_clone_stub(&site, copy.addr(STUB), copy.addr(SLOT), &mut stub).expect("in reach");
    copy.install(&site, &stub[..written.len], us_sites_enter as *const () as u64);
    // SAFETY: a static of this file, only written here, under the lock.
    unsafe { US_SITES_RESUME.store(written.resume_addr, Ordering::SeqCst) };
    // SAFETY: the copy is a whole vfork; the child makes nothing but one system call.
    let pid = unsafe { us_sites_vfork_and_exit(copy.base) };
    assert!(pid > 0, "vfork answered {pid}");
    let mut status = 0;
    // SAFETY: waits for the child just made; status is a local.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "status {status:#x}");
}

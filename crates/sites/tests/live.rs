//! The whole of it, on a living process: patches every system call of its own C library and dynamic linker,
//! then lives on: files, threads, signals, fork, exec. A wrong stub rarely survives that.

use std::arch::global_asm;
use std::ffi::{CStr, c_int, c_void};
use std::io::{Read, Seek, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use us_sites::{Kind, STUB_MAX, Site, emit_clone_stub, emit_patch, emit_stub, scan};

#[unsafe(no_mangle)]
static US_LIVE_PASSED: AtomicU64 = AtomicU64::new(0);

const CLONE_SITES: usize = 3;

unsafe extern "C" {
    fn us_live_gate();
    fn us_live_enter_0();
    fn us_live_enter_1();
    fn us_live_enter_2();
    /// Where each of the three goes after its system call.
    static US_LIVE_RESUME: [AtomicU64; CLONE_SITES];
}

global_asm!(
    ".pushsection .text.us_live_gate, \"ax\"",
    "us_live_gate:",
    "  lock inc qword ptr [rip + {passed}]",
    "  lea rsp, [rsp - 128]",
    "  push rcx",
    "  syscall",
    "  pop rcx",
    "  lea rsp, [rsp + 128]",
    "  mov r11d, 0x6b6b6b6b",
    "  jmp rcx",
    "us_live_enter_0: syscall",
    "  jmp qword ptr [rip + US_LIVE_RESUME]",
    "us_live_enter_1: syscall",
    "  jmp qword ptr [rip + US_LIVE_RESUME + 8]",
    "us_live_enter_2: syscall",
    "  jmp qword ptr [rip + US_LIVE_RESUME + 16]",
    ".popsection",
    ".pushsection .data.us_live_resume, \"aw\"",
    ".balign 8",
    "US_LIVE_RESUME: .quad 0, 0, 0",
    ".popsection",
    passed = sym US_LIVE_PASSED,
);

/// A library's text in this process.
#[derive(Clone, Copy)]
struct Text {
    addr: usize,
    len: usize,
}

unsafe extern "C" fn collect(info: *mut libc::dl_phdr_info, _: usize, texts: *mut c_void) -> c_int {
    // SAFETY: dl_iterate_phdr passes a valid description, and `texts` is the caller's vector.
    let (info, texts) = unsafe { (&*info, &mut *texts.cast::<Vec<Text>>()) };
    // SAFETY: the name is a C string that lives as long as the description.
    let name = unsafe { CStr::from_ptr(info.dlpi_name) }.to_bytes();
    if name.ends_with(b"/libc.so.6") || name.ends_with(b"/ld-linux-x86-64.so.2") {
        // SAFETY: the linker's own program headers.
        let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
        for header in headers.iter().filter(|h| h.p_type == libc::PT_LOAD && h.p_flags & libc::PF_X != 0) {
            let addr = info.dlpi_addr as usize + header.p_vaddr as usize;
            texts.push(Text { addr, len: header.p_filesz as usize });
        }
    }
    0
}

/// Readable, writable and executable memory within reach of `near`.
fn memory_near(near: usize, len: usize) -> *mut u8 {
    let prot = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    for step in 1..1000 {
        let wish = (near - (step << 20)) & !4095;
        // SAFETY: NOREPLACE takes nothing that is in use.
        let got = unsafe { libc::mmap(wish as *mut c_void, len, prot, flags, -1, 0) };
        if got as usize == wish {
            return got.cast();
        }
    }
    panic!("no free memory within 1 GiB below {near:#x}");
}

/// Patches one text and returns how many of its sites.
fn patch(text: Text, clones: &mut usize) -> usize {
    // SAFETY: the linker says that these bytes are loaded; nothing writes them while the slice lives.
    let code = unsafe { std::slice::from_raw_parts(text.addr as *const u8, text.len) };
    let mut sites = vec![Site::EMPTY; 2048];
    let found = scan(code, text.addr as u64, &mut sites).expect("2048 slots are enough");
    let pool = memory_near(text.addr, 2048 * STUB_MAX);
    let slots = pool.cast::<u64>();
    let enters = [us_live_enter_0, us_live_enter_1, us_live_enter_2];
    // SAFETY: the pool's first STUB_MAX bytes, the gate's slot at first, then those for the clones.
    unsafe {
        slots.write(us_live_gate as *const () as u64);
        (0..CLONE_SITES).for_each(|i| slots.add(1 + i).write(enters[i] as *const () as u64));
    }
    let (first, len) = (text.addr & !4095, (text.len + (text.addr & 4095) + 4095) & !4095);
    let all = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    // SAFETY: the library's own pages, which stay executable throughout.
    assert_eq!(unsafe { libc::mprotect(first as *mut c_void, len, all) }, 0);
    let mut patched = 0;
    for (i, site) in sites[..found].iter().enumerate().filter(|(_, s)| s.is_patchable()) {
        let stub_addr = pool as u64 + ((i + 1) * STUB_MAX) as u64;
        // SAFETY: the pool has a place of STUB_MAX bytes for every one of 2048 sites but the last.
        let out = unsafe { std::slice::from_raw_parts_mut(stub_addr as *mut u8, STUB_MAX) };
        if site.kind == Kind::CloneLike {
            let slot = pool as u64 + 8 * (1 + *clones as u64);
            let stub = emit_clone_stub(site, stub_addr, slot, out).expect("in reach");
            // SAFETY: a static of this file; no other thread exists.
            unsafe { US_LIVE_RESUME[*clones].store(stub.resume_addr, Ordering::SeqCst) };
            *clones += 1;
        } else {
            emit_stub(site, stub_addr, pool as u64, out).expect("in reach");
        }
        let (bytes, len) = emit_patch(site, stub_addr).expect("in reach");
        // SAFETY: the window lies in pages made writable above, and the only thread is here, not there.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), site.patch_addr() as *mut u8, len) };
        patched += 1;
    }
    patched
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn on_signal(_: c_int) {
    SIGNALS.fetch_add(1, Ordering::SeqCst);
}

fn files() {
    let mut file = tempfile().expect("a temporary file");
    file.write_all(b"every byte once").expect("written");
    file.rewind().expect("rewound");
    let mut text = String::new();
    file.read_to_string(&mut text).expect("read");
    assert_eq!(text, "every byte once");
    // An error must come back as one.
    assert_eq!(std::fs::read("/no/such/file").map_err(|e| e.raw_os_error()), Err(Some(libc::ENOENT)));
}

fn tempfile() -> std::io::Result<std::fs::File> {
    let path = std::env::temp_dir().join(format!("us-sites-live-{}", std::process::id()));
    let file = std::fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

fn threads() {
    let (count, all) = (Mutex::new(0), Condvar::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                *count.lock().expect("not poisoned") += 1;
                std::thread::sleep(Duration::from_millis(1));
                all.notify_all();
            });
        }
        let guard = count.lock().expect("not poisoned");
        drop(all.wait_while(guard, |n| *n < 8).expect("not poisoned"));
    });
}

fn signals() {
    // SAFETY: a handler that only counts, then a signal to this very thread.
    unsafe {
        libc::signal(libc::SIGUSR1, on_signal as *const () as libc::sighandler_t);
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
    }
    assert_eq!(SIGNALS.load(Ordering::SeqCst), 1, "the handler ran and returned");
}

fn processes() {
    // SAFETY: no other thread is alive, and the child exits at once.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: ends the child.
        unsafe { libc::_exit(9) };
    }
    let mut status = 0;
    // SAFETY: waits for the child just made; status is a local.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 9, "fork: status {status:#x}");
    let output =
        std::process::Command::new("sh").args(["-c", "echo alive; exit 3"]).output().expect("spawned");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"alive\n"[..]));
}

fn main() {
    let mut texts: Vec<Text> = Vec::new();
    // SAFETY: `collect` has the right type and gets the vector it expects.
    unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut texts).cast()) };
    assert_eq!(texts.len(), 2, "libc and the dynamic linker");
    let mut clones = 0;
    let patched: usize = texts.iter().map(|&text| patch(text, &mut clones)).sum();
    assert!(patched > 200 && clones == CLONE_SITES, "{patched} sites, {clones} of them clones");

    files();
    threads();
    signals();
    processes();
    let passed = US_LIVE_PASSED.load(Ordering::SeqCst);
    assert!(passed > 40, "only {passed} system calls came through the gate");
    println!("live: {patched} sites patched in this process, {passed} system calls through the gate");
}

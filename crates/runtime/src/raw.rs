//! System calls made by the runtime itself.
//!
//! # Safety
//! They come from the runtime's own text, the one range that syscall user dispatch lets pass, so nothing
//! here is ever logged or refused. Whoever calls [`call6`] signs for what the kernel will do.

use core::arch::{asm, naked_asm};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::context::{Context, reg};
use crate::kernel::FUTEX_WAKE;
pub use crate::kernel::{err, nr};

/// Command of System V's objects that asks what one is: no header that we have names it.
pub const IPC_STAT: u64 = 2;

/// Whether a kernel result is an error.
#[inline(always)]
pub const fn failed(result: i64) -> bool {
    result < 0 && result > -4096
}

/// One system call with six arguments.
///
/// # Safety
/// The caller vouches for the arguments and for what the call does to this process.
#[inline(always)]
pub unsafe fn call6(nr: u64, a: [u64; 6]) -> i64 {
    let result: i64;
    // SAFETY: the syscall instruction clobbers rcx and r11 and nothing else; the rest is the caller's promise.
    unsafe {
        asm!("syscall", inlateout("rax") nr as i64 => result, in("rdi") a[0], in("rsi") a[1], in("rdx") a[2],
            in("r10") a[3], in("r8") a[4], in("r9") a[5], lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    result
}

macro_rules! short_calls {
    ($($name:ident($($arg:ident),*);)*) => { $(
        /// A system call with fewer arguments; see [`call6`].
        ///
        /// # Safety
        /// As for [`call6`].
        #[inline(always)]
        pub unsafe fn $name(nr: u64, $($arg: u64),*) -> i64 {
            let mut all = [0u64; 6];
            let given = [$($arg),*];
            let mut i = 0;
            while i < given.len() { all[i] = given[i]; i += 1; }
            // SAFETY: the caller's promise is passed on.
            unsafe { call6(nr, all) }
        }
    )* };
}
short_calls! { call1(a); call2(a, b); call3(a, b, c); call4(a, b, c, d); }

/// A system call that may block, not entered when a signal has been queued for this thread.
///
/// Between a look for queued signals and the system call lies an instruction at which a signal would be
/// slept through. The signal handler knows the window by its two labels and moves the thread to the exit.
/// A call that the kernel itself begins anew lands on the `syscall` instruction, inside the window. Either comes back as
/// EINTR with [`Look::unentered`] set: natively the handler would have run first and the call been made then.
///
/// # Safety
/// As for [`call6`]; `look` must be readable and writable.
#[inline(always)]
pub unsafe fn blocking(nr: u64, args: *const [u64; 6], look: *const Look) -> i64 {
    let mut nobody_looks = [0u64; 2];
    // SAFETY: the caller's promise is passed on; the mark lies in this frame.
    unsafe { marked(nr, args, look, nobody_looks.as_mut_ptr()) }
}

/// What a call that may block looks at before it is made, and what it leaves behind.
#[repr(C)]
#[derive(Debug)]
pub struct Look {
    /// Not zero: the call is not to be made.
    pending: AtomicU32,
    /// Whether the last call's EINTR is not the kernel's: it was not made.
    unentered: AtomicU32,
}

impl Look {
    /// Nothing waits.
    pub const fn new() -> Look {
        Look { pending: AtomicU32::new(0), unentered: AtomicU32::new(0) }
    }

    /// Whether something waits, not zero.
    #[inline(always)]
    pub fn load(&self, order: Ordering) -> u32 {
        self.pending.load(order)
    }

    /// Something waits, or nothing any more.
    #[inline(always)]
    pub fn store(&self, pending: u32, order: Ordering) {
        self.pending.store(pending, order);
    }

    /// Whether the kernel was not entered with the thread's last such call, which has said EINTR.
    pub fn was_unentered(&self) -> bool {
        self.unentered.load(Ordering::Relaxed) != 0
    }
}

/// As [`blocking`], and copies the second word at `mark` to the first as the last thing before the system call: in
/// shared memory it shows whoever comes later that the kernel was entered, or was one instruction away.
///
/// # Safety
/// As for [`blocking`]; `mark` must point at two words and be writable.
#[unsafe(naked)]
pub unsafe extern "C" fn marked(
    _nr: u64,
    _args: *const [u64; 6],
    _look: *const Look,
    _mark: *mut u64,
) -> i64 {
    naked_asm!(
        // A cancellation unwinds from inside the system call: without these the unwinder stops here.
        ".cfi_startproc",
        "mov rax, rdi",
        "mov r10, rsi",
        "mov r11, rdx",
        "mov dword ptr [r11 + {unentered}], 0",
        "mov rdi, [r10]",
        "mov rsi, [r10 + 8]",
        "mov rdx, [r10 + 16]",
        "mov r8, [r10 + 32]",
        "mov r9, [r10 + 40]",
        "mov r10, [r10 + 24]",
        ".globl us_window_start",
        ".hidden us_window_start",
        "us_window_start:",
        "cmp dword ptr [r11], 0",
        "jne us_window_exit",
        "mov r11, [rcx + 8]",
        "mov [rcx], r11",
        "syscall",
        ".globl us_window_end",
        ".hidden us_window_end",
        "us_window_end:",
        // Not `ret`: coming out of the kernel the processor has lost track of its returns, and each costs a
        // misprediction. rcx is free, the system call has destroyed it.
        "pop rcx",
        ".cfi_def_cfa_offset 0",
        ".cfi_register rip, rcx",
        "jmp rcx",
        ".cfi_def_cfa_offset 8",
        ".cfi_offset rip, -8",
        ".globl us_window_exit",
        ".hidden us_window_exit",
        "us_window_exit:",
        "mov dword ptr [r11 + {unentered}], 1",
        "mov rax, -4",
        "ret",
        ".cfi_endproc",
        unentered = const core::mem::offset_of!(Look, unentered),
    )
}

unsafe extern "C" {
    static us_window_start: u8;
    static us_window_end: u8;
    static us_window_exit: u8;
}

/// In a signal handler: if the thread stands where a queued signal would be slept through, it goes on behind the call that it
/// was about to make. True if so.
pub fn rewind(context: &mut Context, look: &Look) -> bool {
    if !is_in_window(context.regs[reg::RIP]) {
        return false;
    }
    context.regs[reg::RIP] = &raw const us_window_exit as u64;
    // Given up by the window's last instructions, and wanted at the exit.
    context.regs[reg::R11] = &raw const *look as u64;
    true
}

/// Whether a thread at `ip` has looked for queued signals and not yet entered the kernel.
pub fn is_in_window(ip: u64) -> bool {
    ip >= &raw const us_window_start as u64 && ip < &raw const us_window_end as u64
}

/// Whether `ip` lies right behind such a system call.
pub fn is_window_end(ip: u64) -> bool {
    ip == &raw const us_window_end as u64
}

const FUTEX_WAIT: u64 = linux_raw_sys::general::FUTEX_WAIT as u64;
const FUTEX_PRIVATE: u64 = linux_raw_sys::general::FUTEX_PRIVATE_FLAG as u64;

/// A relative time for the kernel.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Timespec {
    /// Seconds.
    pub sec: i64,
    /// Nanoseconds, below a thousand million.
    pub nsec: i64,
}

impl Timespec {
    /// From nanoseconds.
    pub const fn from_ns(ns: u64) -> Timespec {
        Timespec { sec: (ns / 1_000_000_000) as i64, nsec: (ns % 1_000_000_000) as i64 }
    }
    /// To nanoseconds; what lies before the epoch reads as zero.
    pub const fn ns(&self) -> u64 {
        if self.sec < 0 {
            0
        } else {
            (self.sec as u64).wrapping_mul(1_000_000_000).wrapping_add(self.nsec as u64)
        }
    }
}

/// Sleeps while `word` holds `value`, at most `timeout_ns` (0 = for ever). A word of this process only.
pub fn futex_wait(word: &AtomicU32, value: u32, timeout_ns: u64) -> i64 {
    wait(word, value, timeout_ns, FUTEX_PRIVATE)
}

/// As [`futex_wait`], on a word in the shared segment.
pub fn futex_wait_shared(word: &AtomicU32, value: u32, timeout_ns: u64) -> i64 {
    wait(word, value, timeout_ns, 0)
}

fn wait(word: &AtomicU32, value: u32, timeout_ns: u64, flags: u64) -> i64 {
    let time = Timespec::from_ns(timeout_ns);
    let time = if timeout_ns == 0 { core::ptr::null() } else { &raw const time };
    // SAFETY: the word and the time outlive the call; a futex wait changes no memory.
    unsafe { call4(nr::FUTEX, word.as_ptr() as u64, FUTEX_WAIT | flags, value as u64, time as u64) }
}

/// Wakes up to `count` waiters of a word of this process.
pub fn futex_wake(word: &AtomicU32, count: u32) {
    // SAFETY: a wake touches no memory.
    unsafe { call3(nr::FUTEX, word.as_ptr() as u64, FUTEX_WAKE | FUTEX_PRIVATE, count as u64) };
}

/// Wakes every waiter of a word in the shared segment.
pub fn futex_wake_shared(word: &AtomicU32) {
    // SAFETY: a wake touches no memory.
    unsafe { call3(nr::FUTEX, word.as_ptr() as u64, FUTEX_WAKE, i32::MAX as u64) };
}

/// Wakes one waiter of a word in the shared segment.
pub fn futex_wake_one_shared(word: &AtomicU32) {
    // SAFETY: a wake touches no memory.
    unsafe { call3(nr::FUTEX, word.as_ptr() as u64, FUTEX_WAKE, 1) };
}

/// Calls `f` with each name in a folder that is a number, and with the descriptor by which the folder is read. False if it cannot
/// be.
pub fn each_number(path: &CStr, mut f: impl FnMut(u64, u64)) -> bool {
    const DIRECTORY: u64 = 0o2200000;
    let mut buffer = [0u64; 256];
    // SAFETY: opens a folder, reads entries into our buffer, closes it.
    unsafe {
        let folder = call3(nr::OPEN, path.as_ptr() as u64, DIRECTORY, 0);
        let Ok(folder) = u64::try_from(folder) else { return false };
        loop {
            let room = size_of_val(&buffer) as u64;
            let got = call3(nr::GETDENTS64, folder, buffer.as_mut_ptr() as u64, room);
            if got <= 0 {
                break;
            }
            let mut at = 0usize;
            while at < got as usize {
                // struct dirent64: ino, off, u16 length, u8 type, name.
                let entry = buffer.as_ptr().cast::<u8>().add(at);
                let len = entry.add(16).cast::<u16>().read_unaligned() as usize;
                let name = core::slice::from_raw_parts(entry.add(19), len - 19);
                let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
                if let Some(number) = decimal(&name[..end]) {
                    f(number, folder);
                }
                at += len;
            }
        }
        call1(nr::CLOSE, folder);
    }
    true
}

/// Reads the beginning of the file at this path; its descriptor does not stay. The bytes' number, or an error.
pub fn read_path(path: &CStr, into: &mut [u8]) -> i64 {
    const CLOSE_ON_EXEC: u64 = 0o2000000;
    // SAFETY: opens a file, reads into the caller's bytes, closes it.
    unsafe {
        let file = call3(nr::OPEN, path.as_ptr() as u64, CLOSE_ON_EXEC, 0);
        let Ok(opened) = u64::try_from(file) else { return file };
        let bytes = call3(nr::READ, opened, into.as_mut_ptr() as u64, into.len() as u64);
        call1(nr::CLOSE, opened);
        bytes
    }
}

/// A number in decimal digits.
pub fn decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |value, digit| Some(value * 10 + u64::from((*digit as char).to_digit(10)?)))
}

/// Whether a number of this process's table of descriptors stands for anything.
pub fn is_open(fd: i32) -> bool {
    use crate::kernel::F_GETFD;
    // SAFETY: asks for a flag.
    !failed(unsafe { call2(nr::FCNTL, fd as u64, F_GETFD) })
}

/// The header of the calling thread's capabilities, of the third version.
pub const CAP_HEADER: [u32; 2] = [0x2008_0522, 0];

/// The calling thread's capabilities: effective, permitted and inheritable, the lower halves and then the upper ones. `None` where
/// the kernel does not say.
pub fn capabilities() -> Option<[u32; 6]> {
    use nr::CAPGET;
    let mut words = [0; 6];
    // SAFETY: the kernel reads a header and writes six words.
    let asked = unsafe { call2(CAPGET, CAP_HEADER.as_ptr() as u64, words.as_mut_ptr() as u64) };
    (asked == 0).then_some(words)
}

/// A short sleep, ns; a signal may end it early.
pub fn nap(ns: u64) {
    let pause = Timespec::from_ns(ns);
    // SAFETY: the kernel reads the time.
    unsafe { call2(nr::NANOSLEEP, &raw const pause as u64, 0) };
}

/// Waits until a thread of this process, one of the runtime's own that is at its end, is gone for the kernel as well: a
/// program may count its threads. The word that the kernel clears is cleared before.
pub fn await_end(tid: u32) {
    while tid != 0 && has_thread(tid) {
        nap(10_000);
    }
}

/// Whether the kernel has a thread of this process of that number.
pub fn has_thread(tid: u32) -> bool {
    // SAFETY: signal 0 only asks.
    unsafe { call3(nr::TGKILL, call1(nr::GETPID, 0) as u64, u64::from(tid), 0) != err::ESRCH }
}

/// CLOCK_MONOTONIC, ns, by system call: for rare moments.
pub fn now_ns() -> u64 {
    let mut time = Timespec::default();
    // SAFETY: the kernel writes one timespec.
    unsafe { call2(nr::CLOCK_GETTIME, 1, &raw mut time as u64) };
    time.ns()
}

/// CLOCK_REALTIME, ns, by system call.
pub fn real_ns() -> u64 {
    let mut time = Timespec::default();
    // SAFETY: the kernel writes one timespec.
    unsafe { call2(nr::CLOCK_GETTIME, 0, &raw mut time as u64) };
    time.ns()
}

/// Processor time of a thread of this process, ns; 0 if there is none of that number.
pub fn computed_ns(tid: u32) -> u64 {
    const OF_THREAD: u32 = 6; // CPUCLOCK_SCHED and CPUCLOCK_PERTHREAD_MASK
    let clock = (!tid << 3 | OF_THREAD) as i32;
    let mut time = Timespec::default();
    // SAFETY: the kernel writes one timespec.
    unsafe { call2(nr::CLOCK_GETTIME, clock as i64 as u64, &raw mut time as u64) };
    time.ns()
}

/// The same of all threads of a process.
pub fn computed_by(pid: u32) -> u64 {
    const OF_PROCESS: u32 = 2; // CPUCLOCK_SCHED
    let clock = (!pid << 3 | OF_PROCESS) as i32;
    let mut time = Timespec::default();
    // SAFETY: the kernel writes one timespec.
    unsafe { call2(nr::CLOCK_GETTIME, clock as i64 as u64, &raw mut time as u64) };
    time.ns()
}

/// The same of this process.
pub fn computed_by_all() -> u64 {
    computed_by(0)
}

/// This thread's kernel id.
pub fn gettid() -> u32 {
    // SAFETY: no arguments, no effect.
    unsafe { call1(nr::GETTID, 0) as u32 }
}

/// This thread's robust list: the head's address, 0 without one, and the head's size, bytes. `None` where the question is refused.
pub fn robust_list() -> Option<[u64; 2]> {
    let mut list = [0u64; 2];
    let [head, len] = &mut list;
    // SAFETY: the kernel writes two words.
    let result = unsafe { call3(nr::GET_ROBUST_LIST, 0, &raw mut *head as u64, &raw mut *len as u64) };
    (result == 0).then_some(list)
}

/// What poll says of a descriptor at this moment: the events of `events` that are there, and errors.
pub fn poll(fd: i32, events: u64) -> i64 {
    let mut poll = (fd as u32 as u64) | events << 32;
    // SAFETY: the kernel reads and writes one struct pollfd; it does not wait.
    let ready = unsafe { call3(nr::POLL, &raw mut poll as u64, 1, 0) };
    if ready == 1 { (poll >> 48) as i64 } else { 0 }
}

/// Writes a message to standard error, for last words only.
pub fn stderr(text: &[u8]) {
    // SAFETY: the kernel reads `text`.
    unsafe { call3(nr::WRITE, 2, text.as_ptr() as u64, text.len() as u64) };
}

/// Stores and wakes in one: for words that somebody sleeps on.
pub fn set_and_wake(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Release);
    futex_wake(word, u32::MAX >> 1);
}

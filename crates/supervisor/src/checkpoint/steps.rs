//! System calls that a process makes one after the other while there is nothing else in it.
//!
//! Whoever becomes another program's memory has to give up its own, and with it the code that it runs. So all that is left to do
//! is written down as a list of system calls, in a piece of memory that lies in nobody's way, with a few instructions that make
//! them: those need no stack and no data but the list.
//!
//! # Safety
//! [`Steps::run`] says what its caller promises.

use std::arch::naked_asm;
use std::os::fd::RawFd;

/// Words of one step: the call's number, its six arguments, and the result that it must have.
const WORDS: usize = 8;

/// Of a result: any that is no error.
const ANY: u64 = u64::MAX;

/// A list of steps, in memory of their own.
pub(super) struct Steps {
    base: u64,
    bytes: u64,
    /// Where the next data goes, from the start.
    data: u64,
    words: Vec<[u64; WORDS]>,
}

/// Where to go on behind the last step.
pub(super) struct Then {
    /// The function: it gets the next, and start and length of the list's memory.
    pub(super) function: u64,
    /// Its first argument.
    pub(super) argument: u64,
}

const PAGE: u64 = 4096;
/// The instructions' own page, and behind it one for data.
const DATA_AT: u64 = PAGE;
const STEPS_AT: u64 = 4 * PAGE;

impl Steps {
    /// Maps memory for at most `count` steps and `room` bytes behind them, at a place that is free.
    pub(super) fn map(base: u64, count: usize, room: u64) -> std::io::Result<Steps> {
        let bytes = (STEPS_AT + ((count + 1) * WORDS * 8) as u64).next_multiple_of(PAGE) + room;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: new memory where nothing is.
        let got = unsafe {
            libc::mmap(base as *mut _, bytes as usize, libc::PROT_READ | libc::PROT_WRITE, how, -1, 0)
        };
        if got as u64 != base {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Steps { base, bytes, data: DATA_AT, words: Vec::with_capacity(count) })
    }

    /// First byte, and the one behind the last.
    pub(super) fn range(&self) -> (u64, u64) {
        (self.base, self.base + self.bytes)
    }

    /// Where the room behind the steps begins.
    pub(super) fn room(&self, room: u64) -> u64 {
        self.base + self.bytes - room
    }

    /// Puts bytes where they stay until the end; their address. `None` where there is no more room.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> Option<u64> {
        let at = self.data.next_multiple_of(16);
        if at + bytes.len() as u64 > STEPS_AT {
            return None;
        }
        // SAFETY: inside our own memory, in front of the steps.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.base + at) as *mut u8, bytes.len()) };
        self.data = at + bytes.len() as u64;
        Some(self.base + at)
    }

    /// A call that must not fail.
    pub(super) fn call(&mut self, number: i64, arguments: &[u64]) {
        self.must(number, arguments, ANY);
    }

    /// A call that must have this result.
    pub(super) fn must(&mut self, number: i64, arguments: &[u64], result: u64) {
        let mut words = [0; WORDS];
        words[0] = number as u64;
        words[1..=arguments.len()].copy_from_slice(arguments);
        words[7] = result;
        self.words.push(words);
    }

    /// Makes all calls, and goes on as `then` says. A call that fails is told to `report`: its words, with the result in the place
    /// of the one that it must have; then the process ends.
    ///
    /// # Safety
    /// The process has one thread, and nothing of it is needed any more but what the steps put in place; `then` is a function there.
    pub(super) unsafe fn run(self, report: RawFd, then: &Then) -> ! {
        let steps = (self.base + STEPS_AT) as *mut u64;
        // SAFETY: inside our own memory, with room for one more than there may be; the instructions fit a page.
        unsafe {
            for (at, word) in self.words.iter().flatten().enumerate() {
                steps.add(at).write(*word);
            }
            let last = steps.add(self.words.len() * WORDS);
            for (at, word) in [then.argument, self.base, self.bytes, then.function].into_iter().enumerate() {
                last.add(at).write(word);
            }
            let code = self.base as *mut u8;
            std::ptr::copy_nonoverlapping(interpreter as *const u8, code, PAGE as usize / 8);
            libc::mprotect(code.cast(), PAGE as usize, libc::PROT_READ | libc::PROT_EXEC);
            std::arch::asm!(
                "jmp rax",
                in("rax") code,
                in("r12") self.words.len(),
                in("r13") report as u64,
                in("r14") steps,
                options(noreturn),
            )
        }
    }
}

/// Needs r12, the number of steps, r13, the report, and r14, the first step. No stack; runs wherever its bytes lie.
#[unsafe(naked)]
unsafe extern "C" fn interpreter() {
    naked_asm!(
        "2: test r12, r12",
        "jz 5f",
        "mov rax, [r14]",
        "mov rdi, [r14 + 8]",
        "mov rsi, [r14 + 16]",
        "mov rdx, [r14 + 24]",
        "mov r10, [r14 + 32]",
        "mov r8, [r14 + 40]",
        "mov r9, [r14 + 48]",
        "syscall",
        "cmp rax, -4095",
        "jae 4f",
        "mov rcx, [r14 + 56]",
        "cmp rcx, -1",
        "je 3f",
        "cmp rax, rcx",
        "jne 4f",
        "3: add r14, 64",
        "dec r12",
        "jmp 2b",
        "4: mov [r14 + 56], rax",
        "mov rdi, r13",
        "mov rsi, r14",
        "mov edx, 64",
        "mov eax, 1",
        "syscall",
        "mov edi, 125",
        "mov eax, 231",
        "syscall",
        "5: mov rdi, [r14]",
        "mov rsi, [r14 + 8]",
        "mov rdx, [r14 + 16]",
        "jmp qword ptr [r14 + 24]",
    )
}

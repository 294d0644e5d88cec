//! A process that is followed instruction by instruction.

use std::collections::HashMap;
use std::io::Error;

use anyhow::{Context, Result, bail};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess};
use libc::{c_int, c_long, c_uint, pid_t};
use us_sites::maps::{self, EXEC, Line};

/// Instructions and stores of one passage between two marks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cost {
    /// Instructions executed.
    pub instructions: u64,
    /// Of these, those that write memory.
    pub stores: u64,
    /// Returns behind a system call from functions that were called before it: each costs a misprediction.
    pub returns: u64,
}

/// What is known of an instruction of ours.
#[derive(Clone, Copy)]
struct Seen {
    stores: bool,
    step: Step,
}

/// What an instruction does to the processor's record of returns.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    Call,
    Return,
    SystemCall,
    Other,
}

/// A traced thread that stands still.
pub struct Traced {
    pid: pid_t,
    seen: HashMap<u64, Seen>,
    /// Text that is not counted: the program's, libc's, the loader's.
    passed_over: Vec<(u64, u64)>,
}

impl Drop for Traced {
    fn drop(&mut self) {
        // SAFETY: a process that this one traces, so the number is its still.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
    }
}

const LONGEST: usize = 15;

fn ptrace(request: c_uint, pid: pid_t, address: u64, data: u64) -> Result<c_long> {
    // SAFETY: each request below names memory of the traced process, or a structure of ours that outlives the call.
    let result = unsafe { libc::ptrace(request, pid, address, data) };
    if result == -1 {
        return Err(Error::last_os_error()).with_context(|| format!("ptrace request {request}"));
    }
    Ok(result)
}

impl Traced {
    /// Stops a thread and has it to itself.
    pub fn seize(pid: u32) -> Result<Traced> {
        let pid = pid as pid_t;
        ptrace(libc::PTRACE_SEIZE, pid, 0, 0)?;
        ptrace(libc::PTRACE_INTERRUPT, pid, 0, 0)?;
        let mut traced = Traced { pid, seen: HashMap::new(), passed_over: Vec::new() };
        traced.wait()?;
        traced.passed_over = traced.foreign_text()?;
        Ok(traced)
    }

    /// Lets the thread run to an instruction, which is executed next.
    pub fn run_to(&mut self, address: u64) -> Result<()> {
        const BREAKPOINT: u8 = 0xcc;
        let word = self.peek(address)?;
        self.poke(address, word & !0xff | u64::from(BREAKPOINT))?;
        let mut registers = loop {
            self.resume(libc::PTRACE_CONT)?;
            let registers = self.registers()?;
            if registers.rip == address + 1 {
                break registers;
            }
        };
        self.poke(address, word)?;
        registers.rip = address;
        ptrace(libc::PTRACE_SETREGS, self.pid, 0, &raw const registers as u64).map(drop)
    }

    /// Steps to an instruction, and counts what lies in the text of ours.
    pub fn count_to(&mut self, address: u64, mut seen: impl FnMut(u64)) -> Result<Cost> {
        const MOST: u64 = 2_000_000;
        let mut cost = Cost::default();
        // Calls since the last system call that have not returned.
        let mut open = None;
        for _ in 0..MOST {
            let at = self.registers()?.rip;
            if at == address {
                return Ok(cost);
            }
            if !self.passed_over.iter().any(|(start, end)| (*start..*end).contains(&at)) {
                seen(at);
                cost.instructions += 1;
                let instruction = self.instruction_at(at)?;
                cost.stores += u64::from(instruction.stores);
                open = match (instruction.step, open) {
                    (Step::SystemCall, _) => Some(0),
                    (Step::Call, Some(calls)) => Some(calls + 1),
                    (Step::Return, Some(0)) => {
                        cost.returns += 1;
                        Some(0)
                    }
                    (Step::Return, Some(calls)) => Some(calls - 1),
                    (_, open) => open,
                };
            }
            self.resume(libc::PTRACE_SINGLESTEP)?;
        }
        bail!("the program did not come to its mark in {MOST} instructions")
    }

    /// Resumes the thread until it is trapped for us. Signals that are the process's own are handed on.
    fn resume(&mut self, request: c_uint) -> Result<()> {
        let mut signal = 0;
        while signal != libc::SIGTRAP {
            ptrace(request, self.pid, 0, signal as u64)?;
            signal = self.wait()?;
        }
        Ok(())
    }

    fn wait(&mut self) -> Result<c_int> {
        let mut status = 0;
        // SAFETY: the kernel writes the status.
        if unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) } != self.pid {
            return Err(Error::last_os_error()).context("wait for the traced process");
        }
        if !libc::WIFSTOPPED(status) {
            bail!("the traced process has ended (status {status:#x})");
        }
        Ok(libc::WSTOPSIG(status))
    }

    fn registers(&self) -> Result<libc::user_regs_struct> {
        // SAFETY: plain numbers, for which zeros are values.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETREGS, self.pid, 0, &raw mut registers as u64)?;
        Ok(registers)
    }

    fn peek(&self, address: u64) -> Result<u64> {
        let mut word = [0u8; 8];
        self.read(address, &mut word)?;
        Ok(u64::from_le_bytes(word))
    }

    fn poke(&self, address: u64, word: u64) -> Result<()> {
        ptrace(libc::PTRACE_POKEDATA, self.pid, address, word).map(drop)
    }

    fn read(&self, address: u64, to: &mut [u8]) -> Result<usize> {
        let local = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
        let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: to.len() };
        // SAFETY: the kernel writes into `to`.
        let got = unsafe { libc::process_vm_readv(self.pid, &raw const local, 1, &raw const remote, 1, 0) };
        usize::try_from(got).map_err(|_| Error::last_os_error()).context("read the traced process's memory")
    }

    fn instruction_at(&mut self, address: u64) -> Result<Seen> {
        if let Some(seen) = self.seen.get(&address) {
            return Ok(*seen);
        }
        let mut bytes = [0u8; LONGEST];
        let got = self.read(address, &mut bytes)?;
        let instruction = Decoder::with_ip(64, &bytes[..got], address, DecoderOptions::NONE).decode();
        let mut factory = InstructionInfoFactory::new();
        let writes = |access| {
            matches!(
                access,
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            )
        };
        let stores = factory.info(&instruction).used_memory().iter().any(|memory| writes(memory.access()));
        let step = match instruction.flow_control() {
            _ if instruction.code() == Code::Syscall => Step::SystemCall,
            FlowControl::Call | FlowControl::IndirectCall => Step::Call,
            FlowControl::Return => Step::Return,
            _ => Step::Other,
        };
        let seen = Seen { stores, step };
        self.seen.insert(address, seen);
        Ok(seen)
    }

    /// Where the runtime lies.
    pub fn runtime_base(&self) -> Result<u64> {
        let maps = self.maps()?;
        let (map, _) = mappings(&maps).find(|(_, path)| is_runtime(path)).context("the runtime's text")?;
        Ok(map.start)
    }

    /// The text of files that are not the runtime, and the kernel's vDSO: how often that goes round depends on the time. The stubs
    /// of patched sites have no file, and are counted.
    fn foreign_text(&self) -> Result<Vec<(u64, u64)>> {
        let maps = self.maps()?;
        let is_file_or_vdso = |path: &[u8]| path.starts_with(b"/") || path == b"[vdso]";
        let is_foreign = |path: &[u8]| is_file_or_vdso(path) && !is_runtime(path);
        let text = mappings(&maps).filter(|(map, path)| map.protection & EXEC != 0 && is_foreign(path));
        Ok(text.map(|(map, _)| (map.start, map.end)).collect())
    }

    fn maps(&self) -> Result<String> {
        Ok(std::fs::read_to_string(format!("/proc/{}/maps", self.pid))?)
    }
}

fn is_runtime(path: &[u8]) -> bool {
    path.ends_with(b"libunderstudy.so")
}

/// Each mapping, and what is mapped there.
fn mappings(maps: &str) -> impl Iterator<Item = (Line, &[u8])> {
    maps.lines().map(str::as_bytes).filter_map(|line| Some((Line::parse(line)?, maps::path(line))))
}

//! A process of a checkpoint: a new one makes its descriptors, and then, by [`Steps`], gives up its memory for that one's.
//!
//! # Safety
//! Between the fork and the steps it is a process of one thread, made by one.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use checkpoint::{Mapping, Object, Process};
use us_abi::{
    REGISTRY_ADDRESS, REGISTRY_BYTES, ROSTER_ADDRESS, ROSTER_BYTES, SEGMENT_ADDRESS, SEGMENT_BYTES,
};
use us_sites::maps::{Line, WRITE};

use super::restore::Checkpoint;
use super::runs::{From, Run};
use super::steps::{Steps, Then};
use super::{describe, objects, raw, rights};
use crate::dir::Dir;
use crate::folder::member;
use crate::proc;
use crate::roster;

/// Where a program goes on.
pub(super) struct Home<'a> {
    /// The group's folder.
    pub(super) dir: &'a Dir,
    /// Its whole path.
    pub(super) folder: &'a Path,
    /// The name of the program's segment there.
    pub(super) name: &'a str,
    /// What it does is told to it, and it makes no call of its own.
    pub(super) replays: bool,
    /// It has objects of its own all the same: another machine follows. These are to be the numbers of the descriptors at which it shows
    /// standard output and error.
    pub(super) shown: Option<[RawFd; 2]>,
}

impl Home<'_> {
    fn folder_bytes(&self) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt;
        let mut bytes = self.folder.as_os_str().as_bytes().to_vec();
        bytes.extend(b"/\0");
        bytes
    }
}

/// What all processes that are put together at once have in common.
pub(super) struct Common<'a> {
    pub(super) home: &'a Home<'a>,
    /// The files of memory that processes share.
    pub(super) memory: &'a [File],
    /// Objects that several have, by number: a descriptor of each, -1 for one that each makes for itself.
    pub(super) objects: Vec<RawFd>,
    /// Above every descriptor of every process.
    pub(super) above: RawFd,
    /// The kernel's numbers of the processes, 0 for one that is not in its session and process group yet.
    pub(super) numbers: &'a [AtomicU32],
    /// A pidfd of a process that has ended, if one is wanted.
    pub(super) ended: Option<OwnedFd>,
    /// Each takes one byte here before it goes on.
    pub(super) gate: &'a OwnedFd,
}

/// A process that is about to be one of a checkpoint.
pub(super) struct Image<'a> {
    pub(super) checkpoint: &'a Checkpoint,
    pub(super) index: usize,
    pub(super) common: &'a Common<'a>,
}

impl Image<'_> {
    fn process(&self) -> &Process {
        &self.checkpoint.head().processes[self.index]
    }

    /// As the new process: becomes the other one. What it returns is why not. One byte in the report says that it waits at the gate.
    pub(super) fn become_it(&self, report: &OwnedFd) -> String {
        let text = |cause: io::Error| cause.to_string();
        let made = self
            .join_group()
            .and_then(|()| self.make_descriptors(report))
            .and_then(|made| Ok((self.steps(&made).map_err(text)?, made)));
        match made {
            Err(why) => why,
            // SAFETY: this is a process of one thread, of which nothing else is wanted; the checkpoint says where to go on.
            Ok((steps, made)) => unsafe {
                be_quiet();
                let place = &self.process().resumes;
                let then = Then { function: place.resume, argument: place.context };
                steps.run(made.report, &then)
            },
        }
    }

    /// Goes to its process group, and says its number then. Its session it has from whoever has made it.
    fn join_group(&self) -> Result<(), String> {
        let all = &self.checkpoint.head().processes;
        let process = self.process();
        // That of a session whose leader is gone has come with it.
        if let Some(leader) = process.group.and_then(|group| leader_of(all, group)) {
            let number = if leader == self.index { 0 } else { self.number_of(leader) };
            // Whoever leads a session is in its group already.
            let _ = rustix::process::setpgid(None, crate::child::raw(number));
        }
        self.common.numbers[self.index].store(std::process::id(), Ordering::Release);
        Ok(())
    }

    /// The kernel's number of another process, once that has said it; 0 if it does not.
    fn number_of(&self, index: usize) -> u32 {
        const LOOKS: u32 = 2000;
        const PAUSE: Duration = Duration::from_millis(1);
        let Some(number) = self.common.numbers.get(index) else { return 0 };
        for _ in 0..LOOKS {
            if number.load(Ordering::Acquire) != 0 {
                break;
            }
            std::thread::sleep(PAUSE);
        }
        number.load(Ordering::Acquire)
    }

    /// A pidfd of a process, or of one that has ended.
    fn open_process(&self, index: Option<usize>) -> Result<OwnedFd, String> {
        let cannot = |cause: io::Error| format!("cannot open the process: {cause}");
        let Some(index) = index else {
            let ended = self.common.ended.as_ref().ok_or("there is no process that has ended")?;
            return ended.try_clone().map_err(cannot);
        };
        let number = crate::child::raw(self.number_of(index)).ok_or("the process has not come")?;
        rustix::process::pidfd_open(number, rustix::process::PidfdFlags::empty())
            .map_err(|cause| cannot(cause.into()))
    }

    // ---- Descriptors ----

    /// Makes every descriptor of the program, and moves what the steps need above them.
    fn make_descriptors(&self, report: &OwnedFd) -> Result<Made, String> {
        let (head, process, common) = (self.checkpoint.head(), self.process(), self.common);
        let above = common.above;
        let segment = match self.index {
            0 => common.home.name.to_owned(),
            _ => member(process.pid),
        };
        let dir = common.home.dir;
        let lift = |fd: RawFd| {
            raw::lift(fd, above)
                .map_err(|cause| format!("cannot keep a descriptor above the program's: {cause}"))
        };
        let open = |path: &Path, how: i32| -> Result<RawFd, String> {
            let file = std::fs::OpenOptions::new().read(true).write(how != libc::O_RDONLY).open(path);
            let file = file.map_err(|cause| format!("cannot open {}: {cause}", path.display()))?;
            lift(file.as_raw_fd())
        };
        let [file, pages] = self.checkpoint.sources();
        let mut made = Made {
            report: lift(report.as_raw_fd())?,
            file: lift(file.as_raw_fd())?,
            pages: lift(pages.as_raw_fd())?,
            segment: open(&dir.at(segment), libc::O_RDWR)?,
            roster: open(&dir.at(roster::NAME), libc::O_RDWR)?,
            registry: open(&dir.at(roster::REGISTRY), libc::O_RDWR)?,
            // Only who has the right may say whose file it executes.
            executable: match proc::can_name_executables() {
                true => Some(open(Path::new(&process.executable), libc::O_RDONLY)?),
                false => None,
            },
            files: Vec::new(),
            memory: Vec::new(),
            gate: lift(common.gate.as_raw_fd())?,
            above,
            folder: common.home.folder_bytes(),
        };
        // What another process has mapped this one need not be able to open.
        for (index, file) in head.files.iter().enumerate() {
            let mut all = process.mappings.iter().filter(|one| one.file.is_some_and(|(of, _)| of == index));
            let is_written = all.clone().any(|one| one.through);
            let how = if is_written { libc::O_RDWR } else { libc::O_RDONLY };
            let is_its = all.next().is_some();
            made.files.push(match objects::locked(head, process, &file.path) {
                Some(fd) if is_its => fd,
                None if is_its => open(Path::new(&file.path), how)?,
                _ => -1,
            });
        }
        for memory in common.memory {
            made.memory.push(lift(memory.as_raw_fd())?);
        }
        if common.home.replays && common.home.shown.is_none() {
            // What it shows it shows where we do. Its folder may be gone, and nothing of its own is opened there.
            let _ = std::env::set_current_dir(&process.folder);
        } else {
            self.take_place(&made, &lift)?;
        }
        rustix::process::umask(rustix::fs::Mode::from_bits_truncate(process.umask));
        Ok(made)
    }

    /// Takes the program's folder, and its place among other programs, and makes its descriptors.
    fn take_place(&self, made: &Made, lift: &dyn Fn(RawFd) -> Result<RawFd, String>) -> Result<(), String> {
        let (head, process, common) = (self.checkpoint.head(), self.process(), self.common);
        std::env::set_current_dir(&process.folder)
            .map_err(|cause| format!("cannot go to {}: {cause}", process.folder))?;
        // Who may not raise it keeps what we have.
        let _ = proc::set_oom_score("self", process.oom_score);
        let is_own = |index: usize| common.objects.get(index).is_none_or(|made| *made < 0);
        let own = |index: usize| process.descriptors.iter().find(|one| one.object == index && is_own(index));
        let opens = |index| self.open_process(index);
        let mut objects = objects::make(head, own, &made.memory, &opens, lift)?;
        for (index, made) in common.objects.iter().enumerate().filter(|(_, made)| **made >= 0) {
            objects[index] = *made;
        }
        let lend = |number: RawFd| raw::duplicate(number).map(|own| lift(own.as_raw_fd()));
        let shown = common.home.shown.map(|places| (places, [1, 2].map(lend)));
        // SAFETY: what is needed of ours has been lifted.
        unsafe { raw::close_below(common.above) };
        for (place, own) in shown.into_iter().flat_map(|(places, own)| places.into_iter().zip(own)) {
            // One that is closed here is nowhere shown.
            if let Ok(own) = own {
                let own = own?;
                raw::place(own, place, true).map_err(|cause| format!("cannot keep a stream: {cause}"))?;
            }
        }
        for one in &process.descriptors {
            raw::place(objects[one.object], one.fd, one.closes)
                .map_err(|cause| format!("cannot make descriptor {}: {cause}", one.fd))?;
            if one.flags & libc::O_ASYNC as u32 != 0 {
                raw::set_flags(one.fd, one.flags);
            }
        }
        objects.iter().filter(|fd| **fd >= 0).for_each(|fd| raw::close(*fd));
        // A set that several have is filled by the first one.
        let processes = &head.processes[..self.index];
        let has = |process: &Process, index: usize| process.descriptors.iter().any(|one| one.object == index);
        objects::watch(head, process, |index| !processes.iter().any(|process| has(process, index)));
        objects::lock(head, process)
    }

    // ---- Memory ----

    fn steps(&self, made: &Made) -> io::Result<Steps> {
        let process = self.process();
        let runs = self.checkpoint.runs(self.index);
        let own = proc::bytes("self", "maps")?;
        let own: Vec<(Line, String)> = proc::text::mappings(&own)
            .map(|(line, name)| (line, String::from_utf8_lossy(name).into_owned()))
            .collect();
        let kernels: Vec<&(Line, String)> =
            own.iter().filter(|(_, name)| describe::is_kernels(name)).collect();
        let room: u64 = kernels.iter().map(|(line, _)| line.end - line.start).sum();
        // Besides: for its rights alone two for each capability.
        let count = runs.len() + 3 * process.mappings.len() + 2 * process.limits.len() + 192;
        let bytes = room + (count as u64 + 1) * 64 + (1 << 20);
        let taken = own.iter().map(|(line, _)| (line.start, line.end));
        let taken: Vec<(u64, u64)> =
            taken.chain(process.mappings.iter().map(|mapping| (mapping.start, mapping.end))).collect();
        let base =
            free_place(&taken, bytes).ok_or_else(|| io::Error::other("there is no place for the steps"))?;
        let mut steps = Steps::map(base, count, room)?;
        let (first, end) = steps.range();
        // The kernel's own pages are kept out of the way, until their places are free.
        let mut at = steps.room(room);
        let mut kept = Vec::new();
        for (line, name) in &kernels {
            let bytes = line.end - line.start;
            steps.must(libc::SYS_mremap, &[line.start, bytes, bytes, MAYMOVE_FIXED, at], at);
            kept.push((name.as_str(), at, bytes));
            at += bytes;
        }
        steps.call(libc::SYS_munmap, &[PAGE, first - PAGE]);
        steps.call(libc::SYS_munmap, &[end, TASK_END - end]);
        for mapping in &process.mappings {
            self.map(&mut steps, made, mapping, &kept)?;
        }
        self.map_group(&mut steps, made);
        for Run { address, bytes, from } in runs {
            let (file, offset) = match from {
                From::Checkpoint(offset) => (made.file, *offset),
                From::Memory(offset) => (made.pages, *offset),
            };
            steps.must(libc::SYS_pread64, &[file as u64, *address, *bytes, offset], *bytes);
        }
        for mapping in process.mappings.iter().filter(|mapping| self.is_filled(mapping)) {
            let protection = u64::from(mapping.protection);
            steps.call(libc::SYS_mprotect, &[mapping.start, mapping.end - mapping.start, protection]);
        }
        self.finish(&mut steps, made)?;
        Ok(steps)
    }

    fn is_filled(&self, mapping: &Mapping) -> bool {
        let within = |start: u64| mapping.start <= start && start < mapping.end;
        self.checkpoint.runs(self.index).iter().any(|run| within(run.address))
            && mapping.protection & WRITE as u32 == 0
    }

    fn map(
        &self,
        steps: &mut Steps,
        made: &Made,
        mapping: &Mapping,
        kept: &[(&str, u64, u64)],
    ) -> io::Result<()> {
        let bytes = mapping.end - mapping.start;
        if let Some(name) = &mapping.kernel {
            let found = kept.iter().find(|(own, _, own_bytes)| own == name && *own_bytes == bytes);
            let (_, at, _) =
                found.ok_or_else(|| io::Error::other(format!("{name} is another on this kernel")))?;
            steps.must(libc::SYS_mremap, &[*at, bytes, bytes, MAYMOVE_FIXED, mapping.start], mapping.start);
            return Ok(());
        }
        let grows = if mapping.grows { libc::MAP_GROWSDOWN } else { 0 };
        let how = (libc::MAP_FIXED | libc::MAP_NORESERVE | grows) as u64;
        let protection = match self.is_filled(mapping) {
            true => (libc::PROT_READ | libc::PROT_WRITE) as u64,
            false => u64::from(mapping.protection),
        };
        if let Some((piece, offset)) = mapping.shared {
            let how = how | libc::MAP_SHARED as u64;
            let arguments = [mapping.start, bytes, protection, how, made.memory[piece] as u64, offset];
            steps.must(libc::SYS_mmap, &arguments, mapping.start);
            return Ok(());
        }
        if let Some(number) = mapping.system_v {
            const REMAP: i32 = 0o40000;
            let is_read = mapping.protection & WRITE as u32 == 0;
            let how = REMAP | if is_read { libc::SHM_RDONLY } else { 0 };
            steps.must(libc::SYS_shmat, &[number.into(), mapping.start, how as u64], mapping.start);
            return Ok(());
        }
        let (kind, file, offset) = match mapping.file {
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, u64::MAX, 0),
            Some((file, offset)) => {
                let kind = if mapping.through { libc::MAP_SHARED } else { libc::MAP_PRIVATE };
                (kind, made.files[file] as u64, offset)
            }
        };
        let arguments = [mapping.start, bytes, protection, how | kind as u64, file, offset];
        steps.must(libc::SYS_mmap, &arguments, mapping.start);
        Ok(())
    }

    /// What the processes of the group share.
    fn map_group(&self, steps: &mut Steps, made: &Made) {
        let how = (libc::MAP_SHARED | libc::MAP_FIXED) as u64;
        let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
        for (address, bytes, file, protection) in [
            (SEGMENT_ADDRESS, SEGMENT_BYTES, made.segment, protection),
            (ROSTER_ADDRESS, ROSTER_BYTES, made.roster, protection),
            (REGISTRY_ADDRESS, REGISTRY_BYTES, made.registry, libc::PROT_READ as u64),
        ] {
            let arguments = [address as u64, bytes as u64, protection, how, file as u64, 0];
            steps.must(libc::SYS_mmap, &arguments, address as u64);
        }
    }

    /// Descriptors of what the kernel tells of the process, which has been read up to a position: what comes next the kernel has
    /// put together already, and that was of another program.
    fn read_so_far(&self) -> impl Iterator<Item = (RawFd, u64)> {
        let descriptors = &self.process().descriptors;
        let told =
            self.checkpoint.head().objects.iter().enumerate().filter_map(|(index, object)| match object {
                Object::File { path, position }
                    if *position != 0 && proc::told_of("self", path).is_some() =>
                {
                    Some((descriptors.iter().find(|one| one.object == index)?.fd, *position))
                }
                _ => None,
            });
        told.filter(|(fd, position)| raw::position(*fd) == Some(*position))
    }

    /// What is left when the memory is there.
    fn finish(&self, steps: &mut Steps, made: &Made) -> io::Result<()> {
        const PR_SET_MM: u64 = 35;
        const PR_SET_MM_MAP: u64 = 14;
        const ARCH_SET_FS: u64 = 0x1002;
        let process = self.process();
        let full = || io::Error::other("it has more than there is room for");
        let auxiliary: Vec<u8> = process.auxiliary.iter().flat_map(|word| word.to_le_bytes()).collect();
        let auxiliary_at = steps.keep(&auxiliary).ok_or_else(full)?;
        let mut map: Vec<u8> = process.areas.iter().flat_map(|word| word.to_le_bytes()).collect();
        map.extend(auxiliary_at.to_le_bytes());
        map.extend((auxiliary.len() as u32).to_le_bytes());
        map.extend(made.executable.unwrap_or(-1).to_le_bytes());
        let map_at = steps.keep(&map).ok_or_else(full)?;
        steps.call(libc::SYS_prctl, &[PR_SET_MM, PR_SET_MM_MAP, map_at, map.len() as u64, 0]);
        // The path of the group's folder, with a NUL.
        let folder = steps.keep(&made.folder).ok_or_else(full)?;
        let local = steps
            .keep(&[folder.to_le_bytes(), (made.folder.len() as u64).to_le_bytes()].concat())
            .ok_or_else(full)?;
        let remote =
            [process.resumes.folder.to_le_bytes(), (made.folder.len() as u64).to_le_bytes()].concat();
        let remote = steps.keep(&remote).ok_or_else(full)?;
        let own = std::process::id().into();
        steps.must(libc::SYS_process_vm_writev, &[own, local, 1, remote, 1, 0], made.folder.len() as u64);
        let rises = proc::can_raise_limits();
        for (kind, limit) in (0..).zip(&process.limits) {
            let own = raw::limit(0, kind as u32);
            let may_rise = rises && (!self.common.home.replays || self.common.home.shown.is_some());
            // One that is above ours stays as it is.
            if own.is_some_and(|own| limit[1] <= own[1] || may_rise) {
                let at = steps
                    .keep(&[limit[0].to_le_bytes(), limit[1].to_le_bytes()].concat())
                    .ok_or_else(full)?;
                steps.call(libc::SYS_prlimit64, &[0, kind, at, 0]);
            }
        }
        if let Some(identity) = &process.identity {
            rights::take(steps, identity).ok_or_else(full)?;
        }
        const PR_SET_NAME: u64 = 15;
        const NAME_BYTES: usize = 15;
        let mut name = process.name.clone();
        name.truncate(NAME_BYTES);
        name.push(0);
        let name_at = steps.keep(&name).ok_or_else(full)?;
        steps.call(libc::SYS_prctl, &[PR_SET_NAME, name_at]);
        for (fd, position) in self.read_so_far() {
            // Only what is gone to anew is told anew.
            for to in [0, position] {
                steps.must(libc::SYS_lseek, &[fd as u64, to, libc::SEEK_SET as u64], to);
            }
        }
        steps.call(libc::SYS_arch_prctl, &[ARCH_SET_FS, process.resumes.tls]);
        // Here it waits until all the others are as far.
        let byte = steps.keep(&[0]).ok_or_else(full)?;
        steps.must(libc::SYS_write, &[made.report as u64, byte, 1], 1);
        steps.must(libc::SYS_read, &[made.gate as u64, byte, 1], 1);
        // The report is among them: with its end the parent knows.
        steps.call(libc::SYS_close_range, &[made.above as u64, u32::MAX.into(), 0]);
        Ok(())
    }
}

/// Who leads a process group. One whose leader is gone is made by the first of those who are left, if it is not a session's as well.
pub(super) fn leader_of(all: &[Process], group: u32) -> Option<usize> {
    let is_of = |one: &Process| one.group == Some(group);
    let leads = all.iter().position(|one| is_of(one) && one.leads[1]);
    let is_sessions = all.iter().any(|one| is_of(one) && one.session == Some(group));
    leads.or_else(|| all.iter().position(is_of).filter(|_| !is_sessions))
}

/// What the steps need, above the program's own descriptors.
struct Made {
    report: RawFd,
    file: RawFd,
    pages: RawFd,
    segment: RawFd,
    roster: RawFd,
    registry: RawFd,
    executable: Option<RawFd>,
    files: Vec<RawFd>,
    memory: Vec<RawFd>,
    gate: RawFd,
    /// All of these, and nothing else, have this number or one above.
    above: i32,
    /// The path of the group's folder with its last `/`, and a NUL.
    folder: Vec<u8>,
}

/// A place of so many bytes where nothing is, nor will be.
fn free_place(taken: &[(u64, u64)], bytes: u64) -> Option<u64> {
    const FIRST: u64 = 1 << 36;
    const STEP: u64 = 1 << 32;
    let groups = (REGISTRY_ADDRESS.min(ROSTER_ADDRESS) as u64, (SEGMENT_ADDRESS as u64) + (1 << 42));
    let is_free = |at: u64| {
        let meets = |(start, end): &(u64, u64)| *start < at + bytes && at < *end;
        !meets(&groups) && !taken.iter().any(meets)
    };
    (0..1 << 12).map(|step| FIRST + step * STEP).find(|at| is_free(*at))
}

pub(super) const PAGE: u64 = 4096;
pub(super) const TASK_END: u64 = 0x7fff_ffff_f000;
const MAYMOVE_FIXED: u64 = 3;

/// Takes back what the kernel writes into memory that is about to go, and what would run code that is.
///
/// # Safety
/// Nothing of the C library's that needs any of it runs any more.
unsafe fn be_quiet() {
    const UNREGISTER: u64 = 1;
    const SIGNATURE: u64 = 0x5305_3053;
    // SAFETY: attributes of the calling thread; the area is libc's own.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        let offset = libc::dlsym(libc::RTLD_DEFAULT, c"__rseq_offset".as_ptr()).cast::<isize>();
        if !offset.is_null() {
            let thread: u64;
            std::arch::asm!("mov {}, fs:[0]", out(reg) thread, options(nostack, preserves_flags));
            let area = thread.wrapping_add_signed(*offset as i64);
            libc::syscall(libc::SYS_rseq, area, 32, UNREGISTER, SIGNATURE);
        }
        let none = libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        libc::sigaltstack(&none, std::ptr::null_mut());
        libc::syscall(libc::SYS_set_robust_list, 0, 24);
        libc::syscall(libc::SYS_set_tid_address, 0);
    }
}

//! A program is put together from a checkpoint.
//!
//! The child of a fork becomes it: it makes the descriptors, and then, by [`Steps`], gives up its memory for the checkpoint's.
//!
//! # Safety
//! Between the fork and the steps the child is a process of one thread, made by one.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use checkpoint::{Head, Mapping, Object, Opener, Reader};
use rustix::fs::MemfdFlags;
use us_abi::{
    REGISTRY_ADDRESS, REGISTRY_BYTES, ROSTER_ADDRESS, ROSTER_BYTES, SEGMENT_ADDRESS, SEGMENT_BYTES, VERSION,
};
use us_sites::maps::{Line, WRITE};

use super::key::KeyFile;
use super::steps::{Steps, Then};
use super::{describe, objects, raw};
use crate::child::Child;
use crate::error::Error;
use crate::folder::{self, GroupFolder};
use crate::proc;
use crate::reap::reap;
use crate::recorder::surroundings;
use crate::roster::{self, Roster};
use crate::segment::Segment;
use crate::spawn;

/// A checkpoint that has been read and found fit for this machine.
pub struct Checkpoint {
    path: PathBuf,
    head: Head,
    /// The pages, in memory: address, bytes and offset there of each run.
    pages: OwnedFd,
    runs: Vec<(u64, u64, u64)>,
}

impl Checkpoint {
    /// Reads all of a checkpoint, which is sealed if there is a key.
    ///
    /// # Errors
    /// When it is none, is damaged, is sealed in another way, or belongs to another machine: what differs.
    pub fn read(path: &Path, key: Option<&KeyFile>) -> Result<Checkpoint, Error> {
        let refuse = |why: &dyn std::fmt::Display| Error::NothingRun(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|cause| Error::file("open", path, cause))?;
        let file = BufReader::with_capacity(1 << 20, file);
        let from: Box<dyn Read> = match key.and_then(KeyFile::key) {
            None => Box::new(file),
            Some(key) => Box::new(Opener::new(file, key).map_err(|error| refuse(&error))?),
        };
        let mut reader = Reader::new(from).map_err(|error| refuse(&error))?;
        let head = reader.head().clone();
        check(&head).map_err(|why| refuse(&why))?;
        let fail = |cause: rustix::io::Errno| Error::system("make room for a checkpoint", cause);
        let pages = rustix::fs::memfd_create("checkpoint", MemfdFlags::CLOEXEC).map_err(fail)?;
        let mut to = File::from(
            pages.try_clone().map_err(|cause| Error::system("make room for a checkpoint", cause))?,
        );
        let (mut runs, mut offset) = (Vec::new(), 0);
        while let Some(chunk) = reader.pages().map_err(|error| refuse(&error))? {
            for (start, bytes) in chunk.runs() {
                let is_inside = |mapping: &Mapping| {
                    mapping.start <= start && bytes.len() as u64 <= mapping.end.saturating_sub(start)
                };
                let is_entries = start >= ENTRIES_AT && start + bytes.len() as u64 <= ENTRIES_END;
                if !is_entries && !head.mappings.iter().any(is_inside) {
                    return Err(refuse(&"it has pages where it has no memory"));
                }
                to.write_all(bytes)
                    .map_err(|cause| Error::system("keep the pages of a checkpoint", cause))?;
                runs.push((start, bytes.len() as u64, offset));
                offset += bytes.len() as u64;
            }
        }
        Ok(Checkpoint { path: path.to_owned(), head, pages, runs })
    }

    /// What the process is made of.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Puts the program together; its pid. It is listed in `roster` under the number that it knows.
    ///
    /// # Errors
    /// What could not be put together; no process is left then.
    pub(crate) fn start(
        &self,
        group: &GroupFolder,
        segment: &Segment,
        roster: &Roster,
    ) -> Result<Child, Error> {
        let header = segment.header();
        header.guest_pid.store(self.head.pid, Ordering::Release);
        header.slots.store(self.head.slots, Ordering::Release);
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|cause| Error::system("make a pipe", cause))?;
        // SAFETY: no other thread has been started yet, so the child inherits no lock held by one.
        let pid = unsafe { libc::fork() };
        match pid {
            -1 => Err(Error::system("start a process", io::Error::last_os_error())),
            0 => {
                drop(reader);
                let why = self.become_it(group, segment, roster, &writer);
                let _ = File::from(writer).write_all(why.as_bytes());
                // SAFETY: ends this child without any of its parent's endings.
                unsafe { libc::_exit(us_abi::exit::CANNOT_PROTECT) }
            }
            pid => {
                drop(writer);
                let mut said = Vec::new();
                let _ = File::from(reader).read_to_end(&mut said);
                if said.is_empty() {
                    return Child::of_child(pid as u32)
                        .ok_or_else(|| Error::system("watch the program", io::Error::last_os_error()));
                }
                reap(pid as u32);
                Err(Error::NothingRun(format!("{}: {}", self.path.display(), in_words(&said))))
            }
        }
    }

    /// As the child: becomes the program. What it returns is why not.
    fn become_it(&self, group: &GroupFolder, segment: &Segment, roster: &Roster, report: &OwnedFd) -> String {
        let own = std::process::id();
        roster.enter_restored(self.head.pid, own);
        segment.header().root_pid.store(own, Ordering::Release);
        let text = |cause: io::Error| cause.to_string();
        let made = self
            .make_descriptors(group, report)
            .and_then(|made| Ok((self.steps(&made).map_err(text)?, made)));
        match made {
            Err(why) => why,
            // SAFETY: this is a process of one thread, of which nothing else is wanted; the checkpoint says where to go on.
            Ok((steps, made)) => unsafe {
                be_quiet();
                let then = Then { function: self.head.place.resume, argument: self.head.place.context };
                steps.run(made.report, &then)
            },
        }
    }

    // ---- Descriptors ----

    /// Makes every descriptor of the program, and moves what the steps need above them.
    fn make_descriptors(&self, group: &GroupFolder, report: &OwnedFd) -> Result<Made, String> {
        let head = &self.head;
        let above = head.descriptors.iter().map(|one| one.fd).max().unwrap_or(2).max(2) + 1;
        spawn::raise_descriptor_limit();
        let lift = |fd: RawFd| {
            raw::lift(fd, above)
                .map_err(|cause| format!("cannot keep a descriptor above the program's: {cause}"))
        };
        let open = |path: &Path, how: i32| -> Result<RawFd, String> {
            let file = std::fs::OpenOptions::new().read(true).write(how != libc::O_RDONLY).open(path);
            let file = file.map_err(|cause| format!("cannot open {}: {cause}", path.display()))?;
            lift(file.as_raw_fd())
        };
        let mut made = Made {
            report: lift(report.as_raw_fd())?,
            pages: lift(self.pages.as_raw_fd())?,
            segment: open(&group.dir.at(folder::SEGMENT), libc::O_RDWR)?,
            roster: open(&group.dir.at(roster::NAME), libc::O_RDWR)?,
            registry: open(&group.dir.at(roster::REGISTRY), libc::O_RDWR)?,
            // Only root may say whose file it executes.
            executable: match rustix::process::geteuid().is_root() {
                true => Some(open(Path::new(&head.executable), libc::O_RDONLY)?),
                false => None,
            },
            files: Vec::new(),
            above,
            folder: folder_path(group)?,
        };
        for file in &head.files {
            made.files.push(open(Path::new(&file.path), libc::O_RDONLY)?);
        }
        std::env::set_current_dir(&head.folder)
            .map_err(|cause| format!("cannot go to {}: {cause}", head.folder))?;
        if head.leads[0] {
            let _ = rustix::process::setsid();
        } else if head.leads[1] {
            let _ = rustix::process::setpgid(None, None);
        }
        // Who may not raise it keeps what we have.
        let _ = proc::set_oom_score("self", head.oom_score);
        let objects = objects::make(head, &lift)?;
        // SAFETY: what is needed of ours has been lifted.
        unsafe { raw::close_below(above) };
        for one in &head.descriptors {
            raw::place(objects[one.object], one.fd, one.closes)
                .map_err(|cause| format!("cannot make descriptor {}: {cause}", one.fd))?;
        }
        objects.iter().filter(|fd| **fd >= 0).for_each(|fd| raw::close(*fd));
        objects::watch(head);
        objects::lock(head)?;
        rustix::process::umask(rustix::fs::Mode::from_bits_truncate(head.umask));
        Ok(made)
    }

    // ---- Memory ----

    fn steps(&self, made: &Made) -> io::Result<Steps> {
        let head = &self.head;
        let own = proc::bytes("self", "maps")?;
        let own: Vec<(Line, String)> = proc::text::mappings(&own)
            .map(|(line, name)| (line, String::from_utf8_lossy(name).into_owned()))
            .collect();
        let kernels: Vec<&(Line, String)> =
            own.iter().filter(|(_, name)| describe::is_kernels(name)).collect();
        let room: u64 = kernels.iter().map(|(line, _)| line.end - line.start).sum();
        let count = self.runs.len() + 3 * head.mappings.len() + 2 * head.limits.len() + 64;
        let bytes = room + (count as u64 + 1) * 64 + (1 << 20);
        let taken = own.iter().map(|(line, _)| (line.start, line.end));
        let taken: Vec<(u64, u64)> =
            taken.chain(head.mappings.iter().map(|mapping| (mapping.start, mapping.end))).collect();
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
        for mapping in &head.mappings {
            self.map(&mut steps, made, mapping, &kept)?;
        }
        self.map_group(&mut steps, made);
        for (start, bytes, offset) in &self.runs {
            steps.must(libc::SYS_pread64, &[made.pages as u64, *start, *bytes, *offset], *bytes);
        }
        for mapping in head.mappings.iter().filter(|mapping| self.is_filled(mapping)) {
            let protection = u64::from(mapping.protection);
            steps.call(libc::SYS_mprotect, &[mapping.start, mapping.end - mapping.start, protection]);
        }
        self.finish(&mut steps, made)?;
        Ok(steps)
    }

    fn is_filled(&self, mapping: &Mapping) -> bool {
        let within = |start: u64| mapping.start <= start && start < mapping.end;
        self.runs.iter().any(|(start, ..)| within(*start)) && mapping.protection & WRITE as u32 == 0
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
        let how = (libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE | grows) as u64;
        let protection = match self.is_filled(mapping) {
            true => (libc::PROT_READ | libc::PROT_WRITE) as u64,
            false => u64::from(mapping.protection),
        };
        match mapping.file {
            None => {
                let how = how | libc::MAP_ANONYMOUS as u64;
                steps.must(
                    libc::SYS_mmap,
                    &[mapping.start, bytes, protection, how, u64::MAX, 0],
                    mapping.start,
                );
            }
            Some((file, offset)) => {
                let file = made.files[file] as u64;
                steps.must(
                    libc::SYS_mmap,
                    &[mapping.start, bytes, protection, how, file, offset],
                    mapping.start,
                );
            }
        }
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
        let told = self.head.objects.iter().enumerate().filter_map(|(index, object)| match object {
            Object::File { path, position } if *position != 0 && proc::told_of("self", path).is_some() => {
                Some((self.head.descriptors.iter().find(|one| one.object == index)?.fd, *position))
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
        let head = &self.head;
        let full = || io::Error::other("it has more than there is room for");
        let auxiliary: Vec<u8> = head.auxiliary.iter().flat_map(|word| word.to_le_bytes()).collect();
        let auxiliary_at = steps.keep(&auxiliary).ok_or_else(full)?;
        let mut map: Vec<u8> = head.areas.iter().flat_map(|word| word.to_le_bytes()).collect();
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
        let remote = [head.place.folder.to_le_bytes(), (made.folder.len() as u64).to_le_bytes()].concat();
        let remote = steps.keep(&remote).ok_or_else(full)?;
        let own = std::process::id().into();
        steps.must(libc::SYS_process_vm_writev, &[own, local, 1, remote, 1, 0], made.folder.len() as u64);
        for (kind, limit) in (0..).zip(&head.limits) {
            let at =
                steps.keep(&[limit[0].to_le_bytes(), limit[1].to_le_bytes()].concat()).ok_or_else(full)?;
            // One that is above ours stays as it is.
            let own = raw::limit(0, kind as u32);
            if own.is_some_and(|own| limit[1] <= own[1] || rustix::process::geteuid().is_root()) {
                steps.call(libc::SYS_prlimit64, &[0, kind, at, 0]);
            }
        }
        const PR_SET_NAME: u64 = 15;
        const NAME_BYTES: usize = 15;
        let mut name = head.name.clone();
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
        steps.call(libc::SYS_arch_prctl, &[ARCH_SET_FS, head.place.tls]);
        // The report is among them: with its end the parent knows.
        steps.call(libc::SYS_close_range, &[made.above as u64, u32::MAX.into(), 0]);
        Ok(())
    }
}

const PAGE: u64 = 4096;
const TASK_END: u64 = 0x7fff_ffff_f000;
const MAYMOVE_FIXED: u64 = 3;
/// Where the segment has the threads' entries.
const ENTRIES_AT: u64 = (SEGMENT_ADDRESS + us_abi::THREADS_OFFSET) as u64;
const ENTRIES_END: u64 = (SEGMENT_ADDRESS + us_abi::RINGS_OFFSET) as u64;

/// What the steps need, above the program's own descriptors.
struct Made {
    report: RawFd,
    pages: RawFd,
    segment: RawFd,
    roster: RawFd,
    registry: RawFd,
    executable: Option<RawFd>,
    files: Vec<RawFd>,
    /// All of these, and nothing else, have this number or one above.
    above: i32,
    /// The path of the group's folder with its last `/`, and a NUL.
    folder: Vec<u8>,
}

fn folder_path(group: &GroupFolder) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::OsStrExt;
    let path = group.segment_path().map_err(|error| error.to_string())?;
    let parent = path.parent().ok_or("the group has no folder")?;
    let mut bytes = parent.as_os_str().as_bytes().to_vec();
    bytes.extend(b"/\0");
    Ok(bytes)
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

/// What differs here from where the checkpoint was taken, if it matters.
fn check(head: &Head) -> Result<(), String> {
    if head.segment_version != VERSION {
        return Err("it was taken by another version of Understudy".into());
    }
    let kernel = surroundings::kernel();
    if head.kernel != kernel {
        return Err(format!("it was taken on Linux {}, and this is {kernel}", head.kernel));
    }
    if let Some(flag) = surroundings::lacking(&head.processor, &proc::features()).next() {
        return Err(format!("it was taken on a processor with {flag}, which this one has not"));
    }
    for file in &head.files {
        match describe::file(&file.path) {
            Ok(now) if now == *file => {}
            Ok(_) => return Err(format!("{} is another file now", file.path)),
            Err(why) => return Err(why),
        }
    }
    let in_order = head.mappings.windows(2).all(|two| two[0].end <= two[1].start);
    let sound = |mapping: &Mapping| {
        mapping.start < mapping.end
            && mapping.start >= PAGE
            && mapping.end <= TASK_END
            && mapping.start.is_multiple_of(PAGE)
            && mapping.end.is_multiple_of(PAGE)
            && mapping.file.is_none_or(|(file, _)| file < head.files.len())
    };
    let is_sound = in_order
        && head.mappings.iter().all(sound)
        && head.slots as usize <= us_abi::THREADS_MAX
        && head.descriptors.iter().all(|one| one.fd >= 0 && one.object < head.objects.len());
    if is_sound { Ok(()) } else { Err("its head does not fit together".into()) }
}

/// What a child has said before it ended: a text, or the words of a step that failed.
fn in_words(said: &[u8]) -> String {
    let words: Vec<u64> =
        said.chunks_exact(8).map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
    match words.as_slice() {
        [number, a, b, c, _, _, _, result] if (*result as i64) < 4096 && *number < 512 => {
            let cause = io::Error::from_raw_os_error(-(*result as i64) as i32);
            format!("system call {number}({a:#x}, {b:#x}, {c:#x}) did not do what it must: {cause}")
        }
        _ => String::from_utf8_lossy(said).into_owned(),
    }
}

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

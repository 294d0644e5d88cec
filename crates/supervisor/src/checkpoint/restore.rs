//! A program is put together from a checkpoint.
//!
//! For each of its processes a child is made, which becomes it ([`image`](super::image)). What several of them have is made before,
//! and nobody goes on before all are there.
//!
//! # Safety
//! The supervisor has one thread, and so has each child until it is another program.

use std::fs::File;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use checkpoint::{Head, Object, Owner, Process, Reader, Socket};
use us_abi::{Config, ROSTER_ADDRESS, ROSTER_BYTES, SEGMENT_ADDRESS};

use super::bases::{self, Missing};
use super::files::back::Back;
use super::image::{Common, Home, Image, PAGE, leader_of};
use super::key::KeyFile;
use super::runs::{From, LONGEST, Run};
use super::{fit, followed, memory, objects, raw};
use crate::child::Child;
use crate::dir::Dir;
use crate::error::Error;
use crate::folder::{GroupFolder, SEGMENT, member};
use crate::mapping::Mapping as Shared;
use crate::reap::reap;
use crate::roster::Roster;
use crate::segment::Segment;
use crate::spawn;

/// A checkpoint that has been read and found fit for this machine.
pub struct Checkpoint {
    path: PathBuf,
    head: Head,
    /// The checkpoint itself.
    file: File,
    /// The pages of processes that do not stand there as they are, in memory, and how many bytes that are.
    pages: File,
    bytes: u64,
    /// Those of each process.
    runs: Vec<Vec<Run>>,
    /// What processes share.
    memory: Vec<File>,
    /// What stands in the roster: address and bytes.
    roster: Vec<(u64, Vec<u8>)>,
    /// Files that are put back before it goes on.
    back: Back,
    /// See [`Home::shown`].
    shown: Option<[RawFd; 2]>,
}

/// A process that goes on.
pub(crate) struct Restored {
    /// Its place in the roster.
    pub(crate) place: usize,
    /// The number by which it knows itself.
    pub(crate) pid: u32,
    pub(crate) child: Child,
    /// Its segment; of the program itself it is the group's.
    pub(crate) segment: Option<Segment>,
}

impl Restored {
    /// A program that has just been started, as if it were one.
    pub(crate) fn root(child: Child) -> Restored {
        Restored { place: crate::roster::ROOT, pid: child.pid, child, segment: None }
    }
}

impl Checkpoint {
    /// Reads all of a checkpoint, which is sealed if there is a key. The copies of files that were taken with it are in the folder
    /// `files`.
    ///
    /// # Errors
    /// When it is none, is damaged, is sealed in another way, or belongs to another machine or to a recording: what differs.
    pub fn read(path: &Path, key: Option<&KeyFile>, files: Option<&Path>) -> Result<Checkpoint, Error> {
        let checkpoint = Checkpoint::read_any(path, key, files)?;
        match &checkpoint.head {
            head if head.recorded.is_some() => {
                Err(checkpoint.refuse(&"it is of a recording: replay --from begins at it"))
            }
            head if head.program.is_empty() => {
                Err(checkpoint.refuse(&"it does not say of which program it is"))
            }
            _ => Ok(checkpoint),
        }
    }

    /// The same of one that may belong to a recording.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn read_any(
        path: &Path,
        key: Option<&KeyFile>,
        files: Option<&Path>,
    ) -> Result<Checkpoint, Error> {
        let refuse = |why: &dyn std::fmt::Display| Error::NothingRun(format!("{}: {why}", path.display()));
        let file = File::open(path).map_err(|cause| Error::file("open", path, cause))?;
        let key = || key.and_then(KeyFile::key);
        let itself = file.try_clone().map_err(|cause| Error::file("open", path, cause))?;
        let is_sealed = key().is_some();
        let mut reader = bases::open(file, key()).and_then(Reader::new).map_err(|error| refuse(&error))?;
        let head = reader.head().clone();
        fit::check(&head).map_err(|why| refuse(&why))?;
        let back = Back::plan(head.beside.as_ref(), files).map_err(|why| refuse(&why))?;
        back.check(&head.files).map_err(|why| refuse(&why))?;
        let mut checkpoint = Checkpoint::empty(path, itself, head, back)
            .map_err(|cause| Error::system("make room for a checkpoint", cause))?;
        let mut there = Vec::new();
        while let Some(chunk) = reader.pages().map_err(|error| refuse(&error))? {
            let mut stored = chunk.stored().filter(|_| !is_sealed);
            for (start, bytes) in chunk.runs() {
                checkpoint.put(chunk.owner(), start, bytes, stored).map_err(|why| refuse(&why))?;
                there.push((chunk.owner(), start, bytes.len() as u64));
                stored = stored.map(|at| at + bytes.len() as u64);
            }
        }
        if let (Some(base), Some(seed)) = (checkpoint.head.base.clone(), checkpoint.head.seed) {
            let mut missing = Missing::of(&reader, seed);
            there.into_iter().for_each(|(owner, start, bytes)| missing.found(owner, start, bytes));
            let put = |owner, at, page: &[u8]| checkpoint.put(owner, at, page, None);
            missing.find(path, &base, key, put).map_err(|why| refuse(&why))?;
        }
        Ok(checkpoint)
    }

    /// One that has a head, and no pages yet.
    fn empty(path: &Path, file: File, head: Head, back: Back) -> io::Result<Checkpoint> {
        let memory = head.shared.iter().map(|piece| {
            let file = memory::new(&piece.name)?;
            file.set_len(piece.bytes)?;
            Ok(file)
        });
        Ok(Checkpoint {
            path: path.to_owned(),
            file,
            pages: memory::new("checkpoint")?,
            bytes: 0,
            runs: vec![Vec::new(); head.processes.len()],
            memory: memory.collect::<io::Result<_>>()?,
            roster: Vec::new(),
            back,
            shown: None,
            head,
        })
    }

    /// What is put together is to be a copy that follows the program, which runs on another machine. What the runtime has to be told of
    /// its descriptors.
    pub(crate) fn be_followed(&mut self) -> Vec<u8> {
        let highest =
            self.head.processes.iter().flat_map(|process| &process.descriptors).map(|one| one.fd).max();
        let first = highest.unwrap_or(2).max(2) + 1;
        let shown = [first, first + 1];
        self.shown = Some(shown);
        followed::bytes(&followed::follow(&mut self.head, shown))
    }

    /// Takes what stands at an address of somebody that the head speaks of, and maybe as it is in the checkpoint's file.
    fn put(&mut self, owner: Owner, start: u64, bytes: &[u8], mut stored: Option<u64>) -> Result<(), String> {
        const NO_MEMORY: &str = "it has pages where it has no memory";
        let fail = |cause: io::Error| format!("there is no room for its pages: {cause}");
        let index = match owner {
            Owner::Shared(piece) => {
                let piece = piece as usize;
                let is_inside =
                    self.head.shared.get(piece).is_some_and(|it| fits(start, bytes, (0, it.bytes)));
                return match is_inside {
                    true => self.memory[piece].write_all_at(bytes, start).map_err(fail),
                    false => Err(NO_MEMORY.into()),
                };
            }
            Owner::Process(0) if fits(start, bytes, ROSTER) => {
                self.roster.push((start, bytes.to_vec()));
                return Ok(());
            }
            Owner::Process(index) => index as usize,
        };
        // What was one mapping in the base may be several here.
        let (mut start, mut bytes) = (start, bytes);
        while !bytes.is_empty() {
            let room = self.room(index, start).ok_or(NO_MEMORY)?;
            let (now, later) =
                bytes.split_at(room.end.saturating_sub(start).min(bytes.len() as u64) as usize);
            let len = now.len() as u64;
            let from = match stored {
                Some(at) => From::Checkpoint(at),
                None => {
                    self.pages.write_all_at(now, self.bytes).map_err(fail)?;
                    self.bytes += len;
                    From::Memory(self.bytes - len)
                }
            };
            match self.runs[index].last_mut() {
                // Pages come one by one out of a base. No run goes over two mappings, or is more than one call reads.
                Some(last)
                    if last.address + last.bytes == start
                        && last.from.behind(last.bytes) == from
                        && room.start <= last.address
                        && last.bytes + len <= LONGEST =>
                {
                    last.bytes += len;
                }
                _ => self.runs[index].push(Run { address: start, bytes: len, from }),
            }
            stored = stored.map(|at| at + len);
            (start, bytes) = (start + len, later);
        }
        Ok(())
    }

    /// The memory of a process that this address is in, and that the checkpoint holds.
    fn room(&self, index: usize, address: u64) -> Option<Range<u64>> {
        let process = self.head.processes.get(index)?;
        let own = process.mappings.iter().filter(|mapping| mapping.is_own());
        let own = own.map(|mapping| mapping.start..mapping.end);
        let mut all = own.chain(std::iter::once(ENTRIES.0..ENTRIES.1));
        all.find(|room| room.contains(&address))
    }

    /// What the program is made of.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The file in which [`From::Checkpoint`] is a place, and that of [`From::Memory`].
    pub(super) fn sources(&self) -> [&File; 2] {
        [&self.file, &self.pages]
    }

    pub(super) fn runs(&self, index: usize) -> &[Run] {
        &self.runs[index]
    }

    /// Puts the files back that were taken with it; a sentence about that, if there was anything to do.
    ///
    /// # Errors
    /// What cannot be put back.
    pub(crate) fn put_back(&self) -> Result<Option<String>, Error> {
        self.back.perform().map_err(|why| self.refuse(&why))
    }

    /// Puts the program together; its processes, the program itself first. Each is listed in `roster` under the number that it knows.
    ///
    /// # Errors
    /// What could not be put together; no process is left then.
    pub(crate) fn start(
        &self,
        group: &GroupFolder,
        segment: &Segment,
        roster: &Roster,
        config: impl Fn() -> Config,
    ) -> Result<Vec<Restored>, Error> {
        let folder = group.segment_path()?;
        let folder = folder.parent().unwrap_or(&folder);
        let home = Home { dir: &group.dir, folder, name: SEGMENT, replays: false, shown: None };
        let others = self.head.processes[1..]
            .iter()
            .map(|process| Segment::create(&group.dir, &member(process.pid), config()).map(Some));
        let segments = std::iter::once(Ok(None)).chain(others).collect::<Result<Vec<_>, _>>()?;
        self.start_in(&home, (segment, segments), roster)
    }

    /// The same of one that belongs to a recording, to be replayed, in a group's folder whose path is `folder`; `name` is the segment's
    /// there.
    ///
    /// # Errors
    /// As there.
    pub(crate) fn start_replay(
        &self,
        (dir, folder, name): (&Dir, &Path, &str),
        segment: &Segment,
        roster: &Roster,
    ) -> Result<Child, Error> {
        // The roster is the replay's.
        roster.enter_root(self.head.root().pid);
        let home = Home { dir, folder, name, replays: true, shown: self.shown };
        let started = self.start_in(&home, (segment, vec![None]), roster)?;
        let root = started.into_iter().next().map(|restored| restored.child);
        root.ok_or_else(|| self.refuse(&"it has no process"))
    }

    /// The program has the first segment, and of the other processes each one of the rest.
    fn start_in(
        &self,
        home: &Home,
        (segment, segments): (&Segment, Vec<Option<Segment>>),
        roster: &Roster,
    ) -> Result<Vec<Restored>, Error> {
        if !self.roster.iter().all(|(address, bytes)| roster.put_back(*address, bytes)) {
            return Err(self.refuse(&"its roster does not fit"));
        }
        let processes = &self.head.processes;
        for (process, own) in processes.iter().zip(&segments) {
            let header = own.as_ref().unwrap_or(segment).header();
            header.guest_pid.store(process.pid, Ordering::Release);
            header.slots.store(process.slots, Ordering::Release);
        }
        let made = self.make_all(home)?;
        for ((process, own), pid) in processes.iter().zip(&segments).zip(&made.pids) {
            own.as_ref().unwrap_or(segment).header().root_pid.store(*pid, Ordering::Release);
            let leads = process.leads[0] || process.leads[1];
            roster.enter_restored(process.place as usize, process.pid, *pid, leads);
        }
        let own = [rustix::process::geteuid().as_raw(); 3];
        if processes.iter().flat_map(|process| &process.identity).any(|identity| identity.users != own) {
            roster.note_other_user();
        }
        made.leaderless.iter().for_each(|(number, leads)| roster.enter_leader(*number, *leads));
        // Each waits for one byte.
        let bytes = vec![0; made.pids.len()];
        if let Err(cause) = File::from(made.gate).write_all(&bytes) {
            made.pids.into_iter().for_each(end);
            return Err(Error::system("let the program go on", cause));
        }
        for mut report in made.reports {
            // With its end it is the program.
            let _ = report.read_to_end(&mut Vec::new());
        }
        let all = processes.iter().zip(segments).zip(made.pids).map(|((process, segment), pid)| {
            let child = Child::of_child(pid)
                .ok_or_else(|| Error::system("watch the program", io::Error::last_os_error()))?;
            Ok(Restored { place: process.place as usize, pid: process.pid, child, segment })
        });
        all.collect()
    }

    fn refuse(&self, why: &dyn std::fmt::Display) -> Error {
        Error::NothingRun(format!("{}: {why}", self.path.display()))
    }

    /// Makes every process, up to where it waits to go on.
    fn make_all(&self, home: &Home) -> Result<Made, Error> {
        let fail = |cause: io::Error| Error::system("put a program together", cause);
        let processes = &self.head.processes;
        let highest = processes.iter().flat_map(|process| &process.descriptors).map(|one| one.fd).max();
        let above = highest.unwrap_or(2).max(2) + 1;
        let above = home.shown.map_or(above, |[_, last]| last + 1);
        spawn::raise_descriptor_limit();
        let pipe =
            || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(|cause| fail(cause.into()));
        let (gate, opener) = pipe()?;
        let board = memory::new("numbers").map_err(fail)?;
        board.set_len(PAGE * size_of::<AtomicU32>() as u64).map_err(fail)?;
        let board = Shared::new(Path::new("numbers"), &board, PAGE as usize * size_of::<AtomicU32>())?;
        // SAFETY: as many words as the mapping has, zeros at first, and whoever else has it writes whole ones.
        let numbers =
            unsafe { std::slice::from_raw_parts(board.base().as_ptr().cast::<AtomicU32>(), PAGE as usize) };
        let both = self.head.shared.iter().zip(&self.memory);
        let memory = both.map(|(piece, file)| memory::placed(piece, file)).collect::<io::Result<Vec<_>>>();
        let memory = &*memory.map_err(fail)?;
        let objects = self.make_common(above, memory).map_err(|why| self.refuse(&why))?;
        let ended = self.open_ended().map_err(fail)?;
        let common = Common { home, memory, objects, above, numbers, ended, gate: &gate };
        let reports = processes.iter().map(|_| pipe()).collect::<Result<Vec<_>, _>>()?;
        let (mut started, mut sessions, mut failed) = (Vec::new(), Vec::new(), None);
        for (session, members) in self.sessions() {
            let become_it = |index: usize| {
                // Whose report this is: with its end nobody is left who would say more.
                let others = reports.iter().enumerate().filter(|(other, _)| *other != index);
                others.for_each(|(_, (_, report))| raw::close(report.as_raw_fd()));
                self.become_it(index, &common, &reports[index].1);
            };
            match session {
                None => started.extend(members.into_iter().map(|index| self.fork(|| become_it(index)))),
                Some(session) => {
                    let leader = self.fork(|| self.lead(&members, &become_it));
                    sessions.push((session, leader.max(0) as u32));
                    started.push(leader);
                }
            }
        }
        // Each has its own of all that is wanted for it.
        common.objects.iter().filter(|fd| **fd >= 0).for_each(|fd| raw::close(*fd));
        let readers: Vec<File> = reports.into_iter().map(|(reader, _)| File::from(reader)).collect();
        for (mut reader, process) in readers.iter().zip(processes) {
            let mut said = vec![0; 4096];
            let got = reader.read(&mut said).unwrap_or(0);
            if got != 1 && failed.is_none() {
                said.truncate(got);
                let why = if got == 0 { "it has ended".into() } else { in_words(&said) };
                let why = if processes.len() == 1 { why } else { format!("process {}: {why}", process.pid) };
                failed = Some(self.refuse(&why));
            }
        }
        let pids: Vec<u32> =
            numbers[..processes.len()].iter().map(|pid| pid.load(Ordering::Acquire)).collect();
        // Whoever has made others, and is none of them, has ended.
        let made = started.iter().copied().filter(|pid| *pid > 0).map(|pid| pid as u32);
        let (known, others): (Vec<u32>, Vec<u32>) = made.partition(|pid| pids.contains(pid));
        if let Some(why) = failed {
            pids.iter().copied().filter(|pid| *pid != 0 && !others.contains(pid)).for_each(end);
            known.iter().copied().filter(|pid| !pids.contains(pid)).for_each(end);
            others.into_iter().for_each(end);
            return Err(why);
        }
        others.into_iter().for_each(|pid| _ = reap(pid));
        let mut leaderless = sessions;
        for group in processes.iter().filter_map(|process| process.group) {
            let leader = leader_of(processes, group).map(|index| (group, pids[index]));
            leaderless.extend(leader.filter(|known| !leaderless.contains(known)));
        }
        leaderless.retain(|(number, _)| {
            let leads = |one: &Process| {
                one.pid == *number && (one.leads[0] || one.leads[1] && one.group == Some(*number))
            };
            !processes.iter().any(leads)
        });
        Ok(Made { pids, leaderless, reports: readers, gate: opener })
    }

    /// The sessions, that of the supervisor first, and who is in each.
    fn sessions(&self) -> Vec<(Option<u32>, Vec<usize>)> {
        let mut all = vec![(None, Vec::new())];
        for (index, process) in self.head.processes.iter().enumerate() {
            match all.iter_mut().find(|(session, _)| *session == process.session) {
                Some((_, members)) => members.push(index),
                None => all.push((process.session, vec![index])),
            }
        }
        all
    }

    /// Whether a process had this number in the checkpoint: what goes on has another one, by which its threads know that they are in
    /// another process.
    fn is_taken(&self, number: u32) -> bool {
        self.head.processes.iter().any(|process| process.pid == number)
    }

    /// Makes a process that does this, and ends; its number, negative if there is none.
    fn fork(&self, f: impl FnOnce()) -> i32 {
        let mut unwanted = Vec::new();
        let made = loop {
            // SAFETY: no other thread has been started yet, so the child inherits no lock held by one.
            match unsafe { libc::fork() } {
                0 if self.is_taken(std::process::id()) => raw::end_here(),
                0 => {
                    f();
                    raw::end_here()
                }
                // Until the next one is made its number is not free.
                pid if pid > 0 && self.is_taken(pid as u32) => unwanted.push(pid as u32),
                pid => break pid,
            }
        };
        unwanted.into_iter().for_each(|pid| _ = reap(pid));
        made
    }

    /// A pidfd of a process that has ended, if the program has one.
    fn open_ended(&self) -> io::Result<Option<OwnedFd>> {
        if !self.head.objects.iter().any(|object| matches!(object, Object::Process(None))) {
            return Ok(None);
        }
        let made = self.fork(|| ());
        let pid = crate::child::raw(made.max(0) as u32).ok_or_else(io::Error::last_os_error)?;
        let opened = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty());
        reap(made as u32);
        Ok(Some(opened?))
    }

    /// As a new process: makes a session, and in it all of its members. It is the one that leads, if that is one of them.
    fn lead(&self, members: &[usize], become_it: &dyn Fn(usize)) {
        let _ = rustix::process::setsid();
        let leads = |index: &usize| self.head.processes[*index].leads[0];
        let leader = members.iter().copied().find(leads);
        for index in members.iter().copied().filter(|index| Some(*index) != leader) {
            // The supervisor's child, as this one is.
            loop {
                match raw::fork_beside() {
                    0 if self.is_taken(std::process::id()) => raw::end_here(),
                    0 => become_it(index),
                    pid if self.is_taken(pid as u32) => continue,
                    _ => {}
                }
                break;
            }
        }
        leader.into_iter().for_each(become_it);
    }

    /// As a new process: becomes that one, or says why not.
    fn become_it(&self, index: usize, common: &Common, report: &OwnedFd) {
        let why = Image { checkpoint: self, index, common }.become_it(report);
        let _ = rustix::io::write(report, why.as_bytes());
        raw::end_here();
    }

    /// Objects that several processes have, and pipes and pairs that connect them: a descriptor of each, above those of all.
    fn make_common(&self, above: i32, memory: &[File]) -> Result<Vec<i32>, String> {
        let head = &self.head;
        let users = |index: usize| {
            let has = move |process: &&Process| process.descriptors.iter().any(|one| one.object == index);
            head.processes.iter().filter(has).count()
        };
        let is_common = |index: usize| {
            let connects = match head.objects[index] {
                Object::Pipe { .. } | Object::Pair { .. } | Object::Removed { .. } => true,
                // Who sends to one of them finds it there.
                Object::Socket(Socket { domain: libc::AF_UNIX, kind: libc::SOCK_DGRAM, .. }) => true,
                _ => false,
            };
            // Those to open are not there yet.
            let opens = matches!(head.objects[index], Object::Process(_));
            head.processes.len() > 1 && !opens && (connects || users(index) > 1)
        };
        let first = |index: usize| {
            let mut all = head.processes.iter().flat_map(|process| &process.descriptors);
            all.find(|one| one.object == index && is_common(index))
        };
        let lift = |fd| {
            raw::lift(fd, above)
                .map_err(|cause| format!("cannot keep a descriptor above the program's: {cause}"))
        };
        let memory: Vec<i32> = memory.iter().map(AsRawFd::as_raw_fd).collect();
        objects::make(head, first, &memory, &|_| Err("it is opened by each".into()), &lift)
    }
}

/// Processes that wait to go on.
struct Made {
    pids: Vec<u32>,
    /// Sessions and process groups whose leaders are gone: the numbers that their members know, and the kernel's.
    leaderless: Vec<(u32, u32)>,
    reports: Vec<File>,
    gate: OwnedFd,
}

/// Ends a process of ours that nobody wants.
fn end(pid: u32) {
    spawn::kill_child(pid);
    reap(pid);
}

/// Where the segment has the threads' entries.
const ENTRIES: (u64, u64) =
    ((SEGMENT_ADDRESS + us_abi::THREADS_OFFSET) as u64, (SEGMENT_ADDRESS + us_abi::RINGS_OFFSET) as u64);
/// Where the roster lies.
const ROSTER: (u64, u64) = (ROSTER_ADDRESS as u64, (ROSTER_ADDRESS + ROSTER_BYTES) as u64);

/// Whether bytes lie in a range.
fn fits(at: u64, bytes: &[u8], (start, end): (u64, u64)) -> bool {
    start <= at && bytes.len() as u64 <= end.saturating_sub(at)
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

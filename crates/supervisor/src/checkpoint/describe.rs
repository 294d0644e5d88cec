//! What copies that stand still are made of, as the kernel tells it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use checkpoint::{Content, Descriptor, Head, Known, Mapping, Object, Place, Process, Shared, Taken};
use us_abi::{THREAD_ENTRY_BYTES, VERSION};
use us_sites::maps::{Line, READ, WRITE};

use super::descriptors::{self, Standing, Then};
use super::files::{Spent, Wanted, copy, list};
use super::memory::Pieces;
use super::take::One;
use super::{followed, raw, rights};
use crate::clock;
use crate::proc;
use crate::proc::text;
use crate::recorder::surroundings;
use crate::roster::{Ends, Roster};

/// A head, and what goes with it.
pub(crate) struct Described {
    pub(crate) head: Head,
    /// What of each segment goes with it.
    pub(super) entries: Vec<Vec<u8>>,
    /// What of the roster goes with it: address and bytes.
    pub(super) roster: Vec<(u64, Vec<u8>)>,
    /// What stands in the memory that is shared.
    pub(super) memory: Vec<fs::File>,
    /// Memory of which every page is written, from where to where: of files that a place for a replay, which is of one process, does
    /// not refer to.
    pub(super) whole: Vec<(u64, u64)>,
    /// Who takes files, and what that has cost.
    pub(super) files: Option<(Wanted, Spent)>,
}

/// Files that are there unchanged wherever a recording is replayed, by their real paths.
pub(crate) type Lasting = HashSet<String>;

/// What processes go on to change when they no longer stand still.
pub(super) struct Looked<'a> {
    descriptors: Vec<Vec<Descriptor>>,
    objects: Vec<Object>,
    entries: Vec<Vec<u8>>,
    names: Vec<Vec<u8>>,
    roster: Vec<(u64, Vec<u8>)>,
    pieces: Pieces,
    shared: Vec<Shared>,
    memory: Vec<fs::File>,
    stays: bool,
    /// It is for a replay, which makes no call of its own: whose rights and whose child it was does not matter. And it may be made
    /// where all files but these are gone.
    lasting: Option<&'a Lasting>,
    /// Another machine follows it: what that one has to know.
    joins: Option<Vec<Known>>,
    files: Option<(Wanted, Taken, Spent)>,
}

impl<'a> Looked<'a> {
    /// Looks at what the processes `all`, which stand still, and their copies, by their numbers, share. `stays` if the program does
    /// not go on.
    ///
    /// # Errors
    /// What no checkpoint can have, in words.
    pub(super) fn at(
        all: &[One],
        copies: &[u32],
        (roster, ended): (&Roster, &Ends),
        stays: bool,
    ) -> Result<Looked<'a>, String> {
        let pieces = Pieces::look(copies.iter().copied(), stays)?;
        let both = copies.iter().zip(all).map(|(pid, one)| Standing::new(*pid, one.primary));
        let standing: Vec<Standing> = both.collect::<Result<_, _>>()?;
        let then = if stays { Then::Ends } else { Then::GoesOn };
        let (descriptors, objects) = descriptors::all(&standing, &pieces, then)?;
        let (shared, memory) = pieces.freeze()?;
        let members: Vec<usize> = all.iter().map(|one| one.place.at).collect();
        Ok(Looked {
            descriptors,
            objects,
            entries: all.iter().map(|one| one.segment.thread_entries()).collect(),
            names: all.iter().map(name).collect(),
            roster: roster.keep(&members, ended),
            pieces,
            shared,
            memory,
            stays,
            lasting: None,
            joins: None,
            files: None,
        })
    }

    /// The same of the only process of a program, for a replay: that has no descriptors, and of all files only those that last.
    ///
    /// # Errors
    /// As there.
    pub(super) fn for_replay(one: &One, lasting: &'a Lasting) -> Result<Looked<'a>, String> {
        // Those that have just been made, and those that have ended and that nobody has asked about.
        if proc::children(one.primary).next().is_some() {
            return Err("the program has made a process, and has not waited for its end".into());
        }
        Ok(Looked {
            descriptors: vec![Vec::new()],
            objects: Vec::new(),
            entries: vec![one.segment.thread_entries()],
            names: vec![name(one)],
            roster: Vec::new(),
            pieces: Pieces::default(),
            shared: Vec::new(),
            memory: Vec::new(),
            stays: false,
            lasting: Some(lasting),
            joins: None,
            files: None,
        })
    }

    /// The same for another machine that is to follow it from there on, and that has objects of its own. Its copy is `pid`.
    ///
    /// # Errors
    /// As there.
    pub(super) fn for_followed(one: &One, pid: u32, lasting: &'a Lasting) -> Result<Looked<'a>, String> {
        let looked = Looked::for_replay(one, lasting)?;
        let standing = [Standing::new(pid, one.primary)?];
        let (descriptors, objects) = descriptors::all(&standing, &looked.pieces, Then::IsFollowed)?;
        let joins = followed::known(&standing[0], &descriptors[0], &objects, one.segment)?;
        Ok(Looked { descriptors, objects, joins: Some(joins), ..looked })
    }

    /// Takes the files that the program writes as well, while it stands still.
    ///
    /// # Errors
    /// What cannot be taken.
    pub(super) fn take_files(&mut self, wanted: Wanted, copies: &[u32]) -> Result<(), String> {
        let all = self.descriptors.iter().flatten().filter(|one| list::writes(one.flags));
        let paths = all.filter_map(|one| match &self.objects[one.object] {
            Object::File { path, .. } if list::is_file(path) => Some(path.clone()),
            _ => None,
        });
        let opened: BTreeSet<String> = paths.collect();
        let mapped = copies.iter().flat_map(|pid| list::mapped_for_writing(*pid, &self.pieces)).collect();
        let (taken, spent) = wanted.finish(opened, &mapped, self.stays)?;
        self.files = Some((wanted, taken, spent));
        Ok(())
    }

    /// Describes the copies, which stand still for ever. What is not known yet is the group's, its program and order, and what the
    /// files that are mapped hold.
    ///
    /// # Errors
    /// What no checkpoint can have, in words.
    pub(super) fn describe(self, all: &[One], copies: &[u32], roster: &Roster) -> Result<Described, String> {
        let taken = self.files.iter().flat_map(|(_, taken, _)| &taken.files).map(|one| one.path.clone());
        let mut files = Files {
            lasting: self.lasting,
            is_followed: self.joins.is_some(),
            taken: taken.collect(),
            ..Files::default()
        };
        let mut processes = Vec::new();
        let own = self.descriptors.into_iter().zip(&self.entries).zip(self.names);
        for ((one, pid), ((descriptors, entries), name)) in all.iter().zip(copies).zip(own) {
            let made = process(one, *pid, roster, (&self.pieces, &mut files, self.stays));
            let slots = (entries.len() / THREAD_ENTRY_BYTES) as u32;
            let made = made.map_err(|why| in_process(why, one))?;
            processes.push(Process { descriptors, slots, name, ..made });
        }
        let (wanted, beside) = match self.files {
            Some((wanted, taken, spent)) => (Some((wanted, spent)), Some(taken)),
            None => (None, None),
        };
        Ok(Described {
            files: wanted,
            entries: self.entries,
            roster: self.roster,
            memory: self.memory,
            whole: files.whole,
            head: Head {
                program: Vec::new(),
                order: String::new(),
                taken: clock::now_text(),
                kernel: surroundings::kernel(),
                processor: proc::features(),
                segment_version: VERSION,
                files: files.all,
                objects: self.objects,
                shared: self.shared,
                processes,
                recorded: None,
                id: String::new(),
                seed: None,
                base: None,
                beside,
                joins: self.joins,
            },
        })
    }
}

/// What its first thread calls itself.
fn name(one: &One) -> Vec<u8> {
    let mut name = proc::bytes(one.primary, "comm").unwrap_or_default();
    name.pop();
    name
}

/// Says of which process it is, if that is not the program's first.
pub(super) fn in_process(why: String, one: &One) -> String {
    if one.place.at == crate::roster::ROOT { why } else { format!("process {}: {why}", one.place.pid) }
}

/// Describes one copy. Its descriptors, slots and name are not known here.
fn process(
    one: &One,
    pid: u32,
    roster: &Roster,
    (pieces, files, stays): (&Pieces, &mut Files, bool),
) -> Result<Process, String> {
    let text = |name: &str| {
        proc::bytes(pid, name).map_err(|cause| format!("cannot read {name} of the copy: {cause}"))
    };
    let stand = &one.segment.header().stand;
    let link = |name: &str| {
        let path = proc::link(pid, name).map_err(|cause| format!("cannot read {name}: {cause}"))?;
        path.into_os_string().into_string().map_err(|_| format!("the path of {name} is not UTF-8"))
    };
    let is_for_replay = files.lasting.is_some();
    let identity = match is_for_replay && !files.is_followed {
        true => None,
        false => rights::describe(one.primary, &text("status")?, link("root")?)?,
    };
    let (session, group, leads) = if is_for_replay { (None, None, [false; 2]) } else { kinship(one, roster) };
    Ok(Process {
        pid: one.place.pid,
        place: one.place.at as u32,
        executable: link("exe")?,
        name: Vec::new(),
        folder: link("cwd")?,
        umask: proc::umask(pid).unwrap_or(0o22),
        oom_score: proc::oom_score(pid).unwrap_or(0),
        identity,
        session,
        group,
        leads,
        limits: limits(pid),
        slots: 0,
        resumes: Place {
            context: stand.context.load(Ordering::Relaxed),
            resume: stand.resume.load(Ordering::Relaxed),
            tls: stand.tls.load(Ordering::Relaxed),
            folder: stand.folder.load(Ordering::Relaxed),
        },
        areas: areas(&text("stat")?, stand.heap_end.load(Ordering::Relaxed))?,
        auxiliary: text("auxv")?.chunks_exact(8).map(word).collect(),
        mappings: mappings(&text("maps")?, pieces, files, stays)?,
        descriptors: Vec::new(),
    })
}

impl Described {
    /// Reads the files that are mapped: what the checkpoint does not hold must be the same where it goes on.
    ///
    /// # Errors
    /// Which one cannot be read.
    pub(super) fn read_files(&mut self) -> Result<(), String> {
        if let (Some((wanted, _)), Some(taken)) = (&self.files, &mut self.head.beside) {
            wanted.read(taken)?;
        }
        let taken = self.head.beside.iter().flat_map(|taken| &taken.files);
        let copies: HashMap<&str, &Content> = taken.map(|one| (&*one.path, &one.content)).collect();
        self.head.files.iter_mut().try_for_each(|known| {
            *known = match copies.get(&*known.path) {
                // The file itself may have changed since.
                Some(Content::File { bytes, checksum }) => {
                    checkpoint::File { path: known.path.clone(), bytes: *bytes, checksum: *checksum }
                }
                _ => file(&known.path)?,
            };
            Ok(())
        })
    }
}

fn word(bytes: &[u8]) -> u64 {
    bytes.try_into().map_or(0, u64::from_le_bytes)
}

/// Session and process group, by the numbers that relatives know, and whether the process leads them. Those that it has of its supervisor are
/// none.
fn kinship(one: &One, roster: &Roster) -> (Option<u32>, Option<u32>, [bool; 2]) {
    let of = |pid: u32| proc::read(pid).map_or([0; 2], |process| [process.session, process.group]);
    let ([session, group], ours) = (of(one.primary), of(std::process::id()));
    // In a container both may be outside, with the number 0.
    let other =
        |number: u32, ours: u32| (number != ours && number != 0).then(|| roster.group_known_as(number));
    let (session, group) = (other(session, ours[0]), other(group, ours[1]));
    let leads = |number: Option<u32>| number == Some(one.place.pid);
    (session, group, [leads(session), leads(group)])
}

fn limits(pid: u32) -> Vec<[u64; 2]> {
    const LIMITS: u32 = 16;
    // Of another user's process a text tells, in the order of their numbers.
    let told = proc::lossy(pid, "limits");
    let told: Vec<[u64; 2]> = told.lines().skip(1).map(text::limit).collect();
    let told = |kind: u32| told.get(kind as usize).copied();
    (0..LIMITS).map(|kind| raw::limit(pid, kind).or_else(|| told(kind)).unwrap_or([u64::MAX; 2])).collect()
}

/// See [`Head::areas`].
fn areas(stat: &[u8], heap_end: u64) -> Result<[u64; 11], String> {
    let [code, code_end, data, data_end, heap, stack, a, a_end, e, e_end] =
        text::areas(stat).ok_or("the kernel does not tell where the program's parts are")?;
    Ok([code, code_end, data, data_end, heap, heap_end, stack, a, a_end, e, e_end])
}

// ---- Memory ----

/// Whether a mapping of that name is the kernel's own.
pub(super) fn is_kernels(name: &str) -> bool {
    ["[vvar]", "[vvar_vclock]", "[vdso]"].contains(&name)
}

/// Files that are mapped; what they hold is not read here.
#[derive(Default)]
struct Files<'a> {
    all: Vec<checkpoint::File>,
    known: HashMap<String, usize>,
    /// Those that are taken: what is stored there by a mapping is in their copies.
    taken: HashSet<String>,
    /// Only these are referred to.
    lasting: Option<&'a Lasting>,
    /// Another machine is to follow: it acts one day.
    is_followed: bool,
    /// Where others are mapped, of which every page is to be written.
    whole: Vec<(u64, u64)>,
}

impl Files<'_> {
    /// Whether only its pages are known of the file of this name.
    fn is_passing(&self, name: &str) -> bool {
        self.lasting.is_some_and(|lasting| !lasting.contains(name))
    }

    fn index(&mut self, path: &str) -> usize {
        let all = &mut self.all;
        *self.known.entry(path.to_owned()).or_insert_with(|| {
            all.push(checkpoint::File { path: path.to_owned(), bytes: 0, checksum: 0 });
            all.len() - 1
        })
    }
}

/// What is mapped. `stays` if the program does not go on: then a file that it writes by a mapping is what it is now.
fn mappings(maps: &[u8], pieces: &Pieces, files: &mut Files, stays: bool) -> Result<Vec<Mapping>, String> {
    let mut all = Vec::new();
    for (mapping, name) in text::mappings(maps) {
        let name = &*String::from_utf8_lossy(name);
        if us_abi::is_of_group(mapping.start as usize) || name == "[vsyscall]" {
            continue;
        }
        let kernel = is_kernels(name).then(|| name.to_owned());
        let piece = pieces.index_of(&mapping).filter(|_| mapping.shared);
        let is_system_v = mapping.shared && name.starts_with(SYSTEM_V) && files.lasting.is_none();
        let through = mapping.shared && mapping.protection & WRITE != 0 && piece.is_none() && !is_system_v;
        let is_kept = stays || through && files.taken.contains(name);
        if (through || is_system_v) && !is_kept {
            let but = match files.lasting {
                Some(_) => "",
                None if is_system_v => ", which only --stop keeps as it is",
                None => ", which only --stop or --with-files keeps as it is",
            };
            return Err(format!("{name} is mapped to be written by others as well{but}"));
        }
        let is_gone = name.ends_with(" (deleted)");
        let file = match mapping.inode {
            _ if piece.is_some() || is_system_v => None,
            0 => None,
            _ if files.is_passing(name) => {
                if mapping.protection & READ != 0 {
                    files.whole.push((mapping.start, mapping.end));
                }
                None
            }
            // Its pages are the only ones.
            _ if is_gone || name.starts_with("/dev/zero") => {
                return Err(format!("{name} is mapped, and has no file any more"));
            }
            _ => Some((files.index(name), mapping.offset)),
        };
        if through && file.is_none() {
            return Err(format!("{name} is mapped to be written by others as well"));
        }
        all.push(Mapping {
            start: mapping.start,
            end: mapping.end,
            protection: mapping.protection as u32,
            grows: name == "[stack]",
            file,
            through,
            system_v: is_system_v.then(|| system_v(&mapping)).transpose()?,
            shared: piece.map(|piece| (piece, mapping.offset)),
            kernel,
        });
    }
    Ok(all)
}

/// What System V's memory is called where it is mapped. Its number is that of the file.
const SYSTEM_V: &str = "/SYSV";

/// The number of System V's memory, all of which is mapped there.
fn system_v(mapping: &Line) -> Result<u32, String> {
    const PAGE: u64 = 4096;
    let number = mapping.inode as u32;
    let bytes = raw::system_v_bytes(number).map(|bytes| bytes.next_multiple_of(PAGE));
    let is_whole = mapping.offset == 0 && bytes == Some(mapping.end - mapping.start);
    is_whole.then_some(number).ok_or(format!(
        "System V's shared memory {number} is mapped in part, or ends with the last process that has it"
    ))
}

/// A file that is mapped, and what it holds.
pub(super) fn file(path: &str) -> Result<checkpoint::File, String> {
    let fail = |cause: std::io::Error| format!("cannot read {path}, which is mapped: {cause}");
    let (bytes, checksum) = copy::sum(Path::new(path)).map_err(fail)?;
    Ok(checkpoint::File { path: path.to_owned(), bytes, checksum })
}

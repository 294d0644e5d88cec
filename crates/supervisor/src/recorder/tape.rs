//! What is recorded of a group, process by process, and the file that it goes to.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use gate::Note;
use recording::{Complete, Mark, Writer};

use super::cluster::Ships;
use super::take::{self, Book, Taken};
use crate::clock;
use crate::dir::Dir;
use crate::folder::member;
use crate::gate::{Door, Ledger};
use crate::roster::Roster;

/// Pauses between two looks at the rings: short while events come in, long while none do.
pub const NAP_MIN_NS: u64 = 300_000;
/// See [`NAP_MIN_NS`].
pub const NAP_MAX_NS: u64 = 5_000_000;
/// So long what has been taken waits for more before it is written to the file.
const FLUSH_NS: u64 = 200_000_000;
/// The same where other machines keep the recording: what they do not have yet is lost with this one.
const SHIP_NS: u64 = 5_000_000;

/// Why nobody holds on to the log of a process whose recording cannot be written.
const UNWRITTEN: &str = "the recording cannot be written any more";

/// The file, for as long as it can be written.
enum File {
    Open(Box<Writer>),
    Closed,
}

/// The recording of a group.
pub struct Tape {
    /// The group's folder.
    folder: Arc<Dir>,
    path: PathBuf,
    /// Processes whose log is being taken.
    pub taken: Vec<Taken>,
    /// Segments that are being taken, by number, with their inode: a number may be used again.
    known: HashMap<u32, u64>,
    news: Option<u32>,
    file: File,
    images: u32,
    by_pid: HashMap<u32, u32>,
    flush_at_ns: u64,
    /// Other machines that keep it.
    ships: Option<Ships>,
    /// The gate that waits for passes, with what it is told of, and whom new processes are listed by.
    gate: Option<(Arc<Door>, Ledger, Arc<Roster>)>,
    /// Pieces of an image of the program that are to be written down.
    pictures: Vec<Vec<u8>>,
    /// Lines about these that somebody should hear.
    shipped: Vec<String>,
    /// Lines that somebody should hear.
    said: Vec<String>,
    /// Why there is less in the file than there was, the first reason.
    ended: Option<String>,
}

impl Tape {
    /// A recording of the group in `folder`, of which only the program itself is known, into the file at `path`.
    pub fn new(folder: &Arc<Dir>, path: &Path, writer: Writer, root: Taken) -> Tape {
        Tape {
            folder: Arc::clone(folder),
            path: path.into(),
            taken: vec![root],
            known: HashMap::new(),
            news: None,
            file: File::Open(Box::new(writer)),
            images: 0,
            by_pid: HashMap::new(),
            flush_at_ns: 0,
            ships: None,
            gate: None,
            pictures: Vec::new(),
            shipped: Vec::new(),
            said: Vec::new(),
            ended: None,
        }
    }

    /// It goes on with a recording of so many images, of which those are that it has.
    pub fn goes_on_behind(&mut self, images: u32) {
        self.images = images;
        self.by_pid = self.taken.iter().filter_map(|taken| Some((taken.pid, taken.image()?))).collect();
    }

    /// From now on these machines keep it as well.
    pub fn ship(&mut self, ships: Ships) {
        self.ships = Some(ships);
    }

    /// From now on this gate waits for passes.
    pub fn gate(&mut self, door: Arc<Door>, roster: &Arc<Roster>) {
        self.gate = Some((door, Ledger::default(), Arc::clone(roster)));
    }

    /// These processes are recorded from here on, which a recording has that it goes on with.
    pub fn goes_on_with(&mut self, taken: Taken) {
        if let Some((_, inode)) = self.folder.identity(member(taken.pid)) {
            self.known.insert(taken.pid, inode);
        }
        self.taken.push(taken);
    }

    /// What is to be said of other machines since this was last asked.
    pub fn shipped(&mut self) -> Vec<String> {
        std::mem::take(&mut self.shipped)
    }

    /// What is to be said since this was last asked, and why the recording is not whole, if it is not.
    pub fn said(&mut self) -> (Vec<String>, Option<&str>) {
        (std::mem::take(&mut self.said), self.ended.as_deref())
    }

    /// Processes that have made a segment. The folder is asked and not the roster: a child may have ended, and its parent
    /// been told so, between two looks.
    pub fn find_new(&mut self, roster: &Roster) {
        let news = Some(roster.header().news.0.load(Ordering::Acquire));
        if self.news == news {
            return;
        }
        self.news = news;
        for name in self.folder.names() {
            let number = name.to_str().and_then(|name| name.strip_prefix("segment.")?.parse::<u32>().ok());
            let Some(pid) = number else { continue };
            let Some((_, inode)) = self.folder.identity(&name) else { continue };
            if self.known.get(&pid) == Some(&inode) {
                continue;
            }
            match take::open(&self.folder, member(pid), pid) {
                Ok(member) => {
                    self.known.insert(pid, inode);
                    self.taken.push(member);
                }
                // Its maker has not filled it in yet: it will tell.
                Err(_) => self.news = None,
            }
        }
    }

    /// Looks for new processes even if nobody has told of one.
    pub fn find_all(&mut self, roster: &Roster) {
        self.news = None;
        self.find_new(roster);
    }

    /// Empties the rings into the file. Returns how many bytes came.
    pub fn take(&mut self) -> u64 {
        let now = clock::monotonic_ns();
        let mut flush = now >= self.flush_at_ns;
        let (mut bytes, mut failure) = (0, None);
        let mut stopped = Vec::new();
        let File::Open(_) = &self.file else {
            self.shipped.extend(self.ships.iter_mut().flat_map(Ships::look));
            self.taken.iter().for_each(|taken| taken.stop(UNWRITTEN));
            self.gate.iter().for_each(|(door, ..)| door.stop());
            return 0;
        };
        let (notes, is_wanted) = self.begin_pass();
        flush |= is_wanted;
        let File::Open(writer) = &mut self.file else { return 0 };
        let mut book = Book { writer, images: self.images, by_pid: std::mem::take(&mut self.by_pid) };
        if let Some(root) = self.taken.first_mut() {
            // First: what a gate says now stands behind the place that an image is of.
            let mut pieces = std::mem::take(&mut self.pictures).into_iter();
            failure = pieces.find_map(|piece| root.picture(&piece, &mut book).err());
            let mut notes = notes.iter();
            failure = failure.or_else(|| notes.find_map(|note| root.note(&note.to_bytes(), &mut book).err()));
        }
        for taken in &mut self.taken {
            let stops = taken.stops_now();
            match taken.drain(&mut book) {
                Ok(more) => bytes += more,
                Err(cause) => failure = Some(cause),
            }
            if let Some(why) = stops {
                taken.is_done();
                stopped.push((taken.pid, why));
            }
        }
        (self.images, self.by_pid) = (book.images, book.by_pid);
        if flush {
            self.flush_at_ns = now + if self.ships.is_some() { SHIP_NS } else { FLUSH_NS };
            failure = failure.or(writer.flush().err());
            if let Some((door, ..)) = self.gate.as_ref().filter(|_| failure.is_none()) {
                door.end(writer.bytes_file());
            }
            if let Some(ships) = &mut self.ships {
                ships.ring();
                self.shipped.extend(ships.look());
            }
        }
        for (pid, why) in stopped {
            self.ends_for(pid, &why);
        }
        if let Some(cause) = failure {
            self.give_up(&cause);
        }
        bytes
    }

    /// A pass over the rings begins: what is to be written down first, and whether somebody waits for its end.
    fn begin_pass(&mut self) -> (Vec<Note>, bool) {
        let Some((door, mut ledger, roster)) = self.gate.take() else { return (Vec::new(), false) };
        // A parent closes no connection before its child has it in a table: who has seen the one finds the other.
        ledger.see_closed(self.taken.iter().map(Taken::segment));
        self.find_new(&roster);
        let readings = ledger.read(self.taken.iter().map(Taken::segment));
        let takes_notes = self.taken.first().is_some_and(|root| root.image().is_some());
        let begun = door.begin(readings, takes_notes);
        // Whose packet waits for this pass has been listed before it was sent.
        self.find_new(&roster);
        self.gate = Some((door, ledger, roster));
        begun
    }

    /// With the next pass this piece of an image of the program is written down.
    pub fn hand(&mut self, piece: Vec<u8>) {
        // Nobody would take them.
        if matches!(self.file, File::Open(_)) {
            self.pictures.push(piece);
        }
    }

    /// Has the gate, if there is one, say how much has been acknowledged on each connection.
    pub fn measure(&self) {
        self.gate.iter().for_each(|(door, ..)| door.measure());
    }

    /// Which image of the program each machine has asked for last.
    pub fn wishes(&self) -> Vec<(String, u64)> {
        self.ships.iter().flat_map(Ships::wishes).collect()
    }

    /// The process that is recorded, if there has been no other one.
    pub fn only(&self) -> Option<&Taken> {
        let is_only = self.by_pid.len() == 1 && self.taken.len() == 1;
        self.taken.first().filter(|_| is_only)
    }

    /// Whether more than one process has been recorded.
    pub fn has_several(&self) -> bool {
        self.by_pid.len() > 1
    }

    /// Where in the file the process is that is recorded, which stands still and has been the only one: everything that it has logged
    /// stands before, and its image's number.
    ///
    /// # Errors
    /// Why there is no such place, in words.
    pub fn mark(&mut self) -> Result<(Mark, u32), String> {
        while self.take() > 0 {}
        let all = self.only().filter(|taken| taken.has_all()).and_then(Taken::image);
        let image = all.ok_or("its log has not been taken whole")?;
        let File::Open(writer) = &mut self.file else { return Err(UNWRITTEN.into()) };
        Ok((writer.mark().map_err(|cause| cause.to_string())?, image))
    }

    fn ends_for(&mut self, pid: u32, why: &str) {
        self.ends(format!("the recording of process {pid} ends here: {why}"));
    }

    fn ends(&mut self, line: String) {
        self.ended.get_or_insert_with(|| line.clone());
        self.said.push(line);
    }

    /// The file cannot be written any more. The program goes on.
    fn give_up(&mut self, cause: &recording::Error) {
        self.ends(format!("{}: the recording ends here: {cause}", self.path.display()));
        self.file = File::Closed;
        self.gate.iter().for_each(|(door, ..)| door.stop());
        self.taken.iter().for_each(|taken| taken.stop(UNWRITTEN));
    }

    /// Processes that have ended, by `over` with their status where that is known: what is left of their log, and their end.
    pub fn bury(&mut self, mut over: impl FnMut(&mut Taken) -> Option<Option<i32>>) {
        let over: Vec<_> = self.taken.iter_mut().map(&mut over).collect();
        if over.iter().all(Option::is_none) {
            return;
        }
        // Whoever made one is written down before it: a first child may have ended before anything was taken of the root, and a replay
        // would take that child for the program.
        self.take();
        let mut living = Vec::new();
        for (mut taken, status) in std::mem::take(&mut self.taken).into_iter().zip(over) {
            let Some(status) = status else {
                living.push(taken);
                continue;
            };
            self.finish_one(&mut taken, status);
            self.known.remove(&taken.pid);
            taken.remove();
        }
        living.append(&mut self.taken);
        self.taken = living;
    }

    fn finish_one(&mut self, taken: &mut Taken, status: Option<i32>) {
        if let Some((_, ledger, _)) = &mut self.gate {
            ledger.ended(taken.segment());
        }
        let File::Open(writer) = &mut self.file else { return };
        let mut book = Book { writer, images: self.images, by_pid: std::mem::take(&mut self.by_pid) };
        // A short program is gone before the next look: nobody has been told yet.
        let stopped = taken.stops_now();
        let failure = taken.finish(status, &mut book).err();
        (self.images, self.by_pid) = (book.images, book.by_pid);
        if let Some(why) = stopped {
            self.ends_for(taken.pid, &why);
        }
        if let Some(cause) = failure {
            self.give_up(&cause);
        }
    }

    /// Nothing more is recorded of the processes that there still are. Whether there were none.
    pub fn finish_left(&mut self) -> bool {
        let left = std::mem::take(&mut self.taken);
        let whole = left.is_empty();
        for mut taken in left {
            self.finish_one(&mut taken, None);
            // It goes on, and waits for nobody.
            taken.stop("the group has ended");
        }
        if !whole {
            self.said.push(
                "the program has ended; processes that it left behind are not recorded any further".into(),
            );
        }
        whole
    }

    /// Ends the file. Its sums and its bytes, if it is whole.
    pub fn close(&mut self) -> Option<(Complete, u64)> {
        let closed = self.close_file();
        let ships = self.ships.take();
        self.shipped.extend(ships.into_iter().flat_map(Ships::finish));
        closed
    }

    fn close_file(&mut self) -> Option<(Complete, u64)> {
        let File::Open(writer) = std::mem::replace(&mut self.file, File::Closed) else { return None };
        let file_bytes = writer.bytes_file();
        match writer.finish() {
            Ok(sums) => Some((sums, file_bytes)),
            Err(cause) => {
                self.give_up(&cause);
                None
            }
        }
    }
}

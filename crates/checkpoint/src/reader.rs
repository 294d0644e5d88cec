//! Reading a checkpoint: nothing in it is believed before its checksum is right, and no length above its bound.

use std::io::{ErrorKind, Read};

use crate::{
    CHUNK_BYTES, Error, FRONT_BYTES, HEAD_BYTES, Head, Index, MARK, Owner, Skip, Sums, VERSION, VERSION_MIN,
    WHOSE_BYTES, kind,
};

/// Runs in one chunk, at most: one a page.
const RUNS_MAX: usize = CHUNK_BYTES / 4096 + 1;

/// Bytes of a chunk of pages, at most.
const PAGES_BYTES: usize = WHOSE_BYTES + 16 * RUNS_MAX + CHUNK_BYTES;

/// Reads one checkpoint from its beginning to its end.
pub struct Reader<R: Read> {
    from: R,
    at: u64,
    head: Head,
    sums: Sums,
    index: Index,
    is_over: bool,
    room: Room,
}

/// A chunk of pages.
#[derive(Debug)]
pub struct Pages<'a> {
    owner: Owner,
    content: &'a [u8],
    runs: usize,
    stored: Option<u64>,
}

impl Pages<'_> {
    /// Whose they are: somebody that the head speaks of.
    pub fn owner(&self) -> Owner {
        self.owner
    }

    /// Address and content of each run.
    pub fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut at = WHOSE_BYTES + 16 * self.runs;
        (0..self.runs).map(move |run| {
            let (start, len) = run_at(self.content, run);
            let from = at;
            at += len as usize;
            (start, &self.content[from..at])
        })
    }

    /// Where in what is read the first run begins, if it stands there as it is: the others are behind it.
    pub fn stored(&self) -> Option<u64> {
        self.stored
    }
}

fn run_at(content: &[u8], run: usize) -> (u64, u64) {
    let word = |at: usize| content[at..at + 8].try_into().map_or(0, u64::from_le_bytes);
    (word(WHOSE_BYTES + 16 * run), word(WHOSE_BYTES + 8 + 16 * run))
}

impl<R: Read> Reader<R> {
    /// Reads the beginning.
    ///
    /// # Errors
    /// When it is no checkpoint, one of another version, cut off or damaged.
    pub fn new(mut from: R) -> Result<Reader<R>, Error> {
        let mut mark = [0; MARK.len() + 4];
        match from.read_exact(&mut mark) {
            Err(cause) if cause.kind() == ErrorKind::UnexpectedEof => return Err(Error::NotACheckpoint),
            result => result?,
        }
        let (mark, version) = mark.split_at(MARK.len());
        if crate::is_sealed(mark) {
            return Err(Error::Sealed);
        }
        if mark != MARK {
            return Err(Error::NotACheckpoint);
        }
        let version = version.try_into().map_or(0, u32::from_le_bytes);
        if !(VERSION_MIN..=VERSION).contains(&version) {
            return Err(Error::Version(version));
        }
        let mut at = MARK.len() as u64 + 4;
        let begin = at;
        let mut room = Room::default();
        let Chunk { kind, .. } = chunk(&mut from, &mut at, &mut room)?;
        let content = room.content();
        let damaged = |what| Error::Damaged { at: begin, what };
        if kind != kind::HEAD {
            return Err(damaged("its head is missing"));
        }
        let head: Head = serde_json::from_slice(content).map_err(|_| damaged("its head is not one"))?;
        if head.processes.is_empty() {
            return Err(damaged("it has no process"));
        }
        Ok(Reader { from, at, head, sums: Sums::default(), index: Index::default(), is_over: false, room })
    }

    /// What the program is made of.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The next pages, `None` behind the last ones.
    ///
    /// # Errors
    /// When it is cut off or damaged.
    pub fn pages(&mut self) -> Result<Option<Pages<'_>>, Error> {
        if self.is_over {
            return Ok(None);
        }
        loop {
            let begin = self.at;
            let Chunk { kind, stored } = chunk(&mut self.from, &mut self.at, &mut self.room)?;
            match kind {
                kind::PAGES => return self.chunk_of_pages(begin, stored).map(Some),
                kind::INDEX => self.take_index(begin)?,
                _ => return self.end(kind, begin).map(|()| None),
            }
        }
    }

    /// The pages that have just been read from `begin` on.
    fn chunk_of_pages(&mut self, begin: u64, stored: Option<u64>) -> Result<Pages<'_>, Error> {
        let damaged = |what| Error::Damaged { at: begin, what };
        let content = self.room.content();
        let owner = content.first_chunk().copied().and_then(Owner::from_bytes);
        let owner = owner.filter(|owner| self.is_ones(*owner)).ok_or(damaged("its pages are nobody's"))?;
        let runs = content.get(8..WHOSE_BYTES).and_then(|bytes| bytes.try_into().ok());
        let runs = runs.map_or(0, u32::from_le_bytes) as usize;
        let front = WHOSE_BYTES + 16 * runs;
        if runs == 0 || runs > RUNS_MAX || content.len() < front {
            return Err(damaged("its pages have no places"));
        }
        let sum = (0..runs).try_fold(0u64, |sum, run| sum.checked_add(run_at(content, run).1));
        if sum != Some((content.len() - front) as u64) {
            return Err(damaged("its pages are not as many as it says"));
        }
        self.sums.chunks += 1;
        self.sums.bytes += content.len() as u64;
        Ok(Pages { owner, content, runs, stored: stored.map(|at| at + front as u64) })
    }

    /// Whether the head speaks of this owner.
    fn is_ones(&self, owner: Owner) -> bool {
        match owner {
            Owner::Process(index) => (index as usize) < self.head.processes.len(),
            Owner::Shared(index) => (index as usize) < self.head.shared.len(),
        }
    }

    /// A part of the list of pages. Only of an incremental one it is wanted; it is right in every one.
    fn take_index(&mut self, begin: u64) -> Result<(), Error> {
        let damaged = |what| Error::Damaged { at: begin, what };
        let mut part = Index::default();
        let index = if self.head.base.is_some() { &mut self.index } else { &mut part };
        let owner = index.take(self.room.content()).map_err(damaged)?;
        if self.is_ones(owner) { Ok(()) } else { Err(damaged("its list of pages is nobody's")) }
    }

    fn end(&mut self, kind: u32, begin: u64) -> Result<(), Error> {
        let damaged = |what| Error::Damaged { at: begin, what };
        if kind != kind::END {
            return Err(damaged("a chunk is of no known kind"));
        }
        let sums: Option<Sums> = serde_json::from_slice(self.room.content()).ok();
        self.is_over = true;
        if sums == Some(self.sums) { Ok(()) } else { Err(damaged("its sums are others")) }
    }

    /// Of an incremental one, behind its last pages: all pages that the program has, also those that are in its base.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The list of pages; the pages are gone over, and so are not looked at.
    pub(crate) fn index_only(mut self) -> Result<Index, Error>
    where
        R: Skip,
    {
        let mut index = Index::default();
        loop {
            let begin = self.at;
            let damaged = |what| Error::Damaged { at: begin, what };
            let front = front(&mut self.from, begin)?;
            match front.kind {
                kind::PAGES => {
                    self.from.skip(front.stored.into())?;
                    self.at += FRONT_BYTES as u64 + u64::from(front.stored);
                    continue;
                }
                kind::INDEX => {
                    content(&mut self.from, &mut self.at, &front, &mut self.room)?;
                    index.take(self.room.content()).map_err(damaged)?;
                }
                // Its sums are those of pages that nobody has read.
                kind::END => {
                    content(&mut self.from, &mut self.at, &front, &mut self.room)?;
                    return Ok(index);
                }
                _ => return Err(damaged("a chunk is of no known kind")),
            }
        }
    }
}

/// What stands in front of a chunk.
struct Front {
    kind: u32,
    bytes: u32,
    stored: u32,
    checksum: u32,
}

/// Where chunks are read to, one behind the other: the room is used again.
#[derive(Default)]
struct Room {
    stored: Vec<u8>,
    decompressed: Vec<u8>,
    is_decompressed: bool,
}

impl Room {
    /// The last chunk's content.
    fn content(&self) -> &[u8] {
        if self.is_decompressed { &self.decompressed } else { &self.stored }
    }
}

/// A chunk that has been read.
struct Chunk {
    kind: u32,
    /// Where its content stands, if it stands there as it is.
    stored: Option<u64>,
}

/// Reads one chunk; its content is in the room.
fn chunk(from: &mut impl Read, at: &mut u64, room: &mut Room) -> Result<Chunk, Error> {
    let begin = *at;
    let front = front(from, begin)?;
    content(from, at, &front, room)?;
    let stored = (!room.is_decompressed).then_some(begin + FRONT_BYTES as u64);
    Ok(Chunk { kind: front.kind, stored })
}

/// Reads what stands in front of the chunk at `at`.
fn front(from: &mut impl Read, at: u64) -> Result<Front, Error> {
    let cut = |cause: std::io::Error| match cause.kind() {
        ErrorKind::UnexpectedEof => Error::Cut(at),
        _ => cause.into(),
    };
    let mut front = [0; FRONT_BYTES];
    from.read_exact(&mut front).map_err(cut)?;
    let word = |at: usize| front[at..at + 4].try_into().map_or(0, u32::from_le_bytes);
    let [kind, bytes, stored, checksum] = [word(0), word(4), word(8), word(12)];
    let most = if matches!(kind, kind::PAGES | kind::INDEX) { PAGES_BYTES } else { HEAD_BYTES };
    if bytes as usize > most || stored > bytes {
        return Err(Error::Damaged { at, what: "a chunk is longer than any is" });
    }
    Ok(Front { kind, bytes, stored, checksum })
}

/// Reads what stands behind the front of the chunk at `at`, and goes on to the next one.
fn content(from: &mut impl Read, at: &mut u64, front: &Front, room: &mut Room) -> Result<(), Error> {
    let begin = *at;
    let damaged = |what| Error::Damaged { at: begin, what };
    // Not at once: a length is not believed before there is so much.
    room.stored.clear();
    from.by_ref().take(front.stored.into()).read_to_end(&mut room.stored)?;
    if room.stored.len() < front.stored as usize {
        return Err(Error::Cut(begin));
    }
    if crc32c::crc32c(&room.stored) != front.checksum {
        return Err(damaged("its checksum is another"));
    }
    *at += FRONT_BYTES as u64 + u64::from(front.stored);
    room.is_decompressed = front.stored < front.bytes;
    if room.is_decompressed {
        // As much as any chunk has: `front` has looked.
        room.decompressed.resize(front.bytes as usize, 0);
        let len = zstd::bulk::decompress_to_buffer(&room.stored, &mut room.decompressed[..])
            .map_err(|_| damaged("it cannot be decompressed"))?;
        room.decompressed.truncate(len);
    }
    if room.content().len() != front.bytes as usize {
        return Err(damaged("it is not as long as it says"));
    }
    Ok(())
}

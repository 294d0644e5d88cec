//! Which pages a checkpoint has, each with its digest: what an incremental one leaves out is known by it.
//!
//! A digest is 16 bytes of XXH3 with a seed that is drawn for a checkpoint and kept by those that build on it. Whoever chooses what
//! stands in the program's memory does not know the seed, and so cannot make two pages that have one digest.

use std::io::{self, BufRead, BufReader, Read, Seek};

use crate::{Error, Opener, Owner, PAGE_BYTES};

/// What tells a page from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Digest([u8; Digest::BYTES]);

impl Digest {
    pub(crate) const BYTES: usize = 16;

    /// That of a page, in a checkpoint of this seed.
    pub fn of(seed: u64, page: &[u8]) -> Digest {
        Digest(xxhash_rust::xxh3::xxh3_128_with_seed(page, seed).to_le_bytes())
    }
}

/// Consecutive pages of one owner.
#[derive(Clone, Copy, Debug)]
struct Run {
    owner: u64,
    start: u64,
    pages: u64,
    /// The first one's digest: its place among all.
    first: usize,
}

/// Pages and their digests.
#[derive(Clone, Debug, Default)]
pub struct Index {
    runs: Vec<Run>,
    digests: Vec<Digest>,
}

impl Index {
    /// Adds a page.
    pub(crate) fn add(&mut self, owner: Owner, address: u64, digest: Digest) {
        let owner = owner.word();
        match self.runs.last_mut() {
            Some(run) if run.owner == owner && run.start + run.pages * PAGE_BYTES as u64 == address => {
                run.pages += 1;
            }
            _ => self.runs.push(Run { owner, start: address, pages: 1, first: self.digests.len() }),
        }
        self.digests.push(digest);
    }

    /// Makes [`Index::find`] possible.
    pub(crate) fn sort(&mut self) {
        self.runs.sort_by_key(|run| (run.owner, run.start));
    }

    /// The digest of a page that it has, once it is [sorted](Index::sort).
    pub(crate) fn find(&self, owner: Owner, address: u64) -> Option<Digest> {
        let owner = owner.word();
        let behind = self.runs.partition_point(|run| (run.owner, run.start) <= (owner, address));
        let run = self.runs[..behind].last().filter(|run| run.owner == owner)?;
        let page = (address - run.start) / PAGE_BYTES as u64;
        (page < run.pages).then(|| self.digests[run.first + page as usize])
    }

    /// Every page: whose it is, its address and its digest.
    pub fn pages(&self) -> impl Iterator<Item = (Owner, u64, Digest)> {
        self.runs.iter().flat_map(|run| {
            let digests = &self.digests[run.first..run.first + run.pages as usize];
            let owner = Owner::from_bytes(run.owner.to_le_bytes());
            let all = digests.iter().zip(0u64..);
            all.filter_map(move |(digest, page)| {
                Some((owner?, run.start + page * PAGE_BYTES as u64, *digest))
            })
        })
    }

    /// The contents of chunks that hold it: of each run of pages whose it is, its address, and the digests.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = Vec<u8>> {
        const PAGES: u64 = 1 << 15;
        self.runs.iter().flat_map(|run| {
            (0..run.pages).step_by(PAGES as usize).map(|from| {
                let pages = PAGES.min(run.pages - from) as usize;
                let first = run.first + from as usize;
                let mut content = Vec::with_capacity(FRONT + pages * Digest::BYTES);
                content.extend(run.owner.to_le_bytes());
                content.extend((run.start + from * PAGE_BYTES as u64).to_le_bytes());
                content.extend(self.digests[first..first + pages].iter().flat_map(|digest| digest.0));
                content
            })
        })
    }

    /// Takes what a chunk holds; whose it is.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn take(&mut self, content: &[u8]) -> Result<Owner, &'static str> {
        let (front, digests) = content.split_at_checked(FRONT).ok_or("its list of pages is too short")?;
        let (owner, start) = front.split_at(FRONT / 2);
        let owner = owner.first_chunk().copied().and_then(Owner::from_bytes);
        let owner = owner.ok_or("its list of pages is nobody's")?;
        let start = start.first_chunk().copied().map_or(u64::MAX, u64::from_le_bytes);
        let (digests, rest) = digests.as_chunks::<{ Digest::BYTES }>();
        let end = start.checked_add(digests.len() as u64 * PAGE_BYTES as u64);
        if !rest.is_empty() || start % PAGE_BYTES as u64 != 0 || end.is_none() {
            return Err("its list of pages is not one");
        }
        for (digest, at) in digests.iter().zip((start..).step_by(PAGE_BYTES)) {
            self.add(owner, at, Digest(*digest));
        }
        Ok(owner)
    }
}

/// Bytes in front of the digests in a chunk.
const FRONT: usize = 16;

/// What can be read without looking at all of it.
pub trait Skip: Read {
    /// Goes over so many bytes.
    ///
    /// # Errors
    /// The file's.
    fn skip(&mut self, bytes: u64) -> io::Result<()>;
}

impl<F: Read + Seek> Skip for BufReader<F> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.seek_relative(bytes.try_into().map_err(io::Error::other)?)
    }
}

impl Skip for &[u8] {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        self.consume(bytes.try_into().map_or(self.len(), |bytes: usize| bytes.min(self.len())));
        Ok(())
    }
}

/// Every piece has to be opened: nothing says where the next one begins but the one before.
impl<R: Read> Skip for Opener<R> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        io::copy(&mut self.take(bytes), &mut io::sink()).map(|_| ())
    }
}

impl<S: Skip + ?Sized> Skip for Box<S> {
    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        (**self).skip(bytes)
    }
}

/// What an incremental checkpoint builds on.
#[derive(Debug)]
pub struct Base {
    pub(crate) id: String,
    pub(crate) seed: u64,
    pub(crate) index: Index,
}

impl Base {
    /// Reads of a checkpoint what the next one needs. Its pages are gone over.
    ///
    /// # Errors
    /// When it is none, is cut off or damaged, or has no list of its pages.
    pub fn read(from: impl Skip) -> Result<Base, Error> {
        let reader = crate::Reader::new(from)?;
        let head = reader.head();
        let (Some(seed), id) = (head.seed, head.id.clone()) else { return Err(Error::NoBase) };
        let mut index = reader.index_only()?;
        index.sort();
        Ok(Base { id, seed, index })
    }

    /// Its number.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The seed of its digests: those that build on it have the same.
    pub fn seed(&self) -> u64 {
        self.seed
    }
}

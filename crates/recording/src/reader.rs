//! Reading a recording, also one that is being written, is cut, or is damaged.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use crate::bytes::Fault;
use crate::chunk::{CHUNK_HEAD, FILE_HEAD, Head, Kind, MAGIC};
use crate::decode::{Decoder, Found, Run};
use crate::encode::{END, IMAGE};
use crate::header::{Complete, Header, Image, Item, Mark, end_from_bytes};
use crate::shelf::{AtHand, Place};
use crate::source::Source;
use crate::streams::Unpacker;
use crate::{Error, VERSION, chunk, content};

/// How often a reader that follows looks whether there is more.
const PAUSE: Duration = Duration::from_millis(5);

/// Reads a recording from its beginning to its end.
#[derive(Debug)]
pub struct Reader {
    source: Source,
    header: Header,
    /// Where the next chunk begins, and its number.
    offset: u64,
    chunks: u64,
    /// Where the chunk that is being read begins.
    current: (u64, u64),
    decoder: Option<Decoder>,
    unpacker: Unpacker,
    at_hand: AtHand,
    costs: Option<Vec<f32>>,
    seen: Complete,
    complete: bool,
    follow: bool,
    damage: Option<Fault>,
}

/// A chunk whose checksums are right.
struct Chunk {
    head: Head,
    content: Vec<u8>,
}

impl Reader {
    /// Opens a recording and reads its header.
    ///
    /// # Errors
    /// Any [`Error`] but `Exists` and `Misuse`; without a header nothing can be read.
    pub fn open(path: &Path) -> Result<Reader, Error> {
        Reader::of(fs::File::open(path)?)
    }

    /// Reads the header of a recording that is open.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn of(file: fs::File) -> Result<Reader, Error> {
        if file.metadata()?.is_dir() {
            return Err(Error::NotARecording("it is a folder".into()));
        }
        Reader::new(Source::File(file))
    }

    /// Reads a recording that is in memory.
    ///
    /// # Errors
    /// As [`Reader::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Reader, Error> {
        Reader::new(Source::Bytes(bytes))
    }

    fn new(source: Source) -> Result<Reader, Error> {
        let head = source.read(0, FILE_HEAD)?;
        check_file_head(&head)?;
        let mut reader = Reader {
            source,
            header: Header::default(),
            offset: FILE_HEAD as u64,
            chunks: 0,
            current: (FILE_HEAD as u64, 0),
            decoder: None,
            unpacker: Unpacker::new()?,
            at_hand: AtHand::default(),
            costs: None,
            seen: Complete::default(),
            complete: false,
            follow: false,
            damage: None,
        };
        let chunk = reader.chunk()?;
        if chunk.head.kind != Kind::Header {
            return Err(reader.damaged("it does not begin with a header".into()));
        }
        let header = content::unpack(&mut reader.unpacker, &chunk.content)
            .and_then(|content| Header::from_bytes(&content));
        reader.header = header.map_err(|fault| reader.damaged(fault))?;
        Ok(reader)
    }

    /// What the recording says before everything else.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Whether [`Reader::next`] waits at the end of an unfinished file for as long as its writer lives.
    pub fn follow(&mut self, follow: bool) {
        self.follow = follow;
    }

    /// From now on [`Reader::costs`] are known.
    pub fn measure(&mut self) {
        self.costs = Some(Vec::new());
    }

    /// What each event of the last [`Item::Events`] takes in the file, bytes: its share of each column, as that column
    /// compresses. Heads of chunks, and shared payloads, are nobody's.
    pub fn costs(&self) -> &[f32] {
        self.costs.as_deref().unwrap_or_default()
    }

    /// End of what has been read, bytes.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Chunks that have been read.
    pub fn chunks(&self) -> u64 {
        self.chunks
    }

    /// Sums over what has been read; `duration_ns` is the time of the last chunk. After the end of a finished recording
    /// these are the writer's own.
    pub fn seen(&self) -> Complete {
        self.seen
    }

    /// Reads on from a place that [`Writer::mark`](crate::Writer::mark) has given, as if all before it had been read. What is no such
    /// place is told by the next item, or by the sums at the end.
    pub fn go_to(&mut self, mark: &Mark) {
        (self.offset, self.chunks) = (mark.offset, mark.chunks);
        self.current = (mark.offset, mark.chunks);
        self.decoder = None;
        let Mark { images, events, bytes_raw, .. } = *mark;
        self.seen = Complete { images, events, bytes_raw, ..self.seen };
    }

    /// The next item; `None` behind [`Item::Complete`].
    ///
    /// # Errors
    /// [`Error::Unfinished`] at the end of an unfinished file: another try goes on where this one ended.
    /// [`Error::Damaged`]: another try says the same.
    #[expect(clippy::should_implement_trait, reason = "an iterator's end would hide what is wrong")]
    pub fn next(&mut self) -> Result<Option<Item>, Error> {
        loop {
            if let Some(fault) = &self.damage {
                return Err(self.damaged(fault.clone()));
            }
            let item = match self.decoder.is_some() {
                true => self.run(),
                false if self.complete => self.nothing_behind().map(|()| None),
                false => {
                    let chunk = match self.chunk() {
                        Err(Error::Damaged { what, .. }) => Err(what),
                        Err(other) => return Err(other),
                        Ok(chunk) => Ok(chunk),
                    };
                    chunk.and_then(|chunk| self.take(chunk))
                }
            };
            match item {
                Ok(Some(item)) => return Ok(Some(item)),
                Ok(None) if self.complete => return Ok(None),
                Ok(None) => {}
                Err(fault) => self.damage = Some(fault),
            }
        }
    }

    fn damaged(&self, what: Fault) -> Error {
        Error::Damaged { offset: self.current.0, chunk: self.current.1, what }
    }

    /// The next run of the open chunk.
    fn run(&mut self) -> Result<Option<Item>, Fault> {
        let Some(decoder) = &mut self.decoder else { return Ok(None) };
        if let Some(costs) = &mut self.costs {
            costs.clear();
        }
        let (source, unpacker, at_hand) = (&self.source, &mut self.unpacker, &mut self.at_hand);
        let own = self.current.0;
        let mut fetch = |place: Place, to: &mut Vec<u8>| {
            // What stands before has been checked, and is there whatever becomes of the rest.
            if place.offset >= own {
                return Err("a payload is shared that stands behind".into());
            }
            at_hand.fetch(source, unpacker, place).map(|payload| to.extend_from_slice(payload))
        };
        match decoder.next(self.costs.as_mut(), &mut fetch)? {
            None => {
                self.decoder = None;
                Ok(None)
            }
            Some(Found::Item(image, IMAGE, bytes)) => self.image(&bytes, Some(image)).map(Some),
            Some(Found::Item(image, END, bytes)) => self.end(&bytes, Some(image)).map(Some),
            Some(Found::Item(_, what, _)) => Err(format!("an item of unknown kind {what}")),
            Some(Found::Run(run)) if run.image >= self.seen.images => {
                Err(format!("events of image {}, which has not been told of", run.image))
            }
            Some(Found::Run(Run { image, slot, events, bytes })) => {
                self.seen.events += events;
                self.seen.bytes_raw += bytes.len() as u64;
                Ok(Some(Item::Events { image, slot, bytes }))
            }
        }
    }

    /// An image is told of; its number, where that stands outside as well.
    fn image(&mut self, bytes: &[u8], outside: Option<u32>) -> Result<Item, Fault> {
        let image = Image::from_bytes(bytes)?;
        if image.number != self.seen.images || outside.is_some_and(|number| number != image.number) {
            return Err(format!("image {} comes out of order", image.number));
        }
        self.seen.images += 1;
        Ok(Item::Image(image))
    }

    /// An image is at its end; see [`Reader::image`].
    fn end(&mut self, bytes: &[u8], outside: Option<u32>) -> Result<Item, Fault> {
        let end = end_from_bytes(bytes)?;
        match end {
            Item::End { image, .. }
                if image >= self.seen.images || outside.is_some_and(|number| number != image) =>
            {
                Err(format!("the end of image {image}, which has not been told of"))
            }
            end => Ok(end),
        }
    }

    /// What a chunk holds; `None` for events, whose decoder is open then.
    fn take(&mut self, chunk: Chunk) -> Result<Option<Item>, Fault> {
        self.seen.duration_ns = chunk.head.at_ns;
        let item = match chunk.head.kind {
            Kind::Events => {
                self.decoder = Some(Decoder::new(&mut self.unpacker, &chunk.content)?);
                return Ok(None);
            }
            // Read again where it is wanted.
            Kind::Payload => return Ok(None),
            Kind::Header => return Err("a second header".into()),
            Kind::Image => {
                let bytes = content::unpack(&mut self.unpacker, &chunk.content)?;
                self.image(&bytes, None)?
            }
            Kind::End => {
                let bytes = content::unpack(&mut self.unpacker, &chunk.content)?;
                self.end(&bytes, None)?
            }
            Kind::Complete => {
                let complete = Complete::from_bytes(&content::unpack(&mut self.unpacker, &chunk.content)?)?;
                let sums = |of: Complete| (of.images, of.events, of.bytes_raw);
                if sums(complete) != sums(self.seen) {
                    return Err("its sums are not those of what stands before".into());
                }
                self.complete = true;
                self.seen = complete;
                Item::Complete(complete)
            }
        };
        Ok(Some(item))
    }

    fn nothing_behind(&mut self) -> Result<(), Fault> {
        self.current = (self.offset, self.chunks);
        let length = self.source.length().unwrap_or(self.offset);
        match length.saturating_sub(self.offset) {
            0 => Ok(()),
            more => Err(format!("{more} bytes behind the end")),
        }
    }

    /// Reads the next chunk, waiting for it if that is asked for.
    fn chunk(&mut self) -> Result<Chunk, Error> {
        loop {
            // Asked first: what the writer wrote before it went is there afterwards.
            let writer_lives = self.follow && self.source.has_writer();
            match self.whole_chunk() {
                Err(Error::Unfinished { .. }) if writer_lives => thread::sleep(PAUSE),
                other => return other,
            }
        }
    }

    fn whole_chunk(&mut self) -> Result<Chunk, Error> {
        self.current = (self.offset, self.chunks);
        let length = self.source.length()?;
        let there = length.saturating_sub(self.offset);
        let unfinished = Error::Unfinished { offset: self.offset, chunk: self.chunks, rest: there };
        let bytes = self.source.read(self.offset, CHUNK_HEAD)?;
        let Ok(head) = <[u8; CHUNK_HEAD]>::try_from(&bytes[..]) else { return Err(unfinished) };
        let head = Head::from_bytes(&head, self.chunks).map_err(|fault| self.damaged(fault))?;
        if (head.stored as u64) > there.saturating_sub(CHUNK_HEAD as u64) {
            return Err(unfinished);
        }
        let content = self.source.read(self.offset + CHUNK_HEAD as u64, head.stored as usize)?;
        if content.len() != head.stored as usize {
            return Err(unfinished);
        }
        if crc32c::crc32c(&content) != head.crc {
            return Err(self.damaged("the checksum of its content is wrong".into()));
        }
        self.offset += (CHUNK_HEAD + content.len()) as u64;
        self.chunks += 1;
        Ok(Chunk { head, content })
    }
}

/// Magic, version and checksum.
fn check_file_head(head: &[u8]) -> Result<(), Error> {
    if head.len() < FILE_HEAD {
        return Err(Error::NotARecording(format!("it has {} bytes", head.len())));
    }
    if head[..8] != MAGIC {
        return Err(Error::NotARecording("it does not begin as one".into()));
    }
    let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes were cut"));
    if word(12) != crc32c::crc32c(&head[..12]) {
        return Err(Error::Damaged { offset: 0, chunk: 0, what: "the checksum of the file's head".into() });
    }
    match word(8) {
        VERSION => {
            debug_assert!(chunk::file_head() == *head);
            Ok(())
        }
        version => Err(Error::Version(version)),
    }
}

//! Writing a recording.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use us_abi::EventKind;

use crate::chunk::Kind;
use crate::encode::{self, END, Encoder, IMAGE, item_size};
use crate::event::Events;
use crate::header::{Complete, Header, Image, Mark, end_to_bytes};
use crate::output::{Clock, Output};
use crate::reader::Reader;
use crate::shelf::{Advice, Place, SHARE_MIN, Shelf};
use crate::{CHUNK_MAX, Error};

/// A chunk is written once its events take so many bytes. Half of what a reader takes: what waits here, and what is
/// being compressed, stays within a few MiB.
const CHUNK_BYTES: usize = 2 << 20;

/// Writes a recording, chunk by chunk. What has not been flushed is lost with the process. Dropped without
/// [`finish`](Writer::finish) the file says that it is unfinished.
#[derive(Debug)]
pub struct Writer {
    out: Output,
    encoder: Box<Encoder>,
    shelf: Shelf,
    done: Complete,
}

impl Writer {
    /// Makes the file, which only its owner may read, and writes the header. While the writer lives it holds the file's
    /// lock (`flock`), by which a reader that follows knows that there may be more.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::Io`]; [`Error::Misuse`] for a header of more than [`CONTENT_MAX`](crate::CONTENT_MAX) bytes.
    pub fn create(path: &Path, header: &Header) -> Result<Writer, Error> {
        Writer::with_clock(path, header, Clock::Running(Instant::now(), 0))
    }

    /// As [`Writer::create`], with a clock by which every chunk takes a millisecond: for tests, whose files are then the
    /// same each time.
    ///
    /// # Errors
    /// As [`Writer::create`].
    pub fn create_timeless(path: &Path, header: &Header) -> Result<Writer, Error> {
        Writer::with_clock(path, header, Clock::Counting)
    }

    fn with_clock(path: &Path, header: &Header, clock: Clock) -> Result<Writer, Error> {
        let file = fs::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path);
        let file = file.map_err(|cause| match cause.kind() {
            io::ErrorKind::AlreadyExists => Error::Exists(path.into()),
            _ => Error::Io(cause),
        })?;
        // A file system without locks only costs those who follow.
        let _ = file.try_lock();
        let begun = Writer::begin(file, header, clock);
        if begun.is_err() {
            // Nothing is in it, and it would be in the way of the next attempt.
            let _ = fs::remove_file(path);
        }
        begun
    }

    /// Goes on with a recording that somebody else has begun, behind what has been read of it: what stands there is the rest of a
    /// chunk that never came whole.
    ///
    /// # Errors
    /// [`Error::Io`], also while somebody else writes it.
    pub fn resume(path: &Path, read: &Reader) -> Result<Writer, Error> {
        let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
        if let Err(fs::TryLockError::WouldBlock) = file.try_lock() {
            return Err(Error::Io(io::Error::other("somebody else is writing it")));
        }
        let at = Place { offset: read.offset(), number: read.chunks() };
        let done = read.seen();
        let clock = Clock::Running(Instant::now(), done.duration_ns);
        let encoder = Box::new(Encoder::new()?);
        Ok(Writer { out: Output::resume(file, at, clock)?, encoder, shelf: Shelf::new()?, done })
    }

    fn begin(file: fs::File, header: &Header, clock: Clock) -> Result<Writer, Error> {
        let encoder = Box::new(Encoder::new()?);
        let mut writer = Writer {
            out: Output::begin(file, clock)?,
            encoder,
            shelf: Shelf::new()?,
            done: Complete::default(),
        };
        writer.out.small(Kind::Header, &header.to_bytes())?;
        Ok(writer)
    }

    /// A process image, before its first event and behind all events that were given before.
    ///
    /// # Errors
    /// [`Error::Misuse`] if its number is not the next one or its parent not an older one; [`Error::Io`].
    pub fn image(&mut self, image: &Image) -> Result<(), Error> {
        if image.number != self.done.images || image.parent.is_some_and(|parent| parent >= image.number) {
            return Err(Error::Misuse(format!("image {} comes out of order", image.number)));
        }
        self.item(image.number, IMAGE, &image.to_bytes())?;
        self.done.images += 1;
        Ok(())
    }

    /// The next events of a thread slot: whole ones, as they lie in its ring.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the image has not been told of, if the bytes are not whole events, or if one of them is larger
    /// than a chunk; [`Error::Io`].
    pub fn events(&mut self, image: u32, slot: u16, bytes: &[u8]) -> Result<(), Error> {
        if image >= self.done.images {
            return Err(Error::Misuse(format!("events of image {image}, which nobody knows")));
        }
        let mut events = Events::new(bytes);
        let is_skip = |kind| kind == EventKind::Skip as u8;
        let too_large = events.by_ref().any(|event| event.size() > CHUNK_MAX && !is_skip(event.header.kind));
        if too_large || !events.rest().is_empty() {
            return Err(Error::Misuse(format!(
                "the bytes of slot {slot} of image {image} are no whole events"
            )));
        }
        for event in Events::new(bytes).filter(|event| !is_skip(event.header.kind)) {
            let full = self.encoder.raw() > 0 && self.encoder.raw() + event.size() > CHUNK_BYTES;
            if full || !self.encoder.takes(image, slot) {
                self.flush()?;
            }
            let shared = self.share(encode::rest(&event))?;
            self.encoder.push(image, slot, &event, shared);
            self.done.events += 1;
            self.done.bytes_raw += event.size() as u64;
        }
        Ok(())
    }

    /// Where the file has a payload already, or has it from now on.
    fn share(&mut self, payload: &[u8]) -> Result<Option<Place>, Error> {
        if payload.len() < SHARE_MIN {
            return Ok(None);
        }
        match self.shelf.look(self.out.source(), payload) {
            Advice::Inline => Ok(None),
            Advice::Shared(place) => Ok(Some(place)),
            Advice::Keep => {
                let place = self.out.place();
                self.out.small(Kind::Payload, payload)?;
                self.shelf.kept(payload, place);
                Ok(Some(place))
            }
        }
    }

    /// A process image is at its end, behind all events that were given before.
    ///
    /// # Errors
    /// As [`Writer::events`].
    pub fn end(&mut self, image: u32, status: i32, facts: &[u8]) -> Result<(), Error> {
        if image >= self.done.images {
            return Err(Error::Misuse(format!("the end of image {image}, which nobody knows")));
        }
        self.item(image, END, &end_to_bytes(image, status, facts))
    }

    /// Images and ends stand between the events, so that the events of many short processes share a chunk. Facts that
    /// would fill it have a chunk of their own.
    fn item(&mut self, image: u32, what: u64, bytes: &[u8]) -> Result<(), Error> {
        const LARGE: usize = 64 << 10;
        if bytes.len() > LARGE {
            self.flush()?;
            return self.out.small(if what == IMAGE { Kind::Image } else { Kind::End }, bytes);
        }
        if self.encoder.raw() + item_size(bytes.len()) > CHUNK_BYTES {
            self.flush()?;
        }
        self.encoder.put_item(image, what, bytes);
        Ok(())
    }

    /// Ends the chunk: whoever reads the file now finds everything that has been given. The kernel has it then; a power
    /// cut may still take it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn flush(&mut self) -> Result<(), Error> {
        if self.encoder.raw() == 0 {
            return Ok(());
        }
        let out = &mut self.out;
        self.encoder.finish(|content| out.chunk(Kind::Events, content))
    }

    /// The same, and where what comes next will stand.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn mark(&mut self) -> Result<Mark, Error> {
        self.flush()?;
        let Place { offset, number } = self.out.place();
        let Complete { images, events, bytes_raw, .. } = self.done;
        Ok(Mark { offset, chunks: number, images, events, bytes_raw })
    }

    /// Says that the recording is whole; gives the sums over it.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn finish(mut self) -> Result<Complete, Error> {
        self.flush()?;
        self.done.duration_ns = self.out.now();
        self.out.small(Kind::Complete, &self.done.to_bytes())?;
        Ok(self.done)
    }

    /// Bytes of all events given so far, as they come back.
    pub fn bytes_raw(&self) -> u64 {
        self.done.bytes_raw
    }

    /// Bytes of the file so far.
    pub fn bytes_file(&self) -> u64 {
        self.out.written()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.flush();
    }
}

//! A checkpoint that only the owner of a key can read, or can have written.
//!
//! What is sealed is a mark, a version, a number that is drawn for each file, and pieces: of each its length, with a bit for the
//! last one, and its bytes, encrypted and authenticated (XChaCha20-Poly1305, in the construction STREAM: a piece's nonce is the
//! drawn number, its place and whether it is the last). So no piece can be changed, left out, moved or taken from another file. The
//! first piece is empty: by it another key is told from a file that is damaged later.

use std::io::{self, ErrorKind, Read, Write};

use chacha20poly1305::aead::{Aead, Generate, Nonce};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::{Error, SEAL, SEAL_VERSION};

/// Bytes of a key's file, at least and at most.
pub const KEY_BYTES: std::ops::RangeInclusive<usize> = 32..=64 << 10;

/// Bytes of a piece before it is sealed, at most.
const PIECE: usize = 64 << 10;
/// Bytes that sealing adds to a piece.
const TAG: usize = 16;
/// Bytes of a piece's nonce that are drawn for the file.
const DRAWN: usize = 19;
/// In a piece's length: it is the last one.
const LAST: u32 = 1 << 31;

/// What seals and opens.
#[derive(Clone)]
pub struct Key(XChaCha20Poly1305);

impl Key {
    /// The key that a file holds: any bytes that nobody can guess. `None` if there are too few or too many of them.
    pub fn of(bytes: &[u8]) -> Option<Key> {
        if !KEY_BYTES.contains(&bytes.len()) {
            return None;
        }
        let mut hash = Sha256::new();
        hash.update(b"understudy: key of checkpoints");
        hash.update(bytes);
        let key = Zeroizing::new(<[u8; 32]>::from(hash.finalize()));
        Some(Key(XChaCha20Poly1305::new((&*key).into())))
    }
}

/// The places of a file's pieces.
struct Places {
    drawn: [u8; DRAWN],
    next: u32,
}

impl Places {
    fn nonce(&mut self, is_last: bool) -> io::Result<XNonce> {
        let at = self.next;
        // 256 TiB.
        self.next = at.checked_add(1).ok_or_else(|| io::Error::other("it is longer than can be sealed"))?;
        let mut nonce = XNonce::default();
        nonce[..DRAWN].copy_from_slice(&self.drawn);
        nonce[DRAWN..DRAWN + 4].copy_from_slice(&at.to_be_bytes());
        nonce[DRAWN + 4] = is_last.into();
        Ok(nonce)
    }
}

/// Seals what is written. [`Sealer::finish`] is its end: without it there is none.
pub struct Sealer<W: Write> {
    to: W,
    key: Key,
    places: Places,
    piece: Vec<u8>,
}

impl<W: Write> Sealer<W> {
    /// Begins one.
    ///
    /// # Errors
    /// The file's.
    pub fn new(mut to: W, key: Key) -> io::Result<Sealer<W>> {
        let drawn = Nonce::<XChaCha20Poly1305>::generate();
        let mut places = Places { drawn: [0; DRAWN], next: 0 };
        places.drawn.copy_from_slice(&drawn[..DRAWN]);
        to.write_all(SEAL)?;
        to.write_all(&SEAL_VERSION.to_le_bytes())?;
        to.write_all(&places.drawn)?;
        let mut sealer = Sealer { to, key, places, piece: Vec::with_capacity(PIECE) };
        sealer.put(false)?;
        Ok(sealer)
    }

    fn put(&mut self, is_last: bool) -> io::Result<()> {
        let nonce = self.places.nonce(is_last)?;
        let sealed = self.key.0.encrypt(&nonce, &*self.piece);
        let sealed = sealed.map_err(|_| io::Error::other("it cannot be sealed"))?;
        self.piece.clear();
        let length = sealed.len() as u32 | if is_last { LAST } else { 0 };
        self.to.write_all(&length.to_le_bytes())?;
        self.to.write_all(&sealed)
    }

    /// Ends it, and gives the file back.
    ///
    /// # Errors
    /// The file's.
    pub fn finish(mut self) -> io::Result<W> {
        self.put(true)?;
        self.to.flush()?;
        Ok(self.to)
    }
}

impl<W: Write> Write for Sealer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.piece.len() == PIECE {
            self.put(false)?;
        }
        let now = bytes.len().min(PIECE - self.piece.len());
        self.piece.extend_from_slice(&bytes[..now]);
        Ok(now)
    }

    /// What makes no whole piece is kept: there is one length for all but the last.
    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Whether what begins like this is sealed.
pub fn is_sealed(begin: &[u8]) -> bool {
    begin.starts_with(SEAL)
}

/// Opens what has been sealed. What is wrong with it is an [`Error`] in the `io::Error`.
pub struct Opener<R: Read> {
    from: R,
    key: Key,
    places: Places,
    /// Bytes of the file that have been read.
    at: u64,
    piece: Zeroizing<Vec<u8>>,
    /// Of the piece.
    given: usize,
    is_over: bool,
}

impl<R: Read> Opener<R> {
    /// Begins one.
    ///
    /// # Errors
    /// When it is not sealed, is of another version, is cut off, or is sealed with another key.
    pub fn new(mut from: R, key: Key) -> Result<Opener<R>, Error> {
        let mut front = [0; SEAL.len() + 4];
        match from.read_exact(&mut front) {
            Err(cause) if cause.kind() == ErrorKind::UnexpectedEof => return Err(Error::NotACheckpoint),
            result => result?,
        }
        let (mark, version) = front.split_at(SEAL.len());
        if mark == crate::MARK {
            return Err(Error::NotSealed);
        }
        if mark != SEAL {
            return Err(Error::NotACheckpoint);
        }
        let version = version.try_into().map_or(0, u32::from_le_bytes);
        if version != SEAL_VERSION {
            return Err(Error::SealVersion(version));
        }
        let mut drawn = [0; DRAWN];
        let begin = front.len() as u64;
        from.read_exact(&mut drawn).map_err(|cause| cut(cause, begin))?;
        let mut opener = Opener {
            from,
            key,
            places: Places { drawn, next: 0 },
            at: begin + DRAWN as u64,
            piece: Zeroizing::default(),
            given: 0,
            is_over: false,
        };
        match opener.next() {
            Ok(()) if opener.piece.is_empty() && !opener.is_over => Ok(opener),
            Err(error @ (Error::Cut(_) | Error::System(_))) => Err(error),
            _ => Err(Error::OtherKey),
        }
    }

    fn next(&mut self) -> Result<(), Error> {
        let begin = self.at;
        let damaged = |what| Error::Damaged { at: begin, what };
        let mut length = [0; 4];
        self.from.read_exact(&mut length).map_err(|cause| cut(cause, begin))?;
        let word = u32::from_le_bytes(length);
        let (bytes, is_last) = ((word & !LAST) as usize, word & LAST != 0);
        if !(TAG..=PIECE + TAG).contains(&bytes) {
            return Err(damaged("a piece is longer or shorter than any is"));
        }
        let mut sealed = vec![0; bytes];
        self.from.read_exact(&mut sealed).map_err(|cause| cut(cause, begin))?;
        let nonce = self.places.nonce(is_last)?;
        let opened = self.key.0.decrypt(&nonce, &*sealed);
        self.piece = opened.map_err(|_| damaged("it is not what was sealed with this key"))?.into();
        self.given = 0;
        self.is_over = is_last;
        self.at = begin + (length.len() + bytes) as u64;
        Ok(())
    }
}

fn cut(cause: io::Error, at: u64) -> Error {
    match cause.kind() {
        ErrorKind::UnexpectedEof => Error::Cut(at),
        _ => Error::System(cause),
    }
}

impl<R: Read> Read for Opener<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.given == self.piece.len() && !self.is_over {
            self.next().map_err(io::Error::other)?;
        }
        let left = &self.piece[self.given..];
        let now = left.len().min(to.len());
        to[..now].copy_from_slice(&left[..now]);
        self.given += now;
        Ok(now)
    }
}

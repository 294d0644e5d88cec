//! Images of the program for machines that join: taken when one asks for it, and handed over in the recording.
//!
//! An image is a [checkpoint](crate::checkpoint) as a replay begins at, with what is behind the descriptors. It is of one place of the
//! recording, and what the machine follows from there stands behind that place.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use recording::Header;

use super::piece::Piece;
use super::replay::joining::empty;
use super::state::{For, States};
use super::tape::Tape;
use crate::checkpoint::output::Output;
use crate::checkpoint::pages;
use crate::checkpoint::take::Refusal;
use crate::clock;
use crate::dir::Dir;
use crate::error::Error;
use crate::roster::Roster;
use crate::sentry;

/// Between two images, whoever asks for them.
const BETWEEN_NS: u64 = 2_000_000_000;

/// Between two looks whether one is wanted.
const LOOK_NS: u64 = 20_000_000;

/// Bytes of one piece, and the pause behind each: the log itself is to have room on the link.
const PIECE: usize = 128 << 10;
const PAUSE_NS: u64 = 2_000_000;

/// What cannot be had at this moment is tried again for so long.
const PATIENCE_NS: u64 = 5_000_000_000;
const AGAIN_NS: u64 = 100_000_000;

/// So long behind an image it is said how much of what was sent has been acknowledged: what was under way when it was taken is not in it,
/// and a connection goes over once the other side has that.
const MEASURED_NS: [u64; 5] = [50_000_000, 500_000_000, 2_000_000_000, 5_000_000_000, 20_000_000_000];

/// An image that has been written.
type Whole = (File, u64, u32);

/// What is being done.
enum Work {
    Nothing,
    /// One is wanted; it is tried until then.
    Trying {
        until_ns: u64,
    },
    Writing(JoinHandle<Result<Whole, String>>),
    Handing {
        image: Whole,
        at: u64,
    },
}

/// Takes a program's images.
pub(super) struct Images {
    states: States,
    /// Where an image is written, until it has been handed over.
    room: PathBuf,
    /// What each machine has been given, by its own number.
    heard: HashMap<String, u64>,
    due_ns: u64,
    /// When the last one was taken, and how often has been looked at the connections since.
    taken_ns: u64,
    measured: usize,
    work: Work,
}

impl Images {
    /// Those of the recording at `path`, which begins like this, of the program whose group has this folder.
    ///
    /// # Errors
    /// When its segment cannot be opened once more.
    pub(super) fn new(path: &Path, header: &Header, group: &Dir) -> Result<Images, Error> {
        Ok(Images {
            states: States::new(header, group)?,
            room: path.with_extension("image"),
            heard: HashMap::new(),
            due_ns: 0,
            taken_ns: 0,
            measured: MEASURED_NS.len(),
            work: Work::Nothing,
        })
    }

    /// Does what is due. What somebody should hear.
    pub(super) fn drive(&mut self, tape: &mut Tape, roster: &Roster) -> Option<String> {
        let now = clock::monotonic_ns();
        if MEASURED_NS.get(self.measured).is_some_and(|behind| now > self.taken_ns + behind) {
            self.measured += 1;
            tape.measure();
        }
        if now < self.due_ns {
            return None;
        }
        match std::mem::replace(&mut self.work, Work::Nothing) {
            Work::Nothing => {
                self.due_ns = now + LOOK_NS;
                if self.is_wanted(tape, now) {
                    self.work = Work::Trying { until_ns: now + PATIENCE_NS };
                }
                None
            }
            Work::Trying { until_ns } => self.try_once(tape, roster, until_ns),
            Work::Writing(writer) if !writer.is_finished() => {
                self.due_ns = now + PAUSE_NS;
                self.work = Work::Writing(writer);
                None
            }
            Work::Writing(writer) => match writer.join() {
                Ok(Ok(image)) => {
                    self.work = Work::Handing { image, at: 0 };
                    None
                }
                Ok(Err(why)) => refuse(tape, &why),
                Err(_) => refuse(tape, "its writer has failed"),
            },
            Work::Handing { image, at } => self.hand(tape, image, at),
        }
    }

    /// Whether a machine has asked for one that it has not been given.
    fn is_wanted(&mut self, tape: &Tape, now: u64) -> bool {
        if self.taken_ns != 0 && now < self.taken_ns + BETWEEN_NS {
            return false;
        }
        let mut is_wanted = false;
        for (node, number) in tape.wishes() {
            is_wanted |= self.heard.insert(node, number) != Some(number);
        }
        is_wanted
    }

    fn try_once(&mut self, tape: &mut Tape, roster: &Roster, until_ns: u64) -> Option<String> {
        if tape.has_several() {
            return refuse(tape, "it has, or had, several processes");
        }
        let taken = match self.states.can_stand(tape) {
            true => self.take(tape, roster),
            false => Err(Refusal::Later("the program is asked for something else at this moment".into())),
        };
        let now = clock::monotonic_ns();
        match taken {
            Ok(writer) => {
                (self.taken_ns, self.measured) = (now, 0);
                self.work = Work::Writing(writer);
                None
            }
            Err(Refusal::Later(_)) if now < until_ns => {
                self.due_ns = now + AGAIN_NS;
                self.work = Work::Trying { until_ns };
                None
            }
            Err(why) => refuse(tape, &why.into_why()),
        }
    }

    fn take(
        &mut self,
        tape: &mut Tape,
        roster: &Roster,
    ) -> Result<JoinHandle<Result<Whole, String>>, Refusal> {
        let primary = self.states.primary();
        let (copies, mut described, _) = self.states.take(tape, roster, primary, For::Machine)?;
        let room = self.room.clone();
        let write = move || -> Result<Whole, String> {
            let told = |cause: std::io::Error| cause.to_string();
            let file = empty(&room).map_err(told)?;
            let output = file.try_clone().and_then(|file| Output::new(file, None)).map_err(told)?;
            pages::write(&copies, &mut described, output, None).map_err(|cause| cause.to_string())?;
            let length = file.metadata().map_err(told)?.len();
            Ok((file, length, 0))
        };
        sentry::thread("image", write).map_err(|cause| Refusal::Never(cause.to_string()))
    }

    fn hand(&mut self, tape: &mut Tape, (file, length, checksum): Whole, at: u64) -> Option<String> {
        let mut bytes = vec![0; PIECE.min((length - at) as usize)];
        if let Err(cause) = file.read_exact_at(&mut bytes, at) {
            return refuse(tape, &format!("it cannot be read again: {cause}"));
        }
        let checksum = crc32c::crc32c_append(checksum, &bytes);
        let end = at + bytes.len() as u64;
        tape.hand(Piece::Bytes { at, bytes }.to_bytes());
        if end < length {
            self.due_ns = clock::monotonic_ns() + PAUSE_NS;
            self.work = Work::Handing { image: (file, length, checksum), at: end };
            return None;
        }
        tape.hand(Piece::End { length, checksum }.to_bytes());
        Some(format!("an image of it is in the log, {} KiB, for a machine that joins", length.div_ceil(1024)))
    }
}

fn refuse(tape: &mut Tape, why: &str) -> Option<String> {
    tape.hand(Piece::None(why.into()).to_bytes());
    Some(format!("a machine that joins is given no image of it: {why}"))
}

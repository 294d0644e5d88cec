//! A mirror that has no state of its program, or has gone another way, begins at an image of it: the log holds one behind the place that
//! it is of, if somebody has asked for one ([`crate::recorder::images`]).
//!
//! What the log holds before that place is read and not run: what gates have said is wanted all the same. How a process is executed says
//! where the kernel finds room for its mappings, so a mirror that begins once more is this very command, executed anew.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use checkpoint::Recorded;
use recording::{Item, Mark, Reader};
use serde_json::json;
use us_abi::{CONFIG_GATED, CONFIG_SERIAL, EventKind, world};

use super::mirror::{Next, Wanted, is_end, is_written};
use super::{Replay, Root, config};
use crate::checkpoint::restore::Checkpoint;
use crate::error::Error;
use crate::folder::SEGMENT;
use crate::gate::rebuild::Notes;
use crate::recorder::feed::Fed;
use crate::recorder::of_recording;
use crate::recorder::piece::Piece;
use crate::recorder::rings::Rings;
use crate::request::{self, Desk};
use crate::segment::{self, Segment};
use crate::spawn::{self, Signals};
use crate::{clock, proc, run, terminal};

/// So long nothing of an image that was asked for may come before the mirror does without.
const PATIENCE_NS: u64 = 20_000_000_000;

/// So long a process that is put together may take to say what its descriptors stand for.
const BEGIN_NS: u64 = 10_000_000_000;

/// Between two looks whether somebody wants something else.
const LOOK_NS: u64 = 50_000_000;

/// The options by which a mirror that begins once more is told why.
const WAITS: &str = "--waits";
const WITHOUT: &str = "--without";

/// An image that stands in the log.
pub(super) struct Found {
    checkpoint: Checkpoint,
    recorded: Recorded,
    /// What gates had said before the place that it is of.
    pub(super) notes: Notes,
}

/// What the log holds.
pub(super) enum Survey {
    /// An image to begin at.
    Image(Box<Found>),
    /// None.
    Nothing,
    /// None that can be used, for this reason.
    Refused(String),
    /// Somebody wants no mirror any more.
    Ended,
}

/// An image that is being read.
struct Coming {
    file: File,
    /// What gates had said before it.
    notes: Notes,
    length: u64,
    checksum: u32,
}

impl Coming {
    /// The next bytes of it.
    fn and(self, bytes: &[u8]) -> io::Result<Coming> {
        self.file.write_all_at(bytes, self.length)?;
        let length = self.length + bytes.len() as u64;
        Ok(Coming { length, checksum: crc32c::crc32c_append(self.checksum, bytes), ..self })
    }
}

/// Where an image is put together again.
fn place(copy: &Path) -> PathBuf {
    copy.with_extension("image")
}

/// Reads the log up to its end, and looks for the last image in it. With `waits`, one that ends behind that byte, or the word that there
/// is none, is waited for while `goes_on` says so.
///
/// # Errors
/// When the log cannot be read.
pub(super) fn survey(
    copy: &Path,
    waits: Option<u64>,
    mut goes_on: impl FnMut() -> Option<bool>,
) -> Result<Survey, Error> {
    let told = |cause| of_recording(copy, cause);
    let file = File::open(copy).map_err(|cause| Error::file("read", copy, cause))?;
    let mut reader = Reader::of(file).map_err(told)?;
    let path = place(copy);
    let told_file = |cause: io::Error| Error::file("write", &path, cause);
    let (mut notes, mut coming) = (Notes::default(), None::<Coming>);
    let (mut whole, mut answered) = (None::<(File, Notes)>, 0);
    let (mut moved_ns, mut look_at_ns) = (clock::monotonic_ns(), 0);
    let mut refused = None;
    loop {
        let item = match reader.next() {
            Ok(Some(item)) => item,
            Ok(None) => break,
            Err(recording::Error::Unfinished { .. }) => {
                match (waits, goes_on()) {
                    (_, None) => return Ok(Survey::Ended),
                    (None, _) => break,
                    // It may be that nothing comes any more.
                    (Some(_), Some(is_there))
                        if !is_there || clock::monotonic_ns() > moved_ns + PATIENCE_NS =>
                    {
                        refused = Some("none came in time".to_owned());
                        break;
                    }
                    _ => {}
                }
                std::thread::sleep(Duration::from_millis(2));
                continue;
            }
            Err(cause) => return Err(told(cause)),
        };
        let Item::Events { bytes, .. } = item else { continue };
        for event in recording::Events::new(&bytes) {
            match event.header.kind {
                kind if kind == EventKind::Gate as u8 => notes.take(event.payload, clock::monotonic_ns()),
                kind if kind == EventKind::Picture as u8 => {
                    moved_ns = clock::monotonic_ns();
                    match Piece::of(event.payload) {
                        Some(Piece::Begin) => {
                            let file = empty(&path).map_err(told_file)?;
                            coming = Some(Coming { file, notes: notes.clone(), length: 0, checksum: 0 });
                        }
                        Some(Piece::Bytes { at, bytes }) => {
                            coming = match coming.take().filter(|coming| coming.length == at) {
                                Some(coming) => Some(coming.and(&bytes).map_err(told_file)?),
                                None => None,
                            };
                        }
                        Some(Piece::End { length, checksum }) => {
                            let is_whole =
                                |coming: &Coming| (coming.length, coming.checksum) == (length, checksum);
                            let came =
                                coming.take().filter(is_whole).map(|coming| (coming.file, coming.notes));
                            refused = came.is_none().then(|| "it is damaged".to_owned());
                            // One that came before is as good as it was.
                            whole = came.or(whole);
                            answered = reader.offset();
                        }
                        Some(Piece::None(why)) => {
                            coming = None;
                            refused = Some(why);
                            answered = reader.offset();
                        }
                        None => {}
                    }
                }
                _ => {}
            }
        }
        if waits.is_some_and(|waits| answered > waits) {
            break;
        }
        if clock::monotonic_ns() > look_at_ns {
            look_at_ns = clock::monotonic_ns() + LOOK_NS;
            if goes_on().is_none() {
                return Ok(Survey::Ended);
            }
        }
    }
    let Some((file, notes)) = whole else {
        return Ok(refused.map_or(Survey::Nothing, Survey::Refused));
    };
    let read = Checkpoint::read_any(&proc::descriptor("self", file.as_raw_fd()), None, None);
    let began = reader.header().started_unix_ns;
    Ok(match read {
        Err(cause) => Survey::Refused(run::explain(&cause)),
        Ok(checkpoint) => match checkpoint.head().recorded {
            Some(recorded) if recorded.recording == began && checkpoint.head().joins.is_some() => {
                Survey::Image(Box::new(Found { checkpoint, recorded, notes }))
            }
            _ => Survey::Refused("it is not of this log".into()),
        },
    })
}

/// A new file, which nobody finds.
pub(in crate::recorder) fn empty(path: &Path) -> io::Result<File> {
    let _ = fs::remove_file(path);
    let file = File::options().read(true).write(true).create_new(true).mode(0o600).open(path)?;
    fs::remove_file(path)?;
    Ok(file)
}

/// Asks the program's machine for an image. What a mirror that begins once more waits for.
///
/// # Errors
/// When nobody can be asked.
pub(super) fn ask(copy: &Path) -> Result<u64, Error> {
    let path = copy.with_extension(node::WANTED);
    let number =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64);
    let fail = |cause| Error::file("write", &path, cause);
    let length = fs::metadata(copy).map_err(fail)?.len();
    fs::write(&path, number.to_string()).map_err(fail)?;
    Ok(length)
}

/// Executes this very command anew; `why`: with these options besides. Nothing may be left of what was begun. Returns why not.
fn again(why: &[&str], signals: &Signals) -> Error {
    let mut words = std::env::args_os();
    let first = words.next().unwrap_or_default();
    let mut kept: Vec<OsString> = Vec::new();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some(WAITS | WITHOUT) => _ = words.next(),
            _ => kept.push(word),
        }
    }
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(cause) => return Error::system("find this command", cause),
    };
    let mut command = Command::new(own);
    command.arg0(first).args(kept).args(why);
    let cause = spawn::with_mask(&mut command, signals).exec();
    Error::system("begin once more", cause)
}

/// Begins once more, at an image that is waited for, and that ends behind this byte of the log.
pub(super) fn begin_at_image(behind: u64, signals: &Signals) -> Error {
    again(&[WAITS, &behind.to_string()], signals)
}

/// Begins once more, at the log's beginning, because there is no image.
pub(super) fn begin_without(why: &str, signals: &Signals) -> Error {
    again(&[WITHOUT, why], signals)
}

/// Whether a mirror of these wishes may begin at an image: its volumes would have to come as they were at that moment.
pub(super) fn may_join(wanted: &Wanted) -> bool {
    wanted.volumes.is_empty() && wanted.without.is_none() && wanted.image_after_ms.is_some()
}

impl Replay<'_> {
    /// Begins at an image if there is one in the log, or one that was asked for comes. What comes of it, if it cannot follow now.
    pub(super) fn begin_mirror(&mut self, wanted: &Wanted, desk: &mut Desk) -> Result<Option<Next>, Error> {
        let may_join = may_join(wanted);
        let mut why = None;
        if may_join {
            let began_ns = clock::monotonic_ns();
            let (signals, file) = (&self.signals, self.mirror.as_ref().map(|mirror| &mirror.file));
            let goes_on = || {
                for (request, caller) in desk.requests() {
                    let is_end = matches!(request.as_str(), request::STOP | request::KILL);
                    let answer = if is_end { json!({}) } else { json!({ "error": "it is about to join" }) };
                    request::answer(caller, &answer);
                    if is_end {
                        return None;
                    }
                }
                let is_over = std::iter::from_fn(|| signals.next()).any(|arrived| is_end(arrived.signal));
                (!is_over).then(|| file.is_some_and(is_written))
            };
            match survey(&wanted.file, wanted.waits, goes_on)? {
                Survey::Ended => return Ok(Some(Next::End)),
                Survey::Image(found) => {
                    let read_ns = clock::monotonic_ns();
                    if let Err(cause) = self.join_at(*found) {
                        return Ok(Some(Next::Without(run::explain(&cause))));
                    }
                    let ms = |from_ns: u64, to_ns: u64| to_ns.saturating_sub(from_ns) / 1_000_000;
                    terminal::say(&format!(
                        "{}: begins at an image at event {}: {} ms until it was here, {} ms to put it together",
                        wanted.group,
                        self.events,
                        ms(began_ns, read_ns),
                        ms(read_ns, clock::monotonic_ns())
                    ));
                }
                Survey::Refused(told) if wanted.waits.is_some() => {
                    terminal::say(&format!("{}: there is no image of it: {told}", wanted.group));
                    why = Some(told);
                }
                Survey::Refused(_) | Survey::Nothing => {}
            }
        }
        let events = self.events;
        if let Some(mirror) = &mut self.mirror {
            mirror.shown.joined_at = (events != 0).then_some(events);
            mirror.shown.state = "following".into();
            mirror.shown.why = mirror.shown.why.take().or(why);
            let after_ns = wanted.image_after_ms.filter(|_| may_join && wanted.waits.is_none());
            let now = clock::monotonic_ns();
            mirror.image_after_ns = after_ns.map(|after| (now, now + after * 1_000_000));
        }
        Ok(None)
    }

    /// Whether it is far behind some time after it began, so that an image is to spare it the rest. Looked at once.
    pub(super) fn is_far(&mut self, now: u64) -> bool {
        let is_read = self.is_read;
        let Some(mirror) = &mut self.mirror else { return false };
        // By a figure of behind that time.
        let is_due = |(_, due_ns): &(u64, u64)| now > *due_ns && mirror.looked_ns > *due_ns;
        let Some((began_ns, due_ns)) = mirror.image_after_ns.filter(is_due) else {
            return false;
        };
        mirror.image_after_ns = None;
        let is_there = mirror.apart_ns.is_none() && mirror.wish.is_none();
        // What came first has been here since it began, or nearly so.
        let behind_ns = mirror.shown.behind_us * 1000;
        !is_read && is_there && behind_ns > (due_ns - began_ns) / 2
    }

    /// Begins at an image that stands in the log.
    ///
    /// # Errors
    /// Why the program cannot be put together here.
    pub(super) fn join_at(&mut self, found: Found) -> Result<(), Error> {
        let Found { mut checkpoint, recorded, notes } = found;
        let Recorded { offset, chunks, images, events, bytes, .. } = recorded;
        self.reader.go_to(&Mark { offset, chunks, images, events, bytes_raw: bytes });
        self.events = events;
        let shared = self.roster.header();
        for (place, identity) in shared.standard.iter().zip(recorded.standard) {
            place.store(identity, Ordering::Release);
        }
        shared.outputs.0.store(recorded.outputs, Ordering::Release);
        shared.order.next.store(recorded.turns, Ordering::Release);
        let world = checkpoint.be_followed();
        self.dir
            .replace(world::NAME, &world)
            .map_err(|cause| Error::file("write", self.dir.at(world::NAME), cause))?;
        let pid = checkpoint.head().root().pid;
        let kept = recorded.flags & (CONFIG_SERIAL | CONFIG_GATED);
        let segment = Segment::create(&self.dir, SEGMENT, config(self.purpose() | kept))?;
        segment.header().hold.store(1, Ordering::Release);
        let rings = Rings::new(segment, &self.dir, SEGMENT)?;
        let mut fed = Fed::new(recorded.image, pid, rings, self.path.join(SEGMENT))?;
        let child =
            checkpoint.start_replay((&self.dir, &self.path, SEGMENT), &fed.rings.segment, &self.roster)?;
        fed.child = Some(child.pid);
        // The copies that had read the log are on another machine. What was logged before is in the image.
        for entry in (0..fed.rings.segment.slots()).map(|slot| fed.rings.segment.thread(slot)) {
            entry.head.0.store(entry.tail.0.load(Ordering::Acquire), Ordering::Release);
        }
        let header = fed.rings.segment.header();
        let until_ns = clock::monotonic_ns() + BEGIN_NS;
        while header.standby_pid.load(Ordering::Acquire) == 0 {
            if !child.is_alive() || clock::monotonic_ns() > until_ns {
                return Err(Error::NotReplayed("its process did not begin".into()));
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        if let Some(mirror) = &mut self.mirror {
            mirror.notes = notes;
            mirror.notes.join(&fed.rings.segment);
        }
        self.root = Some(Root { pid, image: recorded.image, ending: None });
        self.kin.insert(recorded.image);
        self.pids.insert(recorded.image, pid);
        self.slots.insert(recorded.image, self.fed.len());
        let hold = &header.hold;
        hold.store(0, Ordering::Release);
        segment::wake(hold);
        self.fed.push(fed);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use recording::{Header, How, Image, Writer};

    use super::*;
    use crate::recorder::rings;

    /// What is found in a log that holds these pieces, and whether `waits` for more.
    fn found(pieces: &[Piece], waits: Option<u64>) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.understudy");
        let mut writer = Writer::create(&path, &Header::default()).unwrap();
        let image = Image { number: 0, pid: 7, parent: None, how: How::Started, facts: Vec::new() };
        writer.image(&image).unwrap();
        for piece in pieces {
            writer.events(0, 0, &rings::event(EventKind::Picture, 0, &piece.to_bytes())).unwrap();
        }
        writer.flush().unwrap();
        let mut looks = 0;
        let survey = survey(&path, waits, || {
            looks += 1;
            // The other machine is there for a while.
            Some(looks < 5)
        });
        assert!(!place(&path).exists(), "an image is left behind");
        match survey.unwrap() {
            Survey::Image(_) => "an image".into(),
            Survey::Nothing => "nothing".into(),
            Survey::Refused(why) => why,
            Survey::Ended => "ended".into(),
        }
    }

    fn image(bytes: &[u8]) -> Vec<Piece> {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        vec![
            Piece::Begin,
            Piece::Bytes { at: 0, bytes: first.into() },
            Piece::Bytes { at: first.len() as u64, bytes: second.into() },
            Piece::End { length: bytes.len() as u64, checksum: crc32c::crc32c(bytes) },
        ]
    }

    #[test]
    fn what_is_damaged_cut_or_no_image_is_refused() {
        let whole = image(b"what is whole, and no checkpoint");
        assert!(found(&whole, None).contains("checkpoint"), "{}", found(&whole, None));
        for at in 1..whole.len() {
            let mut lacks = whole.clone();
            lacks.remove(at);
            let wanted = if at + 1 == whole.len() { "nothing" } else { "it is damaged" };
            assert_eq!(found(&lacks, None), wanted, "without piece {at}");
        }
        let mut flipped = whole;
        flipped[1] = Piece::Bytes { at: 0, bytes: vec![0; 16] };
        assert_eq!(found(&flipped, None), "it is damaged");
        assert_eq!(found(&[], None), "nothing");
    }

    #[test]
    fn who_waits_hears_why_there_is_none_and_not_for_ever() {
        let none = Piece::None("it has several processes".into());
        assert_eq!(found(&[none], Some(1)), "it has several processes");
        assert_eq!(found(&image(b"of before")[..2], Some(1)), "none came in time");
    }
}

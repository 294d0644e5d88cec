//! States of a recorded program, each of one place of its recording: for a replay that begins there, and for a machine that joins.

use std::cell::RefCell;
use std::path::Path;
use std::sync::atomic::Ordering;

use checkpoint::Recorded;
use recording::Header;
use us_abi::{CONFIG_GATED, CONFIG_SERIAL, command, leaving};

use super::piece::Piece;
use super::tape::Tape;
use crate::checkpoint::take::{self, Copy, Described, Lasting, One, Refusal};
use crate::dir::Dir;
use crate::error::Error;
use crate::folder::SEGMENT;
use crate::knock::Knock;
use crate::roster::{Place, ROOT, Roster};
use crate::segment::Segment;

/// What a state of a recorded program is for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum For {
    /// A replay that begins there: descriptors are numbers.
    Replay,
    /// A machine that joins there: what is behind the descriptors is described, and the log says where it begins.
    Machine,
}

/// A program whose states are taken while it is recorded.
pub(super) struct States {
    /// See [`Recorded::recording`].
    recording: u64,
    lasting: Lasting,
    segment: Segment,
    knock: Knock,
}

impl States {
    /// That of a recording that begins like this, of the program whose group has this folder.
    ///
    /// # Errors
    /// When its segment cannot be opened once more.
    pub(super) fn new(header: &Header, group: &Dir) -> Result<States, Error> {
        let real = |path: &Path| path.canonicalize().ok()?.into_os_string().into_string().ok();
        Ok(States {
            recording: header.started_unix_ns,
            lasting: header.files.iter().filter_map(|file| real(&file.path)).collect(),
            segment: Segment::open(group, SEGMENT)?,
            knock: Knock::default(),
        })
    }

    /// The process that is primary now.
    pub(super) fn primary(&self) -> u32 {
        let header = self.segment.header();
        match header.primary_pid.load(Ordering::Acquire) {
            0 => header.guest_pid.load(Ordering::Acquire),
            primary => primary,
        }
    }

    /// Whether it can be asked to stand: not before its first event, when it is about to end, or while it is asked for something else.
    pub(super) fn can_stand(&self, tape: &Tape) -> bool {
        let header = self.segment.header();
        tape.only().is_some_and(|taken| taken.image().is_some())
            && header.leaving.0.load(Ordering::Acquire) == leaving::NO
            && header.command.0.load(Ordering::Acquire) == command::FOLLOW
    }

    /// Takes a state from the process `primary`, at a place of the recording that is noted.
    ///
    /// # Errors
    /// What stands in the way.
    pub(super) fn take(
        &mut self,
        tape: &mut Tape,
        roster: &Roster,
        primary: u32,
        what: For,
    ) -> Result<(Vec<Copy>, Described, Recorded), Refusal> {
        let (segment, knock, recording) = (&self.segment, &mut self.knock, self.recording);
        *knock = Knock::default();
        let tape = RefCell::new(tape);
        let is_for_machine = what == For::Machine;
        let at_stand = || {
            let (mark, image) = tape.borrow_mut().mark()?;
            if is_for_machine {
                // Before anything else that stands behind that place.
                tape.borrow_mut().hand(Piece::Begin.to_bytes());
            }
            let shared = roster.header();
            let standard = std::array::from_fn(|at| shared.standard[at].load(Ordering::Acquire));
            let kept = CONFIG_SERIAL | if is_for_machine { CONFIG_GATED } else { 0 };
            Ok(Recorded {
                recording,
                image,
                offset: mark.offset,
                chunks: mark.chunks,
                images: mark.images,
                events: mark.events,
                bytes: mark.bytes_raw,
                outputs: shared.outputs.0.load(Ordering::Acquire),
                turns: shared.order.next.load(Ordering::Acquire),
                standard,
                flags: segment.header().config.flags & kept,
            })
        };
        let number = segment.header().guest_pid.load(Ordering::Acquire);
        let one = One {
            place: Place { at: ROOT, pid: number, born_ns: 0 },
            segment,
            primary,
            // What waits for room in a ring cannot park.
            knock: Box::new(|| {
                knock.at(segment, primary);
                tape.borrow_mut().take();
            }),
        };
        let (copies, mut described, recorded) =
            take::take_for_replay(one, (&self.lasting, is_for_machine), roster, at_stand)?;
        described.head.recorded = Some(recorded);
        Ok((copies, described, recorded))
    }
}

//! Beginning in the middle: with a process that is put together from a checkpoint, and what the recording holds behind it.

use std::sync::atomic::Ordering;

use checkpoint::Recorded;
use recording::{Header, Mark};

use super::{Debugger, Order, Replay, Root, config};
use crate::checkpoint::restore::Checkpoint;
use crate::error::Error;
use crate::recorder::feed::Fed;
use crate::recorder::rings::Rings;
use crate::recorder::{checkpoints, surroundings};
use crate::segment::{self, Segment};
use crate::spawn::{self, Layout};
use crate::terminal;

/// Where to begin, if that is not the beginning.
pub(super) fn find(order: &Order, header: &Header) -> Result<Option<(Checkpoint, Recorded)>, Error> {
    let Some(event) = order.from else { return Ok(None) };
    spawn::begin_laid_out(&Layout { directory: None, stack: surroundings::stack(header) });
    let found = checkpoints::nearest(&order.file, header.started_unix_ns, event)?;
    match &found {
        Some((_, at)) => terminal::say(&format!("{}: from event {} on", order.file.display(), at.events)),
        None => terminal::say(&format!(
            "{}: there is no checkpoint before event {event}: from its beginning",
            order.file.display()
        )),
    }
    Ok(found)
}

impl Replay<'_> {
    /// Begins at a checkpoint of the recording.
    pub(super) fn begin_at(&mut self, checkpoint: &Checkpoint, at: &Recorded) -> Result<(), Error> {
        let Recorded { offset, chunks, images, events, bytes, .. } = *at;
        self.reader.go_to(&Mark { offset, chunks, images, events, bytes_raw: bytes });
        self.events = events;
        let shared = self.roster.header();
        for (place, identity) in shared.standard.iter().zip(at.standard) {
            place.store(identity, Ordering::Release);
        }
        shared.outputs.0.store(at.outputs, Ordering::Release);
        shared.order.next.store(at.turns, Ordering::Release);
        let root = checkpoint.head().root();
        let name = format!("s{:06}", at.image);
        let segment = Segment::create(&self.dir, &name, config(at.flags))?;
        segment.header().hold.store(1, Ordering::Release);
        let rings = Rings::new(segment, &self.dir, &name)?;
        let mut fed = Fed::new(at.image, root.pid, rings, self.path.join(&name))?;
        let child =
            checkpoint.start_replay((&self.dir, &self.path, &name), &fed.rings.segment, &self.roster)?;
        // Nobody but the recorder had read the log. What was logged before is in the checkpoint.
        for entry in (0..fed.rings.segment.slots()).map(|slot| fed.rings.segment.thread(slot)) {
            entry.head.0.store(entry.tail.0.load(Ordering::Acquire), Ordering::Release);
        }
        fed.child = Some(child.pid);
        self.root = Some(Root { pid: root.pid, image: at.image, ending: None });
        self.pids.insert(at.image, root.pid);
        self.slots.insert(at.image, self.fed.len());
        let attached = if self.order.debugger != Debugger::None {
            self.attach(child.pid, Some(&root.executable), &fed)
        } else {
            let hold = &fed.rings.segment.header().hold;
            hold.store(0, Ordering::Release);
            segment::wake(hold);
            Ok(())
        };
        self.fed.push(fed);
        attached
    }
}

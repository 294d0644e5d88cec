//! Looks at a standby that has diverged, before it is ended.
//!
//! It stands still for that, at most a tenth of a second (`verdict.rs` of the runtime). The primary goes on: of its thread a copy
//! of the stack is taken where it sleeps. A thread does the looking and then the looking up of names: it reads memory and files
//! of the program, and whoever made those decides how long that takes. The main thread waits for the first part, for some
//! milliseconds at most.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use us_abi::Cause;

use super::Watch;
use crate::dir::Dir;
use crate::explain::{Explanation, Stack};
use crate::segment::raw_text;
use crate::sentry::{self, Shared};
use crate::symbols::{self, Names};
use crate::unwind::{self, Process};
use crate::{folder, proc, snapshot, verdict};

/// How long the standby is kept for it at most. It takes less than one, unless the processors are busy with others.
const PATIENCE: Duration = Duration::from_millis(20);

/// Looks at a thread that is on its way to where it stands still, and the pause between two.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_micros(100);

/// Divergences that are being explained at one time: a file may never answer.
const AT_ONCE: usize = 4;

/// What is heard of it later.
pub(super) type Look = Receiver<Explanation>;

/// What is looked at.
struct Scene {
    shared: Arc<Shared>,
    folder: Dir,
    /// Name of the segment in it.
    segment: String,
    slot: usize,
    position: u64,
    primary: Thread,
    standby: Thread,
}

/// A thread of a copy, by the kernel's numbers.
#[derive(Clone, Copy)]
struct Thread {
    pid: u32,
    tid: u32,
}

impl Watch<'_> {
    /// What there is to be heard if `standby`, which sits at `seat`, has said in `text` that it diverged. It may be ended then.
    pub(super) fn look_at_divergence(&self, standby: u32, seat: usize, text: &us_abi::Text) -> Option<Look> {
        let (code, raw) = raw_text(text)?;
        let is_one = code == Cause::Diverged as u32 && !self.ends_by_itself();
        if !is_one || self.book.borrow().explaining.len() >= AT_ONCE {
            return None;
        }
        let segment = &self.shared.segment;
        let (slot, position) = self.diverged_at(&raw);
        // Written by the guest's process: a wild value must not lead outside the table.
        let slot = (slot as usize).min(us_abi::THREADS_MAX - 1);
        let scene = Scene {
            shared: Arc::clone(&self.shared),
            folder: self.book.borrow().folder.dir.again().ok()?,
            segment: if self.is_root { folder::SEGMENT.into() } else { folder::member(self.guest_pid()) },
            slot,
            position,
            primary: Thread {
                pid: self.primary.pid,
                tid: segment.thread(slot).primary_tid.load(Ordering::Acquire),
            },
            standby: Thread { pid: standby, tid: segment.standby_tid(slot, seat) },
        };
        let (copy, log) = verdict::sides(&raw);
        let begun = Explanation {
            copy: symbols::plain(copy.as_bytes()),
            log: log.unwrap_or_default(),
            turns: segment.header().turns.load(Ordering::Acquire) != 0,
            ..Explanation::default()
        };
        let ((seen, is_seen), (found, look)) = (channel(), channel());
        let body = move || {
            // Nobody may wait for it any more.
            let _ = found.send(scene.explain(begun, &seen));
            scene.shared.ring_bell();
        };
        sentry::thread("explainer", body).ok()?;
        let _ = is_seen.recv_timeout(PATIENCE);
        Some(look)
    }

    /// Thread slot, and position in its ring, of a divergence that was reported in these words. Of several standbys the last to
    /// diverge has its numbers in the header.
    pub(super) fn diverged_at(&self, reason: &str) -> (u32, u64) {
        let header = self.shared.segment.header();
        let last =
            || (header.diverged_slot.load(Ordering::Acquire), header.diverged_at.load(Ordering::Acquire));
        verdict::thread_and_position(reason).unwrap_or_else(last)
    }
}

impl Scene {
    /// Finds out what there is to be known; says on `seen` when the standby is not needed any more.
    fn explain(&self, mut explained: Explanation, seen: &Sender<()>) -> Explanation {
        let (primary, standby) = (self.primary, self.standby);
        // The primary first: it does not wait for us.
        let top = unwind::place(primary.pid, primary.tid).and_then(|place| Process::top(primary.pid, place));
        let tail = self.shared.segment.thread(self.slot).tail.0.load(Ordering::Acquire);
        let logged = snapshot::logged(&self.folder, &self.segment, self.slot, self.position, tail);
        let own_top = self.standing().and_then(|place| Process::top(standby.pid, place));
        let mut process = Process::open(standby.pid);
        let own = match (&mut process, own_top) {
            (Some(process), Some(top)) => Ok(process.stack(&top)),
            _ => Err("its process had ended, or may not be looked at"),
        };
        let name = |thread: Thread| proc::thread_name(thread.pid, thread.tid);
        explained.thread_name = name(primary).or_else(|| name(standby)).unwrap_or_default();
        let mut files = Names::of(standby.pid).or_else(|| Names::of(primary.pid));
        // Whoever waited may have given up.
        let _ = seen.send(());
        let others = match (process.and_then(|process| process.of_copy(primary.pid)), top) {
            (Some(mut process), Some(top)) => Ok(process.stack(&top)),
            _ => Err("it was running, or is gone"),
        };
        let mut named = |steps: Result<Vec<unwind::Step>, &str>| match steps {
            Ok(steps) if steps.is_empty() => Stack::missing("its memory may not be read"),
            Ok(steps) => Stack::named(&steps, &mut files),
            Err(why) => Stack::missing(why),
        };
        (explained.standby, explained.primary) = (named(own), named(others));
        explained.name_place();
        explained.primary_ahead = logged.map(|logged| logged.behind);
        if explained.log.is_empty() {
            let found = logged.and_then(|logged| verdict::event(logged.kind, logged.call));
            explained.log = found.unwrap_or_else(|| "nothing: the log of this thread ends here".into());
        }
        explained
    }

    /// Where the standby's thread stands, once it does.
    fn standing(&self) -> Option<unwind::Place> {
        for _ in 0..LOOKS {
            let place = unwind::place(self.standby.pid, self.standby.tid);
            if place.is_some() {
                return place;
            }
            std::thread::sleep(PAUSE);
        }
        None
    }
}

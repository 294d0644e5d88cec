//! How the processes of a replay end, and what it has come to.

use std::os::fd::AsFd;

use rustix::event::{PollFd, PollFlags, poll};
use us_abi::exit;

use super::{Replay, STILL_NS, STUCK_NS};
use crate::reap::{self, Reaped};
use crate::recorder::feed::Ending;
use crate::recorder::take::UNKNOWN;
use crate::{clock, proc, terminal};

impl Replay<'_> {
    pub(super) fn reap(&mut self) {
        while let Some(pid) = reap::next_ended_child() {
            if let Some(debugger) = self.debugger.as_mut().filter(|debugger| debugger.is_child(pid)) {
                // Its own handle reaps it; others may have ended as well, and are seen afterwards.
                debugger.is_there();
                continue;
            }
            let Some(reaped) = reap::take(pid) else { return };
            self.ends.insert(pid, reaped.status);
        }
    }

    /// Takes processes off that have come to their end, and ends those for which there is nothing more.
    pub(super) fn end_finished(&mut self) {
        let now = clock::monotonic_ns();
        let output_waits = output_waits();
        let mut at = 0;
        while at < self.fed.len() {
            let fed = &mut self.fed[at];
            fed.look(now, output_waits);
            let process = fed.process();
            let gone = process != 0 && (self.ends.contains_key(&process) || is_gone(process));
            if gone {
                self.process_ended(at);
                continue;
            }
            match self.debugger {
                None => self.perhaps_end(at, now),
                Some(_) => self.perhaps_die(at, now),
            }
            at += 1;
        }
    }

    /// A process that died of a signal, under a debugger, once none of its threads moves. One that the debugger holds is
    /// not at its end, whatever has been applied.
    fn perhaps_die(&mut self, at: usize, now: u64) {
        let fed = &mut self.fed[at];
        let Some(signal) = fed.ending.as_ref().and_then(Ending::signal) else { return };
        if fed.still_since_ns.is_none_or(|since| now < since + STILL_NS) {
            return;
        }
        match proc::sleeps(fed.process()) {
            true if fed.die() => {
                let name = crate::signals::name(signal);
                terminal::say(&format!(
                    "process {} was killed by {name} at this point of the recording",
                    fed.pid
                ));
            }
            true => {}
            false => fed.still_since_ns = Some(now),
        }
    }

    /// Ends a process for which there is nothing more, or that cannot come to its next event.
    fn perhaps_end(&mut self, at: usize, now: u64) {
        let is_read = self.is_read;
        let fed = &self.fed[at];
        let since = |moment: u64| now.saturating_sub(moment);
        let still_ns = fed.still_since_ns.map_or(0, since);
        let log_ends = fed.ending.is_some() || is_read;
        let by_itself = fed.ending.as_ref().is_some_and(Ending::is_exit);
        let is_exec = fed.ending.as_ref().is_some_and(|ending| ending.is_exec);
        // It has applied everything. One that exits does so by itself, and one that died of a fault runs into it.
        let patience = if by_itself || !is_exec { STILL_NS } else { 0 };
        let finished = log_ends && fed.still_since_ns.is_some() && still_ns >= patience;
        // A ticket that was taken and never published, by one that was killed: nothing behind it can be applied.
        let cut = log_ends && !by_itself && fed.queued() == 0 && since(fed.progress_ns) > STUCK_NS;
        // A fork that was in doubt when its parent was killed: nobody makes this child.
        let orphan = is_read && fed.process() == 0 && since(fed.progress_ns) > STUCK_NS;
        if finished || cut || orphan {
            fed.end();
            if fed.process() == 0 {
                self.process_ended(at);
            }
        }
    }

    fn process_ended(&mut self, at: usize) {
        let fed = self.fed.remove(at);
        self.diverged = self.diverged.take().or_else(|| Some((fed.pid, fed.divergence()?)));
        if let Some(mirror) = &mut self.mirror {
            mirror.notes.leaves(&fed.rings.segment);
        }
        // Its next image may have a file of that name.
        if !self.fed.iter().any(|other| other.path == fed.path) {
            let _ = fed.path.file_name().map(|name| self.dir.remove(name));
        }
        self.slots.remove(&fed.image);
        self.slots.values_mut().filter(|place| **place > at).for_each(|place| *place -= 1);
        // In a replay nobody asks for a child of another replayed process: it is a zombie until its parent ends.
        let told = self.ends.get(&fed.process()).copied();
        let Some(status) = told.or_else(|| proc::end_of(fed.process())) else { return };
        match &fed.ending {
            Some(ending) => self.compare_end(fed.image, ending, status),
            None => _ = self.ended.insert(fed.image, status),
        }
    }

    pub(super) fn compare_end(&mut self, image: u32, ending: &Ending, status: i32) {
        if let Some(pid) = self.pids.get(&image).filter(|_| ending.is_exit() && ending.status != status) {
            self.ended_otherwise.get_or_insert((*pid, ending.status, status));
        }
    }

    /// What the replay has come to, as an exit code: the recorded one where that was reached.
    pub(super) fn verdict(&self) -> i32 {
        let say = |line: &str| terminal::say(&format!("{}: {line}", self.order.file.display()));
        if let Some(why) = &self.incomplete {
            say(&format!("the recording was replayed to its end, but it is incomplete: {why}"));
            return exit::NOT_REPLAYED;
        }
        if let Some(until) = self.order.until.filter(|_| self.stopped) {
            say(&format!("stopped before event {until}"));
            return 0;
        }
        if let Some(until) = self.order.until {
            say(&format!("ends at event {}: there is no event {until}", self.events));
        }
        if self.debugger.is_some() {
            return 0;
        }
        let Some(root) = &self.root else { return exit::NOT_REPLAYED };
        let Some(ending) = &root.ending else {
            say("the recording does not say how the program ended");
            return exit::NOT_REPLAYED;
        };
        for (pid, why) in &self.cut {
            say(&format!("the log of process {pid} ends before it did: {why}"));
        }
        let code = |status| Reaped::by(status).end().exit_code();
        if let Some((pid, recorded, replayed)) = self.ended_otherwise {
            let (recorded, replayed) = (code(recorded), code(replayed));
            say(&format!("the replay of process {pid} ended with {replayed}, the recording with {recorded}"));
        }
        if !self.cut.is_empty() || self.ended_otherwise.is_some() || ending.status == UNKNOWN {
            return exit::NOT_REPLAYED;
        }
        code(ending.status)
    }
}

/// Whether somebody is slow to read what the replay writes: a process that waits for them is not stuck, and what it has
/// not been rid of yet would be missing if it were ended.
fn output_waits() -> bool {
    let (out, error) = (std::io::stdout(), std::io::stderr());
    [out.as_fd(), error.as_fd()].into_iter().any(|output| {
        let mut fds = [PollFd::from_borrowed_fd(output, PollFlags::OUT)];
        matches!(poll(&mut fds, Some(&clock::timespec(0))), Ok(0))
    })
}

/// Whether a process is gone for good. A child of ours is when it has been reaped, and not before: how it ended is
/// compared, and the kernel does not tell as long as one of its threads is left. Nor is any other as long as one is.
fn is_gone(pid: u32) -> bool {
    let is_whole = |process: &proc::Process| process.alive() || process.threads > 1;
    proc::read(pid).is_none_or(|process| !is_whole(&process) && process.parent != std::process::id())
}

//! The thread that reaps copies which had several threads, a moment after their end.
//!
//! The kernel lets a process be reaped as soon as its last thread has left the group, while that one is still taking its own
//! entry out of the cache of names under `/proc`. Who reaps the process at that moment takes out all that is below it, finds that
//! entry on its way out, and looks again and again, without sleeping, until it is gone: on busy processors for ten seconds (one
//! kill of memcached in fifty; `proc_invalidate_siblings_dcache` had the time). The main thread did so, and the
//! process had no standby meanwhile. A hundredth of a second later nobody is in anybody's way.

use std::collections::HashSet;
use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::{reap, sentry};

/// From the end of a copy to its being reaped.
const REST: Duration = Duration::from_millis(10);

/// Who is to be reaped, and when.
type Rest = (u32, Instant);

/// Copies that have ended, of whom all is known, and that have not been reaped.
#[derive(Debug)]
pub struct Undertaker {
    bell: Arc<OwnedFd>,
    /// Once there was somebody for it.
    thread: Option<(Sender<Rest>, JoinHandle<()>)>,
    waiting: Arc<Mutex<HashSet<u32>>>,
}

impl Undertaker {
    /// Nobody yet. `bell` is rung whenever somebody has been reaped.
    pub fn new(bell: Arc<OwnedFd>) -> Undertaker {
        Undertaker { bell, thread: None, waiting: Arc::default() }
    }

    fn start(&self) -> Option<(Sender<Rest>, JoinHandle<()>)> {
        let (sender, receiver) = channel();
        let (waiting, bell) = (Arc::clone(&self.waiting), Arc::clone(&self.bell));
        let thread = sentry::thread("undertaker", move || work(&receiver, &waiting, &bell));
        thread.ok().map(|thread| (sender, thread))
    }

    /// Takes the ended child `pid`. False if the caller has to reap it: the system has no room for the thread.
    pub fn takes(&mut self, pid: u32) -> bool {
        self.thread = self.thread.take().or_else(|| self.start());
        let Some((sender, _)) = &self.thread else { return false };
        let Ok(mut waiting) = self.waiting.lock() else { return false };
        if sender.send((pid, Instant::now() + REST)).is_err() {
            return false;
        }
        waiting.insert(pid)
    }

    /// Whether `pid` has been taken and is not reaped yet.
    pub fn has(&self, pid: u32) -> bool {
        self.waiting.lock().is_ok_and(|waiting| waiting.contains(&pid))
    }

    /// Waits until all that it has taken are reaped: where nobody else does so, they would stay.
    pub fn finish(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            let _ = thread.join();
        }
    }
}

fn work(taken: &Receiver<Rest>, waiting: &Mutex<HashSet<u32>>, bell: &OwnedFd) {
    for (pid, at) in taken {
        std::thread::sleep(at.saturating_duration_since(Instant::now()));
        reap::reap(pid);
        if let Ok(mut waiting) = waiting.lock() {
            waiting.remove(&pid);
        }
        // Behind it there may be others of whom the kernel has not told yet.
        sentry::ring(bell);
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn whoever_is_taken_is_reaped_and_told_of() {
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).expect("an eventfd");
        let bell = Arc::new(bell);
        let mut undertaker = Undertaker::new(Arc::clone(&bell));
        let mut child = Command::new("true").spawn().expect("true");
        let pid = child.id();
        while reap::end_of(pid).is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(reap::end_of(pid).map(reap::Reaped::end), Some(reap::End::Exited(0)), "it stays so");
        assert!(undertaker.takes(pid) && undertaker.has(pid));
        let mut rung = [0u8; 8];
        rustix::io::read(&bell, &mut rung).expect("rung");
        assert!(!undertaker.has(pid));
        assert!(child.wait().is_err(), "it is reaped");
        undertaker.finish();
    }
}

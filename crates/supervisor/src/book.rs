//! What is written down of a group, and said of it: one for all of its processes.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::events::Voice;
use crate::explain::Explanation;
use crate::folder::{GroupFolder, Meta};
use crate::history::History;

/// The book of one group. Borrowed for one statement at a time: every watch in the main thread has it.
#[derive(Debug)]
pub struct Book<'a> {
    /// The group's folder.
    pub folder: &'a GroupFolder,
    /// `meta.json`.
    pub meta: Meta,
    /// `history.json`.
    pub history: History,
    /// Events, and lines on stderr.
    pub voice: Voice,
    /// Divergences that are being explained.
    pub explaining: Vec<Explaining>,
}

/// A divergence that is in the history, and that a thread is at work to explain.
#[derive(Debug)]
pub struct Explaining {
    /// As they are numbered from 1 on.
    pub number: u64,
    /// What the thread finds; none when it could not.
    pub heard: Receiver<Explanation>,
}

impl Book<'_> {
    /// Writes the two files.
    pub fn save(&self) {
        // A full disk costs `status` its history, nothing else.
        let _ = self.folder.write_json("meta.json", &self.meta);
        let _ = self.folder.write_json("history.json", &self.history);
    }

    /// Writes down what has been explained meanwhile.
    pub fn hear_explanations(&mut self) {
        let mut at = 0;
        while at < self.explaining.len() {
            match self.explaining[at].heard.try_recv() {
                Err(TryRecvError::Empty) => at += 1,
                heard => {
                    let number = self.explaining.swap_remove(at).number;
                    heard.into_iter().for_each(|explained| self.explain(number, explained));
                }
            }
        }
    }

    /// The same at the group's end, of those that take no longer than this.
    pub fn await_explanations(&mut self, patience: Duration) {
        let until = Instant::now() + patience;
        for Explaining { number, heard } in std::mem::take(&mut self.explaining) {
            if let Ok(explained) = heard.recv_timeout(until.saturating_duration_since(Instant::now())) {
                self.explain(number, explained);
            }
        }
    }

    fn explain(&mut self, number: u64, explained: Explanation) {
        let Some(found) = self.history.divergences.explain(number, explained) else { return };
        let mut fields = serde_json::to_value(found).unwrap_or_default();
        fields["number"] = json!(number);
        // Before it is told: whoever hears of it and asks for it finds it there.
        self.save();
        self.voice.event("explained", fields);
    }
}

/// The book as each of its users has it.
pub type SharedBook<'a> = Rc<RefCell<Book<'a>>>;

//! What is written down of a group, and said of it: one for all of its processes.

use std::cell::RefCell;
use std::rc::Rc;

use crate::events::Voice;
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
}

impl Book<'_> {
    /// Writes the two files.
    pub fn save(&self) {
        // A full disk costs `status` its history, nothing else.
        let _ = self.folder.write_json("meta.json", &self.meta);
        let _ = self.folder.write_json("history.json", &self.history);
    }
}

/// The book as each of its users has it.
pub type SharedBook<'a> = Rc<RefCell<Book<'a>>>;

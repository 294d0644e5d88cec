//! The content of a chunk as events.

use std::collections::HashSet;

use crate::CHUNK_MAX;
use crate::bytes::{Fault, Get};
use crate::content;
use crate::encode::SLOTS_MAX;
use crate::event::Events;

/// A stretch of one slot's stream.
#[derive(Debug)]
pub struct Run {
    pub image: u32,
    pub slot: u16,
    pub events: u64,
    pub bytes: Vec<u8>,
}

/// The runs of one chunk.
#[derive(Debug)]
pub struct Decoder {
    content: Vec<u8>,
    runs: (usize, usize),
    at: usize,
    slots: HashSet<(u32, u16)>,
}

impl Decoder {
    /// Of a chunk with this content.
    pub fn new(stored: &[u8]) -> Result<Decoder, Fault> {
        let content = content::unpack(stored)?;
        let get = &mut Get(&content);
        let runs = get.text()?.len();
        let at = content.len() - get.0.len();
        if content.len() - at > CHUNK_MAX {
            return Err("more events than a chunk may hold".into());
        }
        Ok(Decoder { runs: (at - runs, at), at, content, slots: HashSet::new() })
    }

    /// The next one, `None` behind the last.
    pub fn next_run(&mut self) -> Result<Option<Run>, Fault> {
        let (from, to) = self.runs;
        let get = &mut Get(&self.content[from..to]);
        if get.0.is_empty() {
            return Get(&self.content[self.at..]).end().map(|()| None);
        }
        let (image, slot, events) = (get.number("image")?, get.number("slot")?, get.varint()?);
        self.runs.0 = to - get.0.len();
        self.slots.insert((image, slot));
        if self.slots.len() > SLOTS_MAX {
            return Err("more slots than a chunk may hold".into());
        }
        let rest = &self.content[self.at..];
        let mut all = Events::new(rest);
        for _ in 0..events {
            all.next().ok_or("an event is not whole")?;
        }
        let bytes = rest[..rest.len() - all.rest().len()].to_vec();
        self.at += bytes.len();
        Ok(Some(Run { image, slot, events, bytes }))
    }
}

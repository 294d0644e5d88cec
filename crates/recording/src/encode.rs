//! Events as the content of a chunk.

use std::collections::HashSet;

use crate::bytes::{Put, varint};
use crate::content;
use crate::event::{self, Event};

/// Slots that one chunk may speak of: each costs the reader memory for what it expects next.
pub const SLOTS_MAX: usize = 1024;

/// The events that wait for the end of their chunk.
#[derive(Debug, Default)]
pub struct Encoder {
    runs: Vec<u8>,
    run: Option<(u32, u16, u64)>,
    slots: HashSet<(u32, u16)>,
    raw: Vec<u8>,
}

impl Encoder {
    /// Bytes that the events take as they come back.
    pub fn raw(&self) -> usize {
        self.raw.len()
    }

    /// Whether events of this slot may go into this chunk.
    pub fn takes(&self, image: u32, slot: u16) -> bool {
        self.slots.len() < SLOTS_MAX || self.slots.contains(&(image, slot))
    }

    /// Adds one event of a slot.
    pub fn push(&mut self, image: u32, slot: u16, event: &Event) {
        match &mut self.run {
            Some((i, s, count)) if (*i, *s) == (image, slot) => *count += 1,
            _ => {
                self.end_run();
                self.slots.insert((image, slot));
                self.run = Some((image, slot, 1));
            }
        }
        event::write(&mut self.raw, event.header, event.payload);
    }

    fn end_run(&mut self) {
        if let Some((image, slot, count)) = self.run.take() {
            [u64::from(image), u64::from(slot), count].into_iter().for_each(|n| varint(&mut self.runs, n));
        }
    }

    /// The content of the chunk; the next one is empty.
    pub fn finish(&mut self) -> Vec<u8> {
        self.end_run();
        let mut put = Put::default();
        put.text(&self.runs);
        put.0.extend_from_slice(&self.raw);
        *self = Encoder::default();
        content::pack(&put.0)
    }
}

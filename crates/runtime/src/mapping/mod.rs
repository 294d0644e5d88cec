//! What a copy knows of the mappings of its memory.

pub mod pieces;
pub mod touched;
pub mod unforked;
pub mod views;

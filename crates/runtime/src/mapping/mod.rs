//! What a copy knows of the mappings of its memory.

pub mod pieces;
pub mod proc;
pub mod unforked;
pub mod views;

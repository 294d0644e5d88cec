//! An event of the log, opened.

use us_abi::event::{CallArgs, Header, ReturnHead};

/// A view of the open event.
#[derive(Clone, Copy)]
pub struct Event {
    /// Its header.
    pub header: Header,
    /// Where its payload lies.
    pub payload: *const u8,
}

impl Event {
    /// Its payload.
    pub fn payload(&self) -> &[u8] {
        // SAFETY: the bytes lie below the acquired tail and above the head until the event is closed.
        unsafe { core::slice::from_raw_parts(self.payload, self.header.len as usize) }
    }
    /// The head of a `Return` or `Call`, and the bytes behind it.
    pub fn returned(&self) -> (ReturnHead, &[u8]) {
        // SAFETY: such events always carry a head; 16-byte aligned like every event.
        let head = unsafe { self.payload.cast::<ReturnHead>().read() };
        (head, self.payload().get(size_of::<ReturnHead>()..).unwrap_or(&[]))
    }
    /// The arguments of an `Enter`.
    pub fn arguments(&self) -> CallArgs {
        // SAFETY: an `Enter` always carries them.
        unsafe { self.payload.cast::<CallArgs>().read() }
    }
}

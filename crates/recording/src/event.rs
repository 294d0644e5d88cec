//! Events as they lie in a ring, one behind the other.

use us_abi::{EVENT_ALIGN, EventKind, Header};

/// Bytes of a header.
pub const HEAD: usize = size_of::<Header>();

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its header.
    pub header: Header,
    /// Its payload, without padding.
    pub payload: &'a [u8],
}

impl Event<'_> {
    /// Bytes that it takes in a ring.
    pub fn size(&self) -> usize {
        Header::size(self.header.len)
    }
}

/// The header in the first 16 bytes.
pub fn read(bytes: &[u8; HEAD]) -> Header {
    let word = u64::from_le_bytes(bytes[..8].try_into().expect("half of sixteen"));
    Header {
        kind: word as u8,
        flags: (word >> 8) as u8,
        call: (word >> 16) as u16,
        len: (word >> 32) as u32,
        ticket: u64::from_le_bytes(bytes[8..].try_into().expect("half of sixteen")),
    }
}

/// Appends an event, padding included.
pub fn write(to: &mut Vec<u8>, header: Header, payload: &[u8]) {
    let Header { kind, flags, call, len, ticket } = header;
    let word = u64::from(kind) | u64::from(flags) << 8 | u64::from(call) << 16 | u64::from(len) << 32;
    to.extend_from_slice(&word.to_le_bytes());
    to.extend_from_slice(&ticket.to_le_bytes());
    to.extend_from_slice(payload);
    to.resize(to.len().next_multiple_of(EVENT_ALIGN), 0);
}

/// The events in a piece of a slot's stream, in order. Ends early, with [`Events::rest`] not empty, where the bytes are
/// no whole event.
#[derive(Clone, Copy, Debug)]
pub struct Events<'a>(&'a [u8]);

impl<'a> Events<'a> {
    /// Those in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Events<'a> {
        Events(bytes)
    }

    /// What has not been given out.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    #[inline]
    fn next(&mut self) -> Option<Event<'a>> {
        let (head, behind) = self.0.split_first_chunk::<HEAD>()?;
        let header = read(head);
        let payload = behind.get(..header.len as usize)?;
        self.0 = self.0.get(Header::size(header.len)..)?;
        Some(Event { header, payload })
    }
}

/// `bytes` as they come back from a recording: without *Skip* events, and with zero for padding. `None` if they are not
/// whole events.
pub fn canonical(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut same = Vec::with_capacity(bytes.len());
    let mut events = Events::new(bytes);
    events
        .by_ref()
        .filter(|event| event.header.kind != EventKind::Skip as u8)
        .for_each(|event| write(&mut same, event.header, event.payload));
    events.rest().is_empty().then_some(same)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_no_events() {
        let mut bytes = Vec::new();
        let header = Header { kind: 5, flags: 1, call: 2, len: 17, ticket: 7 };
        write(&mut bytes, header, &[3; 17]);
        assert_eq!(bytes.len(), 48);
        for cut in 1..48 {
            let mut events = Events::new(&bytes[..cut]);
            assert_eq!((events.next(), events.rest().len()), (None, cut));
            assert_eq!(canonical(&bytes[..cut]), None);
        }
        assert_eq!(Events::new(&bytes).next(), Some(Event { header, payload: &[3; 17] }));
        bytes[40] = 9;
        assert_eq!(canonical(&bytes).map(|same| same[40]), Some(0));
    }
}

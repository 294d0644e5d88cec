//! What a gate says in the log to whoever takes over from another machine.

use crate::packet::{End, Pair};

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The address at which the program serves: whoever takes over has it from then on.
    Address(Address),
    /// The gate of that address holds nothing back, as was asked for: nor does that of whoever takes over.
    Relaxed,
    /// A connection is there.
    Connection(Facts),
    /// Of the connection with this identity so many bytes have been acknowledged to the other side, although not so many have been
    /// read: until they are, nobody can take it over.
    Beyond {
        /// The socket's cookie, as the log has it.
        identity: u64,
        /// Bytes, the end of the stream counted as one.
        bytes: u64,
    },
    /// The connection with this identity has another one from here on: it has been made anew on another machine.
    Renamed {
        /// As the log had it.
        from: u64,
        /// As it has it now.
        to: u64,
    },
    /// It is this time on the gate's machine: CLOCK_MONOTONIC, ns.
    Time(u64),
    /// Of what was sent on the connection with this identity the other side has acknowledged so many bytes.
    Acknowledged {
        /// The socket's cookie, as the log has it.
        identity: u64,
        /// Bytes.
        bytes: u64,
    },
}

/// An address of a device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Address {
    /// IPv4.
    pub address: [u8; 4],
    /// Bits of the network.
    pub bits: u8,
    /// The network device.
    pub device: String,
}

/// What was agreed upon when a connection began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The socket's cookie, as the log has it.
    pub identity: u64,
    /// Its ends.
    pub pair: Pair,
    /// Numbers of the SYNs: of this side, and of the other.
    pub first: u32,
    /// See `first`.
    pub other_first: u32,
    /// Largest segment that the other side takes.
    pub segment_bytes: u16,
    /// By how many bits the windows are shifted that the other side sends, and those that it is sent.
    pub scale: u8,
    /// See `scale`.
    pub own_scale: u8,
    /// Bits of [`agreed`].
    pub agreed: u8,
    /// This side's clock in the packets, and when it was that, CLOCK_MONOTONIC ns of its machine.
    pub time: u32,
    /// See `time`.
    pub at_ns: u64,
}

/// Bits of [`Facts::agreed`], as the kernel's `tcp_info` has them.
pub mod agreed {
    /// Packets have their senders' clocks.
    pub const TIME: u8 = 1;
    /// What has come out of order is listed.
    pub const SACK: u8 = 2;
    /// Windows are shifted.
    pub const SCALE: u8 = 4;
}

const ADDRESS: u8 = 1;
const CONNECTION: u8 = 2;
const BEYOND: u8 = 3;
const ACKNOWLEDGED: u8 = 4;
const TIME: u8 = 5;
const RENAMED: u8 = 6;
const RELAXED: u8 = 7;

impl Note {
    /// As it lies in the log.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut to = Vec::new();
        match self {
            Note::Address(Address { address, bits, device }) => {
                to.push(ADDRESS);
                to.extend_from_slice(address);
                to.push(*bits);
                to.extend_from_slice(device.as_bytes());
            }
            Note::Relaxed => to.push(RELAXED),
            Note::Connection(facts) => {
                to.push(CONNECTION);
                to.extend_from_slice(&facts.identity.to_le_bytes());
                for end in [facts.pair.own, facts.pair.other] {
                    to.extend_from_slice(&end.address);
                    to.extend_from_slice(&end.port.to_le_bytes());
                }
                to.extend_from_slice(&facts.first.to_le_bytes());
                to.extend_from_slice(&facts.other_first.to_le_bytes());
                to.extend_from_slice(&facts.segment_bytes.to_le_bytes());
                to.extend_from_slice(&[facts.scale, facts.own_scale, facts.agreed]);
                to.extend_from_slice(&facts.time.to_le_bytes());
                to.extend_from_slice(&facts.at_ns.to_le_bytes());
            }
            Note::Time(now) => {
                to.push(TIME);
                to.extend_from_slice(&now.to_le_bytes());
            }
            Note::Renamed { from, to: now } => {
                to.push(RENAMED);
                to.extend_from_slice(&from.to_le_bytes());
                to.extend_from_slice(&now.to_le_bytes());
            }
            Note::Beyond { identity, bytes } | Note::Acknowledged { identity, bytes } => {
                to.push(if matches!(self, Note::Beyond { .. }) { BEYOND } else { ACKNOWLEDGED });
                to.extend_from_slice(&identity.to_le_bytes());
                to.extend_from_slice(&bytes.to_le_bytes());
            }
        }
        to
    }

    /// What lies there, if it is one.
    pub fn of(bytes: &[u8]) -> Option<Note> {
        let (kind, rest) = bytes.split_first()?;
        let mut from = From(rest);
        match *kind {
            ADDRESS => {
                let (address, [bits]) = (from.take()?, from.take()?);
                let device = String::from_utf8(from.0.into()).ok()?;
                let is_name = (1..16).contains(&device.len()) && device.bytes().all(|byte| byte > b' ');
                (bits <= 32 && is_name).then_some(Note::Address(Address { address, bits, device }))
            }
            RELAXED => from.0.is_empty().then_some(Note::Relaxed),
            CONNECTION => {
                let identity = u64::from_le_bytes(from.take()?);
                let own = End { address: from.take()?, port: u16::from_le_bytes(from.take()?) };
                let other = End { address: from.take()?, port: u16::from_le_bytes(from.take()?) };
                let (first, other_first) =
                    (u32::from_le_bytes(from.take()?), u32::from_le_bytes(from.take()?));
                let segment_bytes = u16::from_le_bytes(from.take()?);
                let [scale, own_scale, agreed] = from.take()?;
                let (time, at_ns) = (u32::from_le_bytes(from.take()?), u64::from_le_bytes(from.take()?));
                let pair = Pair { own, other };
                (from.0.is_empty() && scale <= 14 && own_scale <= 14).then_some(Note::Connection(Facts {
                    identity,
                    pair,
                    first,
                    other_first,
                    segment_bytes,
                    scale,
                    own_scale,
                    agreed,
                    time,
                    at_ns,
                }))
            }
            BEYOND | ACKNOWLEDGED => {
                let (identity, bytes) = (u64::from_le_bytes(from.take()?), u64::from_le_bytes(from.take()?));
                from.0.is_empty().then_some(match *kind {
                    BEYOND => Note::Beyond { identity, bytes },
                    _ => Note::Acknowledged { identity, bytes },
                })
            }
            RENAMED => {
                let (before, to) = (u64::from_le_bytes(from.take()?), u64::from_le_bytes(from.take()?));
                from.0.is_empty().then_some(Note::Renamed { from: before, to })
            }
            TIME => {
                let now = u64::from_le_bytes(from.take()?);
                from.0.is_empty().then_some(Note::Time(now))
            }
            _ => None,
        }
    }
}

struct From<'a>(&'a [u8]);

impl From<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }
}

//! What both ends expect next: only how far it is off goes into the file.
//!
//! Encoder and decoder keep the same state from the events before, of this chunk alone. A wrong expectation costs bytes
//! and nothing else.

use us_abi::{CallArgs, EventKind, Header, NO_TICKET, ReturnHead};

use crate::bytes::{Fault, Get, unzigzag, zigzag};
use crate::streams::Column;

/// Payloads up to so many bytes have their length in the dictionary: results of calls that write nothing, arguments.
pub const LENGTH_MAX: u32 = 32;

/// In a dictionary's entry: the length stands in its column.
pub const VARIES: u8 = 0xff;

/// Headers that the dictionary takes. The next number says that one is to be read and forgotten.
pub const DICTIONARY: usize = 255;

/// Bits of `call` that are a hashed clock.
pub const CLOCK: u16 = 0xfff;

/// Rest of a payload from which it counts as long, bytes.
pub const LONG: usize = 512;

/// What a dictionary's entry says of the ticket.
pub const TICKET_NONE: u8 = 0;
/// It is in a column.
pub const TICKET_GIVEN: u8 = 1;
/// It is zero.
pub const TICKET_ZERO: u8 = 2;

/// An entry of the dictionary: everything of a header that tends to repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    pub kind: u8,
    pub flags: u8,
    /// Without the clock.
    pub call: u16,
    /// Or [`VARIES`].
    pub length: u8,
    pub ticket: u8,
}

impl Word {
    #[inline]
    pub fn of(header: &Header) -> Word {
        Word {
            kind: header.kind,
            flags: header.flags,
            call: if is_hashed(header.kind) { header.call & !CLOCK } else { header.call },
            length: if header.len <= LENGTH_MAX { header.len as u8 } else { VARIES },
            ticket: match header.ticket {
                NO_TICKET => TICKET_NONE,
                0 => TICKET_ZERO,
                _ => TICKET_GIVEN,
            },
        }
    }

    /// As one number.
    #[inline]
    pub fn key(self) -> u64 {
        u64::from_le_bytes(self.to_bytes())
    }

    pub fn to_bytes(self) -> [u8; 8] {
        let [low, high] = self.call.to_le_bytes();
        [self.kind, self.flags, low, high, self.length, self.ticket, 0, 0]
    }

    pub fn get(get: &mut Get) -> Result<Word, Fault> {
        let bytes = get.take(6)?;
        let (length, ticket) = (bytes[4], bytes[5]);
        if (u32::from(length) > LENGTH_MAX && length != VARIES) || ticket > TICKET_ZERO {
            return Err("an entry of the dictionary makes no sense".into());
        }
        let call = u16::from_le_bytes([bytes[2], bytes[3]]);
        Ok(Word { kind: bytes[0], flags: bytes[1], call, length, ticket })
    }
}

/// Whether `call` names a hashed clock.
#[inline]
pub fn is_hashed(kind: u8) -> bool {
    kind == EventKind::Ordered as u8 || kind == EventKind::OnceRun as u8
}

/// Whether the payload begins with a [`ReturnHead`].
#[inline]
pub fn returns(kind: u8, length: u32) -> bool {
    (kind == EventKind::Return as u8 || kind == EventKind::Call as u8) && length >= 16
}

/// Whether the payload is a [`CallArgs`].
#[inline]
pub fn enters(kind: u8, length: u32) -> bool {
    kind == EventKind::Enter as u8 && length == 16
}

/// Writes a number: `high` and its size in one byte, what does not fit there in as many bytes as it needs.
#[inline]
pub fn put(high: u8, value: u64, control: &mut Vec<u8>, bytes: &mut Vec<u8>) {
    let code = match value {
        0 => 0,
        1..=6 => 8 + value as u8,
        _ => {
            let size = 8 - value.leading_zeros() as usize / 8;
            bytes.extend_from_slice(&value.to_le_bytes()[..size]);
            size as u8
        }
    };
    control.push(high << 4 | code);
}

/// The opposite of [`put`].
#[inline]
pub fn get(control: &mut Column, bytes: &mut Column) -> Result<(u8, u64), Fault> {
    let byte = control.u8()?;
    let value = match byte & 0xf {
        code @ 9..=14 => u64::from(code - 8),
        15 => return Err("a number of unknown size".into()),
        0 => 0,
        size => bytes.with(|get| {
            let mut value = [0; 8];
            value[..size as usize].copy_from_slice(get.take(size as usize)?);
            Ok(u64::from_le_bytes(value))
        })?,
    };
    Ok((byte >> 4, value))
}

/// Several counters behind one column: nobody says which mutex was taken, or which clock read. Each lane follows the one
/// whose values lie nearest.
#[derive(Clone, Copy, Debug)]
pub struct Lanes<const N: usize> {
    next: [u64; N],
    /// The lane of the last value.
    last: usize,
    /// The lane that the next value far from all of them takes. The encoder's only.
    victim: usize,
}

impl<const N: usize> Default for Lanes<N> {
    fn default() -> Lanes<N> {
        Lanes { next: [0; N], last: 0, victim: 0 }
    }
}

impl<const N: usize> Lanes<N> {
    /// Writes `value`, after which `step` more is expected. A value further off than `far` begins a lane of its own.
    #[inline]
    pub fn put(&mut self, value: u64, step: u64, far: u64, control: &mut Vec<u8>, bytes: &mut Vec<u8>) {
        let lane = self.nearest(value, far);
        put(lane as u8, zigzag(value.wrapping_sub(self.next[lane]) as i64), control, bytes);
        self.took(lane, value, step);
    }

    /// Reads a value.
    #[inline]
    pub fn get(&mut self, step: u64, control: &mut Column, bytes: &mut Column) -> Result<u64, Fault> {
        let (lane, off) = get(control, bytes)?;
        let lane = lane as usize;
        let Some(next) = self.next.get(lane) else { return Err(format!("lane {lane} of {N}")) };
        let value = next.wrapping_add(unzigzag(off) as u64);
        self.took(lane, value, step);
        Ok(value)
    }

    fn took(&mut self, lane: usize, value: u64, step: u64) {
        self.next[lane] = value.wrapping_add(step);
        self.last = lane;
    }

    #[inline]
    fn nearest(&mut self, value: u64, far: u64) -> usize {
        if self.next[self.last] == value {
            return self.last;
        }
        let off = |lane: usize| value.wrapping_sub(self.next[lane]) as i64;
        let best = (0..N).min_by_key(|lane| off(*lane).unsigned_abs()).unwrap_or(0);
        if off(best).unsigned_abs() <= far {
            return best;
        }
        self.victim = (self.victim + 1) % N;
        self.victim
    }
}

/// The last call of a kind, as far as the next is likely to be the same.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    pub args: CallArgs,
    pub head: ReturnHead,
}

/// What is expected of one slot.
#[derive(Clone, Debug)]
pub struct State {
    /// Of the mutexes that the thread takes.
    pub locks: Lanes<16>,
    /// Of the clocks that it reads.
    pub times: Lanes<4>,
    /// The next ticket of the kernel clock.
    pub kernel: u64,
    hashed: [u64; State::HASHED],
    seen: [Seen; State::SEEN],
}

impl State {
    const HASHED: usize = 64;
    const SEEN: usize = 32;

    /// The next ticket of a hashed clock. Clocks share places.
    #[inline]
    pub fn hashed(&mut self, clock: u16) -> &mut u64 {
        &mut self.hashed[clock as usize % State::HASHED]
    }

    /// The last call of this number. Calls share places.
    #[inline]
    pub fn seen(&mut self, call: u16) -> &mut Seen {
        &mut self.seen[call as usize % State::SEEN]
    }
}

impl Default for State {
    fn default() -> State {
        State {
            locks: Lanes::default(),
            times: Lanes::default(),
            kernel: 0,
            hashed: [0; State::HASHED],
            seen: [Seen::default(); State::SEEN],
        }
    }
}

/// Bits of an arguments' byte.
pub mod args {
    /// The descriptor is that of the last call of this number.
    pub const FD: u8 = 1;
    /// The digest is.
    pub const DIGEST: u8 = 2;
    /// The length is.
    pub const ASKED: u8 = 4;
}

/// Bits of a return's byte.
pub mod ret {
    /// The result is the number of bytes that follow.
    pub const COUNT: u8 = 1;
    /// The result is that of the last call of this number.
    pub const RESULT: u8 = 2;
    /// The identity is.
    pub const IDENTITY: u8 = 4;
}

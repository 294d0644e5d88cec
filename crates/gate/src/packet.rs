//! IPv4 packets with TCP in them, as bytes that are read and changed in place.

/// One end of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct End {
    /// IPv4 address.
    pub address: [u8; 4],
    /// TCP port.
    pub port: u16,
}

/// A connection, as its machine sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pair {
    /// The end on this machine.
    pub own: End,
    /// The other one.
    pub other: End,
}

/// Bits of a TCP header.
pub mod flag {
    /// The sender has nothing more.
    pub const FIN: u8 = 1;
    /// A connection begins.
    pub const SYN: u8 = 2;
    /// It is given up.
    pub const RST: u8 = 4;
    /// What has come is acknowledged.
    pub const ACK: u8 = 16;
}

/// What a SYN, or its answer, offers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// By how many bits windows are shifted; `None` if it does not say.
    pub scale: Option<u8>,
    /// The sender's clock, if it sends it.
    pub time: Option<u32>,
}

const IP: usize = 20;
const TCP: u8 = 6;
const OPTION_SCALE: u8 = 3;
const OPTION_SACK: u8 = 5;
const OPTION_TIME: u8 = 8;

/// Whether `a` comes before `b` among sequence numbers.
pub fn is_before(a: u32, b: u32) -> bool {
    (b.wrapping_sub(a) as i32) > 0
}

/// A whole packet with TCP in it.
#[derive(Clone, Debug)]
pub struct Segment {
    bytes: Vec<u8>,
    /// Where TCP begins.
    at: usize,
    /// Where its data does.
    data: usize,
}

impl Segment {
    /// The bytes, if they are one; else they come back.
    ///
    /// # Errors
    /// The bytes, if they are something else.
    pub fn of(mut bytes: Vec<u8>) -> Result<Segment, Vec<u8>> {
        let is_ip = bytes.len() >= IP && bytes[0] >> 4 == 4 && bytes[9] == TCP;
        let at = usize::from(bytes.first().copied().unwrap_or(0) & 15) * 4;
        let length = if is_ip { usize::from(u16::from_be_bytes([bytes[2], bytes[3]])) } else { 0 };
        // A piece of a packet has no header.
        let is_whole = is_ip && (u16::from_be_bytes([bytes[6], bytes[7]]) & 0x3fff) == 0;
        if !is_whole || at < IP || length > bytes.len() || length < at + 20 {
            return Err(bytes);
        }
        let data = at + usize::from(bytes[at + 12] >> 4) * 4;
        if data < at + 20 || data > length {
            return Err(bytes);
        }
        bytes.truncate(length);
        Ok(Segment { bytes, at, data })
    }

    /// How many bytes it has in all.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// As it goes out.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    fn word(&self, at: usize) -> u32 {
        let at = self.at + at;
        u32::from_be_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]])
    }

    fn half(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.bytes[self.at + at], self.bytes[self.at + at + 1]])
    }

    /// Of a packet that this machine sends.
    pub fn pair(&self) -> Pair {
        let address =
            |at: usize| [self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]];
        Pair {
            own: End { address: address(12), port: self.half(0) },
            other: End { address: address(16), port: self.half(2) },
        }
    }

    /// Number of its first byte.
    pub fn sequence(&self) -> u32 {
        self.word(4)
    }

    /// Number of the byte that the sender waits for.
    pub fn acknowledged(&self) -> u32 {
        self.word(8)
    }

    /// Bits of [`flag`].
    pub fn flags(&self) -> u8 {
        self.bytes[self.at + 13]
    }

    /// Whether one of these is set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags() & flags != 0
    }

    /// The window, as it is written.
    pub fn window(&self) -> u16 {
        self.half(14)
    }

    /// Bytes of data.
    pub fn data_bytes(&self) -> usize {
        self.bytes.len() - self.data
    }

    /// The places of the options: kind, first byte, bytes.
    fn options(&self) -> Vec<(u8, usize, usize)> {
        let (mut at, mut found) = (self.at + 20, Vec::new());
        while at < self.data {
            let (kind, bytes) = (self.bytes[at], self.bytes.get(at + 1).copied().map_or(0, usize::from));
            match kind {
                0 => break,
                1 => at += 1,
                _ if bytes < 2 || at + bytes > self.data => break,
                _ => {
                    found.push((kind, at, bytes));
                    at += bytes;
                }
            }
        }
        found
    }

    /// What it offers, of a SYN or its answer.
    pub fn offer(&self) -> Offer {
        let mut offer = Offer::default();
        for (kind, at, bytes) in self.options() {
            match (kind, bytes) {
                (OPTION_SCALE, 3) => offer.scale = Some(self.bytes[at + 2].min(14)),
                (OPTION_TIME, 10) => offer.time = Some(self.number(at + 2)),
                _ => {}
            }
        }
        offer
    }

    fn number(&self, at: usize) -> u32 {
        u32::from_be_bytes([self.bytes[at], self.bytes[at + 1], self.bytes[at + 2], self.bytes[at + 3]])
    }

    /// Takes out of the list of what has come out of order what lies below `came` and reaches beyond `limit`: it has come in order,
    /// and may be forgotten. Whether something is left in the list.
    pub fn forget_between(&mut self, limit: u32, came: u32) -> bool {
        const NOTHING: u8 = 1;
        let mut is_left = false;
        for (_, at, bytes) in self.options().into_iter().filter(|(kind, ..)| *kind == OPTION_SACK) {
            let blocks: Vec<(u32, u32)> = (at + 2..at + bytes - 7)
                .step_by(8)
                .map(|at| (self.number(at), self.number(at + 4)))
                .collect();
            let stays = |(first, end): &(u32, u32)| !is_before(*first, came) || !is_before(limit, *end);
            let kept: Vec<(u32, u32)> = blocks.iter().copied().filter(stays).collect();
            is_left |= !kept.is_empty();
            if kept.len() == blocks.len() {
                continue;
            }
            self.bytes[at..at + bytes].fill(NOTHING);
            if !kept.is_empty() {
                (self.bytes[at], self.bytes[at + 1]) = (OPTION_SACK, 2 + 8 * kept.len() as u8);
            }
            for ((first, end), at) in kept.into_iter().zip((at + 2..).step_by(8)) {
                self.bytes[at..at + 4].copy_from_slice(&first.to_be_bytes());
                self.bytes[at + 4..at + 8].copy_from_slice(&end.to_be_bytes());
            }
        }
        is_left
    }

    /// Acknowledges up to here instead; the window is written as `window`.
    pub fn acknowledge(&mut self, up_to: u32, window: u16) {
        let at = self.at;
        self.bytes[at + 8..at + 12].copy_from_slice(&up_to.to_be_bytes());
        self.bytes[at + 14..at + 16].copy_from_slice(&window.to_be_bytes());
    }

    /// The same without data, behind all that has been sent: nothing but an acknowledgement. Its list of what has come out of order
    /// is empty.
    pub fn bare(&self, sequence: u32) -> Segment {
        let mut bare = self.clone();
        bare.bytes.truncate(self.data);
        bare.say_length();
        // The kernel numbers packets of which the number is 0.
        bare.bytes[4..6].fill(0);
        bare.bytes[self.at + 4..self.at + 8].copy_from_slice(&sequence.to_be_bytes());
        bare.bytes[self.at + 13] = flag::ACK;
        bare.bytes[self.at + 18..self.at + 20].fill(0);
        for (_, at, bytes) in self.options().into_iter().filter(|(kind, ..)| *kind == OPTION_SACK) {
            bare.bytes[at..at + bytes].fill(1);
        }
        bare
    }

    /// Writes how many bytes there are now.
    fn say_length(&mut self) {
        let bytes = self.bytes.len() as u16;
        self.bytes[2..4].copy_from_slice(&bytes.to_be_bytes());
    }

    /// Writes the checksums that the bytes have now.
    pub fn sum_up(&mut self) {
        let at = self.at;
        self.bytes[10..12].fill(0);
        let sum = fold(add(0, &self.bytes[..at]));
        self.bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        self.bytes[at + 16..at + 18].fill(0);
        let head = add(u32::from(TCP) + (self.bytes.len() - at) as u32, &self.bytes[12..20]);
        let sum = fold(add(head, &self.bytes[at..]));
        self.bytes[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    }

    /// Number behind its last one.
    pub fn end(&self) -> u32 {
        let marks = u32::from(self.has(flag::SYN)) + u32::from(self.has(flag::FIN));
        self.sequence().wrapping_add(self.data_bytes() as u32).wrapping_add(marks)
    }

    /// Whether it says nothing but what has come.
    pub fn is_bare(&self) -> bool {
        self.data_bytes() == 0 && self.flags() & (flag::SYN | flag::FIN | flag::RST) == 0
    }

    /// A segment of these ends, for whoever has none to begin with.
    pub fn new(pair: &Pair, sequence: u32, acknowledged: u32, flags: u8, window: u16) -> Segment {
        let mut bytes = vec![0; 40];
        (bytes[0], bytes[3], bytes[6], bytes[8], bytes[9]) = (0x45, 40, 0x40, 64, TCP);
        bytes[12..16].copy_from_slice(&pair.own.address);
        bytes[16..20].copy_from_slice(&pair.other.address);
        bytes[20..22].copy_from_slice(&pair.own.port.to_be_bytes());
        bytes[22..24].copy_from_slice(&pair.other.port.to_be_bytes());
        bytes[24..28].copy_from_slice(&sequence.to_be_bytes());
        bytes[28..32].copy_from_slice(&acknowledged.to_be_bytes());
        (bytes[32], bytes[33]) = (5 << 4, flags);
        bytes[34..36].copy_from_slice(&window.to_be_bytes());
        let mut segment = Segment { bytes, at: IP, data: 40 };
        segment.sum_up();
        segment
    }

    /// The same with a byte of data more, which is zero.
    pub fn with_byte(mut self) -> Segment {
        self.bytes.push(0);
        self.say_length();
        self.sum_up();
        self
    }
}

fn add(sum: u32, bytes: &[u8]) -> u32 {
    let words =
        bytes.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0)));
    words.fold(sum, |sum, word| {
        let sum = sum + word;
        (sum & 0xffff) + (sum >> 16)
    })
}

fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

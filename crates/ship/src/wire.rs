//! Messages as bytes, and back.
//!
//! A frame is the length of what follows its checksum (32 bits, little-endian as all numbers), the CRC32C of that, and
//! that: a byte for the kind, and the fields. Whoever reads believes nothing: a length is compared with its limit before
//! anything is kept for it, and room is made only for what has come.

use std::fmt;

use crate::hello::{Commit, Hello, Program, REMARKS_MAX};
use crate::{ENTRY_MAX, Place};

/// Bytes before a frame's content.
pub const HEAD: usize = 8;

/// Content of a frame that is no entry.
pub const SMALL_MAX: usize = 64 << 10;

/// Content of any frame.
pub const FRAME_MAX: usize = ENTRY_MAX + 64;

/// Begins what a leader says first.
const MAGIC: [u8; 6] = *b"USship";

/// Bytes of a text, and texts of a list.
const TEXT_MAX: usize = 4096;
const LIST_MAX: usize = 1024;

/// What is said over a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Of the leader, first.
    Hello(Box<Hello>),
    /// Of the follower, then: what it has, and what it thinks of it.
    Welcome {
        /// Of the hello.
        session: u64,
        /// What it has.
        at: Place,
        /// How much of that is on its disk.
        disk: Place,
        /// CRC32C of the last entry that it has, 0 if it has none.
        last: u32,
        /// What stands against running the program there.
        remarks: Vec<String>,
    },
    /// Of the follower: no, and why. The link ends.
    Refuse(String),
    /// Of the leader: an entry.
    Entry {
        /// Of the hello.
        session: u64,
        /// Where it begins.
        at: Place,
        /// It.
        bytes: Vec<u8>,
    },
    /// Of the leader: a sign of life.
    Beat {
        /// Of the hello.
        session: u64,
        /// When it was sent, by the leader's clock.
        sent: u64,
        /// Behind which entry: one that has not come by now is lost.
        at: Place,
        /// How far the log is.
        end: Place,
    },
    /// Of the follower: what it has, which is also its sign of life.
    Ack {
        /// Of the hello.
        session: u64,
        /// In memory.
        memory: Place,
        /// On disk.
        disk: Place,
        /// `sent` of the last beat that it has heard.
        echo: u64,
    },
    /// Of the leader: the log is at its end.
    End {
        /// Of the hello.
        session: u64,
        /// Where.
        at: Place,
    },
    /// Of the follower: it has all of it, on disk. The link ends.
    Ended {
        /// Of the hello.
        session: u64,
        /// Where.
        at: Place,
    },
    /// Of the follower: it keeps the log, and its machine cannot take over.
    Obstacle {
        /// Of the hello.
        session: u64,
        /// Why not, for people; empty: it can again.
        why: String,
    },
    /// Of the follower: it wants an image of the program in the log.
    Wanted {
        /// Of the hello.
        session: u64,
        /// Which wish this is: a repeated one has the same number.
        number: u64,
    },
}

/// Why bytes are no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault(pub String);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

#[derive(Default)]
struct Put(Vec<u8>);

impl Put {
    fn u32(&mut self, value: u32) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn u64(&mut self, value: u64) {
        self.0.extend_from_slice(&value.to_le_bytes());
    }
    fn place(&mut self, place: Place) {
        self.u64(place.number);
        self.u64(place.offset);
    }
    fn text(&mut self, text: &str) {
        let mut end = text.len().min(TEXT_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.u32(end as u32);
        self.0.extend_from_slice(&text.as_bytes()[..end]);
    }
    fn texts(&mut self, texts: &[String]) {
        self.u32(texts.len().min(LIST_MAX) as u32);
        texts.iter().take(LIST_MAX).for_each(|text| self.text(text));
    }
}

struct Get<'a>(&'a [u8]);

impl<'a> Get<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) =
            self.0.split_at_checked(bytes).ok_or_else(|| Fault("a message is too short".into()))?;
        self.0 = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        Ok(self.take(N)?.try_into().expect("as many as were asked for"))
    }
    fn u32(&mut self) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array()?))
    }
    fn u64(&mut self) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array()?))
    }
    fn place(&mut self) -> Result<Place, Fault> {
        Ok(Place { number: self.u64()?, offset: self.u64()? })
    }
    fn text(&mut self) -> Result<String, Fault> {
        let bytes = self.u32()? as usize;
        if bytes > TEXT_MAX {
            return Err(Fault(format!("a text of {bytes} bytes")));
        }
        let text = str::from_utf8(self.take(bytes)?).map_err(|_| Fault("a text is not UTF-8".into()))?;
        // It is shown to people, on their terminals.
        Ok(text.replace(char::is_control, "?"))
    }
    fn texts(&mut self, most: usize) -> Result<Vec<String>, Fault> {
        match self.u32()? as usize {
            many if many > most => Err(Fault(format!("a list of {many} texts"))),
            many => (0..many).map(|_| self.text()).collect(),
        }
    }
    fn end(&self) -> Result<(), Fault> {
        if self.0.is_empty() { Ok(()) } else { Err(Fault("a message is too long".into())) }
    }
}

impl Message {
    /// As a frame. Texts and lists that are too long are cut.
    pub fn to_frame(&self) -> Vec<u8> {
        let mut put = Put(vec![0; HEAD]);
        self.put(&mut put);
        let mut frame = put.0;
        let length = (frame.len() - HEAD) as u32;
        let crc = crc32c::crc32c(&frame[HEAD..]);
        frame[..4].copy_from_slice(&length.to_le_bytes());
        frame[4..HEAD].copy_from_slice(&crc.to_le_bytes());
        frame
    }

    fn put(&self, put: &mut Put) {
        match self {
            // These two are the same in every version.
            Message::Hello(hello) => {
                put.0.push(1);
                put.0.extend_from_slice(&MAGIC);
                put.u32(hello.protocol);
                put.u32(hello.format);
                put.u64(hello.session);
                put.0.extend_from_slice(&hello.stream);
                put.text(&hello.group);
                put.0.push((hello.commit == Commit::Disk).into());
                put.text(&hello.build);
                put.texts(&hello.features);
                put.text(&hello.program.path);
                put.0.extend_from_slice(&hello.program.hash);
            }
            Message::Refuse(why) => {
                put.0.push(2);
                put.text(why);
            }
            Message::Welcome { session, at, disk, last, remarks } => {
                put.0.push(3);
                put.u64(*session);
                put.place(*at);
                put.place(*disk);
                put.u32(*last);
                put.texts(&remarks[..remarks.len().min(REMARKS_MAX)]);
            }
            Message::Entry { session, at, bytes } => {
                put.0.push(4);
                put.u64(*session);
                put.place(*at);
                put.0.extend_from_slice(bytes);
            }
            Message::Beat { session, sent, at, end } => {
                put.0.push(5);
                put.u64(*session);
                put.u64(*sent);
                put.place(*at);
                put.place(*end);
            }
            Message::Ack { session, memory, disk, echo } => {
                put.0.push(6);
                put.u64(*session);
                put.place(*memory);
                put.place(*disk);
                put.u64(*echo);
            }
            Message::End { session, at } => {
                put.0.push(7);
                put.u64(*session);
                put.place(*at);
            }
            Message::Ended { session, at } => {
                put.0.push(8);
                put.u64(*session);
                put.place(*at);
            }
            Message::Obstacle { session, why } => {
                put.0.push(9);
                put.u64(*session);
                put.text(why);
            }
            Message::Wanted { session, number } => {
                put.0.push(10);
                put.u64(*session);
                put.u64(*number);
            }
        }
    }

    fn from_content(content: &[u8]) -> Result<Message, Fault> {
        let (kind, rest) = content.split_first().ok_or_else(|| Fault("an empty message".into()))?;
        if content.len() > SMALL_MAX && *kind != 4 {
            return Err(Fault(format!("{} bytes for a message of kind {kind}", content.len())));
        }
        let get = &mut Get(rest);
        let message = match kind {
            1 => {
                let hello = hello(get)?;
                if hello.protocol != crate::PROTOCOL {
                    // What follows is that version's own.
                    return Ok(Message::Hello(Box::new(hello)));
                }
                Message::Hello(Box::new(hello))
            }
            2 => Message::Refuse(get.text()?),
            3 => Message::Welcome {
                session: get.u64()?,
                at: get.place()?,
                disk: get.place()?,
                last: get.u32()?,
                remarks: get.texts(REMARKS_MAX)?,
            },
            4 => {
                let (session, at) = (get.u64()?, get.place()?);
                let bytes = std::mem::take(&mut get.0);
                if bytes.is_empty() || bytes.len() > ENTRY_MAX {
                    return Err(Fault(format!("an entry of {} bytes", bytes.len())));
                }
                Message::Entry { session, at, bytes: bytes.to_vec() }
            }
            5 => Message::Beat { session: get.u64()?, sent: get.u64()?, at: get.place()?, end: get.place()? },
            6 => Message::Ack {
                session: get.u64()?,
                memory: get.place()?,
                disk: get.place()?,
                echo: get.u64()?,
            },
            7 => Message::End { session: get.u64()?, at: get.place()? },
            8 => Message::Ended { session: get.u64()?, at: get.place()? },
            9 => Message::Obstacle { session: get.u64()?, why: get.text()? },
            10 => Message::Wanted { session: get.u64()?, number: get.u64()? },
            other => return Err(Fault(format!("a message of unknown kind {other}"))),
        };
        get.end()?;
        Ok(message)
    }
}

fn hello(get: &mut Get) -> Result<Hello, Fault> {
    if get.take(MAGIC.len())? != MAGIC {
        return Err(Fault("a peer that does not speak as a node does".into()));
    }
    let protocol = get.u32()?;
    if protocol != crate::PROTOCOL {
        return Ok(Hello { protocol, ..Hello::default() });
    }
    Ok(Hello {
        protocol,
        format: get.u32()?,
        session: get.u64()?,
        stream: get.array()?,
        group: get.text()?,
        commit: match get.array::<1>()? {
            [0] => Commit::Memory,
            [1] => Commit::Disk,
            [other] => return Err(Fault(format!("{other} is neither memory nor disk"))),
        },
        build: get.text()?,
        features: get.texts(LIST_MAX)?,
        program: Program { path: get.text()?, hash: get.array()? },
    })
}

/// Cuts what comes over a link into messages.
#[derive(Debug)]
pub struct Frames {
    bytes: Vec<u8>,
    at: usize,
    most: usize,
    fault: Option<Fault>,
}

impl Frames {
    /// Of a peer whose frames have at most `most` bytes of content.
    pub fn new(most: usize) -> Frames {
        Frames { bytes: Vec::new(), at: 0, most, fault: None }
    }

    /// From now on frames may have so many.
    pub fn allow(&mut self, most: usize) {
        self.most = most;
    }

    /// What has come. All messages are to be taken before the next bytes are given, which bounds what is kept.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..std::mem::take(&mut self.at));
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes of a message that is not whole yet.
    pub fn waiting(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next message, `None` while it is not whole.
    ///
    /// # Errors
    /// What is wrong with it. Nothing behind it can be believed: every further call says the same.
    pub fn next_message(&mut self) -> Result<Option<Message>, Fault> {
        if let Some(fault) = &self.fault {
            return Err(fault.clone());
        }
        let taken = self.take();
        if let Err(fault) = &taken {
            self.fault = Some(fault.clone());
            (self.bytes, self.at) = (Vec::new(), 0);
        }
        taken
    }

    fn take(&mut self) -> Result<Option<Message>, Fault> {
        let bytes = &self.bytes[self.at..];
        let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let length = word(0) as usize;
        if length > self.most {
            return Err(Fault(format!("a message of {length} bytes")));
        }
        let Some(content) = rest.get(..length) else { return Ok(None) };
        if crc32c::crc32c(content) != word(4) {
            return Err(Fault("the checksum of a message is wrong".into()));
        }
        let message = Message::from_content(content)?;
        self.at += HEAD + length;
        if self.at == self.bytes.len() {
            (self.bytes, self.at) = (Vec::new(), 0);
        }
        Ok(Some(message))
    }
}

//! What a recording holds, and how all of it but the events is written.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::bytes::{Fault, Get, Put};

/// What a replayer has to know before it starts the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// PROGRAM and its arguments, as `argv` has them.
    pub program: Vec<Vec<u8>>,
    /// The environment, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The file that was executed.
    pub executable: PathBuf,
    /// The working directory.
    pub directory: PathBuf,
    /// The file mode creation mask.
    pub umask: u32,
    /// What is mapped at the start: the program, its interpreter, its libraries.
    pub files: Vec<File>,
    /// What the processor can do, by the names of its features.
    pub cpu: Vec<String>,
    /// The kernel, as `uname` names it.
    pub kernel: String,
    /// Resource limits: number, soft, hard.
    pub limits: Vec<(u32, u64, u64)>,
    /// The start, nanoseconds since 1970.
    pub started_unix_ns: u64,
    /// Version of Understudy.
    pub understudy: String,
    /// Device and inode of standard input, output and error, where they were open.
    pub standard: [Option<(u64, u64)>; 3],
    /// What `run` was asked for besides, by name: it holds on another machine that takes over as well.
    pub asked: Vec<(String, u64)>,
}

/// A file that has to be the same at the replay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct File {
    /// Where it lay.
    pub path: PathBuf,
    /// Bytes.
    pub size: u64,
    /// Of its bytes; which hash is the recorder's choice.
    pub hash: [u8; 32],
    /// Its ELF build id, if it has one.
    pub build_id: Option<Vec<u8>>,
}

/// How a process image came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By the recorder: the program itself.
    Started = 0,
    /// By a fork.
    Forked = 1,
    /// By an exec.
    Executed = 2,
}

/// A process image: one more with each fork, and with each exec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its number: how many there were before it.
    pub number: u32,
    /// The number by which the process knows itself.
    pub pid: i32,
    /// The image that forked it or gave way to it.
    pub parent: Option<u32>,
    /// How it came to be.
    pub how: How,
    /// The replayer's own; means nothing here.
    pub facts: Vec<u8>,
}

/// A place between two chunks, and what stands before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Where the next chunk begins.
    pub offset: u64,
    /// Chunks before it.
    pub chunks: u64,
    /// Images before it.
    pub images: u32,
    /// Events before it.
    pub events: u64,
    /// Bytes of those, as they come back.
    pub bytes_raw: u64,
}

/// What a finished recording says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Complete {
    /// Images.
    pub images: u32,
    /// Events.
    pub events: u64,
    /// Their bytes, as they come back.
    pub bytes_raw: u64,
    /// From the first chunk to the last, nanoseconds.
    pub duration_ns: u64,
}

/// One thing that a reader finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A process image; before its first event.
    Image(Image),
    /// The next events of one thread slot.
    Events {
        /// Whose.
        image: u32,
        /// Which of its thread slots.
        slot: u16,
        /// Whole events, as they lay in the ring.
        bytes: Vec<u8>,
    },
    /// A process image is at its end; behind its last event.
    End {
        /// Whose.
        image: u32,
        /// As `wait` gives it.
        status: i32,
        /// The replayer's own.
        facts: Vec<u8>,
    },
    /// The recording is whole; behind everything.
    Complete(Complete),
}

fn path(bytes: &[u8]) -> PathBuf {
    OsStr::from_bytes(bytes).into()
}

fn of_path(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

fn words(bytes: &[u8]) -> Result<String, Fault> {
    String::from_utf8(bytes.into()).map_err(|_| "a text is not UTF-8".into())
}

impl Header {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut put = Put::default();
        put.list(&self.program, |put, word| put.text(word));
        put.list(&self.environment, |put, word| put.text(word));
        put.text(of_path(&self.executable));
        put.text(of_path(&self.directory));
        put.u32(self.umask);
        put.list(&self.files, |put, file| file.put(put));
        put.list(&self.cpu, |put, name| put.text(name.as_bytes()));
        put.text(self.kernel.as_bytes());
        put.list(&self.limits, |put, (number, soft, hard)| {
            put.u32(*number);
            put.u64(*soft);
            put.u64(*hard);
        });
        put.u64(self.started_unix_ns);
        put.text(self.understudy.as_bytes());
        for place in self.standard {
            put.u8(place.is_some().into());
            let (device, inode) = place.unwrap_or_default();
            put.u64(device);
            put.u64(inode);
        }
        put.list(&self.asked, |put, (name, figure)| {
            put.text(name.as_bytes());
            put.u64(*figure);
        });
        put.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Header, Fault> {
        let get = &mut Get(bytes);
        let header = Header {
            program: get.list(|get| get.text().map(Vec::from))?,
            environment: get.list(|get| get.text().map(Vec::from))?,
            executable: path(get.text()?),
            directory: path(get.text()?),
            umask: get.u32()?,
            files: get.list(File::get)?,
            cpu: get.list(|get| words(get.text()?))?,
            kernel: words(get.text()?)?,
            limits: get.list(|get| Ok((get.u32()?, get.u64()?, get.u64()?)))?,
            started_unix_ns: get.u64()?,
            understudy: words(get.text()?)?,
            standard: [place(get)?, place(get)?, place(get)?],
            asked: get.list(|get| Ok((words(get.text()?)?, get.u64()?)))?,
        };
        get.end()?;
        Ok(header)
    }
}

fn place(get: &mut Get) -> Result<Option<(u64, u64)>, Fault> {
    let (is_open, device, inode) = (get.u8()?, get.u64()?, get.u64()?);
    match is_open {
        0 => Ok(None),
        1 => Ok(Some((device, inode))),
        other => Err(format!("{other} is neither yes nor no")),
    }
}

impl File {
    fn put(&self, put: &mut Put) {
        put.text(of_path(&self.path));
        put.u64(self.size);
        put.0.extend_from_slice(&self.hash);
        put.u8(self.build_id.is_some().into());
        put.text(self.build_id.as_deref().unwrap_or_default());
    }

    fn get(get: &mut Get) -> Result<File, Fault> {
        Ok(File {
            path: path(get.text()?),
            size: get.u64()?,
            hash: get.take(32)?.try_into().expect("as many as were asked for"),
            build_id: match (get.u8()?, get.text()?) {
                (0, _) => None,
                (_, id) => Some(id.into()),
            },
        })
    }
}

impl Image {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut put = Put::default();
        put.u32(self.number);
        put.u32(self.pid as u32);
        put.u8(self.parent.is_some().into());
        put.u32(self.parent.unwrap_or_default());
        put.u8(self.how as u8);
        put.text(&self.facts);
        put.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Image, Fault> {
        let get = &mut Get(bytes);
        let (number, pid) = (get.u32()?, get.u32()? as i32);
        let (has_parent, parent) = (get.u8()? != 0, get.u32()?);
        let how = match get.u8()? {
            0 => How::Started,
            1 => How::Forked,
            2 => How::Executed,
            other => return Err(format!("an image came to be in a way unknown here, {other}")),
        };
        let parent = has_parent.then_some(parent);
        if parent.is_some_and(|parent| parent >= number) {
            return Err(format!("image {number} has an image for a parent that is not older"));
        }
        let facts = get.text()?.into();
        get.end()?;
        Ok(Image { number, pid, parent, how, facts })
    }
}

impl Complete {
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut put = Put::default();
        put.u32(self.images);
        put.u64(self.events);
        put.u64(self.bytes_raw);
        put.u64(self.duration_ns);
        put.0
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Complete, Fault> {
        let get = &mut Get(bytes);
        let complete = Complete {
            images: get.u32()?,
            events: get.u64()?,
            bytes_raw: get.u64()?,
            duration_ns: get.u64()?,
        };
        get.end()?;
        Ok(complete)
    }
}

pub(crate) fn end_to_bytes(image: u32, status: i32, facts: &[u8]) -> Vec<u8> {
    let mut put = Put::default();
    put.u32(image);
    put.u32(status as u32);
    put.text(facts);
    put.0
}

pub(crate) fn end_from_bytes(bytes: &[u8]) -> Result<Item, Fault> {
    let get = &mut Get(bytes);
    let (image, status, facts) = (get.u32()?, get.u32()? as i32, get.text()?.to_vec());
    get.end()?;
    Ok(Item::End { image, status, facts })
}

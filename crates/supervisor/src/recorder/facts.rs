//! What a recording knows of an image, in its own words: the payload of the runtime's first events.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use us_abi::{ENV_PRELOAD, ENV_SEGMENT, ImageHead, Inherited, how};

/// An image's facts, read.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The number that it knows itself by.
    pub pid: u32,
    /// The configuration's flags.
    pub flags: u32,
    /// Identities of standard input, output and error, 0 where they were closed.
    pub standard: [u64; 3],
    /// The file that was executed, as it was named.
    pub name: CString,
    /// The file itself.
    pub executable: CString,
    /// The folder it began in.
    pub directory: CString,
    /// Its arguments.
    pub arguments: Vec<CString>,
    /// Its environment, with the runtime's own variables.
    pub environment: Vec<CString>,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn double(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Number, parent's number and manner of an image.
pub fn head(bytes: &[u8]) -> Option<(u32, u32, u32)> {
    let [pid, parent, how] = [
        std::mem::offset_of!(ImageHead, pid),
        std::mem::offset_of!(ImageHead, parent),
        std::mem::offset_of!(ImageHead, how),
    ]
    .map(|at| word(bytes, at));
    (bytes.len() >= size_of::<ImageHead>()).then_some((pid?, parent?, how?))
}

impl Facts {
    /// Reads them; `None` if they are not whole.
    pub fn read(bytes: &[u8]) -> Option<Facts> {
        let (pid, _, how) = head(bytes)?;
        let count = |at| Some(word(bytes, at)? as usize);
        let descriptors = count(std::mem::offset_of!(ImageHead, descriptors))?;
        let arguments = count(std::mem::offset_of!(ImageHead, arguments))?;
        let variables = count(std::mem::offset_of!(ImageHead, variables))?;
        let flags = word(bytes, std::mem::offset_of!(ImageHead, flags))?;
        let inherited = bytes.get(size_of::<ImageHead>()..)?;
        let strings = inherited.get(descriptors.checked_mul(size_of::<Inherited>())?..)?;
        let mut standard = [0; 3];
        for entry in inherited.chunks_exact(size_of::<Inherited>()).take(descriptors) {
            let fd = word(entry, std::mem::offset_of!(Inherited, fd))? as usize;
            if let Some(place) = standard.get_mut(fd) {
                *place = double(entry, std::mem::offset_of!(Inherited, identity))?;
            }
        }
        let mut strings = strings.split_inclusive(|byte| *byte == 0);
        let mut next = || CString::from_vec_with_nul(strings.next()?.to_vec()).ok();
        let mut facts = Facts {
            pid,
            flags,
            standard,
            name: CString::default(),
            executable: CString::default(),
            directory: CString::default(),
            arguments: Vec::new(),
            environment: Vec::new(),
        };
        if how != how::FORKED {
            (facts.name, facts.executable, facts.directory) = (next()?, next()?, next()?);
            for _ in 0..arguments {
                facts.arguments.push(next()?);
            }
            for _ in 0..variables {
                facts.environment.push(next()?);
            }
        }
        Some(facts)
    }

    /// The environment for a replay: the same strings, of the same lengths, but for where library and segment lie.
    ///
    /// # Errors
    /// A sentence, if one of the paths here is longer than the recording's.
    pub fn environment_here(&self, library: &Path, segment: &Path) -> Result<Vec<CString>, String> {
        let before = self.environment.iter().find_map(|text| value(text, ENV_PRELOAD));
        let fit = |name: &str, before: &[u8], path: &Path, bytes: usize| {
            let wanted = bytes.checked_sub(name.len() + 1 + before.len());
            let wanted = wanted.filter(|wanted| *wanted >= path.as_os_str().len());
            let wanted = wanted.ok_or_else(|| {
                format!("{} is longer than the path that the recording had for it", path.display())
            })?;
            let path = super::padded(path, wanted);
            let text = [name.as_bytes(), b"=", before, path.as_os_str().as_bytes()].concat();
            CString::new(text).map_err(|_| "a path holds a zero byte".to_owned())
        };
        let each = self.environment.iter().map(|text| {
            let bytes = text.as_bytes().len();
            if value(text, ENV_SEGMENT).is_some() {
                fit(ENV_SEGMENT, b"", segment, bytes)
            } else if value(text, "LD_PRELOAD").is_some() {
                // The runtime had put back, in place, what stood there before: the length is that of both.
                match before {
                    Some(before) => {
                        let before = [before, b":"].concat();
                        let bytes = "LD_PRELOAD=".len() + before.len() + super::record::LIBRARY_BYTES;
                        fit("LD_PRELOAD", &before, library, bytes)
                    }
                    None => fit("LD_PRELOAD", b"", library, bytes),
                }
            } else {
                Ok(text.clone())
            }
        });
        each.collect()
    }
}

fn value<'a>(text: &'a CString, name: &str) -> Option<&'a [u8]> {
    text.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")
}

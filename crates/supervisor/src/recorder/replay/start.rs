//! Starting what a start or an exec had made, as it was made.

use std::ffi::{CString, OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use super::{Debugger, Replay};
use crate::error::Error;
use crate::proc;
use crate::recorder::facts::Facts;
use crate::recorder::feed::Fed;
use crate::spawn::{self, Layout, Start};

impl Replay<'_> {
    pub(super) fn start(&mut self, fed: &mut Fed, facts: &Facts) -> Result<(), Error> {
        let environment = facts.environment_here(&self.library, &fed.path);
        let environment = environment.map_err(|why| self.refuse(&why))?;
        let environment: Vec<OsString> =
            environment.into_iter().map(|text| OsString::from_vec(text.into_bytes())).collect();
        let (executable, directory) = self.way_to(facts)?;
        let executable = executable.as_path();
        let arguments: Vec<OsString> =
            facts.arguments.iter().map(|text| OsStr::from_bytes(text.as_bytes()).into()).collect();
        let debugged = self.debugger.is_none() && self.order.debugger != Debugger::None;
        fed.rings.segment.header().hold.store(u32::from(debugged), Ordering::Release);
        let start = Start {
            path: executable,
            command: &as_given(executable, arguments),
            environment: &environment,
            layout: Some(&Layout { directory: Some(directory), ..self.layout.clone() }),
            cpus: None,
            mask: &self.signals.previous,
        };
        let pid = spawn::start(&start, &fed.rings.segment, None)?;
        fed.child = Some(pid);
        if debugged {
            self.attach(pid, None, fed)?;
        }
        Ok(())
    }

    /// A path for exec that is as long as the name that the program was executed by, and the folder to start in. The name
    /// itself may mean something else here: `/proc/self/exe`, or one in a folder that is gone.
    fn way_to(&self, facts: &Facts) -> Result<(PathBuf, CString), Error> {
        let path = |text: &CString| PathBuf::from(OsStr::from_bytes(text.as_bytes()));
        let (name, file) = (path(&facts.name), path(&facts.executable));
        let meant = path(&facts.directory).join(&name);
        let is_it = |meant: &Path| {
            let is_script = std::fs::File::open(meant).is_ok_and(|mut opened| {
                let mut head = [0u8; 2];
                std::io::Read::read_exact(&mut opened, &mut head).is_ok() && &head == b"#!"
            });
            !proc::is_below(meant) && (is_script || meant.canonicalize().is_ok_and(|real| real == file))
        };
        if is_it(&meant) {
            return Ok((name, facts.directory.clone()));
        }
        // By a link in our folder: `./` and as many letters as it takes.
        let letters = name.as_os_str().len().checked_sub(2).filter(|letters| *letters > 0);
        let letters = letters.ok_or_else(|| self.refuse(&format!("{} was not found", meant.display())))?;
        let link = "x".repeat(letters.min(255));
        let _ = self.dir.remove(&link);
        self.dir.link(&file, &link).map_err(|cause| Error::file("make", self.dir.at(&link), cause))?;
        let folder = CString::new(self.path.as_os_str().as_bytes()).unwrap_or_default();
        Ok((Path::new(".").join(link), folder))
    }
}

/// The arguments to give to an exec of `executable` so that the image gets `arguments`: of a script the kernel puts the
/// interpreter and the script's path in front.
fn as_given(executable: &Path, arguments: Vec<OsString>) -> Vec<OsString> {
    let head = std::fs::read(executable).ok().filter(|bytes| bytes.starts_with(b"#!"));
    let Some(line) = head.as_deref().and_then(|bytes| bytes[2..].split(|byte| *byte == b'\n').next()) else {
        return arguments;
    };
    let words = String::from_utf8_lossy(line).trim().splitn(2, char::is_whitespace).count();
    let rest = arguments.into_iter().skip(words + 1);
    std::iter::once(executable.into()).chain(rest).collect()
}

//! The debugger that looks on: gdb, gdbserver, or whoever asked for a process that is held.

use std::ffi::OsString;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use us_abi::{SEGMENT_ADDRESS, SegmentHeader, THREAD_ENTRY_BYTES, THREADS_OFFSET, ThreadEntry};

use super::{Order, Replay};
use crate::error::Error;
use crate::recorder::feed::Fed;
use crate::{proc, segment, spawn};

/// How a debugger comes in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Debugger {
    /// None.
    None,
    /// gdb on this terminal, with further arguments.
    Gdb(Vec<OsString>),
    /// gdbserver on this port.
    Port(u16),
    /// The caller's own: the process's number is written to this file, and it goes on once it is traced. It ends with the caller.
    Held(PathBuf),
}

/// One that is there.
pub(super) enum Onlooker {
    /// Started by us.
    Own(Child),
    /// The caller, with whom we end.
    Caller,
}

impl Onlooker {
    /// Whether it is this child of ours.
    pub(super) fn is_child(&self, pid: u32) -> bool {
        matches!(self, Onlooker::Own(child) if child.id() == pid)
    }

    /// Whether it still looks.
    pub(super) fn is_there(&mut self) -> bool {
        match self {
            Onlooker::Own(child) => matches!(child.try_wait(), Ok(None)),
            Onlooker::Caller => true,
        }
    }

    /// Waits for its end. `at_once`: it has nothing left to look at, and nobody may be there to say so to it.
    pub(super) fn end(&mut self, at_once: bool) {
        if let Onlooker::Own(child) = self {
            if at_once {
                let _ = child.kill();
            }
            let _ = child.wait();
        }
    }
}

/// What gdb is taught at its start: to go backwards.
const BACKWARDS: &str = include_str!("backwards.py");
const SCRIPT: &str = "backwards.py";

/// How long a caller may take to look, once it has been told the number.
const CALLER_COMES: Duration = Duration::from_secs(30);

impl Replay<'_> {
    /// Has a debugger look at a process that is held, and lets it go on. The kernel may not tell which program it is: then `executable`
    /// does.
    pub(super) fn attach(&mut self, pid: u32, executable: Option<&str>, fed: &Fed) -> Result<(), Error> {
        let onlooker = match &self.order.debugger {
            Debugger::None => return Ok(()),
            Debugger::Gdb(arguments) => {
                let mut gdb = Command::new("gdb");
                // The runtime's own signal, and its text, are not the program's.
                gdb.args(["-q", "-iex", "set pagination off"]).args(executable);
                gdb.args(["-p", &pid.to_string()]);
                gdb.args(["-ex", "handle SIGSYS nostop noprint pass"]);
                gdb.arg("-ex").arg(self.teach_backwards()?).args(arguments);
                self.start_debugger(gdb)?
            }
            Debugger::Port(port) => {
                let mut server = Command::new("gdbserver");
                server.args(["--attach", &format!(":{port}"), &pid.to_string()]);
                self.start_debugger(server)?
            }
            Debugger::Held(to) => {
                let asked =
                    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
                asked.map_err(|cause| Error::system("end with the caller", cause))?;
                std::fs::write(to, format!("{pid}\n")).map_err(|cause| Error::file("write", to, cause))?;
                Onlooker::Caller
            }
        };
        let onlooker = self.debugger.insert(onlooker);
        let begun = Instant::now();
        // Held in the runtime's constructor until the debugger has it: nothing of the program's own has run.
        while proc::read(pid).is_some_and(|process| process.state != 't') {
            let is_late = matches!(onlooker, Onlooker::Caller) && begun.elapsed() > CALLER_COMES;
            if is_late || !onlooker.is_there() {
                break;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let hold = &fed.rings.segment.header().hold;
        hold.store(0, Ordering::Release);
        segment::wake(hold);
        Ok(())
    }

    fn start_debugger(&self, mut command: Command) -> Result<Onlooker, Error> {
        let name = command.get_program().to_string_lossy().into_owned();
        let started = spawn::with_mask(&mut command, &self.signals).spawn();
        started.map(Onlooker::Own).map_err(|cause| match cause.kind() {
            std::io::ErrorKind::NotFound => Error::Refused(format!("{name} is not installed")),
            _ => Error::system("start the debugger", cause),
        })
    }

    /// Writes what gdb is to read for `reverse-continue`, and gives the command that reads it. A gdb without Python does without.
    fn teach_backwards(&self) -> Result<OsString, Error> {
        let own = std::env::current_exe().map_err(|cause| Error::system("find this program", cause))?;
        let text = BACKWARDS.replace("@GIVEN@", &given(&own, self.order).to_string());
        let path = self.path.join(SCRIPT);
        self.dir.replace(SCRIPT, text.as_bytes()).map_err(|cause| Error::file("write", &path, cause))?;
        let mut command = OsString::from("source ");
        command.push(&path);
        Ok(command)
    }
}

/// What the script needs to know: how to begin again, and where a thread's place in the log stands.
fn given(own: &Path, order: &Order) -> serde_json::Value {
    let file = order.file.canonicalize().unwrap_or_else(|_| order.file.clone());
    let mut command = vec![lossless(own), "replay".into()];
    let mut option = |name: &str, value: Option<u64>| {
        if let Some(value) = value {
            command.extend([name.to_owned(), value.to_string()]);
        }
    };
    option("--from", order.from);
    option("--until", order.until);
    if order.force {
        command.push("--force".into());
    }
    command.push(lossless(&file));
    serde_json::json!({
        "command": command,
        "slots": SEGMENT_ADDRESS + offset_of!(SegmentHeader, slots),
        "entries": SEGMENT_ADDRESS + THREADS_OFFSET,
        "entry_bytes": THREAD_ENTRY_BYTES,
        "tid": offset_of!(ThreadEntry, standby_tid),
        "counts": offset_of!(ThreadEntry, begun),
        "counts_end": offset_of!(ThreadEntry, changes),
    })
}

/// A path as Python decodes it: bytes that are no UTF-8 as lone surrogates cannot be said in JSON, so such a name does not work
/// backwards.
fn lossless(path: &Path) -> String {
    String::from_utf8_lossy(path.as_os_str().as_bytes()).into_owned()
}

//! What explains a divergence: what the log has, what the copy did, and where both copies stood.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::symbols::{Name, Names, plain};
use crate::unwind::Step;

/// Libraries that programs call, not those that they are written in: the function that races is their caller.
const BELOW: [&str; 9] = [
    "libunderstudy.so",
    "libc.so",
    "libc-",
    "ld-linux",
    "libpthread",
    "libgcc_s",
    "libstdc++",
    "libm.so",
    "[vdso]",
];

/// What explains a divergence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// The thread's name, as `ps -L` shows it.
    pub thread_name: String,
    /// What the log has there.
    pub log: String,
    /// What the copy did.
    pub copy: String,
    /// The function of the program in which the copy was: the innermost that is not of the C library or the runtime.
    pub function: String,
    /// The name of the file with that function.
    pub library: String,
    /// Whether the threads took turns.
    pub turns: bool,
    /// Events that the primary's thread had logged behind that place when its stack was read; 0: it was in that very call.
    pub primary_ahead: Option<u64>,
    /// Where the copy's thread stood.
    pub standby: Stack,
    /// Where the primary's thread stood a moment later.
    pub primary: Stack,
}

/// The functions on a thread's stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The innermost first.
    pub frames: Vec<Frame>,
    /// Why there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
}

/// One function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Its name; `None` where the file has no names.
    pub function: Option<String>,
    /// How far from its beginning, bytes.
    pub offset: u64,
    /// Where the file has its beginning: with the file's name it stands for a function without one.
    pub start: u64,
    /// Name of the file; empty for code that is in none.
    pub library: String,
}

impl Frame {
    /// The function in words: its name, or its place where it has none.
    pub fn words(&self) -> String {
        match &self.function {
            Some(name) => name.clone(),
            None if self.library.is_empty() => format!("{:#x}", self.start),
            None => format!("{}+{:#x}", self.library, self.start),
        }
    }

    /// Whether its file is one of those that the program's own functions call.
    pub fn is_below(&self) -> bool {
        BELOW.iter().any(|name| self.library.starts_with(name))
    }
}

impl Stack {
    /// There is none, for this reason.
    pub fn missing(why: &str) -> Stack {
        Stack { frames: Vec::new(), missing: Some(why.into()) }
    }

    /// With the names that their files have for them.
    pub(crate) fn named(steps: &[Step], files: &mut Option<Names>) -> Stack {
        let steps = without_ours(steps);
        let mut of_file: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (at, step) in steps.iter().enumerate() {
            of_file.entry(&step.path).or_default().push(looked_up(step, at));
        }
        let mut names: BTreeMap<(&str, u64), Name> = BTreeMap::new();
        for (path, addresses) in of_file.iter().filter(|(path, _)| path.starts_with('/')) {
            let Some(files) = files else { break };
            for (address, name) in addresses.iter().zip(files.look_up(path, addresses)) {
                names.insert((path, *address), name);
            }
        }
        let frame = |(at, step)| {
            let step: &Step = step;
            let name = names.get(&(step.path.as_str(), looked_up(step, at))).cloned().flatten();
            // A name of another function that the table of names has before it is none.
            let name = name.filter(|(_, start)| step.function.is_none_or(|function| *start >= function));
            let start = name.as_ref().map(|(_, start)| *start).or(step.function).unwrap_or(step.in_file);
            Frame {
                function: name.map(|(name, _)| name),
                offset: step.in_file.wrapping_sub(start),
                start,
                library: plain(step.path.rsplit('/').next().unwrap_or_default().as_bytes()),
            }
        };
        Stack { frames: steps.iter().enumerate().map(frame).collect(), missing: None }
    }

    /// The innermost function of the program itself.
    pub fn own(&self) -> Option<&Frame> {
        let is_ours = |frame: &&Frame| !frame.library.starts_with(BELOW[0]);
        self.frames.iter().find(|frame| !frame.is_below()).or_else(|| self.frames.iter().find(is_ours))
    }
}

/// Without the runtime's own functions, in which every thread stands that waits: what the program called stands below.
fn without_ours(steps: &[Step]) -> &[Step] {
    let is_ours = |step: &Step| step.path.rsplit('/').next().is_some_and(|name| name.starts_with(BELOW[0]));
    let first = steps.iter().position(|step| !is_ours(step)).unwrap_or(0);
    &steps[first..]
}

/// A return address is behind the call, which may be the function's last instruction.
fn looked_up(step: &Step, at: usize) -> u64 {
    step.in_file.wrapping_sub(u64::from(at > 0))
}

impl Explanation {
    /// Keeps the place alone.
    pub fn forget_stacks(&mut self) {
        const WHY: &str = "only the stacks of the last divergences are kept";
        (self.standby, self.primary) = (Stack::missing(WHY), Stack::missing(WHY));
    }

    /// Takes the function from the stacks.
    pub fn name_place(&mut self) {
        if let Some(frame) = self.standby.own().or_else(|| self.primary.own()) {
            (self.function, self.library) = (frame.words(), frame.library.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: Option<&str>, library: &str) -> Frame {
        Frame { function: function.map(Into::into), offset: 4, start: 0x1230, library: library.into() }
    }

    fn place(explained: &mut Explanation) -> (&str, &str) {
        explained.name_place();
        (&explained.function, &explained.library)
    }

    #[test]
    fn the_programs_own_function_is_named() {
        let mut explained = Explanation::default();
        assert_eq!(place(&mut explained), ("", ""));
        let below = [frame(Some("us_enter"), "libunderstudy.so"), frame(Some("usleep"), "libc.so.6")];
        explained.standby.frames = below.to_vec();
        assert_eq!(place(&mut explained), ("usleep", "libc.so.6"));
        explained.standby.frames.push(frame(Some("tick"), "server"));
        explained.standby.frames.push(frame(Some("main"), "server"));
        assert_eq!(place(&mut explained), ("tick", "server"));
        explained.standby.frames[2] = frame(None, "server");
        assert_eq!(place(&mut explained), ("server+0x1230", "server"));
        explained.standby.frames[2] = frame(None, "");
        assert_eq!(place(&mut explained), ("0x1230", ""));
    }

    #[test]
    fn the_primarys_stack_does_where_the_copy_has_none() {
        let mut explained = Explanation { standby: Stack::missing("gone"), ..Explanation::default() };
        explained.primary.frames = vec![frame(Some("tick"), "server")];
        assert_eq!(place(&mut explained), ("tick", "server"));
    }

    #[test]
    fn places_of_code_in_files_that_are_gone_and_in_none() {
        let step =
            |path: &str| Step { address: 0x5010, in_file: 0x1010, function: Some(0x1000), path: path.into() };
        let steps = [step("/nowhere/libunderstudy.so"), step("/nowhere/gone"), step("")];
        let stack = Stack::named(&steps, &mut Names::of(std::process::id()));
        let frame =
            |library: &str| Frame { function: None, offset: 0x10, start: 0x1000, library: library.into() };
        assert_eq!(stack.frames, [frame("gone"), frame("")]);
        assert_eq!(Stack::named(&steps, &mut None), stack);
    }
}

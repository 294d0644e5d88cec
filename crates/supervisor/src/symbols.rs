//! Names of functions, from the files that a process has mapped.
//!
//! A program may change its files, and is not believed: they are opened below the folder that its paths begin at, looked at
//! before they are read, read piece by piece up to a limit, and never mapped.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use us_sites::elf::{self, Function, Section};

use crate::proc;

/// Bytes of one section that are read, at most.
const SECTION_MAX: u64 = 64 << 20;

/// Bytes of a name that are kept, at most. Those of templates may be longer than anybody reads.
const NAME_MAX: usize = 256;

/// Where distributions put what they have taken out of a program, by its build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";

/// The name of the function at an address of a file, and where it begins.
pub type Name = Option<(String, u64)>;

/// Where names are looked for.
#[derive(Debug)]
pub struct Names {
    root: OwnedFd,
    /// Bytes that may still be read.
    left: u64,
}

impl Names {
    /// In the files that lie below the root of the process `pid`.
    pub fn of(pid: u32) -> Option<Names> {
        Names::below(proc::path(pid, "root"))
    }

    fn below(root: impl AsRef<Path>) -> Option<Names> {
        const BYTES_MAX: u64 = 256 << 20;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Some(Names { root: rustix::fs::open(root.as_ref(), flags, Mode::empty()).ok()?, left: BYTES_MAX })
    }

    /// The names for each of `addresses`, as the file at `path` counts them.
    pub fn look_up(&mut self, path: &str, addresses: &[u64]) -> Vec<Name> {
        let mut found = vec![None; addresses.len()];
        let Some(file) = self.open(path) else { return found };
        self.fill(&file, addresses, &mut found);
        if found.iter().any(Option::is_none)
            && let Some(debug) = self.debug_file(&file)
        {
            self.fill(&debug, addresses, &mut found);
        }
        found
    }

    /// Opens a regular file. What it is, is known before: to open a device may do something, and nothing is waited for.
    fn open(&self, path: &str) -> Option<File> {
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let found = rustix::fs::openat2(self.root.as_fd(), path, flags, Mode::empty(), resolve).ok()?;
        let mode = rustix::fs::fstat(&found).ok()?.st_mode;
        if FileType::from_raw_mode(mode) != FileType::RegularFile {
            return None;
        }
        File::open(proc::descriptor("self", found.as_raw_fd())).ok()
    }

    /// What was taken out of the file when it was packed, if that is installed.
    fn debug_file(&self, file: &File) -> Option<File> {
        const HEAD: usize = 4096;
        let mut head = vec![0; HEAD];
        let read = file.read_at(&mut head, 0).ok()?;
        let id: String = elf::build_id(&head[..read])?.iter().map(|byte| format!("{byte:02x}")).collect();
        let (folder, name) = id.split_at_checked(2)?;
        self.open(&format!("{DEBUG_FILES}/{folder}/{name}.debug"))
    }

    /// Puts into `found` what the file's tables of symbols say: the first of each kind.
    fn fill(&mut self, file: &File, addresses: &[u64], found: &mut [Name]) {
        let Some(table) = self.sections(file) else { return };
        for kind in [elf::SYMBOLS, elf::DYNAMIC_SYMBOLS] {
            let Some(section) = elf::sections(&table).find(|section| section.kind == kind) else { continue };
            let Some(symbols) = self.read(file, section.offset, section.len) else { continue };
            let Some(names) = elf::sections(&table).nth(section.link as usize) else { continue };
            let mut best: Vec<Option<Function>> = vec![None; addresses.len()];
            for function in elf::functions(&symbols) {
                for (best, address) in best.iter_mut().zip(addresses) {
                    let end = function.addr.saturating_add(function.len.max(1));
                    let is_in = (function.addr..end).contains(address);
                    if is_in && best.is_none_or(|best| best.addr < function.addr) {
                        *best = Some(function);
                    }
                }
            }
            for (found, function) in found.iter_mut().zip(best) {
                if let (None, Some(function)) = (&found, function) {
                    *found = name(file, &names, function.name).map(|name| (name, function.addr));
                }
            }
        }
    }

    fn sections(&mut self, file: &File) -> Option<Vec<u8>> {
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        let (offset, count) = elf::sections_at(&head)?;
        self.read(file, offset, (count * elf::SECTION_BYTES) as u64)
    }

    fn read(&mut self, file: &File, offset: u64, bytes: u64) -> Option<Vec<u8>> {
        let end = offset.checked_add(bytes)?;
        if bytes > SECTION_MAX || end > file.metadata().ok()?.len() {
            return None;
        }
        self.left = self.left.checked_sub(bytes)?;
        let mut buffer = vec![0; usize::try_from(bytes).ok()?];
        file.read_exact_at(&mut buffer, offset).ok()?;
        Some(buffer)
    }
}

/// The name at an offset of a section, with nothing in it that acts on whoever shows it.
fn name(file: &File, names: &Section, at: u32) -> Option<String> {
    let left = names.len.checked_sub(u64::from(at))?;
    let mut bytes = vec![0; NAME_MAX.min(usize::try_from(left).ok()?)];
    let read = file.read_at(&mut bytes, names.offset.checked_add(u64::from(at))?).ok()?;
    let name = bytes[..read].split(|byte| *byte == 0).next().filter(|name| !name.is_empty())?;
    Some(plain(name))
}

/// A name that others have chosen, without what no name has.
pub fn plain(name: &[u8]) -> String {
    let is_plain = |letter: char| !letter.is_control() && letter != char::REPLACEMENT_CHARACTER;
    let all = String::from_utf8_lossy(name);
    all.chars().take(NAME_MAX).map(|letter| if is_plain(letter) { letter } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_this_program_and_of_libc() {
        let own = names_of_this_program_and_of_libc as *const () as u64;
        let exe = std::env::current_exe().unwrap();
        let maps = proc::bytes("self", "maps").unwrap();
        let is_own = |path: &[u8]| path == exe.to_str().unwrap().as_bytes();
        let start = proc::text::mappings(&maps).find(|(_, path)| is_own(path)).unwrap().0.start;
        let found = Names::below("/").unwrap().look_up(exe.to_str().unwrap(), &[own - start, 1]);
        let (name, at) = found[0].clone().unwrap();
        assert!(name.contains("names_of_this_program_and_of_libc"), "{name}");
        assert_eq!((at, &found[1]), (own - start, &None));
    }

    #[test]
    fn a_program_without_names_has_them_in_a_file_of_its_own() {
        let root = tempfile::tempdir().unwrap();
        let at = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("p.c"), "int tick(int a) { return a + 1; } int main(void) { return tick(1); }")
            .unwrap();
        let run = |command: &str, arguments: &[&str]| {
            assert!(std::process::Command::new(command).args(arguments).status().unwrap().success());
        };
        run("cc", &["-O0", "-g", "-no-pie", "-Wl,--build-id", "-o", &at("p"), &at("p.c")]);
        let head = std::fs::read(at("p")).unwrap();
        let id: String = elf::build_id(&head).unwrap().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut files = Names::below(root.path().to_str().unwrap()).unwrap();
        let file = files.open("/p").unwrap();
        let table = files.sections(&file).unwrap();
        let symbols = elf::sections(&table).find(|section| section.kind == elf::SYMBOLS).unwrap();
        let bytes = files.read(&file, symbols.offset, symbols.len).unwrap();
        let names = elf::sections(&table).nth(symbols.link as usize).unwrap();
        let is_tick =
            |function: &Function| name(&file, &names, function.name).is_some_and(|name| name == "tick");
        let address = elf::functions(&bytes).find(is_tick).unwrap().addr;
        let wanted = Some(("tick".to_owned(), address));
        assert_eq!(files.look_up("/p", &[address + 3])[0], wanted);
        let folder = root.path().join(&DEBUG_FILES[1..]).join(&id[..2]);
        std::fs::create_dir_all(&folder).unwrap();
        let debug = folder.join(format!("{}.debug", &id[2..]));
        run("objcopy", &["--only-keep-debug", &at("p"), debug.to_str().unwrap()]);
        run("strip", &[&at("p")]);
        assert_eq!(files.look_up("/p", &[address + 3]), [wanted]);
        std::fs::remove_file(debug).unwrap();
        assert_eq!(files.look_up("/p", &[address + 3]), [None]);
    }

    #[test]
    fn what_is_no_program_has_no_names() {
        let mut files = Names::below("/").unwrap();
        assert_eq!(files.look_up(&proc::own("stat"), &[1]), [None]);
        assert_eq!(files.look_up("/dev/null", &[1]), [None]);
        assert_eq!(files.look_up("/nowhere/at/all", &[1, 2]), [None, None]);
        assert!(Names::below("/nowhere").is_none());
    }

    #[test]
    fn no_path_leads_out_of_the_root() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/bin/sh", root.path().join("link")).unwrap();
        std::os::unix::fs::symlink("../../../../../bin/sh", root.path().join("up")).unwrap();
        let files = Names::below(root.path().to_str().unwrap()).unwrap();
        for path in ["/link", "/up", "/../../../../bin/sh"] {
            assert!(files.open(path).is_none(), "{path}");
        }
    }

    #[test]
    fn damaged_files_have_fewer_names_and_no_more_is_read_than_may_be() {
        let root = tempfile::tempdir().unwrap();
        let mut bytes = std::fs::read("/bin/sh").unwrap();
        let mut files = Names::below(root.path().to_str().unwrap()).unwrap();
        // Any of the header's bytes, and any of the table of sections.
        let table = usize::try_from(elf::sections_at(&bytes).unwrap().0).unwrap();
        for at in (0..64).chain((table..(table + 4096).min(bytes.len())).step_by(13)) {
            let was = bytes[at];
            for other in [0, 0x7f, 0xff] {
                bytes[at] = other;
                std::fs::write(root.path().join("p"), &bytes).unwrap();
                let _ = files.look_up("/p", &[0x4000, u64::MAX]);
                files.left = 16 << 20;
            }
            bytes[at] = was;
        }
        std::fs::write(root.path().join("p"), &bytes).unwrap();
        files.left = 100;
        assert_eq!(files.look_up("/p", &[0x4000]), [None]);
        assert!(files.left <= 100);
    }

    #[test]
    fn names_act_on_nobody() {
        assert_eq!(plain(b"\x1b[2Jevil\xff\n"), "?[2Jevil??");
        assert_eq!(plain(&[b'a'; 1000]).len(), NAME_MAX);
    }
}

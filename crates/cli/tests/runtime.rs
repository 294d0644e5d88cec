//! The same promises with the real runtime: `$UNDERSTUDY_LIB`, or `libunderstudy.so` beside the binary. Without
//! one the tests say so and check nothing.

mod common;

use std::path::{Path, PathBuf};

use common::{Sandbox, built, kill, pid, text};
use rustix::process::Signal;

fn library(test: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_BIN_EXE_understudy")).with_file_name("libunderstudy.so");
    let path = std::env::var_os("UNDERSTUDY_LIB").map_or(beside, PathBuf::from);
    if !path.is_file() {
        eprintln!("{test} skipped: {} does not exist; build the runtime first", path.display());
    }
    path.canonicalize().ok()
}

#[test]
fn exit_codes() {
    let Some(library) = library("exit_codes") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let guest = built().guest.to_str().unwrap();
    for (arguments, code) in [(["exit", "0"], 0), (["exit", "3"], 3), (["die", "15"], 143)] {
        let out = sandbox.output(&["run", guest, arguments[0], arguments[1]]);
        assert_eq!(out.status.code(), Some(code), "{}", text(&out.stderr));
    }
    sandbox.assert_clean();
}

#[test]
fn the_program_does_not_see_how_it_was_started() {
    let Some(library) = library("the_program_does_not_see_how_it_was_started") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let out = sandbox.understudy(&["run", "env"]).env_remove("LD_PRELOAD").output().unwrap();
    let environment = text(&out.stdout);
    assert!(!environment.is_empty());
    for hidden in ["LD_PRELOAD=", "UNDERSTUDY_SEGMENT=", "UNDERSTUDY_PRELOAD="] {
        assert!(!environment.contains(hidden), "{environment}");
    }
}

#[test]
fn a_killed_primary_is_replaced() {
    let Some(library) = library("a_killed_primary_is_replaced") else { return };
    let sandbox = Sandbox::with_library(&library, "");
    let mut running = sandbox.start("g", &["wait"]);
    let protected = sandbox.wait_for_event("protected");
    kill(pid(&protected["primary"]), Signal::KILL);
    assert_eq!(sandbox.wait_for_event("promoted")["reason"], "killed by SIGKILL");
    kill(running.child.id(), Signal::TERM);
    running.wait_for_output("signal 15\n");
    assert_eq!(running.finish().0, Some(7));
    sandbox.assert_clean();
}

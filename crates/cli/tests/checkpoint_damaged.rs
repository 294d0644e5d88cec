//! A checkpoint that is cut, damaged, or of a machine that differs: each is refused with its reason, and nothing goes on.
//!
//! `DAMAGES` is how many are cut and how many have a wrong bit; without it there are few, for `make test`.

mod common;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Output;

use checkpoint::{Head, Reader, Writer};
use common::{Sandbox, runtime, text};

/// Bytes in front of the head's chunk, of which the last are how long that is, and a checksum.
const FRONT: usize = checkpoint::MARK.len() + 4 + 16;

/// What ends with its input, and says so: two processes, a pipe's end and a script's file.
const PROGRAM: &str = "#!/bin/sh\necho ready\ncat\necho went on\n";

/// A checkpoint of [`PROGRAM`], from which it can go on.
struct Taken {
    sandbox: Sandbox,
    bytes: Vec<u8>,
}

impl Taken {
    /// Takes it; `None`, with a reason, where there is no runtime.
    fn new(test: &str) -> Option<Taken> {
        let sandbox = Sandbox::with_library(&runtime(test)?, "");
        let path = |name: &str| sandbox.folder.path().join(name);
        let (program, file) = (path("program"), path("file"));
        std::fs::write(&program, PROGRAM).unwrap();
        std::fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let mut running = sandbox.start_program(&[], "g", &program);
        sandbox.wait_for_event("protected");
        let done = sandbox.output(&["checkpoint", "g", "-o", file.to_str().unwrap()]);
        assert!(done.status.success(), "{}", text(&done.stderr));
        drop(running.child.stdin.take());
        running.finish();
        let taken = Taken { bytes: std::fs::read(file).unwrap(), sandbox };
        let whole = taken.go_on(&taken.bytes);
        assert_eq!(text(&whole.stdout), "went on\n", "{}", text(&whole.stderr));
        Some(taken)
    }

    /// What becomes of a program that goes on from these bytes. Its input is at its end.
    fn go_on(&self, bytes: &[u8]) -> Output {
        let file = self.sandbox.folder.path().join("again");
        std::fs::write(&file, bytes).unwrap();
        self.sandbox.output(&["run", "--quiet", "--name", "again", "--from", file.to_str().unwrap()])
    }

    /// The reason why nothing goes on from these bytes.
    fn refused(&self, what: &str, bytes: &[u8]) -> String {
        let done = self.go_on(bytes);
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(125), "{what}: {:?}, {said}", done.status);
        assert!(done.stdout.is_empty(), "{what}: the program went on, and said {}", text(&done.stdout));
        assert!(said.starts_with("understudy: ") && said.lines().count() == 1, "{what}: {said}");
        said
    }

    /// The same checkpoint with a head that somebody else would have written.
    fn with_head(&self, change: impl FnOnce(&mut Head)) -> Vec<u8> {
        let mut head = Reader::new(&self.bytes[..]).unwrap().head().clone();
        change(&mut head);
        let mut bytes = Vec::new();
        drop(Writer::new(&mut bytes, &head).unwrap());
        let stored = u32::from_le_bytes(self.bytes[FRONT - 8..FRONT - 4].try_into().unwrap());
        bytes.extend_from_slice(&self.bytes[FRONT + stored as usize..]);
        bytes
    }
}

/// Numbers below a bound that look drawn, and are the same in every run.
fn drawn(seed: &mut u64, bound: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % bound
}

#[test]
fn a_cut_or_a_wrong_bit_is_refused_with_a_reason() {
    let Some(taken) = Taken::new("a_cut_or_a_wrong_bit_is_refused_with_a_reason") else { return };
    let count = std::env::var("DAMAGES").map_or(60, |count| count.parse().unwrap());
    let bytes = taken.bytes.len();
    let mut seed = 1;
    for number in 0..count {
        // Every other place is in the first kilobytes, where marks, lengths and the head are.
        let room = if number % 2 == 0 { bytes } else { bytes.min(4096) };
        let at = drawn(&mut seed, room);
        taken.refused(&format!("cut at {at} of {bytes}"), &taken.bytes[..at]);
        let (at, bit) = (drawn(&mut seed, room), drawn(&mut seed, 8));
        let mut flipped = taken.bytes.clone();
        flipped[at] ^= 1 << bit;
        taken.refused(&format!("bit {bit} of byte {at} of {bytes}"), &flipped);
    }
}

#[test]
fn what_differs_on_this_machine_is_named() {
    let Some(taken) = Taken::new("what_differs_on_this_machine_is_named") else { return };
    let refused = |what: &str, change: &dyn Fn(&mut Head)| taken.refused(what, &taken.with_head(change));
    let same = taken.go_on(&taken.with_head(|_| ()));
    assert_eq!(text(&same.stdout), "went on\n", "{}", text(&same.stderr));
    let said = refused("a processor", &|head| head.processor.push("avx1024".into()));
    assert!(said.contains("on a processor with avx1024, which this one has not"), "{said}");
    let said = refused("a kernel", &|head| head.kernel = "4.4.0-other".into());
    assert!(said.contains("on Linux 4.4.0-other, and this is "), "{said}");
    let said = refused("a runtime", &|head| head.segment_version += 1);
    assert!(said.contains("another version of Understudy"), "{said}");
    for library in ["libc.so.6", "libunderstudy.so"] {
        let said = refused(library, &|head| {
            let mapped = head.files.iter_mut().find(|file| file.path.contains(library)).unwrap();
            mapped.checksum ^= 1;
        });
        assert!(said.contains(library), "{said}");
    }
}

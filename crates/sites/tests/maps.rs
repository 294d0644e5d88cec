//! Lines of `/proc/PID/maps`: this process's own, and hostile ones.

use proptest::prelude::*;
use us_sites::maps::{EXEC, Line, READ, WRITE, hex, path, range};

#[test]
fn a_line_of_each_kind() {
    let text = b"7f00a000-7f00b000 rw-s 00002000 08:11 131 /dev/shm/a name with blanks";
    let line = Line {
        start: 0x7f00_a000,
        end: 0x7f00_b000,
        protection: READ | WRITE,
        shared: true,
        offset: 0x2000,
        device: 0x811,
        inode: 131,
    };
    assert_eq!((Line::parse(text), path(text)), (Some(line), b"/dev/shm/a".as_slice()));
    let text = b"7f00b000-7f00c000 r-xp 00000000 00:00 0 ";
    let parsed = Line::parse(text).unwrap();
    assert_eq!((parsed.protection, parsed.shared, parsed.inode), (READ | EXEC, false, 0));
    assert_eq!(path(text), b"");
    assert!(!parsed.continues(&line));
}

/// What the kernel says of this process is read whole, and the ranges ascend.
#[test]
fn every_line_of_this_process() {
    let maps = std::fs::read("/proc/self/maps").unwrap();
    let mut last = 0;
    for line in maps.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let parsed = Line::parse(line).unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(line)));
        assert!(last <= parsed.start && parsed.start < parsed.end);
        assert_eq!(range(line), Some((parsed.start, parsed.end)));
        last = parsed.end;
    }
}

#[test]
fn a_number_that_is_too_long_is_none() {
    assert_eq!(hex(b"ffffffffffffffff"), Some(u64::MAX));
    assert_eq!(hex(b"10000000000000000"), None);
    assert_eq!(Line::parse(b"1-2 r--p 0 0:0 18446744073709551616"), None);
    assert_eq!(Line::parse(b"1-2 r--p 0 0:0 12x"), None);
}

proptest! {
    /// Whatever is there, nothing panics, also where two such lines are compared.
    #[test]
    fn hostile_lines(lines in proptest::collection::vec("[0-9a-fx:rwps/ -]{0,60}|\\PC{0,40}", 2)) {
        let parsed: Vec<_> = lines.iter().filter_map(|line| Line::parse(line.as_bytes())).collect();
        if let [one, other] = parsed[..] {
            let _ = one.continues(&other);
        }
    }

    /// A line is read as it was written.
    #[test]
    fn what_is_written_comes_back(start in 0u64.., bytes in 0u64.., offset in 0u64.., inode in 0u64.., sign in 0usize..4) {
        let end = start.saturating_add(bytes);
        let flags = ["r--p", "rw-s", "r-xp", "---p"][sign];
        let text = format!("{start:x}-{end:x} {flags} {offset:08x} 08:01 {inode}   /a");
        let line = Line::parse(text.as_bytes()).unwrap();
        prop_assert_eq!((line.start, line.end, line.offset, line.inode), (start, end, offset, inode));
        prop_assert_eq!(line.shared, sign == 1);
        prop_assert!(line.continues(&line) == (start == end && (inode == 0 || bytes == 0)));
    }
}

//! What the texts of `/proc` mean. Whatever is in them, nothing here fails but by saying nothing: a process chooses its own name and
//! those of its files.

use us_sites::maps::{self, Line};

use super::Process;

/// The value behind a name in a text of the kernel's.
pub fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim()))
}

/// The same, as a number that is written in hexadecimal.
pub fn hex_field(text: &str, name: &str) -> Option<u64> {
    u64::from_str_radix(field(text, name)?, 16).ok()
}

/// The same, as one that is written in octal.
pub fn octal_field(text: &str, name: &str) -> Option<u32> {
    u32::from_str_radix(field(text, name)?, 8).ok()
}

/// The same, of the whole text of a process's `status`, which may have bytes that are no UTF-8.
pub fn bytes_field(text: &[u8], name: &str) -> Option<String> {
    field(&String::from_utf8_lossy(text), name).map(str::to_owned)
}

/// Bytes of a size as the kernel writes it: `12 kB`.
pub fn kib(size: &str) -> Option<u64> {
    size.split_ascii_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

/// The fields of a `stat` behind the name, which stands in brackets and may hold blanks and brackets of its own. The first is the
/// third of the line.
fn behind_name(stat: &[u8]) -> Option<Vec<&str>> {
    let end = stat.iter().rposition(|byte| *byte == b')')?;
    Some(std::str::from_utf8(&stat[end + 1..]).ok()?.split_ascii_whitespace().collect())
}

/// A number of a `stat`, as the kernel's manual counts the fields.
fn stat_number(fields: &[&str], number: usize) -> Option<u64> {
    fields.get(number.checked_sub(3)?)?.parse().ok()
}

/// A process, by its `stat`.
pub fn process(stat: &[u8]) -> Option<Process> {
    let fields = behind_name(stat)?;
    let number = |at| stat_number(&fields, at);
    let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
    Some(Process {
        state: fields.first()?.chars().next()?,
        parent: number(4)? as u32,
        group: number(5)? as u32,
        session: number(6)? as u32,
        threads: number(20)? as u32,
        cpu_s: (number(14)? as f64 + number(15)? as f64) / ticks_per_s,
        rss_bytes: number(24)?.saturating_mul(rustix::param::page_size() as u64),
        start: number(22)?,
        // Older kernels end the line before it.
        status: number(52).unwrap_or(0) as i32,
    })
}

/// Processor time of the children that a process has waited for, seconds, by its `stat`.
pub fn children_cpu_s(stat: &[u8]) -> Option<f64> {
    let fields = behind_name(stat)?;
    let ticks = stat_number(&fields, 16)? as f64 + stat_number(&fields, 17)? as f64;
    Some(ticks / rustix::param::clock_ticks_per_second() as f64)
}

/// Where the parts of a process lie, by its `stat`: first and last of the code, of the data, the heap, the stack, first and last of
/// the arguments and of the environment.
pub fn areas(stat: &[u8]) -> Option<[u64; 10]> {
    let fields = behind_name(stat)?;
    let mut areas = [0; 10];
    for (area, number) in areas.iter_mut().zip([26, 27, 45, 46, 47, 28, 48, 49, 50, 51]) {
        *area = stat_number(&fields, number)?;
    }
    Some(areas)
}

/// The state letter of a `stat`.
pub fn state(stat: &[u8]) -> Option<char> {
    behind_name(stat)?.first()?.chars().next()
}

/// Stack pointer and next instruction of a thread that stands in the kernel, by its `syscall`: the last two words, of a line that is
/// `running` where there are none.
pub fn stands(syscall: &str) -> Option<(u64, u64)> {
    let mut words = syscall.split_ascii_whitespace().rev();
    let number = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (number(words.next()?)?, number(words.next()?)?);
    (sp != 0 && pc != 0).then_some((sp, pc))
}

/// Soft and hard limit of a line of `limits`.
pub fn limit(line: &str) -> [u64; 2] {
    /// Where they begin: the name in front of them has blanks in it.
    const AT: usize = 26;
    let mut words = line.get(AT..).unwrap_or_default().split_ascii_whitespace();
    [(); 2].map(|()| words.next().and_then(|word| word.parse().ok()).unwrap_or(u64::MAX))
}

/// What a text of `maps` tells: each mapping, and what is mapped there. The path of a file is all that is behind its number, blanks
/// as well.
pub fn mappings(text: &[u8]) -> impl Iterator<Item = (Line, &[u8])> {
    text.split(|byte| *byte == b'\n').filter_map(|line| Some((Line::parse(line)?, mapped(line))))
}

/// What a line of `maps` says is mapped.
fn mapped(line: &[u8]) -> &[u8] {
    const BEFORE: usize = 5;
    let mut rest = line;
    for _ in 0..BEFORE {
        rest = rest.trim_ascii_start();
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        rest = &rest[end..];
    }
    rest.trim_ascii_start()
}

/// Whether the kernel's page of functions is sealed, by a text of `smaps`.
pub fn has_sealed_vdso(smaps: &str) -> bool {
    let mut of_it = smaps.lines().skip_while(|line| maps::path(line.as_bytes()) != b"[vdso]");
    let flags = of_it.find_map(|line| line.strip_prefix("VmFlags:"));
    flags.is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "sl"))
}

/// The groups of processes that a process is in, by its `cgroup`: the controllers, none of them in the second version, and the path.
pub fn groups(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        Some((fields.next()?, fields.next()?))
    })
}

/// The features of the first processor, by `cpuinfo`.
pub fn features(cpuinfo: &str) -> Vec<String> {
    let flags = cpuinfo.lines().find_map(|line| line.strip_prefix("flags")?.split_once(':'));
    let mut names: Vec<String> =
        flags.map_or("", |(_, flags)| flags).split_whitespace().map(Into::into).collect();
    names.sort();
    names
}

/// A timer's state, by the `fdinfo` of its descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// Its clock.
    pub clock: i32,
    /// How often it has expired that nobody has been told of.
    pub ticks: u64,
    /// What is left of it, and its interval, as seconds and nanoseconds.
    pub left: [(i64, i64); 2],
}

/// See [`Expiry`].
pub fn expiry(fdinfo: &str) -> Option<Expiry> {
    let time = |name| {
        let (seconds, rest) = field(fdinfo, name)?.trim_matches(['(', ')']).split_once(',')?;
        Some((seconds.trim().parse().ok()?, rest.trim().parse().ok()?))
    };
    Some(Expiry {
        clock: field(fdinfo, "clockid:")?.parse().ok()?,
        ticks: field(fdinfo, "ticks:")?.parse().ok()?,
        left: [time("it_value:")?, time("it_interval:")?],
    })
}

/// What a set of epoll watches, by its `fdinfo`: descriptors, events and data.
pub fn watched(fdinfo: &str) -> impl Iterator<Item = (i32, u32, u64)> {
    fdinfo.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let mut next = |name| words.find(|word| *word == name).and_then(|_| words.next());
        let fd = next("tfd:")?.parse().ok()?;
        let events = u32::from_str_radix(next("events:")?, 16).ok()?;
        let data = u64::from_str_radix(next("data:")?, 16).ok()?;
        Some((fd, events, data))
    })
}

/// The number of a pipe or a socket in the name that the kernel gives one: `pipe:[123]`.
pub fn object_number(name: &str) -> Option<u64> {
    name.split_once('[')?.1.trim_end_matches(']').parse().ok()
}

/// A lock of which an `fdinfo` tells.
#[derive(Debug, PartialEq, Eq)]
pub struct Lock<'a> {
    /// `POSIX`, `OFDLCK`, `FLOCK`, or what is no lock of a program's (`LEASE`).
    pub kind: &'a str,
    /// Whether it is to write.
    pub is_exclusive: bool,
    /// Its first byte.
    pub first: u64,
    /// Its last byte, `None` if it has all behind the first.
    pub last: Option<u64>,
}

/// The locks that were taken by a descriptor, by its `fdinfo`. `None` for one that is told in another way than is known.
pub fn locks(fdinfo: &str) -> impl Iterator<Item = Option<Lock<'_>>> {
    fdinfo.lines().filter_map(|line| line.strip_prefix("lock:")).map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [_, kind, _, mode, _, _, first, last] = words[..] else { return None };
        let last = if last == "EOF" { None } else { Some(last.parse().ok()?) };
        Some(Lock { kind, is_exclusive: mode == "WRITE", first: first.parse().ok()?, last })
    })
}

/// A file that is watched, as an `fdinfo` tells of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Watch {
    /// The watch's number.
    pub number: u32,
    /// What is told of it.
    pub events: u32,
    /// The file's number, and its device as the kernel has it: `major << 20 | minor`.
    pub inode: u64,
    /// See `inode`.
    pub device: u32,
    /// The type of the file's handle, and its bytes.
    pub handle: (i32, Vec<u8>),
}

/// What a descriptor of inotify watches, by its `fdinfo`. `None` for a file of which the kernel gives no handle.
pub fn watches(fdinfo: &str) -> impl Iterator<Item = Option<Watch>> {
    fdinfo.lines().filter(|line| line.starts_with("inotify ")).map(|line| {
        let word = |name| line.split_ascii_whitespace().find_map(|word| word.strip_prefix(name));
        let number = |name| u64::from_str_radix(word(name)?, 16).ok();
        let digits = word("f_handle:")?.as_bytes();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let bytes: Vec<u8> = digits.chunks(2).map(byte).collect::<Option<_>>()?;
        let length = number("fhandle-bytes:")?;
        Some(Watch {
            number: number("wd:")? as u32,
            events: number("mask:")? as u32,
            inode: number("ino:")?,
            device: number("sdev:")? as u32,
            handle: (number("fhandle-type:")? as i32, bytes),
        })
        .filter(|watch| watch.handle.1.len() as u64 == length)
    })
}

/// Where file systems of this device are mounted, by a text of `mountinfo`.
pub fn mounts(mountinfo: &str, (major, minor): (u32, u32)) -> impl Iterator<Item = &str> {
    let device = format!("{major}:{minor}");
    mountinfo.lines().filter_map(move |line| {
        let mut words = line.split_ascii_whitespace();
        (words.nth(2)? == device).then(|| words.nth(1))?
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces() {
        let line = b"7 (a) b (c) S 3 7 8 0 -1 0 0 0 0 0 150 50 7 5 20 0 4 0 999 0 10 0";
        let process = process(line).unwrap();
        assert_eq!((process.state, process.parent, process.threads, process.start), ('S', 3, 4, 999));
        assert_eq!((process.session, process.status, state(line)), (8, 0, Some('S')));
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(children_cpu_s(line), Some(12.0 / ticks));
    }

    #[test]
    fn what_is_said_is_found() {
        assert_eq!(field("VmRSS:\t 5 kB\nRssAnon:\t 12 kB\n", "RssAnon:").and_then(kib), Some(12 << 10));
        assert_eq!(stands("0 0x1 0x2 0x7ffe 0x7f00\n"), Some((0x7ffe, 0x7f00)));
        assert_eq!((stands("running\n"), stands("-1 0x0 0x0\n")), (None, None));
        let timer = "clockid: 1\nticks: 3\nsettime flags: 01\nit_value: (4, 5)\nit_interval: (0, 6)\n";
        assert_eq!(expiry(timer), Some(Expiry { clock: 1, ticks: 3, left: [(4, 5), (0, 6)] }));
        let set = "pos:\t0\ntfd:        5 events:       19 data:               2a  pos:0 ino:61 sdev:5\n";
        assert_eq!(watched(set).collect::<Vec<_>>(), [(5, 0x19, 42)]);
        assert_eq!(
            groups("1:cpu,memory:/a:b\n0::/\nrubbish\n").collect::<Vec<_>>(),
            [("cpu,memory", "/a:b"), ("", "/")]
        );
        assert_eq!((object_number("pipe:[17]"), object_number("/dev/null")), (Some(17), None));
        let locked = "flags:\t02\nlock:\t1: POSIX  ADVISORY  WRITE 12 08:01:77 3 9\nlock:\t2: FLOCK  ADVISORY  READ 12 08:01:77 0 EOF\n";
        let [first, second] = &locks(locked).map(Option::unwrap).collect::<Vec<_>>()[..] else { panic!() };
        assert_eq!((first.kind, first.is_exclusive, first.first, first.last), ("POSIX", true, 3, Some(9)));
        assert_eq!((second.kind, second.is_exclusive, second.first, second.last), ("FLOCK", false, 0, None));
        let watched = "inotify wd:3 ino:9e7e sdev:800013 mask:800afce ignored_mask:0 fhandle-bytes:4 fhandle-type:1 f_handle:7e9e0164\n";
        let watch = watches(watched).next().flatten().unwrap();
        assert_eq!(
            (watch.number, watch.events, watch.inode, watch.device),
            (3, 0x800_afce, 0x9e7e, 0x80_0013)
        );
        assert_eq!(watch.handle, (1, vec![0x7e, 0x9e, 1, 0x64]));
        assert_eq!(watches("inotify wd:3 ino:9e7e sdev:1 mask:2\n").collect::<Vec<_>>(), [None]);
        let mounted = "22 1 8:19 / / rw - ext4 /dev/a rw\n23 22 0:5 / /dev rw shared:2 - devtmpfs none rw\n";
        assert_eq!(mounts(mounted, (8, 19)).collect::<Vec<_>>(), ["/"]);
        assert_eq!(locks("lock:\tnobody knows\n").collect::<Vec<_>>(), [None]);
        let vdso = "7f00-7f01 r-xp 00000000 00:00 0 \t[heap]\nVmFlags: sl\n";
        assert!(!has_sealed_vdso(vdso));
    }

    #[test]
    fn a_path_is_all_behind_the_number() {
        let text =
            b"1000-2000 r-xp 00001000 08:01 77    /a b/c (deleted)\n3000-4000 rw-p 00000000 00:00 0 \n";
        let all: Vec<_> = mappings(text).map(|(line, path)| (line.start, path)).collect();
        assert_eq!(all, [(0x1000, &b"/a b/c (deleted)"[..]), (0x3000, b"")]);
    }

    /// Nothing that a process calls itself is taken for a field of its own.
    fn named() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<u8>().prop_filter("the kernel writes none", |byte| *byte != 0), 0..16)
    }

    proptest! {
        #[test]
        fn a_name_hides_nothing(name in named(), parent in any::<u32>(), start in any::<u64>()) {
            let fields = format!(") R {parent} 1 2 0 -1 0 0 0 0 0 1 2 3 4 20 0 5 0 {start} 6 7 8");
            let line = [b"9 (".as_slice(), &name, fields.as_bytes()].concat();
            let process = process(&line).unwrap();
            prop_assert_eq!((process.state, process.parent, process.start), ('R', parent, start));
            prop_assert_eq!((process.threads, process.session), (5, 2));
        }

        #[test]
        fn a_path_hides_no_mapping(path in "[ -~]{0,40}", start in 0u64..1 << 40, pages in 1u64..100) {
            let end = start + pages * 4096;
            let text = format!("{start:x}-{end:x} rw-s 00000000 08:01 7 /{path}\n");
            let all: Vec<_> = mappings(text.as_bytes()).collect();
            prop_assert_eq!(all.len(), 1);
            prop_assert_eq!((all[0].0.start, all[0].0.end, all[0].0.inode), (start, end, 7));
            let path = format!("/{path}");
            prop_assert_eq!(all[0].1, path.as_bytes());
        }

        #[test]
        fn rubbish_says_nothing_and_breaks_nothing(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = String::from_utf8_lossy(&bytes);
            let _ = (process(&bytes), areas(&bytes), children_cpu_s(&bytes), state(&bytes));
            let _ = (mappings(&bytes).count(), bytes_field(&bytes, "a"), stands(&text), expiry(&text));
            let _ = (watched(&text).count(), locks(&text).count(), watches(&text).count(), groups(&text).count(), features(&text), object_number(&text));
            let _ = (hex_field(&text, ""), octal_field(&text, ""), kib(&text), has_sealed_vdso(&text));
        }

        #[test]
        fn lines_like_the_kernels_break_nothing(
            words in proptest::collection::vec("[0-9a-f]{0,20}|tfd:|events:|data:|\\(|\\)|kB|0x[0-9a-f]{0,20}|-1", 0..60),
        ) {
            let text = words.join(" ");
            let _ = (process(text.as_bytes()), areas(text.as_bytes()), stands(&text), expiry(&text));
            let _ = (watched(&text).count(), kib(&text), mappings(text.as_bytes()).count());
        }
    }
}

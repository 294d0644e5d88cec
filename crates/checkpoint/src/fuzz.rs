//! One entry for a fuzzer: bytes that somebody forged, with checksums that are right.

use crate::{
    Content, Descriptor, FRONT_BYTES, File, Head, Holder, Identity, Lock, MARK, Mapping, Object, Place,
    Process, Reader, Rights, Shared, Taken, TakenFile, VERSION, kind,
};

/// Reads `data` in the way that its first byte says. Panics if a run of pages is not what its chunk says.
pub fn entry(data: &[u8]) {
    let Some((way, data)) = data.split_first() else { return };
    match way % 5 {
        // As it is: mostly no checkpoint, or one with a bad checksum.
        0 => read(data),
        1 => read(&forged(&[(kind::HEAD, data.len(), data)])),
        // The number of runs, their places and their lengths are the forger's.
        2 => read(&forged(&[head(), (kind::PAGES, data.len(), data), (kind::END, data.len(), data)])),
        // The same of the list of pages.
        3 => read(&forged(&[head(), (kind::INDEX, data.len(), data), (kind::END, data.len(), data)])),
        // So is the length before it was compressed.
        _ => {
            let (bytes, content) = data.split_at(data.len().min(4));
            let bytes = bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
            read(&forged(&[head(), (kind::PAGES, bytes as usize, content)]));
        }
    }
}

/// A head that says a little of everything.
pub fn example() -> Head {
    let lock = Lock { holder: Holder::Process, is_exclusive: true, first: 1, last: Some(9) };
    let memory = |start, file, shared| Mapping {
        start,
        end: start + 0x40_0000,
        protection: 3,
        grows: false,
        file,
        through: false,
        system_v: None,
        shared,
        kernel: None,
    };
    let process = |index: u32| Process {
        pid: 4711 + index,
        place: index,
        executable: "/usr/bin/program".into(),
        name: b"program".to_vec(),
        folder: "/".into(),
        umask: 0o22,
        oom_score: 0,
        identity: (index == 1).then(|| Identity {
            users: [65_534; 3],
            groups: [65_534; 3],
            others: vec![4, 24],
            is_open: false,
            rights: Some(Rights {
                effective: 1,
                permitted: 3,
                inheritable: 2,
                ambient: 2,
                bounding: 7,
                gains_none: true,
            }),
        }),
        session: None,
        group: Some(4711),
        leads: [false, index == 0],
        limits: vec![[u64::MAX; 2]; 16],
        slots: 3,
        resumes: Place { context: 1, resume: 2, tls: 3, folder: 4 },
        areas: [7; 11],
        auxiliary: vec![6, 4096, 0, 0],
        mappings: vec![memory(0x1000, Some((0, 0)), None), memory(0x80_0000, None, Some((0, 0)))],
        descriptors: vec![Descriptor {
            fd: index as i32,
            closes: false,
            object: 0,
            flags: 2,
            signal: 0,
            locks: vec![lock],
        }],
    };
    let taken = TakenFile {
        path: "/srv/data".into(),
        mode: 0o640,
        owner: [0, 4],
        written: (1, 2),
        content: Content::File { bytes: 5, checksum: 6 },
    };
    Head {
        program: vec!["program".into(), "an argument".into()],
        order: "auto".into(),
        taken: "2026-01-01T00:00:00Z".into(),
        kernel: "6.1.0".into(),
        processor: vec!["fpu".into(), "avx".into()],
        segment_version: 1,
        files: vec![File { path: "/usr/bin/program".into(), bytes: 12, checksum: 34 }],
        objects: vec![Object::Pipe { number: 9, room: 65_536, content: b"in the pipe".to_vec() }],
        shared: vec![Shared { name: "memory".into(), path: None, bytes: 0x40_0000 }],
        processes: vec![process(0), process(1)],
        recorded: None,
        id: "00112233445566778899aabbccddeeff".into(),
        seed: Some(7),
        base: None,
        joins: None,
        beside: Some(Taken { volumes: vec!["/srv".into()], files: vec![taken] }),
    }
}

type Chunk<'a> = (u32, usize, &'a [u8]);

/// The chunk of a good head.
fn head() -> Chunk<'static> {
    static HEAD: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    let head = HEAD.get_or_init(|| serde_json::to_vec(&example()).unwrap_or_default());
    (kind::HEAD, head.len(), head)
}

/// A checkpoint of chunks: what each is, how long it says that it was before it was compressed, and what is stored.
fn forged(chunks: &[Chunk]) -> Vec<u8> {
    let mut file = [&MARK[..], &VERSION.to_le_bytes()].concat();
    for (kind, bytes, stored) in chunks {
        let front = [*kind, *bytes as u32, stored.len() as u32, crc32c::crc32c(stored)];
        let front: [u8; FRONT_BYTES] = std::array::from_fn(|at| front[at / 4].to_le_bytes()[at % 4]);
        file.extend_from_slice(&front);
        file.extend_from_slice(stored);
    }
    file
}

fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::new(bytes) else { return };
    while let Ok(Some(pages)) = reader.pages() {
        let (mut runs, mut sum) = (0, 0);
        for (_, content) in pages.runs() {
            (runs, sum) = (runs + 1, sum + content.len());
        }
        assert!(runs != 0 && sum <= 2 * crate::CHUNK_BYTES, "pages without places");
    }
}

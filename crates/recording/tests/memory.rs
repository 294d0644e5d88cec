//! What a writer needs does not grow with what it writes. Alone in its process, whose memory it looks at.

mod common;

use common::{Rng, call, header, image, locks};
use recording::Writer;

/// Memory of this process that is nobody else's, bytes.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

#[test]
fn a_writer_stays_small() {
    const LIMIT: usize = 8 << 20;
    let folder = tempfile::tempdir().unwrap();
    let mut rng = Rng(21);
    let out = rng.bytes(100_000);
    let reads: Vec<u8> = (0..10).flat_map(|at| call(0, 5, 6, 100_000, at, 100_000, &out)).collect();
    let events = locks(&mut rng, 60_000, 8, 100);
    let mut writer = Writer::create(&folder.path().join("r"), &header()).unwrap();
    writer.image(&image(0)).unwrap();
    let before = resident();
    let mut most = 0;
    for round in 0..60u16 {
        writer.events(0, round * 7 % 1000, if round % 3 == 0 { &events } else { &reads }).unwrap();
        most = most.max(resident().saturating_sub(before));
    }
    assert!(writer.bytes_raw() > 50 << 20);
    assert!(most < LIMIT, "{most} bytes");
    writer.finish().unwrap();
    println!("{most} bytes at most");
}

//! Whatever the bytes: no panic, and never two patches over the same byte.

use proptest::prelude::*;
use us_sites::{STUB_MAX, Site, elf::Image, emit_clone_stub, emit_hop, emit_patch, emit_stub, scan, vdso};

/// Pieces that make windows, branches into them and broken decodings likely.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => Just(vec![0x0f, 0x05]),
        2 => Just(vec![0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff]),
        2 => prop::sample::select(vec![0u8, 15, 39, 56, 58, 202]).prop_map(|nr| vec![0xb8, nr, 0, 0, 0]),
        1 => any::<u8>().prop_map(|rel| vec![0xeb, rel]),
        2 => any::<(u8, u8)>().prop_map(|(cc, rel)| vec![0x70 | cc & 15, rel]),
        1 => (-60i32..60).prop_map(|rel| [&[0xe8][..], &rel.to_le_bytes()].concat()),
        1 => (-60i32..60).prop_map(|rel| [&[0x0f, 0x84][..], &rel.to_le_bytes()].concat()),
        1 => Just(vec![0x48, 0x8b, 0x0d, 1, 2, 3, 0]),
        1 => Just(vec![0xff, 0xe0]),
        1 => Just(vec![0xc3]),
        1 => Just(vec![0x85, 0xc0]),
        1 => Just(vec![0x0f, 0x1f, 0x40, 0x00]),
        2 => prop::collection::vec(any::<u8>(), 1..6),
    ]
}

fn text() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(piece(), 0..120).prop_map(|pieces| pieces.concat())
}

/// Every invariant that needs no disassembler; returns how many sites are patched.
fn check(text: &[u8]) -> usize {
    const ADDR: u64 = 0x7f00_0000_0000;
    let mut out = vec![Site::EMPTY; 512];
    let Ok(found) = scan(text, ADDR, &mut out) else { panic!("more than 512 sites in {} bytes", text.len()) };
    let (mut last_at, mut free_from, mut patched) = (None, 0, 0);
    for site in &out[..found] {
        assert!(Some(site.at) > last_at, "in order");
        last_at = Some(site.at);
        assert_eq!(text[site.at as usize..][..2], [0x0f, 0x05]);
        let mut stub = [0; STUB_MAX];
        if !site.is_patchable() {
            assert!(emit_stub(site, ADDR + 0x10_0000, ADDR, &mut stub).is_err());
            continue;
        }
        patched += 1;
        let (start, end) = (site.patch_start as usize, site.patch_start as usize + site.window().len());
        assert!(end <= text.len() && start >= free_from);
        // A short jump leads to padding before it, or behind it.
        let written = match site.hop_addr().map(|hop| (hop - ADDR) as usize) {
            Some(hop) => {
                assert!(site.patch_len == 2 && hop >= free_from && hop + 5 <= text.len());
                assert!(hop >= end || hop + 5 <= start);
                emit_hop(site, ADDR + 0x10_0000).expect("in reach");
                end.max(hop + 5)
            }
            None => {
                assert!((5..=15).contains(&site.patch_len));
                end
            }
        };
        assert!(start <= site.at as usize && site.at as usize + 2 <= end);
        assert_eq!(site.window(), &text[start..end]);
        free_from = written;
        emit_stub(site, ADDR + 0x10_0000, ADDR, &mut stub).expect("in reach");
        emit_clone_stub(site, ADDR + 0x10_0000, ADDR, &mut stub).expect("in reach");
        emit_patch(site, ADDR + 0x10_0000).expect("in reach");
        let too_far = ADDR + (3 << 30);
        assert!(emit_patch(site, too_far).is_err() || emit_hop(site, too_far).is_err(), "3 GiB is too far");
    }
    patched
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_code(text in text()) {
        check(&text);
    }

    #[test]
    fn random_bytes(text in prop::collection::vec(any::<u8>(), 0..600)) {
        check(&text);
    }

    #[test]
    fn random_images(mut image in prop::collection::vec(any::<u8>(), 0..600)) {
        image.splice(0..image.len().min(20), *b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
        vdso::functions(&image).for_each(drop);
        let _ = vdso::image_len(&image);
        if let Some(image) = Image::parse(&image) {
            image.executable().for_each(drop);
        }
    }
}

/// The checks above would also pass if nothing were ever patched.
#[test]
fn ordinary_code_is_patched() {
    let call = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff, 0x77, 0x01, 0xc3];
    assert_eq!(check(&call.repeat(20)), 20);
}

#[test]
fn too_few_slots_are_an_error() {
    let text = [0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3].repeat(3);
    let mut out = [Site::EMPTY; 2];
    assert_eq!(scan(&text, 0, &mut out), Err(us_sites::ScanError::TooManySites(3)));
}

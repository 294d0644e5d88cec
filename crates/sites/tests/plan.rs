//! A plan says what a scan says; one that is damaged, of another text, or made up, is not believed.

use proptest::prelude::*;
use us_sites::{Site, elf::Image, find_plan, fingerprint, plan_words, scan, write_plan};

const HERE: u64 = 0x7f00_0000_0000;
const THERE: u64 = 0x7e12_3456_7000;

/// Three sites: `mov $nr,%eax; syscall; cmp $-4096,%rax; ja`, and one that cannot be patched.
fn small_text() -> Vec<u8> {
    let mut text = Vec::new();
    for nr in [39u8, 1, 202] {
        text.extend([0xb8, nr, 0, 0, 0, 0x0f, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff, 0x77, 1, 0xc3, 0x90]);
    }
    text.extend([0xb8, 15, 0, 0, 0, 0x0f, 0x05, 0xc3]);
    text.resize(256, 0x90);
    text
}

fn sites_of(text: &[u8], addr: u64) -> Vec<Site> {
    let mut out = vec![Site::EMPTY; 4096];
    let found = scan(text, addr, &mut out).expect("4096 slots are enough");
    out.truncate(found);
    out
}

fn plan_of(text: &[u8]) -> Vec<u64> {
    let sites = sites_of(text, HERE);
    let mut words = vec![0; plan_words(sites.len())];
    let len = write_plan(&sites, text.len(), fingerprint(text), &mut words).expect("room for all");
    words.truncate(len);
    words
}

/// What patches are made of.
fn essence(site: &Site) -> (u64, [Option<u64>; 2], Vec<u8>, String, Option<u32>) {
    let places = [Some(site.patch_addr()), site.hop_addr()];
    (site.syscall_addr(), places, site.window().to_vec(), format!("{:?}", site.kind), site.nr)
}

fn is_believed(words: &[u64], text: &[u8]) -> bool {
    find_plan(words, text, fingerprint(text)).0.is_some()
}

fn check_same(text: &[u8]) {
    let words = plan_of(text);
    let (plan, _) = find_plan(&words, text, fingerprint(text));
    let plan = plan.expect("found again");
    let scanned = sites_of(text, THERE);
    let with_window: Vec<_> = scanned.iter().filter(|site| site.is_patchable()).map(essence).collect();
    let planned: Vec<_> = plan.sites(THERE).map(|site| essence(&site)).collect();
    assert_eq!(planned, with_window);
    assert_eq!(plan.found(), scanned.len());
}

/// A call between two whose neighbours may not move: padding before it, or behind it, takes the long jump.
#[test]
fn padding_near_a_call_without_a_window_is_kept_as_well() {
    let long_nop = [0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0];
    let call = [0x48, 0x89, 0xc7, 0x89, 0xd8, 0x0f, 0x05];
    let calls_again = [0xe8, 0, 0, 0, 0];
    let before =
        [[0xeb, 0x28].as_slice(), &long_nop, &calls_again, &call[3..], &calls_again, &[0xc3]].concat();
    let behind = [&calls_again, &call[3..], calls_again.as_slice(), &[0xc3], &long_nop].concat();
    for (middle, at, hop) in [(before, 17, 2), (behind, 7, 15)] {
        let mut text = vec![0x90; 64];
        text.extend(middle);
        text.resize(256, 0x90);
        let sites = sites_of(&text, HERE);
        assert_eq!(sites.len(), 1);
        assert_eq!(sites[0].syscall_addr(), HERE + 64 + at);
        assert_eq!(sites[0].hop_addr(), Some(HERE + 64 + hop), "{:?}", sites[0]);
        check_same(&text);
        // Somebody comes to the padding: it is none.
        let mut reached = text.clone();
        reached[40..42].copy_from_slice(&[0xeb, (64 + hop + 1 - 42) as u8]);
        assert_ne!(sites_of(&reached, HERE)[0].hop_addr(), Some(HERE + 64 + hop));
        assert!(!is_believed(&plan_of(&text), &reached));
    }
}

/// The one call through which glibc 2.43 cancels threads: r11 is saved, and behind the return there is one byte until the next
/// function. Without a window each such call of each program traps, and nobody knows it for what it is.
#[test]
fn a_call_behind_the_saving_of_r11_has_a_window_near_a_switch() {
    const SWITCH: [u8; 2] = [0xff, 0xe0];
    let site_behind = |before: &[u8]| {
        let mut text = vec![0x90; 64];
        text.extend([0x48, 0x89, 0xf0]);
        text.extend(before);
        text.extend([0x0f, 0x05, 0xc3, 0x90]);
        text.extend([0x48, 0x83, 0xec, 0x08, 0xe8, 0, 0, 0, 0]);
        text.extend(SWITCH);
        text.resize(512, 0x90);
        sites_of(&text, HERE).remove(0)
    };
    let site = site_behind(&[0x4c, 0x89, 0x5c, 0x24, 0x08]);
    assert_eq!(site.window(), [0x4c, 0x89, 0x5c, 0x24, 0x08, 0x0f, 0x05]);
    // Another register may have been set on only one of two ways to the call.
    assert!(!site_behind(&[0x4c, 0x89, 0x54, 0x24, 0x08]).is_patchable());
}

#[test]
fn a_plan_is_what_a_scan_finds() {
    check_same(&small_text());
    for file in ["libc.so.6", "ld-linux-x86-64.so.2"] {
        let bytes = std::fs::read(format!("/lib/x86_64-linux-gnu/{file}")).expect("the C library");
        let image = Image::parse(&bytes).expect("an x86-64 ELF file");
        image.executable().for_each(|(text, _)| check_same(text));
    }
}

#[test]
fn plans_lie_one_behind_the_other() {
    let (one, mut two) = (small_text(), small_text());
    two[100] ^= 1;
    let (first, second) = (plan_of(&one), plan_of(&two));
    let both = [first.clone(), second].concat();
    assert!(is_believed(&both, &one) && is_believed(&both, &two));
    assert!(find_plan(&first, &two, fingerprint(&two)).0.is_none());
    assert_eq!(find_plan(&first, &two, fingerprint(&two)).1, first.len(), "the next one's place");
    let mut damaged = both.clone();
    damaged[first.len() + 1] ^= 1;
    assert_eq!(find_plan(&damaged, &two, fingerprint(&two)).1, first.len());
    assert!(is_believed(&damaged, &one));
}

#[test]
fn a_plan_with_any_bit_changed_or_cut_off_is_not_believed() {
    let text = small_text();
    let words = plan_of(&text);
    for bit in 0..words.len() * 64 {
        let mut damaged = words.clone();
        damaged[bit / 64] ^= 1 << (bit % 64);
        assert!(!is_believed(&damaged, &text), "bit {bit}");
    }
    for len in 0..words.len() {
        assert!(!is_believed(&words[..len], &text), "{len} words");
    }
}

#[test]
fn a_plan_of_a_text_with_any_bit_changed_is_not_believed() {
    let text = small_text();
    let words = plan_of(&text);
    for bit in 0..text.len() * 8 {
        let mut other = text.clone();
        other[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_believed(&words, &other), "bit {bit}");
    }
    assert!(!is_believed(&words, &text[..text.len() - 1]));
    assert!(!is_believed(&words, &[&text[..], &[0x90]].concat()));
}

/// A plan with a good check whose windows are not the text's: made for another text, under this one's name.
#[test]
fn windows_that_the_text_does_not_have_are_not_believed() {
    let text = small_text();
    let forge = |other: &[u8]| {
        let sites = sites_of(other, HERE);
        let mut words = vec![0; plan_words(sites.len())];
        write_plan(&sites, text.len(), fingerprint(&text), &mut words).expect("room for all");
        words
    };
    assert!(is_believed(&forge(&text), &text));
    for shift in 1..17 {
        let moved = [&vec![0x90; shift][..], &text].concat();
        assert!(!is_believed(&forge(&moved), &text), "moved by {shift}");
    }
    let behind = [vec![0x90; 300], text.clone()].concat();
    assert!(!is_believed(&forge(&behind), &text), "behind the text's end");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_words(words in prop::collection::vec(any::<u64>(), 0..40)) {
        prop_assert!(!is_believed(&words, &small_text()));
    }
}

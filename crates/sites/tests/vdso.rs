//! The vDSO of this very process.

use proptest::prelude::*;
use us_sites::vdso;

/// A copy of the vDSO, or nothing if the kernel gives none.
fn own_vdso() -> Option<Vec<u8>> {
    // SAFETY: getauxval reads the process's own auxiliary vector.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as *const u8;
    if base.is_null() {
        return None;
    }
    // SAFETY: the kernel maps at least one page of the image there, readable, for the process's whole life.
    let first_page = unsafe { std::slice::from_raw_parts(base, 4096) };
    let len = vdso::image_len(first_page).expect("headers in the first page");
    // SAFETY: the image's own headers say that this many bytes are loaded.
    Some(unsafe { std::slice::from_raw_parts(base, len) }.to_vec())
}

#[test]
fn exports_the_clock() {
    let Some(image) = own_vdso() else {
        println!("skipped: this kernel maps no vDSO");
        return;
    };
    let functions: Vec<_> = vdso::functions(&image).collect();
    for f in &functions {
        println!("{:#06x} {:4} {}", f.offset, f.size, String::from_utf8_lossy(f.name));
    }
    for name in ["__vdso_clock_gettime", "__vdso_gettimeofday", "__vdso_time", "__vdso_getcpu"] {
        let f = functions.iter().find(|f| f.name == name.as_bytes());
        let f = f.unwrap_or_else(|| panic!("{name} is not exported"));
        assert!(f.size >= 5, "{name}: a jump fits");
        assert!(f.offset + f.size <= image.len());
    }
    // SAFETY: the name is a C string.
    let handle = unsafe { libc::dlopen(c"linux-vdso.so.1".as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
    if handle.is_null() {
        return;
    }
    // SAFETY: the handle is open and the name is a C string.
    let symbol = unsafe { libc::dlsym(handle, c"__vdso_clock_gettime".as_ptr()) } as usize;
    // SAFETY: as above.
    let base = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) } as usize;
    let ours = functions.iter().find(|f| f.name == b"__vdso_clock_gettime").map(|f| base + f.offset);
    assert_eq!(ours, Some(symbol), "the dynamic linker finds the same function");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_does_no_harm(flips in prop::collection::vec((0usize..2048, any::<u8>()), 1..8), cut in 0usize..9000) {
        if let Some(mut image) = own_vdso() {
            for (at, byte) in flips {
                image[at] = byte;
            }
            image.truncate(cut);
            let _ = vdso::image_len(&image);
            for f in vdso::functions(&image) {
                prop_assert!(f.offset + f.size <= image.len());
            }
        }
    }
}

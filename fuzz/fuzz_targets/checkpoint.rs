//! The reader of checkpoints against any bytes: `cargo +nightly fuzz run checkpoint`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| checkpoint::fuzz::entry(data));

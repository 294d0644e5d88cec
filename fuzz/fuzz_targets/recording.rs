//! The reader of recordings against any bytes: `cargo +nightly fuzz run recording`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| recording::fuzz::entry(data));

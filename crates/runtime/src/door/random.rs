//! Random numbers that a library draws from the processor: what the instruction says is in no log.

use crate::door::time::by_gate;
use crate::raw::nr;

/// What `std::random_device` draws, whatever it was made for: libstdc++ asks the processor (`rdseed`, `rdrand`), of which each copy
/// would have its own answer. The kernel's is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn _ZNSt13random_device9_M_getvalEv(_device: *const u8) -> u32 {
    let mut drawn = 0u32;
    let bytes = size_of_val(&drawn) as u64;
    while by_gate(nr::GETRANDOM, [&raw mut drawn as u64, bytes, 0, 0, 0, 0]) != bytes as i64 {}
    drawn
}

//! Random numbers: what a library draws from the processor, which no log has, and what the kernel gives, or a seed in its place.
//!
//! With `--seed` each thread has a stream of its own. What it draws follows from the process's key, its stream's and how much it has
//! drawn. So every copy computes the same without a log, and every run, in whatever order its threads draw. The key of a thread, a
//! child or a new image is drawn by whoever makes it: which slot a thread has can be a matter of time.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use linux_raw_sys::general::{GRND_INSECURE, GRND_NONBLOCK, GRND_RANDOM};

use crate::call::Call;
use crate::door::time::by_gate;
use crate::fdtable::{self, AT_FDCWD, Stat};
use crate::guest::{GuestMut, GuestPtr};
use crate::raw::{err, nr};
use crate::sys::spans::Vector;
use crate::thread::Thread;
use crate::{state, tls};

/// What `std::random_device` draws, whatever it was made for: libstdc++ asks the processor (`rdseed`, `rdrand`), of which each copy
/// would have its own answer. The kernel's is recorded.
#[unsafe(no_mangle)]
pub extern "C" fn _ZNSt13random_device9_M_getvalEv(_device: *const u8) -> u32 {
    let mut drawn = 0u32;
    let bytes = size_of_val(&drawn) as u64;
    while by_gate(nr::GETRANDOM, [&raw mut drawn as u64, bytes, 0, 0, 0, 0]) != bytes as i64 {}
    drawn
}

/// Whether random numbers follow from a seed.
static IS_SEEDED: AtomicBool = AtomicBool::new(false);
/// Of this process.
static KEY: AtomicU64 = AtomicU64::new(0);
/// `/dev/random` and `/dev/urandom`, as descriptors of them are known; 0 where there is none.
static DEVICES: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// Whether random numbers follow from a seed.
pub fn is_seeded() -> bool {
    IS_SEEDED.load(Ordering::Relaxed)
}

/// At the start of an image, by its first thread: what it draws follows from this key, also what the kernel has laid down for it.
pub fn begin(key: u64) {
    KEY.store(key, Ordering::Relaxed);
    for (device, path) in DEVICES.iter().zip([c"/dev/random", c"/dev/urandom"]) {
        let stat = Stat::at(AT_FDCWD, path.as_ptr() as u64, 0);
        device.store(stat.map_or(0, |stat| fdtable::kept(stat.identity())), Ordering::Relaxed);
    }
    IS_SEEDED.store(true, Ordering::Relaxed);
    let laid_down = state::auxiliary(state::AT_RANDOM);
    if laid_down != 0 {
        // The loader and libc have had theirs.
        GuestMut::at(laid_down).store(&[word(key, u64::MAX, 0), word(key, u64::MAX, 1)]);
    }
}

/// The word of a stream at a place: SplitMix64 from a state that both keys have a part in. Nothing about it is secret.
const fn word(key: u64, stream: u64, at: u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    mixed(mixed(key ^ mixed(stream)).wrapping_add(at.wrapping_mul(STEP)))
}

/// SplitMix64's last step: each bit of the result depends on all of them.
const fn mixed(mut word: u64) -> u64 {
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// The next word of the calling thread's stream.
fn draw(thread: &mut Thread) -> u64 {
    thread.lately.drawn += 1;
    word(KEY.load(Ordering::Relaxed), thread.lately.stream, thread.lately.drawn)
}

/// Before a thread makes another or a child, or executes a file, in every copy. A child that borrows its parent's memory executes
/// with what was drawn for it.
pub fn about_to_make_another(thread: &mut Thread) {
    if is_seeded() && thread.borrowed.load(Ordering::Relaxed) == 0 {
        thread.lately.next_key = draw(thread);
    }
}

/// In a child that has memory of its own.
pub fn become_child(thread: &mut Thread) {
    if is_seeded() {
        KEY.store(thread.lately.next_key, Ordering::Relaxed);
        (thread.lately.stream, thread.lately.drawn) = (0, 0);
    }
}

/// Of a thread that its maker is about to make.
pub fn give_stream(maker: &Thread, made: &mut Thread) {
    (made.lately.stream, made.lately.drawn) = (maker.lately.next_key, 0);
}

/// The key of the image that the calling thread is about to execute; `None` without a seed.
pub fn key_of_image() -> Option<u64> {
    // SAFETY: the calling thread's own block.
    let thread = unsafe { tls::current().as_ref() }.filter(|_| is_seeded())?;
    Some(thread.lately.next_key)
}

/// A call that asks for random numbers, of a process that has a seed: the kernel is not asked. `None` of any other call.
#[cold]
pub fn seeded(thread: &mut Thread, call: &Call) -> Option<i64> {
    const VECTORS_MAX: u64 = 1024;
    let [first, at, count, ..] = call.args;
    if thread.borrowed.load(Ordering::Relaxed) != 0 {
        return None;
    }
    match call.nr {
        nr::GETRANDOM => {
            let (flags, both) = (count as u32, GRND_RANDOM | GRND_INSECURE);
            if flags & !(both | GRND_NONBLOCK) != 0 || flags & both == both {
                return Some(err::EINVAL);
            }
            Some(fill(thread, first, at))
        }
        nr::READ | nr::PREAD64 if is_device(first) => Some(fill(thread, at, count)),
        nr::READV if is_device(first) && count <= VECTORS_MAX => {
            let mut drawn = 0;
            for index in 0..count {
                let Some(Vector { base, len }) = GuestPtr::<Vector>::at(at).nth(index).load() else {
                    return Some(if drawn == 0 { err::EFAULT } else { drawn });
                };
                let bytes = fill(thread, base, len);
                if bytes < 0 {
                    return Some(if drawn == 0 { bytes } else { drawn });
                }
                drawn += bytes;
                if (bytes as u64) < len {
                    break;
                }
            }
            Some(drawn)
        }
        _ => None,
    }
}

/// Whether it is one of the two devices that give random numbers, as this copy knows the descriptor.
fn is_device(fd: u64) -> bool {
    let identity = fdtable::get(fd as i32).map_or(0, |shadow| shadow.identity());
    identity != 0 && DEVICES.iter().any(|device| device.load(Ordering::Relaxed) == identity)
}

/// Fills the program's memory from the thread's stream: bytes, or EFAULT where not one of them can be written.
fn fill(thread: &mut Thread, to: u64, bytes: u64) -> i64 {
    /// As much as the kernel gives at a time.
    const BYTES_MAX: u64 = 0x7fff_f000;
    let bytes = bytes.min(BYTES_MAX);
    let mut done = 0;
    while done < bytes {
        let drawn = draw(thread).to_le_bytes();
        let piece = (bytes - done).min(drawn.len() as u64);
        if !GuestMut::<u8>::at(to.wrapping_add(done)).copy_from(drawn.as_ptr(), piece as usize) {
            return if done == 0 { err::EFAULT } else { done as i64 };
        }
        done += piece;
    }
    done as i64
}

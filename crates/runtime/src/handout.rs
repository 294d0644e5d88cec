//! Asks the supervisor for a file of the group's folder that this process cannot open: it has changed its user, or its root.
//!
//! The other end is `crates/supervisor/src/handout.rs`.

use core::mem::size_of;
use core::sync::atomic::{AtomicU64, Ordering};

use us_abi::handout::{NAME_BYTES, REQUEST_BYTES_MAX, name};

use crate::raw::nr::{CONNECT, SETSOCKOPT};
use crate::raw::{self, Timespec, failed, nr};

/// How long the supervisor may take for an answer, ns. The program may stand still meanwhile.
const ANSWER_NS: u64 = 200_000_000;
/// Behind a question without an answer nobody asks for so long, ns.
const DEAF_NS: u64 = 1_000_000_000;

/// Until when nobody asks.
static DEAF_UNTIL_NS: AtomicU64 = AtomicU64::new(0);

/// A control message with one descriptor.
#[repr(C)]
struct Control {
    len: u64,
    level: u32,
    kind: u32,
    descriptor: i32,
    _end: u32,
}

/// The kernel's `struct msghdr`.
#[repr(C)]
struct Message {
    name: u64,
    name_len: u64,
    parts: *const [u64; 2],
    count: u64,
    control: *mut Control,
    control_len: u64,
    flags: u64,
}

/// The file `file` of the folder with the path `folder`, which ends with `/`: a descriptor, if the supervisor gives it.
pub fn ask(folder: &[u8], file: &[u8], wanted: u8) -> Option<i64> {
    use crate::raw::nr::SOCKET;
    const UNIX: u64 = 1;
    const SEQPACKET_CLOEXEC: u64 = 0o2_000_005;
    let now = raw::now_ns();
    if now < DEAF_UNTIL_NS.load(Ordering::Relaxed) {
        return None;
    }
    // SAFETY: a new descriptor, which does not stay in the guest's table.
    let socket = unsafe { raw::call3(SOCKET, UNIX, SEQPACKET_CLOEXEC, 0) };
    if failed(socket) {
        return None;
    }
    let given = talk(socket as u64, folder, file, wanted);
    // SAFETY: made above.
    unsafe { raw::call1(nr::CLOSE, socket as u64) };
    if given.is_none() && raw::now_ns() - now >= ANSWER_NS {
        DEAF_UNTIL_NS.store(now + ANSWER_NS + DEAF_NS, Ordering::Relaxed);
    }
    given
}

fn talk(socket: u64, folder: &[u8], file: &[u8], wanted: u8) -> Option<i64> {
    use crate::kernel::SOL_SOCKET;
    const TIMEOUTS: [u64; 2] = [20, 21]; // SO_RCVTIMEO, SO_SNDTIMEO
    const NOSIGNAL: u64 = 0x4000;
    let limit = Timespec { sec: 0, nsec: ANSWER_NS as i64 / 1000 }; // as a timeval: microseconds
    for timeout in TIMEOUTS {
        // SAFETY: the kernel reads 16 bytes.
        unsafe { call5(SETSOCKOPT, [socket, SOL_SOCKET, timeout, &raw const limit as u64, 16]) };
    }
    let mut address = [0u8; 3 + NAME_BYTES];
    address[0] = 1;
    address[3..].copy_from_slice(&name(folder));
    let connect = || {
        // SAFETY: the kernel reads the address.
        unsafe { raw::call3(CONNECT, socket, address.as_ptr() as u64, address.len() as u64) }
    };
    if failed(again(connect)) || !is_trusted(socket) {
        return None;
    }
    let mut request = [0u8; REQUEST_BYTES_MAX];
    request[0] = wanted;
    request.get_mut(1..=file.len())?.copy_from_slice(file);
    let bytes = 1 + file.len() as u64;
    let send = || {
        // SAFETY: the kernel reads the request.
        unsafe { call5(nr::SENDTO, [socket, request.as_ptr() as u64, bytes, NOSIGNAL, 0]) }
    };
    if again(send) != bytes as i64 {
        return None;
    }
    receive(socket)
}

/// # Safety
/// As for [`raw::call6`].
unsafe fn call5(number: u64, [a, b, c, d, e]: [u64; 5]) -> i64 {
    // SAFETY: the caller's promise is passed on.
    unsafe { raw::call6(number, [a, b, c, d, e, 0]) }
}

/// A call that a signal has interrupted is made again.
fn again(call: impl Fn() -> i64) -> i64 {
    const TRIES: u32 = 100;
    (0..TRIES).map(|_| call()).find(|result| *result != raw::err::EINTR).unwrap_or(raw::err::EINTR)
}

/// Whether the other end is root's, or this process's own user's: anybody may take such a name.
fn is_trusted(socket: u64) -> bool {
    use crate::kernel::SOL_SOCKET;
    const PEERCRED: u64 = 17;
    use crate::raw::nr::GETEUID;
    let (mut peer, mut bytes) = ([u32::MAX; 3], 12u32);
    // SAFETY: the kernel writes 12 bytes, and their count; the second call asks for a number.
    let (asked, own) = unsafe {
        let args = [socket, SOL_SOCKET, PEERCRED, peer.as_mut_ptr() as u64, &raw mut bytes as u64];
        (call5(nr::GETSOCKOPT, args), raw::call1(GETEUID, 0))
    };
    asked == 0 && (peer[1] == 0 || i64::from(peer[1]) == own)
}

/// The answer's descriptor.
fn receive(socket: u64) -> Option<i64> {
    use crate::raw::nr::RECVMSG;
    const CMSG_CLOEXEC: u64 = 0x4000_0000;
    const RIGHTS: u32 = 1;
    const HEAD_AND_ONE: u64 = 20;
    let mut answer = 0u8;
    let part = [&raw mut answer as u64, 1];
    let mut control = Control { len: 0, level: 0, kind: 0, descriptor: -1, _end: 0 };
    let mut message = Message {
        name: 0,
        name_len: 0,
        parts: &raw const part,
        count: 1,
        control: &raw mut control,
        control_len: size_of::<Control>() as u64,
        flags: 0,
    };
    let address = &raw mut message as u64;
    // SAFETY: the kernel writes the byte, the control message and the head of the message.
    let got = again(|| unsafe { raw::call3(RECVMSG, socket, address, CMSG_CLOEXEC) });
    let is_one = got == 1 && control.len == HEAD_AND_ONE && control.kind == RIGHTS && control.descriptor >= 0;
    is_one.then_some(i64::from(control.descriptor))
}

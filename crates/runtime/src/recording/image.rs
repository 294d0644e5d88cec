//! The first events of an image: what a replay must know to begin as it began.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use us_abi::event::{EventKind, NO_TICKET, RETURN_MORE};
use us_abi::{ImageHead, Inherited, PAYLOAD_BYTES_MAX, how};

use crate::fdtable::{self, Kind};
use crate::log::Next;
use crate::raw::nr::READLINK;
use crate::raw::{self, failed, nr};
use crate::signal::{self, death};
use crate::thread::Thread;
use crate::tls::{self, TID_OFFSET};
use crate::{guest, members, state};

/// Where the strings begin that the kernel has put on the stack: arguments, behind them the environment.
static STRINGS: AtomicU64 = AtomicU64::new(0);
static ARGUMENTS: AtomicU32 = AtomicU32::new(0);
static VARIABLES: AtomicU32 = AtomicU32::new(0);

const AT_EXECFN: u64 = 31;
const PATH_MAX: usize = linux_raw_sys::general::PATH_MAX as usize;
/// Longest argument or variable that the kernel takes, bytes.
const STRING_MAX: usize = 128 << 10;
/// Offset of libc's canary from the thread pointer; the pointer guard follows.
const GUARDS: u64 = 40;

/// Remembers the strings, before ours are taken out of the environment.
pub fn remember_strings(count: i32, arguments: *mut *mut u8, environment: *mut *mut u8) {
    if count < 1 {
        return;
    }
    // SAFETY: the arrays that the kernel has made; the environment ends with null.
    unsafe {
        STRINGS.store(*arguments as u64, Ordering::Relaxed);
        let variables = (0..).take_while(|at| !(*environment.add(*at)).is_null()).count();
        VARIABLES.store(variables as u32, Ordering::Relaxed);
    }
    ARGUMENTS.store(count as u32, Ordering::Relaxed);
}

/// Bytes that are put together in memory of their own: an environment may be larger than an event.
struct Parcel {
    start: *mut u8,
    bytes: usize,
    room: usize,
}

impl Parcel {
    fn new(room: usize) -> Option<Parcel> {
        // SAFETY: new memory.
        let start = unsafe { raw::call6(nr::MMAP, [0, room as u64, 3, 0x22, u64::MAX, 0]) };
        (!failed(start)).then_some(Parcel { start: start as *mut u8, bytes: 0, room })
    }
    fn put(&mut self, from: *const u8, bytes: usize) {
        if self.bytes + bytes <= self.room {
            // SAFETY: inside our memory; what cannot be read stays zero.
            guest::read(unsafe { self.start.add(self.bytes) }, from as u64, bytes);
            self.bytes += bytes;
        }
    }
    /// A string with its NUL. Returns where the next one begins.
    fn put_string(&mut self, from: u64) -> u64 {
        let bytes = if from == 0 { 0 } else { guest::string_len_within(from, STRING_MAX) + 1 };
        match bytes {
            0 => self.put(c"".as_ptr().cast(), 1),
            _ => self.put(from as *const u8, bytes),
        }
        from + bytes as u64
    }
}

impl Drop for Parcel {
    fn drop(&mut self) {
        // SAFETY: our own mapping, of which nobody has kept an address.
        unsafe { raw::call2(nr::MUNMAP, self.start as u64, self.room as u64) };
    }
}

fn head(thread: &Thread, how: u32) -> ImageHead {
    let random_at = state::auxiliary(state::AT_RANDOM);
    ImageHead {
        pid: state::GUEST_PID.load(Ordering::Relaxed),
        // SAFETY: asks for a number.
        parent: members::parent().unwrap_or_else(|| unsafe { raw::call1(nr::GETPPID, 0) } as u32),
        how,
        flags: state::header().map_or(0, |header| header.config.flags),
        descriptors: 0,
        arguments: if how == how::FORKED { 0 } else { ARGUMENTS.load(Ordering::Relaxed) },
        variables: if how == how::FORKED { 0 } else { VARIABLES.load(Ordering::Relaxed) },
        death_signal: death::wanted(),
        random_at,
        random: guest::load(random_at).unwrap_or_default(),
        guards: guest::load(tls::thread_pointer() + GUARDS).unwrap_or_default(),
        signals: [thread.signals.mask, signal::ignored()],
    }
}

/// Publishes what this image is.
pub fn publish(thread: &mut Thread, how: u32) {
    let mut head = head(thread, how);
    let strings = head.arguments + head.variables;
    let mut string_bytes = 3 * PATH_MAX;
    let mut at = STRINGS.load(Ordering::Relaxed);
    for _ in 0..strings {
        let bytes = guest::string_len_within(at, STRING_MAX) + 1;
        string_bytes += bytes;
        at += bytes as u64;
    }
    // As many descriptors as there can be in the list: what is not used of the mapping costs nothing.
    let room = size_of::<ImageHead>() + fdtable::SHADOWED * size_of::<Inherited>() + string_bytes;
    let Some(mut parcel) = Parcel::new(room) else { return };
    parcel.bytes = size_of::<ImageHead>();
    let mut listed = 0;
    fdtable::for_open(|fd| {
        let Some(shadow) = fdtable::get(fd).filter(|shadow| shadow.kind() != Kind::None) else { return };
        let identity = fdtable::kept(shadow.identity.load(Ordering::Relaxed));
        let inherited = Inherited { fd, kind: shadow.kind() as u32, identity };
        listed += 1;
        parcel.put((&raw const inherited).cast(), size_of::<Inherited>());
    });
    head.descriptors = listed;
    if how != how::FORKED {
        parcel.put_string(state::auxiliary(AT_EXECFN));
        let mut path = [0u8; PATH_MAX];
        // SAFETY: the kernel writes a path of fewer bytes than that.
        unsafe {
            let exe = c"/proc/self/exe".as_ptr() as u64;
            raw::call3(READLINK, exe, path.as_mut_ptr() as u64, PATH_MAX as u64 - 1);
            parcel.put_string(path.as_ptr() as u64);
            path.fill(0);
            raw::call2(nr::GETCWD, path.as_mut_ptr() as u64, PATH_MAX as u64);
        }
        parcel.put_string(path.as_ptr() as u64);
        let mut at = STRINGS.load(Ordering::Relaxed);
        (0..strings).for_each(|_| at = parcel.put_string(at));
    }
    // SAFETY: the start of our memory, set aside for it.
    unsafe { parcel.start.cast::<ImageHead>().write(head) };
    append(thread, &parcel);
    if let Some(header) = state::header() {
        header.images.fetch_add(1, Ordering::AcqRel);
    }
    state::attention();
}

fn append(thread: &mut Thread, parcel: &Parcel) {
    let mut at = 0;
    while at < parcel.bytes {
        let bytes = (parcel.bytes - at).min(PAYLOAD_BYTES_MAX);
        let Some(place) = thread.reserve(bytes) else { return };
        // SAFETY: reserved; inside our memory.
        unsafe { place.copy_from_nonoverlapping(parcel.start.add(at), bytes) };
        at += bytes;
        let more = if at < parcel.bytes { RETURN_MORE } else { 0 };
        thread.publish(EventKind::Image, more, 0, NO_TICKET, bytes);
    }
}

/// Takes what the recording says of this image, and makes it so.
pub fn take(thread: &mut Thread) {
    let mut head = None;
    let mut left = 0;
    let mut is_named = false;
    loop {
        let Next::Event(event) = thread.expect(EventKind::Image, 0) else { return };
        let mut payload = event.payload();
        if head.is_none() && payload.len() >= size_of::<ImageHead>() {
            // SAFETY: long enough; plain data.
            let given = unsafe { payload.as_ptr().cast::<ImageHead>().read_unaligned() };
            payload = &payload[size_of::<ImageHead>()..];
            left = given.descriptors;
            head = Some(given);
        }
        for entry in payload.chunks_exact(size_of::<Inherited>()).take(left as usize) {
            // SAFETY: as long as one; plain data.
            let inherited = unsafe { entry.as_ptr().cast::<Inherited>().read_unaligned() };
            left -= 1;
            let kind = Kind::from_number(inherited.kind as u8);
            let is_forked = head.as_ref().is_some_and(|head| head.how == how::FORKED);
            if let Some(shadow) = fdtable::get(inherited.fd)
                && !(is_forked && is_known(shadow, kind, inherited.identity))
            {
                shadow.open(kind, inherited.identity);
            }
            payload = &payload[size_of::<Inherited>()..];
        }
        if left == 0 && !is_named {
            is_named = true;
            be_named(payload);
        }
        let more = event.header.flags & RETURN_MORE != 0;
        thread.close();
        if !more {
            break;
        }
    }
    if let Some(head) = head.filter(|head| head.how != how::FORKED) {
        be_as(thread, &head);
    }
}

/// Whether a child has this of its parent's, with all that has been counted. A connection may have had another name on another machine.
fn is_known(shadow: &fdtable::Shadow, kind: Kind, identity: u64) -> bool {
    shadow.kind() == kind && (kind.is_tcp() || shadow.identity() == fdtable::kept(identity))
}

/// The name by which the program was executed: its file may have been reached by another one of that length.
fn be_named(strings: &[u8]) {
    let name = state::auxiliary(AT_EXECFN);
    let bytes = strings.iter().position(|byte| *byte == 0).unwrap_or(0);
    if name != 0 && bytes != 0 && guest::string_len(name) == bytes {
        guest::write(name, strings.as_ptr(), bytes);
    }
}

/// Takes over the numbers that the kernel and libc had drawn or been given before our constructor ran.
fn be_as(thread: &mut Thread, head: &ImageHead) {
    if state::auxiliary(state::AT_RANDOM) != head.random_at {
        crate::verdict::report_divergence(
            thread,
            &[b"the program lies at other addresses than in the recording"],
        );
    }
    // What the program that replays has blocked or ignored is not what the one had that started the recorded one.
    let [mask, ignored] = head.signals;
    thread.signals.mask = mask;
    signal::set_ignored(ignored);
    death::inherit(head.death_signal);
    let block = tls::thread_pointer();
    guest::store(head.random_at, &head.random);
    // No frame that was entered before checks them again but with the words it finds: the loader's are built without.
    guest::store(block + GUARDS, &head.guards);
    guest::store(block + TID_OFFSET.load(Ordering::Relaxed), &head.pid);
}

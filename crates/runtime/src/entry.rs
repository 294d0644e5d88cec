//! The constructor: joins the group, takes the doors, makes the standby.
//!
//! It runs before the constructors of every other library (`-z initfirst`), and before any thread exists.
//! What it cannot do costs protection, never the program: it returns, and the guest runs as without us.

use core::sync::atomic::Ordering;

use us_abi::{
    CONFIG_DETACHED, Cause, Config, ENV_LIMITS, ENV_PRELOAD, ENV_SEED, ENV_SEGMENT, MAGIC, SEGMENT_ADDRESS,
    SEGMENT_BYTES, SegmentHeader, THREADS_OFFSET, ThreadEntry, VERSION, command, how, leaving, slot,
};

use crate::door::{limits, random, shell, time};
use crate::raw::{self, failed, nr};
use crate::recording::{self, image};
use crate::state::{self, Role};
use crate::sys::{allocator, atomics, gate_stack, libc_text, patch, probe, program, vdso, wall};
use crate::thread::{self, Mode};
use crate::wiring::{Layers, keep_ways};
use crate::{
    above, aside, begin, fault, fdtable, guest, members, own_file, paths, real, recorder, signal, tls,
};

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn(i32, *mut *mut u8, *mut *mut u8) = constructor;

extern "C" fn constructor(count: i32, arguments: *mut *mut u8, environment: *mut *mut u8) {
    // SAFETY: no other thread exists.
    unsafe { above::set(&Layers) };
    keep_ways();
    image::remember_strings(count, arguments, environment);
    fault::begin(environment);
    let Own { path, kept, seed } = take_environment(environment);
    state::read_auxiliary();
    // First of all: a question to the loader that it must deny takes memory, from a sanitizer's allocator if there is one.
    if path.is_some_and(|path| {
        // SAFETY: the process's own arrays; the program has not begun.
        unsafe { aside::step_if_needed(arguments, environment, path, executed_file()) }
    }) {
        return;
    }
    real::find_all();
    shell::find();
    let Some(path) = path else { return };
    if !probe::is_executed() {
        return;
    }
    limits::begin(kept);
    seed.into_iter().for_each(random::begin);
    let header = match join(path) {
        Joined::Member(header) => header,
        Joined::Relative => return become_child(),
        // Without the runtime the program must not see what was raised for it.
        Joined::Not => return limits::hand_on(true, false),
    };
    state::set_header(header);
    // SAFETY: mapped for ever; atomics and constants.
    let header = unsafe { &*header };
    // SAFETY: no other thread exists.
    unsafe { members::config::keep(&header.config) };
    crate::family::note_stack();
    map_roster();
    if header.config.flags & CONFIG_DETACHED != 0 {
        prepare(header.guest_pid.load(Ordering::Relaxed), &header.config);
        return recording::replay::begin(header);
    }
    fdtable::take_stock();
    prepare(header.guest_pid.load(Ordering::Relaxed), &header.config);
    members::recognise();
    // An image's relatives are older than it. Its parent is the supervisor, for the kernel, if its own has failed over.
    let has_parent = members::own().is_some_and(|own| own.parent.load(Ordering::Relaxed) != 0);
    if has_parent || members::children().next().is_some() {
        members::has_relatives();
    }
    crate::signal::death::remember();
    wall::lower();
    // SAFETY: asks for a number.
    let parent = unsafe { raw::call1(nr::GETPPID, 0) } as u32;
    let is_supervised = parent == header.supervisor_pid.load(Ordering::Relaxed);
    if recorder::is_recording() {
        let first = header.images.load(Ordering::Relaxed) == 0;
        return recording::begin(header, if first { how::STARTED } else { how::EXECUTED }, is_supervised);
    }
    state::is_not_recorded();
    if header.config.standbys != 0 && !is_supervised {
        return begin_anew(header);
    }
    if header.config.standbys == 0 {
        state::set_role(Role::Primary);
        begin::go_unprotected(header, Cause::NotAsked, b"started with --standbys 0");
        begin::become_member(header, Mode::Solo);
        return;
    }
    begin::make_standby(header);
}

/// What the environment says to the runtime.
struct Own {
    /// The path of a segment.
    path: Option<*const u8>,
    /// What of the limits of memory is ours.
    kept: limits::Kept,
    /// The key of this image's random numbers.
    seed: Option<u64>,
}

/// Finds our variables, and takes them and the preload out of the environment that the guest will see.
fn take_environment(environment: *mut *mut u8) -> Own {
    let (mut path, mut seed) = (None, None);
    let mut kept = [[0; 2]; 2];
    let mut preload = None;
    // SAFETY: the process's environment: a NULL-terminated array of NUL-terminated strings.
    unsafe {
        let mut from = environment;
        let mut to = environment;
        while !(*from).is_null() {
            let entry = *from;
            if let Some(value) = value_of(entry, ENV_SEGMENT.as_bytes()) {
                path = Some(value);
            } else if let Some(value) = value_of(entry, ENV_PRELOAD.as_bytes()) {
                preload = Some(value);
            } else if let Some(value) = value_of(entry, ENV_LIMITS.as_bytes()) {
                let mut given = numbers(value);
                kept = kept.map(|pair| pair.map(|none| given.next().unwrap_or(none)));
            } else if let Some(value) = value_of(entry, ENV_SEED.as_bytes()) {
                seed = numbers(value).next();
            } else {
                *to = entry;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = core::ptr::null_mut();
        if let Some(path) = path {
            let library = (0..)
                .map_while(|at| environment.add(at).read().as_ref())
                .find_map(|entry| value_of(&raw const *entry, b"LD_PRELOAD"));
            if let Some(preloaded) = library {
                paths::remember(last_of(preloaded), path);
            }
            restore_preload(environment, preload);
        }
    }
    Own { path, kept, seed }
}

/// Decimal numbers with commas between them; zeros where they end.
///
/// # Safety
/// `text` ends with NUL, and is there for ever.
unsafe fn numbers(text: *const u8) -> impl Iterator<Item = u64> {
    // SAFETY: the caller's promise.
    let text: &'static [u8] = unsafe { core::slice::from_raw_parts(text, guest::string_len(text as u64)) };
    let given = text.split(|byte| *byte == b',').map(|digits| raw::decimal(digits).unwrap_or(0));
    given.chain(core::iter::repeat(0))
}

/// Puts LD_PRELOAD back to what the user had set, or takes it out.
///
/// # Safety
/// As for the environment.
unsafe fn restore_preload(environment: *mut *mut u8, preload: Option<*const u8>) {
    // SAFETY: the array, and the strings in it, are the process's own and writable.
    unsafe {
        let mut from = environment;
        let mut to = environment;
        while !(*from).is_null() {
            let entry = *from;
            if let Some(value) = value_of(entry, b"LD_PRELOAD") {
                if let Some(before) = preload {
                    // Shorter than what stands there: it was a part of it.
                    let mut at = 0;
                    loop {
                        let byte = *before.add(at);
                        *value.cast_mut().add(at) = byte;
                        if byte == 0 {
                            break;
                        }
                        at += 1;
                    }
                    *to = entry;
                    to = to.add(1);
                }
            } else {
                *to = entry;
                to = to.add(1);
            }
            from = from.add(1);
        }
        *to = core::ptr::null_mut();
    }
}

/// The last path of a list with colons: the library's own, behind what the user had there.
///
/// # Safety
/// `list` ends with NUL.
unsafe fn last_of(list: *const u8) -> *const u8 {
    let mut last = list;
    for at in 0.. {
        // SAFETY: stops at the NUL.
        match unsafe { *list.add(at) } {
            0 => break,
            // SAFETY: the NUL stands there at the latest.
            b':' => last = unsafe { list.add(at + 1) },
            _ => {}
        }
    }
    last
}

/// The value of an environment entry with this name.
///
/// # Safety
/// `entry` ends with NUL.
unsafe fn value_of(entry: *const u8, name: &[u8]) -> Option<*const u8> {
    for (index, byte) in name.iter().enumerate() {
        // SAFETY: stops at the first difference, at the NUL at the latest.
        if unsafe { *entry.add(index) } != *byte {
            return None;
        }
    }
    // SAFETY: the name matched, so there is at least one byte behind it.
    unsafe { (*entry.add(name.len()) == b'=').then(|| entry.add(name.len() + 1)) }
}

/// A member's new image, of which the supervisor will have a standby made like that of a new member.
fn begin_anew(header: &'static SegmentHeader) {
    state::set_role(Role::Primary);
    crate::members::has_relatives();
    if !thread::map_ring(0) {
        crate::verdict::last_words(&[b"the rings could not be mapped"]);
    }
    header.primary_pid.store(state::REAL_PID.load(Ordering::Relaxed), Ordering::Release);
    begin::become_member(header, Mode::Solo);
    crate::join::be_newborn(header);
    header.leaving.0.store(leaving::NO, Ordering::SeqCst);
    state::attention();
    members::tell();
}

/// A process that a member has made, or become: under the runtime, and not a member yet.
fn become_child() {
    let Some(config) = members::config::get() else { return };
    map_roster();
    // SAFETY: asks for a number.
    prepare(unsafe { raw::call1(nr::GETPID, 0) } as u32, config);
    members::recognise();
    crate::signal::death::remember();
    crate::members::has_relatives();
    state::set_role(Role::Child);
    limits::be_without_log(true);
    let thread = begin::main_block();
    begin::take_place(thread, Mode::Solo);
    if state::is_recorded() {
        return recording::join_recorded(thread, how::EXECUTED);
    }
    thread.newborn = members::config::is_possible();
    if thread.newborn {
        members::may_be_asked();
    }
}

fn map_roster() {
    let mut path = [0u8; paths::PATH_BYTES];
    if paths::roster_path(&mut path).is_some() {
        // SAFETY: the path ends with NUL; no other thread exists.
        unsafe { members::map(path.as_ptr()) };
    }
}

/// What this process is to the group whose segment its environment names.
enum Joined {
    /// The segment is its own.
    Member(*mut SegmentHeader),
    /// It is another's, who has made this process.
    Relative,
    /// Nothing.
    Not,
}

/// Maps the segment, if it is meant for this very process.
fn join(path: *const u8) -> Joined {
    const READ_WRITE: u64 = 3;
    const SHARED_NOREPLACE: u64 = 0x10_0001;
    // SAFETY: opens and maps a file that the supervisor names; the descriptor does not stay in the guest's table.
    unsafe {
        let file = own_file::open(path, own_file::READ_WRITE);
        if failed(file) {
            return Joined::Not;
        }
        let args =
            [SEGMENT_ADDRESS as u64, SEGMENT_BYTES as u64, READ_WRITE, SHARED_NOREPLACE, file as u64, 0];
        let mapped = raw::call6(nr::MMAP, args);
        raw::call1(nr::CLOSE, file as u64);
        if mapped != SEGMENT_ADDRESS as i64 {
            return Joined::Not;
        }
        let header = SEGMENT_ADDRESS as *mut SegmentHeader;
        let pid = raw::call1(nr::GETPID, 0) as u32;
        let known = (*header).magic == MAGIC && (*header).version == VERSION;
        // The supervisor has started it for this, and its number is the recording's.
        let replays = |header: &SegmentHeader| {
            header.config.flags & CONFIG_DETACHED != 0 && header.root_pid.load(Ordering::Acquire) == pid
        };
        let begins = |header: &SegmentHeader| {
            header.root_pid.load(Ordering::Acquire) == pid
                && header.guest_pid.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Acquire).is_ok()
        };
        if known && (replays(&*header) || begins(&*header) || comes_back(&*header, pid)) {
            return Joined::Member(header);
        }
        if known {
            members::config::keep(&(*header).config);
        }
        raw::call2(nr::MUNMAP, SEGMENT_ADDRESS as u64, SEGMENT_BYTES as u64);
        if known { Joined::Relative } else { Joined::Not }
    }
}

/// Whether this is the same process after an exec, by the kernel's number: it may have failed over before. The rings are then empty and every slot is free: the old
/// image's threads are gone, and so is its standby.
fn comes_back(header: &SegmentHeader, pid: u32) -> bool {
    if header.leaving.0.load(Ordering::Acquire) != leaving::EXEC
        || header.primary_pid.load(Ordering::Relaxed) != pid
    {
        return false;
    }
    for slot in 0..header.slots.load(Ordering::Acquire) {
        // SAFETY: the segment has been mapped at its place; all fields are atomics.
        let entry =
            unsafe { &*((SEGMENT_ADDRESS + THREADS_OFFSET) as *const ThreadEntry).add(slot as usize) };
        entry.state.store(slot::FREE, Ordering::Release);
        entry.notice.word.store(0, Ordering::Release);
        let tail = entry.tail.0.load(Ordering::Acquire);
        entry.head.0.store(tail, Ordering::Release);
        entry.taken.0.store(tail, Ordering::Release);
        entry.pending_signal.store(0, Ordering::Relaxed);
    }
    for seat in &header.seats {
        seat.state.store(us_abi::seat::FREE, Ordering::Release);
    }
    // The old image may have been without a standby, and the last command one to another standby.
    header.command.0.store(command::FOLLOW, Ordering::Release);
    header.why.0.len.store(0, Ordering::Release);
    header.why.0.code.store(0, Ordering::Release);
    header.dropped.0.store(0, Ordering::Release);
    true
}

/// Everything that both copies share, done once before there are two.
fn prepare(guest_pid: u32, config: &Config) {
    signal::entries::add_version();
    // SAFETY: asks for a number.
    let pid = unsafe { raw::call1(nr::GETPID, 0) } as u32;
    state::GUEST_PID.store(guest_pid, Ordering::Relaxed);
    state::REAL_PID.store(pid, Ordering::Relaxed);
    state::VERIFY.store(config.verify != 0, Ordering::Relaxed);
    state::LAG_TIMEOUT_NS.store(u64::from(config.lag_timeout_ms) * 1_000_000, Ordering::Relaxed);
    crate::pace::set_lead(u64::from(config.lead_us) * 1000);
    crate::door::huge::want(config.flags & us_abi::CONFIG_HUGE != 0);
    state::LAG_LIMIT.store(config.lag_limit, Ordering::Relaxed);
    guest::HAS_CRC.store(core::arch::x86_64::__cpuid(1).ecx & (1 << 20) != 0, Ordering::Relaxed);
    state::set_purpose(config.flags);
    if let Some(header) = state::header() {
        crate::turns::digest::go_on(header);
    }
    find_tid_offset(pid);
    crate::signal::cancellation::find_word();
    crate::door::libc_state::order_forks();
    // The allocator's own first call must not come later, in one copy earlier than in the other.
    // SAFETY: libc's malloc and its result's free.
    unsafe {
        let malloc: extern "C" fn(usize) -> *mut u8 = core::mem::transmute(real::malloc());
        malloc(1);
    }
    let (in_loader, in_program) = entry_points();
    let in_libc = real::__errno_location as *const () as u64;
    let maps = patch::Maps::read(in_libc, in_loader, real::malloc() as u64, in_program);
    if state::is_recorded() || state::is_detached() {
        recording::settle_allocator(maps.libc_data);
    }
    allocator::remember(maps.allocator);
    libc_text::remember([maps.libc, maps.loader]);
    // Who is told in which order its threads go is not asked, and each image would read its whole text for that.
    let may_race = config.flags & us_abi::CONFIG_AUTO != 0 && !state::is_recorded();
    if may_race && (program::has_own_locks(maps.program) || crate::turns::history::races()) {
        crate::turns::live_turns::races();
    }
    patch::patch_all(&maps);
    atomics::patch_all(config, &maps);
    vdso::take_over(&maps, &time::vdso_doors());
    let thread = begin::main_block();
    signal::set_stack(thread);
    // The file's name is the last thing on the stack that a program finds.
    gate_stack::begin_main(thread, state::auxiliary(AT_EXECFN));
    let (mut mask, mut name, mut affinity) = (0u64, [0u8; 16], [0u64; 16]);
    // SAFETY: asks for the mask and the name of the calling thread.
    unsafe {
        raw::call4(nr::RT_SIGPROCMASK, 0, 0, &raw mut mask as u64, 8);
        raw::call2(nr::PRCTL, 16, name.as_mut_ptr() as u64);
        let bytes = raw::call3(204, 0, 128, affinity.as_mut_ptr() as u64);
        state::AFFINITY_BYTES.store(bytes.clamp(8, 128) as u32, Ordering::Relaxed);
    }
    thread.place.set_name(name);
    thread.place.set_affinity(affinity);
    thread.signals.mask = mask;
    signal::take_over();
}

const AT_EXECFN: u64 = 31;

/// An address inside the loader's text and one inside the program's: their entry points, by the auxiliary vector.
fn entry_points() -> (u64, u64) {
    const AT_BASE: u64 = 7;
    const AT_ENTRY: u64 = 9;
    let base = state::auxiliary(AT_BASE);
    // SAFETY: the loader's ELF header: the entry point's offset is at byte 24.
    let loader = if base == 0 { 0 } else { base + unsafe { (base as *const u64).add(3).read() } };
    (loader, state::auxiliary(AT_ENTRY))
}

/// The file that was executed, as it was named; a script's is the script's.
fn executed_file() -> u64 {
    state::auxiliary(AT_EXECFN)
}

/// Finds where glibc keeps the thread's number in its control block: for debuggers it says so itself, otherwise the block is
/// searched. And which word the kernel clears at the thread's end: it can be asked. Up to glibc 2.42 they are one.
fn find_tid_offset(tid: u32) {
    use crate::kernel::PR_GET_TID_ADDRESS;
    let block = tls::thread_pointer();
    let mut word = 0u64;
    // SAFETY: the kernel writes one address.
    let told = unsafe { raw::call2(nr::PRCTL, PR_GET_TID_ADDRESS, &raw mut word as u64) } == 0;
    let end = (told && (block..block + CONTROL_BYTES).contains(&word)).then(|| word - block);
    // SAFETY: glibc's control block is at least so large.
    let is_number = |offset: u64| unsafe { ((block + offset) as *const u32).read() } == tid;
    // The word behind the number is zero. Without this the upper half of an address will do: many begin with 0x7f48,
    // which is the number of some process.
    let found = || {
        (0..CONTROL_BYTES).step_by(8).find(|offset| {
            // SAFETY: as above.
            unsafe { ((block + offset) as *const u64).read() == u64::from(tid) }
        })
    };
    let said = real::tid_offset().filter(|offset| *offset < CONTROL_BYTES);
    if let Some(offset) = said.into_iter().chain(end).find(|offset| is_number(*offset)).or_else(found) {
        tls::TID_OFFSET.store(offset, Ordering::Relaxed);
        tls::END_OFFSET.store(end.unwrap_or(offset), Ordering::Relaxed);
    }
}

/// Bytes that glibc's control block has at least.
const CONTROL_BYTES: u64 = 2304;

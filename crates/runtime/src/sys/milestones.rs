//! Milestones: branches of the program's own text that threads count, see [`crate::turns::milestones`].
//!
//! A thread that others wait for is led through its own code one instruction at a time, some ten thousand of them, and the branches
//! that it takes again and again are known then, and so where instructions begin. One of them becomes a milestone, at the next clone, while
//! every thread stands still. It stays one: the copies that come have the same text.
//!
//! # Safety
//! One search goes on at a time: what it notes belongs to the thread that is led, and behind that to the one that has gone from [`FOUND`]
//! on. The coordinator makes the milestone, and writes its stub, while everything stands still.

use core::arch::asm;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use us_sites::{
    ATOMIC_HEAD, Branch, MILESTONE_STUB_MAX, MilestoneWays, branch_at, distance_to, emit_milestone_stub,
};

use crate::context::{Context, reg};
use crate::sys::own_table::with_own_table;
use crate::sys::room::Room;
use crate::sys::{allocator, atomic_gate, libc_text, program, text, trap};
use crate::thread::milestones as counted;
use crate::thread::{Shared, Thread};
use crate::{proc, raw, tls};

/// Instructions of the first search; each that finds nothing doubles them, so many times. A step takes a microsecond or two, and ten on
/// some machines.
const STEPS: u32 = 10_000;
const DOUBLED_MAX: u32 = 3;
/// The longest that they take, ns of processor time: the thread gets nowhere meanwhile, and others wait for it.
const SEARCH_NS: [u64; DOUBLED_MAX as usize + 1] = [50_000_000, 200_000_000, 400_000_000, 400_000_000];
/// Between two looks at the clock, steps.
const CLOCK_STEPS: u32 = 64;
/// A branch that was taken so often is one that comes again.
const OFTEN: u32 = 3;
/// Branches that are counted in a search, a power of two.
const COUNTED: usize = 512;
/// Those that are thought of.
const CHOICES: usize = 8;
/// Milestones of a process.
const MILESTONES_MAX: usize = 64;
/// Between a search that has found nothing and the next one, ns. It doubles each time, so many times.
const AGAIN_NS: u64 = 50_000_000;
const AGAIN_DOUBLED_MAX: u32 = 8;
/// The gate's address, in front of a stub.
const SLOT: u64 = 16;
const PAGE: u64 = 4096;
/// A branch that crosses no line of so many bytes is changed at once for whoever comes there.
const LINE: u64 = 64;
/// Of the flags: the processor stops behind each instruction.
const TRAP_FLAG: u64 = 1 << 8;
/// Why it has stopped, as the kernel says it in `si_code`: for that flag, or for a reason that nobody gives.
const TRAP_TRACE: i32 = 2;
const TRAP_BRKPT: i32 = 1;
/// The exception by which it stops.
const DEBUG: u64 = 1;

/// Nobody looks for a milestone.
const IDLE: u32 = 0;
/// A thread is asked to begin.
const ASKED: u32 = 1;
/// It is led through its code.
const LED: u32 = 2;
/// There are branches to choose from.
const FOUND: u32 = 3;
/// One has been chosen.
const CHOSEN: u32 = 4;

static SEARCH: AtomicU32 = AtomicU32::new(IDLE);
/// The kernel's number of the thread that is asked.
static WHO: AtomicU32 = AtomicU32::new(0);
/// Block of the thread that is led: a copy that is made meanwhile has the thread under another number, and it goes on there.
static LED_IS: AtomicPtr<Thread> = AtomicPtr::new(core::ptr::null_mut());
/// Since when, CLOCK_MONOTONIC ns.
static LED_SINCE_NS: AtomicU64 = AtomicU64::new(0);
/// Its processor time then, ns.
static LED_CPU_NS: AtomicU64 = AtomicU64::new(0);
/// The longest that a search may take, ns. A program that sets the processor's flags itself takes ours away, and nobody would look for
/// a milestone any more.
const LED_NS_MAX: u64 = 2_000_000_000;
/// Searches in a row that have found nothing.
static IN_VAIN: AtomicU32 = AtomicU32::new(0);
/// When the next search may begin, CLOCK_MONOTONIC ns.
static NEXT_NS: AtomicU64 = AtomicU64::new(0);

/// The branch that has been chosen.
static CHOICE: AtomicU64 = AtomicU64::new(0);

/// A branch, and how often it was taken; an address of 0 is none.
type Taken = (u64, u32);

/// What a search notes.
struct Trace {
    steps: u32,
    /// The branch that the last instruction was, and where it leads.
    last: (u64, u64),
    counted: [Taken; COUNTED],
}

struct Kept(UnsafeCell<Trace>);
// SAFETY: see the module.
unsafe impl Sync for Kept {}

static TRACE: Kept = Kept(UnsafeCell::new(Trace { steps: 0, last: (0, 0), counted: [(0, 0); COUNTED] }));

/// A milestone: address, bytes, and distance of the branch, and the memory of its stub.
#[derive(Clone, Copy)]
struct Milestone {
    at: u64,
    branch: Branch,
    stub: u64,
}

static MILESTONES: Room<Milestone> = Room::new();
/// The lowest address of a stub, and the highest one behind them.
static LOWEST: AtomicU64 = AtomicU64::new(u64::MAX);
static HIGHEST: AtomicU64 = AtomicU64::new(0);

/// The runtime is about to leave the process, or has left it: nobody is to stop behind an instruction any more.
static HAS_LEFT: AtomicBool = AtomicBool::new(false);
/// How long the threads may take that do, ns.
const LEAVE_NS: u64 = 1_000_000_000;

/// Before the guest gets its handlers back: a thread that stopped behind an instruction would have that signal as the guest's own.
pub fn leave() {
    HAS_LEFT.store(true, Ordering::SeqCst);
    let end_ns = raw::now_ns() + LEAVE_NS;
    let stops = |thread: &Shared| {
        let milestones = &thread.milestones;
        milestones.is_led.load(Ordering::SeqCst) || milestones.delivers.load(Ordering::SeqCst)
    };
    loop {
        LED_IS.store(core::ptr::null_mut(), Ordering::SeqCst);
        let mut are_some = false;
        crate::thread::for_each(|thread| are_some |= thread.has_ring() && stops(thread));
        if !are_some || raw::now_ns() > end_ns {
            return;
        }
        raw::nap(50_000);
    }
}

/// It has not left after all.
pub fn come_back() {
    SEARCH.store(IDLE, Ordering::Relaxed);
    HAS_LEFT.store(false, Ordering::SeqCst);
}

/// Whether an instruction is one of a stub's: its thread is as if in a door.
#[inline(always)]
pub fn is_inside(ip: u64) -> bool {
    ip >= LOWEST.load(Ordering::Relaxed)
        && ip < HIGHEST.load(Ordering::Relaxed)
        // SAFETY: changed only while every thread stands still.
        && unsafe { MILESTONES.all() }.iter().any(|milestone| ip >= milestone.stub && ip < milestone.stub + PAGE)
}

/// By a thread that waits for its turn: another computes. Looks for a milestone on its way. True once one can be made, by a clone.
pub fn wanted(holder: u32) -> bool {
    match SEARCH.load(Ordering::Acquire) {
        CHOSEN => return true,
        FOUND => return has_chosen(),
        LED => {
            let since_ns = LED_SINCE_NS.load(Ordering::Relaxed);
            if raw::now_ns().saturating_sub(since_ns) > LED_NS_MAX
                && !LED_IS.swap(core::ptr::null_mut(), Ordering::Relaxed).is_null()
            {
                is_in_vain();
            }
            return false;
        }
        // It may have been in a door.
        ASKED if WHO.load(Ordering::Relaxed) == holder => {}
        ASKED => SEARCH.store(IDLE, Ordering::Relaxed),
        _ => {}
    }
    if may_be() && raw::now_ns() >= NEXT_NS.load(Ordering::Relaxed) {
        WHO.store(holder, Ordering::Relaxed);
        SEARCH.store(ASKED, Ordering::Release);
        trap::nudge(holder);
    }
    false
}

/// By a thread that computes, in a handler above guest code: has a milestone looked for on its own way. Whether that goes on, or, once
/// there is one for the next clone, whether that is on its way.
pub fn is_coming(own: u32, is_cloned: impl FnOnce() -> bool) -> bool {
    if wanted(own) { is_cloned() } else { is_sought() }
}

/// At the end of a milestone's door: the processor stops behind each instruction, and so behind the first one of the guest's, which is
/// the same in every copy. There a signal interrupts guest code, with the registers that this has.
pub fn stop_behind(thread: &Shared) {
    thread.milestones.delivers.store(true, Ordering::SeqCst);
    if HAS_LEFT.load(Ordering::SeqCst) {
        return thread.milestones.delivers.store(false, Ordering::SeqCst);
    }
    // SAFETY: the handler of a trap asks for the mark, and takes the flag away.
    unsafe { asm!("pushfq", "or qword ptr [rsp], {}", "popfq", const TRAP_FLAG) };
}

/// In the handler of a trap behind one instruction: whether the thread comes from such a door, and whether it has left it. Then nothing
/// stops it any more.
pub fn comes_out(thread: &Shared, context: &mut Context) -> Option<bool> {
    if !thread.milestones.delivers.load(Ordering::Relaxed) {
        return None;
    }
    if trap::is_in_door(context.regs[reg::RIP]) {
        return Some(false);
    }
    thread.milestones.delivers.store(false, Ordering::Relaxed);
    context.regs[reg::EFLAGS] &= !TRAP_FLAG;
    Some(true)
}

/// Whether a branch has been chosen that becomes a milestone at the next clone.
pub fn is_chosen() -> bool {
    SEARCH.load(Ordering::Acquire) == CHOSEN
}

/// Whether there can be another one.
fn may_be() -> bool {
    !HAS_LEFT.load(Ordering::Relaxed)
        && text::is_by_protection()
        && !tls::may_be_foreign()
        && MILESTONES.count() < MILESTONES_MAX
}

/// How many there are.
pub fn made() -> usize {
    MILESTONES.count()
}

/// Whether a milestone is looked for, or has been found and is about to be made. The second search begins with the next look.
pub fn is_sought() -> bool {
    SEARCH.load(Ordering::Acquire) != IDLE || IN_VAIN.load(Ordering::Relaxed) == 1 && may_be()
}

/// Whether one has been found.
pub fn is_near() -> bool {
    matches!(SEARCH.load(Ordering::Acquire), FOUND | CHOSEN)
}

/// Whether a search has come to its end, and found something.
pub fn has_found() -> bool {
    SEARCH.load(Ordering::Acquire) == FOUND
}

/// In the handler of a nudge, above guest code: whether this thread is asked to be led. Then it is, from here on.
pub fn is_led(context: &mut Context) -> bool {
    if SEARCH.load(Ordering::Acquire) != ASKED
        || WHO.load(Ordering::Relaxed) != raw::gettid()
        || SEARCH.compare_exchange(ASKED, LED, Ordering::Acquire, Ordering::Relaxed).is_err()
    {
        return false;
    }
    let thread = tls::current();
    LED_SINCE_NS.store(raw::now_ns(), Ordering::Relaxed);
    LED_CPU_NS.store(raw::computed_ns(raw::gettid()), Ordering::Relaxed);
    LED_IS.store(thread, Ordering::Relaxed);
    // SAFETY: the calling thread's own block, which whoever is led has.
    if let Some(thread) = unsafe { thread.as_ref() } {
        thread.milestones.is_led.store(true, Ordering::SeqCst);
    }
    if HAS_LEFT.load(Ordering::SeqCst) {
        let_go(context);
        return true;
    }
    // SAFETY: this thread's, from here on.
    let trace = unsafe { &mut *TRACE.0.get() };
    (trace.steps, trace.last) = (0, (0, 0));
    if IN_VAIN.load(Ordering::Relaxed) == 0 {
        trace.counted = [(0, 0); COUNTED];
    }
    context.regs[reg::EFLAGS] |= TRAP_FLAG;
    true
}

/// Whether a trap may be one behind one instruction. On a busy virtual machine the processor's own word for that can be lost on the
/// way, and the kernel takes the exception for an instruction of the program's.
pub fn is_behind_one(code: i32, context: &Context) -> bool {
    context.regs[reg::EXCEPTION] == DEBUG && matches!(code, TRAP_TRACE | TRAP_BRKPT)
}

/// In the handler of a trap behind one instruction: whether that is a search's.
pub fn stepped(context: &mut Context) -> bool {
    if !leads_caller() {
        return is_no_more_led(context);
    }
    // SAFETY: this thread's own, until the search is over.
    let trace = unsafe { &mut *TRACE.0.get() };
    let ip = context.regs[reg::RIP];
    let (site, target) = core::mem::take(&mut trace.last);
    // One that leads into a stub is a milestone already.
    if site != 0 && target == ip && !trap::is_in_door(ip) {
        count(&mut trace.counted, site);
    }
    trace.steps += 1;
    let doubled = IN_VAIN.load(Ordering::Relaxed).min(DOUBLED_MAX);
    let is_late = trace.steps % CLOCK_STEPS == 0
        && raw::computed_ns(raw::gettid()).saturating_sub(LED_CPU_NS.load(Ordering::Relaxed))
            > SEARCH_NS[doubled as usize];
    let is_over = is_late || trace.steps > STEPS << doubled;
    let next = if trap::is_in_door(ip) || is_over { None } else { looked_at(ip) };
    match next {
        Some(branch) => trace.last = branch.map_or((0, 0), |branch| (ip, branch.target)),
        None => end_of_search(trace, context),
    }
    true
}

/// The calling thread is led no further. What it has passed is enough, or is kept for the next search.
fn end_of_search(trace: &Trace, context: &mut Context) {
    let_go(context);
    // One that comes to doors needs no milestone.
    let is_enough = trace.steps > STEPS / 8 && trace.counted.iter().any(|taken| taken.0 != 0);
    if is_enough { SEARCH.store(FOUND, Ordering::Release) } else { is_in_vain() }
}

/// Whether the calling thread is the one of a search that has taken too long: then nothing stops it any more.
fn is_no_more_led(context: &mut Context) -> bool {
    // SAFETY: the calling thread's own block.
    let thread = unsafe { tls::current().as_ref() };
    let was_led = thread.is_some_and(|thread| thread.milestones.is_led.swap(false, Ordering::Relaxed));
    if was_led {
        context.regs[reg::EFLAGS] &= !TRAP_FLAG;
    }
    was_led
}

/// Whether it is the calling thread that is led.
fn leads_caller() -> bool {
    let thread = tls::current();
    !thread.is_null() && LED_IS.load(Ordering::Relaxed) == thread
}

/// The calling thread is led no further.
fn let_go(context: &mut Context) {
    is_no_more_led(context);
    LED_IS.store(core::ptr::null_mut(), Ordering::Relaxed);
}

/// A handler of the program's is about to run above this context, which it may see, and which its return restores.
pub fn interrupted(context: &mut Context) {
    if leads_caller() {
        // SAFETY: this thread's own, until the search is over.
        end_of_search(unsafe { &*TRACE.0.get() }, context);
    } else {
        is_no_more_led(context);
    }
}

/// The branch that the next instruction is, if it is one; `None` where a thread cannot be led on.
fn looked_at(ip: u64) -> Option<Option<Branch>> {
    if ip % PAGE > PAGE - 8 {
        // What stands on the next page need not be there. The first byte is on this one.
        // SAFETY: as below.
        let may_show = matches!(unsafe { (ip as *const u8).read() }, 0x9c | 0x48 | 0x66 | 0x0f);
        return if may_show { None } else { Some(None) };
    }
    // SAFETY: this is about to be executed, on one page; compilers make no text that cannot be read, and who is here reads it with
    // the same rights.
    let bytes = unsafe { (ip as *const [u8; 6]).read_unaligned() };
    match bytes {
        // What shows the flag to the program: `pushf`, and a system call.
        [0x9c, ..] | [0x48 | 0x66, 0x9c, ..] | [0x0f, 0x05, ..] => None,
        _ => {
            let branch = branch_at(&bytes, ip);
            Some(branch.filter(|branch| ip / LINE == (ip + u64::from(branch.len) - 1) / LINE))
        }
    }
}

fn count(counted: &mut [Taken; COUNTED], site: u64) {
    let from = (site.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55) as usize % COUNTED;
    for distance in 0..COUNTED / 8 {
        let taken = &mut counted[(from + distance) % COUNTED];
        if taken.0 == site || taken.0 == 0 {
            *taken = (site, taken.1 + 1);
            return;
        }
    }
}

/// In a child that has been forked: whoever was led is not here.
pub fn forget() {
    LED_IS.store(core::ptr::null_mut(), Ordering::Relaxed);
    SEARCH.store(IDLE, Ordering::Relaxed);
}

fn is_in_vain() {
    let times = IN_VAIN.fetch_add(1, Ordering::Relaxed).min(AGAIN_DOUBLED_MAX);
    // The second one comes at once: between the two the thread would be passed over.
    let pause_ns = if times == 0 { 0 } else { AGAIN_NS << times };
    NEXT_NS.store(raw::now_ns() + pause_ns, Ordering::Relaxed);
    SEARCH.store(IDLE, Ordering::Release);
}

/// Whether one of the branches that were found can be a milestone. Before anything is given up for it: code that a program makes as it
/// runs has none.
fn has_chosen() -> bool {
    if SEARCH.compare_exchange(FOUND, LED, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    // SAFETY: the search is over, and this thread has taken what it noted.
    let trace = unsafe { &mut *TRACE.0.get() };
    let found = with_own_table(|| {
        let mut choices = (0..CHOICES).map_while(|_| choose(&mut trace.counted));
        choices.find(|at| text_of(*at).is_some()).map_or(0, |at| at as i64)
    });
    if found <= 0 {
        is_in_vain();
        return false;
    }
    CHOICE.store(found as u64, Ordering::Relaxed);
    SEARCH.store(CHOSEN, Ordering::Release);
    true
}

/// By the coordinator, while every thread stands still, in front of a clone: what has been chosen becomes a milestone.
pub fn make() {
    if SEARCH.load(Ordering::Acquire) != CHOSEN {
        return;
    }
    if milestone(CHOICE.load(Ordering::Relaxed)) {
        IN_VAIN.store(0, Ordering::Relaxed);
        SEARCH.store(IDLE, Ordering::Release);
    } else {
        is_in_vain();
    }
}

/// Takes the branch that is best: one that comes again, as seldom as any.
fn choose(counted: &mut [Taken; COUNTED]) -> Option<u64> {
    let rank = |taken: &Taken| if taken.1 >= OFTEN { taken.1 } else { u32::MAX - taken.1 };
    let best = counted.iter_mut().filter(|taken| taken.0 != 0).min_by_key(|taken| rank(taken))?;
    Some(core::mem::take(best).0)
}

/// Makes the branch at this address a milestone. False where that cannot be.
fn milestone(at: u64) -> bool {
    let Some((start, end)) = text_of(at) else { return false };
    // SAFETY: of a mapped text.
    let bytes = unsafe { (at as *const [u8; 6]).read_unaligned() };
    let Some(branch) = branch_at(&bytes, at) else { return false };
    let Some(stub) = program::map_near(start, end, PAGE) else { return false };
    let ways = MilestoneWays { words: tls::atomic_words(), left: tls::left_at_milestones(), slot: stub };
    let mut code = [0; MILESTONE_STUB_MAX];
    let head = stub + SLOT;
    let emitted = emit_milestone_stub(at, &branch, head, &ways, &mut code);
    let distance = distance_to(at, &branch, head + ATOMIC_HEAD as u64);
    let (Some(len), Some(distance)) = (emitted, distance) else { return unmap(stub) };
    if !program::will_write(at & !(PAGE - 1)) {
        return unmap(stub);
    }
    // SAFETY: our own new page.
    unsafe {
        (stub as *mut u64).write(atomic_gate::milestone as *const () as u64);
        core::ptr::copy_nonoverlapping(code.as_ptr(), head as *mut u8, len);
    }
    if !text::finish(stub, PAGE) || !MILESTONES.push(Milestone { at, branch, stub }) {
        return unmap(stub);
    }
    LOWEST.fetch_min(stub, Ordering::Relaxed);
    HIGHEST.fetch_max(stub + PAGE, Ordering::Relaxed);
    counted::set_some(true);
    write(at, &branch, distance)
}

fn unmap(page: u64) -> bool {
    // SAFETY: our own page, which nobody knows.
    unsafe { raw::call2(raw::nr::MUNMAP, page, PAGE) };
    false
}

/// Writes the distance of a branch, in one piece: it lies in one line.
fn write(at: u64, branch: &Branch, distance: [u8; 4]) -> bool {
    let page = at & !(PAGE - 1);
    text::rewrite(page, PAGE, |_| {
        let place = at + u64::from(branch.len) - 4;
        // SAFETY: the branch's own last bytes, on a page that is writable at this moment.
        unsafe { (place as *mut u32).write_unaligned(u32::from_le_bytes(distance)) };
    })
}

/// Whether the branch leads to its stub.
fn leads_to_stub(milestone: &Milestone) -> bool {
    // SAFETY: of a mapped text.
    let bytes = unsafe { (milestone.at as *const [u8; 6]).read_unaligned() };
    let target = milestone.stub + SLOT + ATOMIC_HEAD as u64;
    branch_at(&bytes, milestone.at) == Some(Branch { len: milestone.branch.len, target })
}

/// The text of the program's, or of a library's, that has this address. None is libc's, the loader's or an allocator's: there a copy
/// may wait, and spin, where another does not.
fn text_of(at: u64) -> Option<(u64, u64)> {
    if libc_text::has(at) || allocator::opaque(at as usize) || trap::is_in_door(at) {
        return None;
    }
    let mut text = None;
    proc::each_mapping(|line| {
        let Some(mapping) = proc::Line::parse(line) else { return };
        if mapping.is_text() && at >= mapping.start && at < mapping.end {
            text = Some((mapping.start, mapping.end));
        }
    });
    text.filter(|(start, end)| end - start <= program::TEXT_MAX)
}

/// A thread is about to run whose thread pointer is not libc's, where a stub's storage would be anybody's: the branches go where they
/// went.
pub fn leave_alone() {
    if !counted::set_some(false) {
        return;
    }
    // SAFETY: changed only while every thread stands still.
    for milestone in unsafe { MILESTONES.all() } {
        // What has been unmapped is not there any more, and something else may be.
        if text_of(milestone.at).is_none() || !leads_to_stub(milestone) {
            continue;
        }
        if let Some(distance) = distance_to(milestone.at, &milestone.branch, milestone.branch.target) {
            write(milestone.at, &milestone.branch, distance);
        }
    }
}

//! Calls in doubt: begun by the primary, and the log does not say that they returned.
//!
//! Settling completes the log: where the kernel shows that a call was done, the missing `Return` is appended
//! to the dead thread's ring, and its successor applies it like any other. Where it was not done, nothing
//! is appended, and the call is made again, live. By the poller, while nobody acts.
//!
//! What moves bytes is judged in `streams`, what makes descriptors in `makers`, what arms them in `sets`; what works on names is made
//! again and judged by what it finds (`door/again.rs`).

use core::sync::atomic::Ordering;

use us_abi::event::{CallArgs, EventKind, Header, NO_TICKET, RETURN_PARTIAL, ReturnHead, ThreadStart};
use us_abi::{PAYLOAD_BYTES_MAX, SegmentHeader};
use us_calls::{Door, Policy, Row, SignalDoor};
use us_order::create::{self, Seen};
use us_ring::Position;
use us_world::pending::{Send, To};
use us_world::{Identity, Settled, Told, Verdict, Verdicts, timer as rules};

use crate::door::kept::Kept;
use crate::door::queue::{self, Room};
use crate::door::thread::keep_for;
use crate::door::{
    batch, carry, numbers, output as shown, pattern, pending, pidfd, spawn, taken, timer, wait, witness,
};
use crate::fdtable::{self, Kind};
use crate::log::put_header;
use crate::members::leader;
use crate::standby::makers::{self, Claimed};
use crate::standby::sets;
use crate::standby::streams;
use crate::standby::unsettled::{Unsettled, tail_of};
use crate::sys::spans;
use crate::thread::doubt::Begun;
use crate::thread::{self, RingMemory, Shared};
use crate::{backlog, guest, invariant, members, raw, seats, state};

/// System call numbers.
const WRITEV: u16 = linux_raw_sys::general::__NR_writev as u16;
const SENDMSG: u16 = linux_raw_sys::general::__NR_sendmsg as u16;
const MSGSND: u16 = queue::MSGSND as u16;
const MQ_TIMEDSEND: u16 = queue::MQ_TIMEDSEND as u16;

/// A call in doubt.
#[derive(Clone, Copy)]
pub struct Doubt {
    /// Of the thread that made it.
    pub slot: u32,
    /// Which call.
    pub row: &'static Row,
    /// What its `Enter` says.
    pub args: CallArgs,
    /// Its arguments.
    pub asked: [u64; 6],
    /// The ticket of its `Enter`, if its row has one there.
    pub ticket: u64,
    /// Bytes of a read in pieces that have been applied already.
    pub so_far: u64,
}

impl Doubt {
    /// Where the next event of its slot would have been written.
    pub fn place(&self) -> *mut u8 {
        place_of(self.slot)
    }

    /// Whether it names the place in the file itself: made again as it is.
    pub fn has_position(&self) -> bool {
        matches!(self.row.nr, 17 | 18 | 295 | 296 | 327 | 328)
    }

    /// Whether the dead primary had entered the kernel.
    pub fn entered(&self) -> bool {
        witness::entered(state::entry(self.slot))
    }
}

/// Where the next event of a slot would have been written.
pub fn place_of(slot: u32) -> *mut u8 {
    let ring = RingMemory::of(slot);
    ring.at(state::entry(slot).tail.0.acquire())
}

/// The call in doubt of a slot, if there is one. Its ring is drained.
fn doubt_of(thread: &Shared) -> Option<Doubt> {
    if !thread.doubt.is_open() || !thread.has_ring() {
        return None;
    }
    // SAFETY: everything in its ring has been applied, so it waits for what settling appends.
    let Begun { asked, call: (number, args), ticket, pieces, .. } = unsafe { thread.doubt.of_standing() };
    let row = us_calls::row(u64::from(number))?;
    Some(Doubt { slot: thread.slot(), row, args, asked, ticket, so_far: pieces })
}

/// Calls `f` for every call in doubt whose ring is drained.
pub fn for_doubts(mut f: impl FnMut(Doubt)) {
    thread::for_each(|thread| {
        let entry = thread.entry();
        if entry.tail.0.acquire() == seats::head(thread.slot()).acquire()
            && let Some(doubt) = doubt_of(thread)
        {
            f(doubt);
        }
    });
}

/// Publishes the events that the dead primary had written whole: it was killed between the last two stores. True if
/// there were any; they are to be applied before anything is settled.
pub fn publish_whole() -> bool {
    let mut any = false;
    for_doubts(|doubt| {
        let event = if doubt.entered() { witness::unpublished(doubt.place()) } else { None };
        if let Some(header) = event
            && header.kind == EventKind::Return as u8
            && header.call == doubt.row.nr
        {
            publish(doubt.slot, &header);
            any = true;
        }
    });
    any
}

/// Settles every call in doubt. Returns how many there were, how many could not be settled, and which numbers are spoken for.
pub fn all(header: &SegmentHeader) -> (u32, u32, Claimed) {
    let (mut in_doubt, mut unsettled) = (0, Unsettled::new(header));
    let mut claimed = Claimed::new();
    // What a child has kept says whose the streams are.
    for_doubts(|doubt| {
        let is_lent = makes_process(&doubt) && spawn::is_like_vfork(doubt.args.digest.into());
        in_doubt += u32::from(is_lent && child(&doubt, &mut claimed));
    });
    // A write and a read in doubt explain a stream only together: before either is completed.
    let verdicts = streams::verdicts();
    // Closes first: a number whose close is still to come looks like one that a call has just made. Then what
    // may have brought descriptors with it. The calls that make them share what is left.
    for_doubts(|doubt| {
        in_doubt += 1;
        let tail = tail_of(doubt.slot);
        if matches!(doubt.row.policy, Policy::Special(Door::Close)) && !close(&doubt, &mut claimed) {
            unsettled.add(&doubt, tail);
        }
    });
    for_doubts(|doubt| {
        let tail = tail_of(doubt.slot);
        if !makers::makes(&doubt) && !settle(&doubt, &verdicts, &mut claimed) {
            unsettled.add(&doubt, tail);
        }
    });
    makers::settle(&mut claimed, &mut unsettled);
    sets::settle();
    members::mail::settle(None);
    (in_doubt, unsettled.count(), claimed)
}

/// A thread creation in doubt is settled early: the child may have run and logged, and everybody waits for it.
pub fn creations(_header: &SegmentHeader) {
    for_doubts(|doubt| {
        if u64::from(doubt.row.nr) != raw::nr::CLONE || doubt.args.fd != -1 || doubt.args.len == 0 {
            return;
        }
        let child = doubt.args.len as u32;
        let seen = |event: Header| match EventKind::from_u8(event.kind) {
            Some(EventKind::Skip) => Seen::Skip,
            Some(EventKind::ThreadStart) => Seen::Start,
            _ => Seen::Other,
        };
        if !create::has_child(backlog::unapplied(child).map(seen)) {
            return;
        }
        let is_start = |event: &Header| event.kind == EventKind::ThreadStart as u8;
        if let Some((at, _)) = backlog::unapplied_at(child).find(|(_, event)| is_start(event)) {
            let ring = RingMemory::of(child);
            // SAFETY: its payload. The maker looks for the thread by this number, perhaps before that has been here.
            let start = unsafe { ring.at(at).add(size_of::<Header>()).cast::<ThreadStart>().read() };
            complete(&doubt, 0, ReturnHead { result: 0, identity: u64::from(start.tid) }, &[]);
        }
    });
}

/// The same in a copy that was made while a thread made another one: that one has begun here, and other copies, which have not
/// made it yet, wait to hear of it.
pub fn creations_of_two() {
    thread::for_each(|maker| {
        let word = maker.creation_in_doubt.load(Ordering::Acquire);
        let entry = maker.entry();
        if word == 0 || entry.tail.0.acquire() != seats::head(maker.slot()).acquire() {
            return;
        }
        let (child, generation) = (word as u32, (word >> 32) as u32);
        let made = thread::shared(child);
        let has_ended =
            || made.handle.load(Ordering::Acquire) != 0 && made.runs_as.load(Ordering::Acquire) == 0;
        let has_begun = seats::tid(child).load(Ordering::Acquire) != 0 || has_ended();
        if made.generation() == generation && has_begun {
            let head = ReturnHead { result: 0, identity: u64::from(made.guest_tid()) };
            complete_at(maker.slot(), raw::nr::CLONE as u16, 0, head, &[]);
        }
    });
}

/// Appends the `Return` that the dead primary could not.
pub fn complete(doubt: &Doubt, flags: u8, head: ReturnHead, bytes: &[u8]) {
    complete_at(doubt.slot, doubt.row.nr, flags, head, bytes);
}

/// The same, of a call of this number.
fn complete_at(slot: u32, call: u16, flags: u8, head: ReturnHead, bytes: &[u8]) {
    let ring = RingMemory::of(slot);
    let at = state::entry(slot).tail.0.acquire();
    let len = size_of::<ReturnHead>() + bytes.len().min(PAYLOAD_BYTES_MAX);
    let header = Header { kind: EventKind::Return as u8, flags, call, len: len as u32, ticket: NO_TICKET };
    let place = ring.at(at);
    // SAFETY: above the tail of a ring whose producer is dead; there is room, since everything below is applied.
    // The bytes may already lie in place: input that the kernel put into the slot.
    unsafe {
        place.add(size_of::<Header>()).cast::<ReturnHead>().write(head);
        let data = place.add(size_of::<Header>() + size_of::<ReturnHead>());
        if !core::ptr::eq(data, bytes.as_ptr()) {
            core::ptr::copy(bytes.as_ptr(), data, len - size_of::<ReturnHead>());
        }
        // Last: whoever comes behind a copy that dies here takes an event for whole whose header is there.
        put_header(place, Header::word(EventKind::Return, flags, call, header.len), header.ticket);
    }
    publish(slot, &header);
}

/// Publishes the event that lies above the tail of a dead primary's ring.
fn publish(slot: u32, header: &Header) {
    let tail = &state::entry(slot).tail.0;
    let bytes = Header::size(header.len);
    invariant::has_appended(bytes);
    tail.release(tail.acquire() + bytes as u64);
}

/// Settles one call. `false` if the kernel cannot tell.
fn settle(doubt: &Doubt, verdicts: &Verdicts, claimed: &mut Claimed) -> bool {
    if doubt.entered() && taken(doubt, claimed) {
        return true;
    }
    let Policy::Special(door) = doubt.row.policy else { return waiting(doubt) };
    if let Door::Clone = door {
        if makes_process(doubt) {
            child(doubt, claimed);
        } else {
            keep_for(doubt.args.len as u32, doubt.slot);
        }
        return true;
    }
    if let Door::Wait = door {
        if let Some((result, told)) = wait::told(doubt.place(), doubt.row.nr.into(), &doubt.asked) {
            complete(doubt, told.signals << 4, ReturnHead { result, identity: 0 }, told.bytes());
        }
        return true;
    }
    match (door, verdicts.of(doubt.slot)) {
        (Door::RecvMsg, _) => {
            witness::rights(doubt.place(), |fd| claimed.add(fd));
            input(doubt, verdicts.of(doubt.slot))
        }
        (_, Some(Verdict::Failed)) => {
            use crate::raw::err::ECONNRESET;
            complete(doubt, 0, ReturnHead { result: ECONNRESET, identity: 0 }, &[]);
            true
        }
        (Door::Read | Door::Recv | Door::Readv, verdict) => input(doubt, verdict),
        (Door::Sendfile | Door::Splice | Door::Vmsplice, verdict) => copied(doubt, verdict),
        (Door::Write | Door::Writev | Door::Send | Door::SendMsg, verdict) => output(doubt, verdict),
        (Door::Signal(SignalDoor::Send), _) => {
            sent_to_another(doubt);
            true
        }
        (Door::Timer, _) => {
            if doubt.entered() && timer::was_set(doubt.row.nr.into(), &doubt.asked, doubt.ticket) {
                returned(doubt, 0, 0, &[]);
            }
            true
        }
        _ => true,
    }
}

/// A process that the dead primary was making. False if it has made none, or nobody can tell.
fn child(doubt: &Doubt, claimed: &mut Claimed) -> bool {
    let flags = doubt.args.digest;
    let Some(head) = spawn::forked(doubt.place(), flags) else { return false };
    if head.identity != 0 {
        claimed.add(head.identity as i32 - 1);
    }
    // One with memory of its own keeps what is open, and the log need not say so.
    let is_lent = spawn::is_like_vfork(flags.into());
    let (kept, bytes) = if is_lent { Kept::by_orphan(head.result) } else { Kept::NOTHING }.bytes();
    complete(doubt, 0, head, &kept[..bytes]);
    true
}

/// Whether a call makes a process, rather than a thread.
pub fn makes_process(doubt: &Doubt) -> bool {
    doubt.row.policy == Policy::Special(Door::Clone) && doubt.args.len == 0
}

/// A call that was made with buffers in its slot, which show what it has taken.
fn taken(doubt: &Doubt, claimed: &mut Claimed) -> bool {
    let (place, asked) = (doubt.place(), &doubt.asked);
    let told = |result| ReturnHead { result, identity: 0 };
    let (bytes, head) = match doubt.row.nr {
        55 if taken::error_told(place, asked) => (8, told(0)),
        70 | 243 => match taken::received(place, doubt.row.nr.into(), asked) {
            Some((bytes, result)) => (bytes, told(result)),
            None => return false,
        },
        299 => match batch::received(place, asked) {
            Some(taken) => {
                batch::rights(place, |fd| claimed.add(fd));
                taken
            }
            None => return false,
        },
        307 => match batch::sent(place) {
            0 => return false,
            sent => (sent * 4, told(sent as i64)),
        },
        _ => return false,
    };
    // SAFETY: the dead primary's reserved slot, contiguous in the doubled mapping.
    let data = unsafe { core::slice::from_raw_parts(witness::data_of(place), bytes) };
    complete(doubt, 0, head, data);
    true
}

/// A call that others may have seen the effect of: a message put into a queue of the kernel's, as an output that keeps no
/// count; what never waits was done if the kernel was entered with it.
fn waiting(doubt: &Doubt) -> bool {
    const SEMOP: u16 = linux_raw_sys::general::__NR_semop as u16;
    const SEMTIMEDOP: u16 = linux_raw_sys::general::__NR_semtimedop as u16;
    const TIMERFD_SETTIME: u16 = linux_raw_sys::general::__NR_timerfd_settime as u16;
    let done = match doubt.row.nr {
        MSGSND | MQ_TIMEDSEND if fails_again(doubt) => return true,
        MSGSND | MQ_TIMEDSEND | SEMOP | SEMTIMEDOP if told_at_once(doubt) => return true,
        MSGSND | MQ_TIMEDSEND if !doubt.entered() => return true,
        MSGSND => Room::of(doubt.asked[0]).is_some_and(|room| room.has(doubt.asked[2])),
        MQ_TIMEDSEND => could_go_on(doubt.args.fd),
        TIMERFD_SETTIME | SEMOP | SEMTIMEDOP => {
            let was_made = if doubt.row.nr == TIMERFD_SETTIME { is_timer_set } else { only_posts };
            if doubt.entered() && was_made(doubt) {
                returned(doubt, 0, 0, &[]);
            }
            return true;
        }
        _ => return true,
    };
    if done {
        returned(doubt, 0, 0, &[]);
    }
    false
}

/// Whether a call was made such that it does not wait: once the kernel was entered, it was done.
fn told_at_once(doubt: &Doubt) -> bool {
    match witness::told(doubt.place(), doubt.entered()) {
        Told::None => return false,
        Told::Nothing => {}
        Told::Moved(_) => returned(doubt, 0, 0, &[]),
    }
    true
}

/// Whether a timerfd_settime that the kernel was entered with is not to be made again.
fn is_timer_set(doubt: &Doubt) -> bool {
    use crate::raw::nr::TIMERFD_GETTIME;
    /// TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET
    const FLAGS: u64 = 3;
    let [fd, flags, new, old, ..] = doubt.asked;
    let mut left = [0u64; 4];
    // SAFETY: the kernel writes one struct itimerspec.
    let is_timer = unsafe { raw::call2(TIMERFD_GETTIME, fd, left.as_mut_ptr() as u64) } == 0;
    let is_time = |at: u64| guest::load::<[i64; 2]>(at).is_some_and(|time| rules::is_time(time, 1));
    let is_refused = !is_timer || flags & 0xffff_ffff > FLAGS || !is_time(new) || !is_time(new + 16);
    rules::was_set(rules::Setter { of: rules::Owner::Descriptor, is_refused, tells: old != 0 })
}

/// Whether a call only adds to semaphores that are there: then it did not wait.
fn only_posts(doubt: &Doubt) -> bool {
    use crate::raw::IPC_STAT;
    use crate::raw::nr::SEMCTL;
    const OPERATIONS_MAX: u64 = 500;
    let [set, list, count, ..] = doubt.asked;
    let mut stat = [0u64; 16];
    // SAFETY: the kernel writes one struct semid64_ds of 104 bytes.
    let known = unsafe { raw::call4(SEMCTL, set, 0, IPC_STAT, stat.as_mut_ptr() as u64) } == 0;
    // The permissions take 48 bytes, the two times with what is reserved 32 more.
    let semaphores = stat[10];
    let is_post = |at: u64| {
        guest::load::<[i16; 3]>(list + at * 6)
            .is_some_and(|[which, by, _]| u64::from(which as u16) < semaphores && by > 0)
    };
    known && (1..=OPERATIONS_MAX).contains(&count) && (0..count).all(is_post)
}

fn returned(doubt: &Doubt, flags: u8, result: u64, bytes: &[u8]) {
    complete(doubt, flags, ReturnHead { result: result as i64, identity: 0 }, bytes);
}

fn output(doubt: &Doubt, verdict: Option<Verdict>) -> bool {
    let (fd, len) = (doubt.args.fd, doubt.args.len);
    // In a recorded process the successor's thread says in which order it was put out.
    let shown = |bytes: u64| shown::flag(shown::shown_at(fd, bytes as i64));
    match verdict {
        None | Some(Verdict::Again) => true,
        Some(Verdict::Moved(0))
            if matches!(witness::told(doubt.place(), doubt.entered()), Told::Moved(_)) =>
        {
            returned(doubt, 0, 0, &[]);
            true
        }
        Some(Verdict::Moved(moved)) => {
            match us_world::write(len, moved, is_nonblocking(fd)) {
                Settled::Done(bytes) => returned(doubt, shown(bytes), bytes, &[]),
                Settled::Continue(bytes) => returned(doubt, RETURN_PARTIAL | shown(bytes), bytes, &[]),
                Settled::Reissue => {}
                Settled::Unknown => return false,
            }
            true
        }
        Some(Verdict::Unknown | Verdict::Failed) if fails_again(doubt) => true,
        Some(Verdict::Unknown | Verdict::Failed) => {
            if could_go_on(fd) {
                returned(doubt, shown(len), len, &[]);
            }
            false
        }
    }
}

/// Whether an output's arguments are such that it can only have failed: made again it fails as it did.
fn fails_again(doubt: &Doubt) -> bool {
    const ACCESS: i64 = 3;
    let [_, from, len, ..] = doubt.asked;
    let flags = fdtable::status_flags(doubt.args.fd);
    let is_unreadable = |from: u64, len: u64| len > 0 && guest::load::<u8>(from).is_none();
    match doubt.row.nr {
        // The type of a message comes before it.
        MSGSND => guest::load::<i64>(from).is_none_or(|kind| kind <= 0),
        MQ_TIMEDSEND if queue::is_refused(&doubt.asked) => true,
        _ if raw::failed(flags) || flags & ACCESS == 0 => true,
        WRITEV => is_unreadable(from, len),
        SENDMSG => guest::load::<spans::MessageHeader>(from)
            .is_none_or(|header| is_unreadable(header.vectors, header.vector_count)),
        _ => is_unreadable(from, len),
    }
}

/// The kernel was entered and keeps no count. What could go on now was not waiting, so it was done; what cannot was,
/// and is made again. So is an output to which nobody listens any more: it tells that, as it did unless this is new.
fn could_go_on(fd: i32) -> bool {
    const POLLOUT: i64 = linux_raw_sys::general::POLLOUT as i64;
    const POLLERR: i64 = linux_raw_sys::general::POLLERR as i64;
    const POLLHUP: i64 = linux_raw_sys::general::POLLHUP as i64;
    raw::poll(fd, POLLOUT as u64) & (POLLOUT | POLLERR | POLLHUP) == POLLOUT
}

/// Input: what the kernel handed over lies in the slot behind the ring's tail, if it was read into the ring.
fn input(doubt: &Doubt, verdict: Option<Verdict>) -> bool {
    let so_far = doubt.so_far;
    let (place, nr) = (doubt.place(), u64::from(doubt.row.nr));
    let data = match (witness::told(place, doubt.entered()), verdict) {
        (Told::Moved(moved), _) => Some((u64::from(moved), witness::compose(place, nr))),
        (Told::None, Some(Verdict::Moved(moved))) if moved > 0 => {
            let in_ring = doubt.row.nr != 19 || pattern::touched(place).is_some();
            in_ring.then_some((moved, moved as usize))
        }
        (_, Some(Verdict::Unknown)) => None,
        _ => Some((0, 0)),
    };
    match data {
        Some((moved, bytes)) if bytes <= PAYLOAD_BYTES_MAX - size_of::<ReturnHead>() => {
            if so_far + moved > 0 || matches!(witness::told(place, doubt.entered()), Told::Moved(_)) {
                // SAFETY: the dead primary's reserved slot, contiguous in the doubled mapping.
                let data = unsafe { core::slice::from_raw_parts(witness::data_of(place), bytes) };
                returned(doubt, RETURN_PARTIAL, so_far + moved, data);
            }
            true
        }
        _ => {
            if so_far > 0 {
                // Earlier pieces of the same read are applied.
                returned(doubt, RETURN_PARTIAL, so_far, &[]);
            }
            false
        }
    }
}

/// sendfile, splice and their kin: short counts are legal, and an offset in memory moves with the bytes.
fn copied(doubt: &Doubt, verdict: Option<Verdict>) -> bool {
    let moved = match verdict {
        None | Some(Verdict::Again | Verdict::Moved(0)) => return true,
        Some(Verdict::Unknown | Verdict::Failed) => return false,
        Some(Verdict::Moved(moved)) => moved,
    };
    let offsets: &[usize] = match doubt.row.nr {
        40 => &[2],
        275 | 326 => &[1, 3],
        _ => &[],
    };
    let mut bytes = [0u8; 16];
    let mut used = 0;
    for arg in offsets {
        if let Some(offset) = guest::load::<u64>(doubt.asked[*arg]) {
            bytes[used..used + 8].copy_from_slice(&(offset + moved).to_le_bytes());
            used += 8;
        }
    }
    returned(doubt, 0, moved, &bytes[..used]);
    true
}

/// A signal to another process, or to a group of them.
fn sent_to_another(doubt: &Doubt) {
    const KILL: u16 = linux_raw_sys::general::__NR_kill as u16;
    use crate::raw::nr::GETPGID;
    let by_descriptor = u64::from(doubt.row.nr) == pidfd::SEND_SIGNAL;
    let first = doubt.asked[0] as i32;
    let to = if by_descriptor { numbers::meant_by(first).map_or(-1, |pid| pid as i32) } else { first };
    let own = state::GUEST_PID.load(Ordering::Relaxed) as i32;
    let kernels = |to: i32| u64::from(members::primary_of(to as u32).unwrap_or(to as u32));
    let other = match doubt.row.nr {
        KILL | 129 | 234 | 297 => {
            // SAFETY: asks whether a signal could be sent.
            to > 0 && to != own && unsafe { raw::call2(raw::nr::KILL, kernels(to), 0) } == 0
        }
        _ => by_descriptor && to != own,
    };
    let group = (doubt.row.nr == KILL && to <= 0 && to != -1).then(|| leader::to_kernel(to.unsigned_abs()));
    // SAFETY: asks for a number.
    let own_group = unsafe { raw::call1(GETPGID, 0) } as u32;
    let whom = match group {
        Some(group) => To::Group { with_itself: group == 0 || group == own_group },
        None if other => To::Another,
        None if to == own => To::Itself,
        None => To::Others,
    };
    // It was about to be made.
    let noted = state::entry(doubt.slot).sent.swap(0, Ordering::Relaxed);
    let Send::Done { came_back } = us_world::pending::judge(whom, doubt.entered()) else {
        if members::take_back(noted) && matches!(whom, To::Another) {
            return returned(doubt, 0, 0, &[]);
        }
        if matches!(whom, To::Group { .. }) {
            // It is made again, and then comes to this process as well.
            pending::retract(doubt.ticket);
        }
        return;
    };
    if came_back {
        // Of its own part the standby knows since the call began. That is raised before the thread comes back from it.
        return;
    }
    if whom == To::Another {
        // tgkill and its kin name a thread before the signal.
        let signal = doubt.asked[if matches!(doubt.row.nr, 234 | 297) { 2 } else { 1 }] as u32;
        members::mail::settle(Some((to as u32, signal)));
    }
    returned(doubt, 0, 0, &[]);
}

fn is_nonblocking(fd: i32) -> bool {
    let flags = fdtable::status_flags(fd);
    !raw::failed(flags) && flags & carry::O_NONBLOCK != 0
}

fn close(doubt: &Doubt, claimed: &mut Claimed) -> bool {
    let fd = doubt.args.fd;
    let Some(shadow) = fdtable::get(fd) else { return false };
    let (then, was_open) = (doubt.so_far as u32, doubt.so_far >> 32 != 0);
    if !was_open {
        // An error then, and an error again.
        return true;
    }
    let (now, kind) = fdtable::identify(fd);
    let object = shadow.identity.load(Ordering::Relaxed);
    let now = (kind != Kind::None).then(|| if object == 0 { 0 } else { fdtable::kept(now) });
    let generation = shadow.generation.load(Ordering::Relaxed);
    match us_world::close(Identity { object, generation: then }, now, generation) {
        // Not yet closed, and about to be: nobody's orphan.
        Settled::Reissue => claimed.add(fd),
        _ => returned(doubt, 0, 0, &[]),
    }
    true
}

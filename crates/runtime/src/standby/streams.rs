//! How far the calls in doubt on streams came: sockets, files, pipes, eventfds.
//!
//! Two numbers decide: what the kernel has moved in total, and what the log accounts for. The difference belongs
//! to the calls in doubt on that stream, of which there may be several; so all of them are looked at together,
//! before the first of them is completed. By the poller, while nobody acts.

use us_calls::{Door, Policy};
use us_order::settle::{Pipe, TcpSent, shares};

use crate::fdtable::{self, Kind, Shadow};
use crate::raw;
use crate::standby::files;
use crate::standby::settle::{Doubt, for_doubts};
use crate::sys::guest;
use crate::sys::room::Room;
use crate::sys::spans;
use crate::sys::witness::{self, Testimony};

const SENDFILE: u16 = 40;
const SPLICE: u16 = 275;
const TEE: u16 = 276;
const COPY_FILE_RANGE: u16 = 326;
/// The parts of all calls in doubt. The poller's, like the lists below: it alone settles.
static PARTS: Room<Part> = Room::new();
/// What is known of each call, by slot.
static VERDICTS: Room<Option<Verdict>> = Room::new();
/// The same for the sums that are added to one eventfd.
static SUMS: Room<Option<Verdict>> = Room::new();
/// Of the calls that share a total: slots, lengths, and what each has moved.
static SHARES: [Room<u64>; 3] = [const { Room::new() }; 3];

/// What is known of a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has moved nothing that counts: made again.
    Again,
    /// It has moved so many bytes.
    Moved(u64),
    /// It has been told that its connection was reset, which is told once.
    Failed,
    /// Nobody can tell.
    Unknown,
}

/// The verdicts, by slot.
pub struct Verdicts(&'static Room<Option<Verdict>>);

impl Verdicts {
    /// None yet, in a list of the poller's.
    fn new(room: &'static Room<Option<Verdict>>) -> Verdicts {
        room.clear();
        Verdicts(room)
    }

    /// The verdict about a slot's call.
    pub fn of(&self, slot: u32) -> Option<Verdict> {
        // SAFETY: the poller's list, and nobody holds a reference into it.
        unsafe { self.0.all() }.get(slot as usize).copied().flatten()
    }

    /// Notes one, unless there is one.
    pub fn put(&mut self, slot: u32, verdict: Verdict) {
        while self.0.count() <= slot as usize {
            if !self.0.push(None) {
                return;
            }
        }
        // SAFETY: as above.
        let place = unsafe { &mut self.0.all_mut()[slot as usize] };
        if place.is_none() {
            *place = Some(verdict);
        }
    }

    /// Replaces [`Verdict::Unknown`] by what else has told.
    fn learn(&mut self, slot: u32, verdict: Verdict) {
        // SAFETY: as above.
        if let Some(place @ Some(Verdict::Unknown)) = unsafe { self.0.all_mut() }.get_mut(slot as usize) {
            *place = Some(verdict);
        }
    }
}

/// One call's part in a stream.
#[derive(Clone, Copy)]
pub struct Part {
    /// Slot of the call's thread.
    pub slot: u32,
    fd: i32,
    /// Whether bytes go out.
    pub out: bool,
    /// Bytes, or what is added to an eventfd.
    pub len: u64,
    /// Whether the kernel had been entered.
    pub entered: bool,
    /// Whether a part of a long read has been told: the kernel has been through all of it, though not at this slot.
    pub is_told: bool,
    /// Where the file was before, if the primary has noted it.
    pub from: Option<u64>,
    testimony: Testimony,
    /// The slot where its `Return` would have been.
    place: usize,
}

impl Part {
    /// The slot where its `Return` would have been.
    pub fn place(&self) -> *mut u8 {
        self.place as *mut u8
    }
}

/// The streams that a call in doubt moves bytes on: where they go, then where they come from.
fn parts_of(doubt: &Doubt) -> [Option<Part>; 2] {
    let Policy::Special(door) = doubt.row.policy else { return [None; 2] };
    let place = doubt.place();
    let part = |fd: u64, out, len| Part {
        slot: doubt.slot,
        fd: fd as i32,
        out,
        len,
        entered: doubt.entered(),
        is_told: doubt.so_far() > 0,
        from: witness::position_before(place),
        testimony: witness::testimony(place, doubt.entered()),
        place: place as usize,
    };
    let (fd, len, asked) = (doubt.args.fd as u64, doubt.args.len, &doubt.asked);
    match door {
        _ if doubt.has_position() => [None; 2],
        Door::Write | Door::Writev | Door::Send | Door::SendMsg => {
            let added = fdtable::get(fd as i32).is_some_and(|shadow| shadow.kind() == Kind::Event);
            let len = if added { guest::load::<u64>(asked[1]).unwrap_or(0) } else { len };
            [Some(part(fd, true, len)), None]
        }
        Door::Read | Door::Readv | Door::Recv | Door::RecvMsg => {
            [Some(part(fd, false, len.saturating_sub(doubt.so_far()))), None]
        }
        // What names its place in a file does not move the file's position.
        Door::Sendfile | Door::Splice | Door::Vmsplice => match doubt.row.nr {
            SENDFILE => [
                Some(part(asked[0], true, asked[3])),
                (asked[2] == 0).then(|| part(asked[1], false, asked[3])),
            ],
            SPLICE | COPY_FILE_RANGE => [
                (asked[3] == 0).then(|| part(asked[2], true, asked[4])),
                (asked[1] == 0).then(|| part(asked[0], false, asked[4])),
            ],
            TEE => [Some(part(asked[1], true, asked[2])), None],
            _ => {
                let out = fdtable::get(fd as i32).is_some_and(Shadow::is_write_end);
                [Some(part(fd, out, spans::vector_bytes(asked[1], asked[2]))), None]
            }
        },
        _ => [None; 2],
    }
}

/// The parts of the calls in doubt in one stream, however many there are.
pub struct Sharers<'a> {
    all: &'a [Part],
    stream: &'a Shadow,
}

impl Sharers<'_> {
    /// All of them: those whose descriptor is the same open file.
    pub fn parts(&self) -> impl Iterator<Item = &Part> {
        let is_one = |part: &&Part| fdtable::get(part.fd).is_some_and(|other| other.same_stream(self.stream));
        self.all.iter().filter(is_one)
    }

    /// Whether there is no other.
    pub fn is_one(&self) -> bool {
        self.parts().nth(1).is_none()
    }

    /// Those that put out, or those that take in.
    pub fn side(&self, out: bool) -> impl Iterator<Item = &Part> {
        self.parts().filter(move |part| part.out == out)
    }

    /// Shares `total` out among the calls of one side. `false` if it cannot be told whose it is.
    pub fn share(&self, out: bool, total: Option<u64>, verdicts: &mut Verdicts) {
        let mut left = total;
        let [slots, lens, moved] = &SHARES;
        SHARES.iter().for_each(Room::clear);
        let mut fits = true;
        for part in self.side(out) {
            match part.testimony {
                Testimony::Moved(moved) => {
                    left = left.and_then(|left| left.checked_sub(moved.into()));
                    verdicts.put(part.slot, Verdict::Moved(moved.into()));
                }
                Testimony::Nothing => verdicts.put(part.slot, Verdict::Again),
                Testimony::None if !part.entered => verdicts.put(part.slot, Verdict::Again),
                Testimony::None => {
                    let is_listed = slots.push(part.slot.into()) && lens.push(part.len) && moved.push(0);
                    if !is_listed {
                        verdicts.put(part.slot, Verdict::Unknown);
                        fits = false;
                    }
                }
            }
        }
        // SAFETY: the poller's lists, which nobody else holds a reference into.
        let (slots, lens, moved) = unsafe { (slots.all(), lens.all(), moved.all_mut()) };
        let count = moved.len();
        let known = fits && left.is_some_and(|left| shares(left, &lens[..count], moved));
        for (slot, moved) in slots.iter().zip(moved.iter()) {
            verdicts.put(*slot as u32, if known { Verdict::Moved(*moved) } else { Verdict::Unknown });
        }
    }
}

/// Looks at every call in doubt that moves bytes.
pub fn verdicts() -> Verdicts {
    let mut verdicts = Verdicts::new(&VERDICTS);
    // Copies between files first: they are undone, and their files have then no more to tell.
    for_doubts(|doubt| {
        if matches!(doubt.row.nr, SENDFILE | COPY_FILE_RANGE) {
            copy_undone(&doubt, &mut verdicts);
        }
    });
    PARTS.clear();
    let mut fits = true;
    for_doubts(|doubt| {
        for part in parts_of(&doubt).into_iter().flatten() {
            fits &= PARTS.push(part);
        }
    });
    if !fits {
        // Some would be missing where bytes are shared out.
        for_doubts(|doubt| verdicts.put(doubt.slot, Verdict::Unknown));
    }
    // SAFETY: the poller's list, which nothing below adds to.
    let parts = unsafe { PARTS.all() };
    for_doubts(|doubt| {
        if verdicts.of(doubt.slot).is_some() {
            return;
        }
        let [to, from] = parts_of(&doubt);
        let Some(part) = to.or(from) else { return };
        match fdtable::get(part.fd) {
            Some(shadow) => stream(part.fd, shadow, &Sharers { all: parts, stream: shadow }, &mut verdicts),
            None => verdicts.put(doubt.slot, if part.entered { Verdict::Unknown } else { Verdict::Again }),
        }
        if let Some(from) = from {
            source(&doubt, from, &mut verdicts);
        }
    });
    verdicts
}

/// The calls in doubt on one stream.
fn stream(fd: i32, shadow: &Shadow, all: &Sharers, verdicts: &mut Verdicts) {
    match shadow.kind() {
        kind @ (Kind::Tcp | Kind::TcpAccepted) => connection(fd, kind, shadow, all, verdicts),
        Kind::File => files::file(fd, shadow, all, verdicts),
        Kind::Append => files::append(fd, shadow, all, verdicts),
        Kind::Pipe if shadow.is_private() => pipe(fd, shadow, all, verdicts),
        Kind::Event if shadow.is_private() => event(fd, shadow, all, verdicts),
        _ => opaque(all, verdicts),
    }
}

/// A TCP connection: its totals.
fn connection(fd: i32, kind: Kind, shadow: &Shadow, all: &Sharers, verdicts: &mut Verdicts) {
    let Some(tcp) = tcp(fd, kind) else {
        all.share(true, None, verdicts);
        return all.share(false, None, verdicts);
    };
    let sent = us_order::settle::tcp_written(tcp.sent);
    let sent = sent.and_then(|all| all.checked_sub(shadow.bytes_written()));
    let logged = shadow.bytes_read();
    let came = |fin| tcp.came.and_then(|came| us_order::settle::tcp_read(came, logged, fin));
    // A connection that has failed may look like one that was closed in order.
    let read = came(tcp.fin).or_else(|| came(false));
    let lost = tcp.closed && came(false) == Some(0) && sent == Some(0) && !shadow.has_failed();
    if lost && let Some(first) = all.parts().find(|part| part.entered) {
        // There was no end in order, no error waits, and the log knows of nobody who has been told.
        verdicts.put(first.slot, Verdict::Failed);
    }
    all.share(true, sent, verdicts);
    all.share(false, read, verdicts);
}

/// Bytes that wait in a pipe.
pub fn queued(fd: i32) -> Option<u64> {
    const FIONREAD: u64 = 0x541b;
    let mut queued = 0i32;
    // SAFETY: the kernel writes one int.
    let asked = unsafe { raw::call3(raw::nr::IOCTL, fd as u64, FIONREAD, &raw mut queued as u64) };
    (asked == 0).then_some(queued as u64)
}

/// A pipe both of whose ends are the group's alone: its contents and the reader's slot.
fn pipe(fd: i32, shadow: &Shadow, all: &Sharers, verdicts: &mut Verdicts) {
    const PIPE_BUF: u64 = 4096;
    let (mut readers, mut least, mut most, mut seen) = (0, 0, 0, true);
    for part in all.side(false).filter(|part| part.entered) {
        let (low, high) = match witness::touched(part.place()) {
            Some(Some(got)) => (got as u64, if got == 0 { 0 } else { part.len }),
            // All of a long pattern is gone; or the bytes went elsewhere.
            Some(None) => (witness::PATTERN_MAX as u64, part.len),
            None => (0, part.len),
        };
        seen &= matches!(witness::touched(part.place()), Some(Some(_)));
        readers += 1;
        least += low;
        most += high;
    }
    let mut writers = all.side(true).filter(|part| part.entered);
    let first = writers.next();
    let more = writers.next().is_some();
    let write_len = all.side(true).filter(|part| part.entered).fold(0u64, |sum, p| sum.saturating_add(p.len));
    let figures = queued(fd).zip(shadow.bytes_written().checked_sub(shadow.bytes_read()));
    let answer = figures.and_then(|(queued, logged)| {
        us_order::settle::pipe(Pipe {
            queued,
            logged,
            write_len,
            whole: first.is_some() && !more && write_len <= PIPE_BUF,
            read_least: least,
            read_most: if readers > 1 { least } else { most },
            seen,
        })
    });
    all.share(true, answer.map(|(written, _)| written), verdicts);
    for part in all.side(false) {
        let verdict = match (answer, witness::touched(part.place())) {
            _ if !part.entered => Verdict::Again,
            (Some((_, read)), _) if readers == 1 => Verdict::Moved(read),
            (_, Some(Some(got))) => Verdict::Moved(got as u64),
            _ => Verdict::Unknown,
        };
        verdicts.put(part.slot, verdict);
    }
}

/// What an eventfd holds.
pub fn event_count(fd: i32) -> Option<u64> {
    let mut text = [0u8; 512];
    let text = fdtable::describe(fd, &mut text)?;
    let label = b"eventfd-count:";
    let at = text.windows(label.len()).position(|window| window == label)? + label.len();
    let digits = text[at..].iter().skip_while(|byte| **byte == b' ' || **byte == b'\t');
    let digits = digits.map_while(|byte| char::from(*byte).to_digit(16));
    Some(digits.fold(0, |count, digit| count << 4 | u64::from(digit)))
}

/// An eventfd of the group's alone: its count, and what the readers' slots hold.
fn event(fd: i32, shadow: &Shadow, all: &Sharers, verdicts: &mut Verdicts) {
    let mut taken = 0;
    for part in all.side(false) {
        let got = part.entered && witness::touched(part.place()).is_some_and(|touched| touched != Some(0));
        if got {
            // SAFETY: the reserved slot of a dead primary, where the kernel has put eight bytes.
            taken += unsafe { witness::data_of(part.place()).cast::<u64>().read_unaligned() };
        }
        verdicts.put(part.slot, if got { Verdict::Moved(8) } else { Verdict::Again });
    }
    let logged = shadow.bytes_written().checked_sub(shadow.bytes_read());
    let added = event_count(fd).zip(logged).and_then(|(now, logged)| (now + taken).checked_sub(logged));
    let mut sums = Verdicts::new(&SUMS);
    all.share(true, added, &mut sums);
    for part in all.side(true) {
        let verdict = match sums.of(part.slot) {
            Some(Verdict::Moved(added)) if added > 0 => Verdict::Moved(8),
            Some(Verdict::Unknown) => Verdict::Unknown,
            _ => Verdict::Again,
        };
        verdicts.put(part.slot, verdict);
    }
}

/// Where the kernel keeps no count that is the group's alone. An input's slot shows what has come.
fn opaque(all: &Sharers, verdicts: &mut Verdicts) {
    for part in all.parts() {
        let verdict = match part.testimony {
            Testimony::Nothing => Verdict::Again,
            Testimony::Moved(moved) => Verdict::Moved(moved.into()),
            Testimony::None if !part.entered => Verdict::Again,
            Testimony::None if part.out => Verdict::Unknown,
            Testimony::None => match witness::touched(part.place()) {
                Some(Some(got)) => Verdict::Moved(whole_records(part.fd, part.place(), got as u64, part.len)),
                Some(None) => Verdict::Unknown,
                // Of a further piece: only what was there already is taken.
                None => Verdict::Unknown,
            },
        };
        verdicts.put(part.slot, verdict);
    }
}

/// Some objects hand out whole records only: input that ends like the pattern looks shorter than it is.
fn whole_records(fd: i32, place: *mut u8, got: u64, len: u64) -> u64 {
    const EVENT: u64 = 16;
    let mut name = [0u8; 64];
    let whole = match fdtable::object_name(fd, &mut name) {
        _ if got == 0 => 0,
        Some(b"anon_inode:[timerfd]" | b"anon_inode:[eventfd]") => got.next_multiple_of(8),
        Some(b"anon_inode:[signalfd]") => got.next_multiple_of(128),
        Some(b"anon_inode:inotify" | b"anon_inode:[inotify]") => {
            let mut end = 0;
            while end < got && end + EVENT <= len {
                // SAFETY: within the reserved slot; the length of the name is an event's last word.
                let name =
                    unsafe { witness::data_of(place).add(end as usize + 12).cast::<u32>().read_unaligned() };
                end += EVENT + u64::from(name);
            }
            end
        }
        _ => got,
    };
    whole.min(len)
}

/// sendfile and copy_file_range from file to file: bytes that nobody has seen at the same places again.
fn copy_undone(doubt: &Doubt, verdicts: &mut Verdicts) {
    let [Some(to), Some(from)] = parts_of(doubt) else { return };
    let (Some(into), Some(out_of)) = (fdtable::get(to.fd), fdtable::get(from.fd)) else { return };
    if into.kind() != Kind::File || out_of.kind() != Kind::File {
        return;
    }
    for (part, shadow) in [(to, into), (from, out_of)] {
        if part.entered
            && files::moved_on(part.fd, shadow).is_some_and(|moved| moved > 0 && moved <= part.len)
        {
            files::put_back(part.fd, shadow.bytes_written());
        }
    }
    verdicts.put(doubt.slot, Verdict::Again);
}

/// sendfile, splice: where they put the bytes tells nothing; where they took them from may.
fn source(doubt: &Doubt, from: Part, verdicts: &mut Verdicts) {
    let Some(shadow) = fdtable::get(from.fd) else { return };
    let moved = match shadow.kind() {
        Kind::File => files::moved_on(from.fd, shadow),
        Kind::Pipe if shadow.is_private() => {
            let logged = shadow.bytes_written().checked_sub(shadow.bytes_read());
            logged.zip(queued(from.fd)).and_then(|(logged, now)| logged.checked_sub(now))
        }
        _ => None,
    };
    if let Some(moved) = moved {
        verdicts.learn(doubt.slot, if moved == 0 { Verdict::Again } else { Verdict::Moved(moved) });
    }
}

struct Tcp {
    sent: TcpSent,
    /// Bytes that the guest has read, with the peer's FIN if `fin`.
    came: Option<u64>,
    fin: bool,
    /// It was connected, is no longer, and no error waits.
    closed: bool,
}

/// Bytes read and written on a TCP socket so far.
pub fn tcp_counts(fd: i32, kind: Kind) -> (u64, u64) {
    let Some(tcp) = tcp(fd, kind) else { return (0, 0) };
    let read = tcp.came.and_then(|came| us_order::settle::tcp_read(came, 0, tcp.fin));
    (read.unwrap_or(0), us_order::settle::tcp_written(tcp.sent).unwrap_or(0))
}

/// What the kernel has moved on a TCP socket, read until two readings agree.
fn tcp(fd: i32, kind: Kind) -> Option<Tcp> {
    const POLLERR: i64 = 8;
    const CLOSE: u8 = 7;
    let mut last = reading(fd)?;
    for _ in 0..100 {
        let now = reading(fd)?;
        if now == last {
            break;
        }
        last = now;
    }
    let (state, acked, received, inq, outq) = last;
    let shut = fdtable::get(fd).is_some_and(Shadow::is_shut);
    let broken = raw::poll(fd, 0) & POLLERR != 0;
    let fins = us_order::settle::fins(state, shut, broken);
    let syn_counted = kind == Kind::Tcp;
    Some(Tcp {
        sent: TcpSent { acked, outq, syn_counted, fin_queued: fins.queued },
        came: us_order::settle::tcp_read(received, inq, false),
        fin: fins.received,
        closed: state == CLOSE && !broken && (acked > 0 || !syn_counted),
    })
}

/// State, bytes acknowledged, received, unread, unacknowledged.
fn reading(fd: i32) -> Option<(u8, u64, u64, u64, u64)> {
    const SIOCINQ: u64 = 0x541b;
    const SIOCOUTQ: u64 = 0x5411;
    const IPPROTO_TCP: u64 = 6;
    const TCP_INFO: u64 = 11;
    let mut info = [0u64; 32];
    let mut len = 256u32;
    let (mut inq, mut outq) = (0i32, 0i32);
    let args = [fd as u64, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr() as u64, &raw mut len as u64, 0];
    // SAFETY: the kernel writes at most 256 bytes of struct tcp_info, and two ints.
    unsafe {
        if raw::call6(raw::nr::GETSOCKOPT, args) != 0
            || raw::call3(raw::nr::IOCTL, fd as u64, SIOCINQ, &raw mut inq as u64) != 0
            || raw::call3(raw::nr::IOCTL, fd as u64, SIOCOUTQ, &raw mut outq as u64) != 0
        {
            return None;
        }
    }
    // tcpi_bytes_acked is at byte 120, tcpi_bytes_received at 128.
    Some((info[0] as u8, info[15], info[16], inq as u64, outq as u64))
}

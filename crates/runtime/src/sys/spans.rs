//! Which bytes of guest memory a call reads and writes, by its row.
//!
//! The same walk serves both copies: the primary gathers along it what the kernel wrote, the standby
//! scatters along it what the log says. Where a length lies in guest memory (a socket address's), its own
//! span comes first, so that the standby has stored it before it is looked at.

use core::sync::atomic::Ordering;

use us_abi::event::CallArgs;
use us_calls::{FcntlArg, FdUse, In, IoctlDir, IoctlOut, Out, Row};

use crate::call::Call;
use crate::guest::{self, Digest};
use crate::raw::failed;
use crate::state;

/// Messages of one recvmmsg whose capacities are remembered; a call for more is cut to this many, which the
/// caller must expect anyway.
pub const MESSAGES_MAX: usize = 64;

/// What has to be known from before the call.
pub struct Before {
    /// Value of the length word of an [`Out::SockLen`].
    length: u32,
    /// Name and control capacities of the messages of an [`Out::Msghdr`] or [`Out::Mmsghdr`].
    capacities: Option<Capacities>,
}

#[derive(Clone, Copy)]
struct Capacities {
    name: [u16; MESSAGES_MAX],
}

/// The kernel's `struct msghdr`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageHeader {
    /// Address buffer.
    pub name: u64,
    /// Its capacity, then its length.
    pub name_len: u32,
    pub(crate) pad: u32,
    /// Scatter list.
    pub vectors: u64,
    /// Its count.
    pub vector_count: u64,
    /// Control data.
    pub control: u64,
    /// Its capacity, then its length.
    pub control_len: u64,
    /// Flags out.
    pub flags: u32,
    pub(crate) pad2: u32,
}

/// The kernel's `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Vector {
    /// Address.
    pub base: u64,
    /// Bytes.
    pub len: u64,
}

/// Bytes of the kernel's `struct mmsghdr`.
pub const MMSG_BYTES: u64 = 64;
/// Where its count lies.
pub const MMSG_LEN_OFFSET: u64 = 56;

impl Before {
    /// Of a call that overwrites nothing. To be filled in place: handing a filled one on copies 136 bytes at every call.
    #[inline(always)]
    pub fn nothing() -> Before {
        Before { length: 0, capacities: None }
    }

    /// Looks at what the call is about to overwrite.
    #[inline(always)]
    pub fn look(&mut self, row: &Row, args: &[u64; 6]) {
        if !row.outs.is_empty() {
            self.look_at_outs(row, args);
        }
    }

    #[inline(never)]
    fn look_at_outs(&mut self, row: &Row, args: &[u64; 6]) {
        let before = self;
        for out in row.outs {
            match *out {
                Out::SockLen { len_arg, .. } => {
                    before.length = guest::load::<u32>(args[len_arg as usize]).unwrap_or(0);
                }
                Out::Msghdr { arg } => before.note(args[arg as usize], 1),
                Out::Mmsghdr { arg } => before.note(args[arg as usize], args[2] as usize),
                _ => {}
            }
        }
    }

    #[cold]
    fn note(&mut self, messages: u64, count: usize) {
        let mut capacities = Capacities { name: [0; MESSAGES_MAX] };
        for (index, name) in capacities.name.iter_mut().enumerate().take(count) {
            let header =
                guest::load::<MessageHeader>(messages + index as u64 * MMSG_BYTES).unwrap_or_default();
            *name = if header.name == 0 { 0 } else { header.name_len.min(1024) as u16 };
        }
        self.capacities = Some(capacities);
    }
}

/// Calls `f` with every descriptor in the control data of a message.
pub fn for_rights(control: u64, len: u64, mut f: impl FnMut(i32)) {
    const SOL_SOCKET_RIGHTS: u64 = 1 | 1 << 32;
    for_parts(control, len, SOL_SOCKET_RIGHTS, |at, len| {
        for index in 0..len / 4 {
            if let Some(fd) = guest::load::<i32>(at + index * 4) {
                f(fd);
            }
        }
    });
}

/// Calls `f` with address and length of every part of a message's control data that is of this level and type.
fn for_parts(control: u64, len: u64, kind: u64, mut f: impl FnMut(u64, u64)) {
    let (mut at, end) = (control, control + len);
    while control != 0 && at + 16 <= end {
        let len = guest::load::<u64>(at).unwrap_or(0);
        if len < 16 || len > end - at {
            return;
        }
        if guest::load::<u64>(at + 8) == Some(kind) {
            f(at + 16, len - 16);
        }
        at += len.next_multiple_of(8);
    }
}

/// Calls `f` with the place of every sender's number in a message's control data.
pub fn for_credentials(control: u64, len: u64, mut f: impl FnMut(u64)) {
    const SOL_SOCKET_CREDENTIALS: u64 = 1 | 2 << 32;
    const UCRED_BYTES: u64 = 12;
    for_parts(control, len, SOL_SOCKET_CREDENTIALS, |place, bytes| {
        if bytes >= UCRED_BYTES {
            f(place);
        }
    });
}

/// Control data of a message as the kernel is to have them. Not changed where the guest has them: a copy that is made in the
/// middle of the call would have the number of a process that is dead when it makes it again.
pub type Control = [u64; 32];

/// Puts the control data at `control` into `room`, with the kernel's number of this process where the guest names itself as
/// the sender. The address to use; that of the guest's own where there is nothing to change.
pub fn with_credentials(control: u64, len: u64, room: &mut Control) -> u64 {
    if !state::is_renumbered() || control == 0 || len as usize > size_of::<Control>() {
        return control;
    }
    let at = room.as_mut_ptr() as u64;
    guest::read(room.as_mut_ptr().cast(), control, len as usize);
    for_credentials(at, len, |place| {
        if guest::load::<u32>(place) == Some(state::GUEST_PID.load(Ordering::Relaxed)) {
            guest::store(place, &state::REAL_PID.load(Ordering::Relaxed));
        }
    });
    at
}

/// The `index`th vector of a scatter list.
pub fn vector(list: u64, index: u64) -> Vector {
    guest::load::<Vector>(list + index * size_of::<Vector>() as u64).unwrap_or_default()
}

/// Bytes that a scatter list holds.
pub fn vector_bytes(list: u64, count: u64) -> u64 {
    (0..count.min(1024)).map(|index| vector(list, index).len).fold(0, u64::saturating_add)
}

/// Bytes that the scatter list of a message holds, whose header lies at `place`.
pub fn message_bytes(place: u64) -> u64 {
    let header = guest::load::<MessageHeader>(place).unwrap_or_default();
    vector_bytes(header.vectors, header.vector_count)
}

/// Calls `f` for the first `bytes` bytes of a scatter list.
pub fn for_vectors(list: u64, count: u64, mut bytes: u64, f: &mut dyn FnMut(u64, usize)) {
    for index in 0..count.min(1024) {
        if bytes == 0 {
            return;
        }
        let vector = vector(list, index);
        let part = vector.len.min(bytes);
        f(vector.base, part as usize);
        bytes -= part;
    }
}

/// Calls `f(address, bytes)` for every span that the kernel wrote, in a fixed order.
pub fn for_each(row: &Row, args: &[u64; 6], result: i64, before: &Before, f: &mut dyn FnMut(u64, usize)) {
    for out in row.outs {
        one(out, row, args, result, before, f);
    }
}

/// Bytes of all spans together.
pub fn total(row: &Row, args: &[u64; 6], result: i64, before: &Before) -> usize {
    let mut total = 0;
    for_each(row, args, result, before, &mut |_, bytes| total += bytes);
    total
}

fn one(out: &Out, row: &Row, args: &[u64; 6], result: i64, before: &Before, f: &mut dyn FnMut(u64, usize)) {
    let at = |arg: u8| args[arg as usize];
    let mut span = |address: u64, bytes: u64| {
        if address != 0 && bytes != 0 {
            f(address, bytes as usize);
        }
    };
    let ok = !failed(result);
    let count = if ok { result as u64 } else { 0 };
    match *out {
        Out::Always { arg, len } => span(at(arg), len as u64),
        Out::FileHandle { arg } => {
            span(at(arg), 4);
            let bytes = if ok { guest::load::<u32>(at(arg)).unwrap_or(0).min(128) } else { 0 };
            span(at(arg) + 4, if ok { 4 + bytes as u64 } else { 0 });
        }
        _ if !ok => {}
        Out::Fixed { arg, len } => span(at(arg), len as u64),
        Out::Result { arg } => span(at(arg), count),
        Out::ResultUpTo { arg, len_arg } => span(at(arg), count.min(at(len_arg))),
        Out::ResultItems { arg, size } => span(at(arg), count * size as u64),
        Out::ArgItems { arg, count_arg, size } => span(at(arg), at(count_arg) * size as u64),
        Out::ArgBytes { arg, len_arg } => span(at(arg), at(len_arg)),
        Out::SockLen { arg, len_arg } => {
            if at(arg) != 0 && at(len_arg) != 0 {
                span(at(len_arg), 4);
                let after = guest::load::<u32>(at(len_arg)).unwrap_or(0);
                span(at(arg), u64::from(before.length.min(after)));
            }
        }
        Out::Iovec { arg, count_arg } => for_vectors(at(arg), at(count_arg), count, f),
        Out::Msghdr { arg } => message(at(arg), count, 0, before, f),
        Out::Mmsghdr { arg } => {
            for index in 0..count.min(MESSAGES_MAX as u64) {
                let place = at(arg) + index * MMSG_BYTES;
                f(place + MMSG_LEN_OFFSET, 4);
                let bytes = guest::load::<u32>(place + MMSG_LEN_OFFSET).unwrap_or(0);
                message(place, u64::from(bytes), index as usize, before, f);
            }
        }
        Out::MmsgLens { arg } => {
            for index in 0..count {
                span(at(arg) + index * MMSG_BYTES + MMSG_LEN_OFFSET, 4);
            }
        }
        Out::FdSet { arg, nfds_arg } => span(at(arg), at(nfds_arg).min(1 << 20).div_ceil(64) * 8),
        Out::Ioctl if us_calls::ioctl_out(args[1] & 0xffff_ffff) == IoctlOut::Ifconf => {
            // The length first: in a standby it is the kernel's once it has been copied out.
            span(args[2], 4);
            let length = guest::load::<i32>(args[2]).unwrap_or(0).max(0);
            span(guest::load::<u64>(args[2] + 8).unwrap_or(0), length as u64);
        }
        Out::Ioctl if us_calls::ioctl_out(args[1] & 0xffff_ffff) == IoctlOut::Ethtool => {
            let (place, command) = ethtool(args[2]);
            span(place, us_calls::ethtool_out(command).unwrap_or(0).into());
            if command == us_calls::ETHTOOL_GLINKSETTINGS {
                // The number of words first, as above.
                let words = guest::load::<i8>(place + 15).unwrap_or(0).max(0);
                span(place + 48, 12 * words as u64);
            }
        }
        Out::Ioctl => {
            span(args[2], ioctl_bytes(args[1]).1);
        }
        Out::Fcntl => {
            span(args[2], fcntl_out(args[1]));
        }
        Out::Prctl => {}
        Out::ResultItemsUpTo { arg, count_arg, size } => {
            span(at(arg), count.min(at(count_arg)) * size as u64)
        }
        Out::Msgbuf { arg } => span(at(arg), 8 + count),
        Out::Pages { arg, len_arg } => span(at(arg), at(len_arg).div_ceil(4096)),
        Out::NodeMask { arg, bits_arg } => {
            span(at(arg), at(bits_arg).saturating_sub(1).min(1 << 16).div_ceil(64) * 8)
        }
        Out::CapData { arg, header_arg } => {
            const VERSION_1: u32 = 0x1998_0330;
            let one = guest::load::<u32>(at(header_arg)) == Some(VERSION_1);
            span(at(arg), if one { 12 } else { 24 });
        }
        Out::XattrArgs { arg } => {
            let value = guest::load::<u64>(at(arg)).unwrap_or(0);
            let size = guest::load::<u32>(at(arg) + 8).unwrap_or(0);
            span(value, count.min(u64::from(size)));
        }
        Out::ByCommand { arg, cmd_arg } => {
            let bytes = us_calls::command_out(u64::from(row.nr), at(cmd_arg)).unwrap_or(0);
            span(at(arg), u64::from(bytes));
        }
    }
}

/// Payload bytes that a call of several messages has moved.
pub fn messages_bytes(messages: u64, count: u64) -> u64 {
    let len = |index: u64| guest::load::<u32>(messages + index * MMSG_BYTES + MMSG_LEN_OFFSET).unwrap_or(0);
    (0..count).map(|index| u64::from(len(index))).sum()
}

/// The spans of one received message: its header's outputs, then name, control data and payload.
fn message(place: u64, bytes: u64, index: usize, before: &Before, f: &mut dyn FnMut(u64, usize)) {
    f(place + 8, 4);
    f(place + 40, 8);
    f(place + 48, 4);
    let header = guest::load::<MessageHeader>(place).unwrap_or_default();
    let capacity = before.capacities.map_or(0, |capacities| capacities.name[index]);
    let name = header.name_len.min(u32::from(capacity));
    if name > 0 && header.name != 0 {
        f(header.name, name as usize);
    }
    if header.control_len > 0 && header.control != 0 {
        f(header.control, header.control_len as usize);
    }
    for_vectors(header.vectors, header.vector_count, bytes, f);
}

/// Bytes that an ioctl reads and writes at its argument.
fn ioctl_bytes(request: u64) -> (u64, u64) {
    match us_calls::ioctl_out(request) {
        IoctlOut::Bytes { dir: IoctlDir::In, len } => (u64::from(len), 0),
        IoctlOut::Bytes { dir: IoctlDir::Out, len } => (0, u64::from(len)),
        IoctlOut::Bytes { dir: IoctlDir::InOut, len } => (u64::from(len), u64::from(len)),
        IoctlOut::Pid { out } => {
            if out {
                (0, 4)
            } else {
                (4, 0)
            }
        }
        IoctlOut::Ifreq { out } => (16, if out { 40 } else { 0 }),
        IoctlOut::Ethtool => (16, 0),
        _ => (0, 0),
    }
}

/// What the `struct ifreq` of an SIOCETHTOOL points at, and the command there.
fn ethtool(request: u64) -> (u64, u32) {
    let place = guest::load::<u64>(request + 16).unwrap_or(0);
    (place, guest::load(place).unwrap_or(0))
}

/// Whether it is known what the kernel writes there.
pub fn is_known_to_ethtool(request: u64) -> bool {
    us_calls::ethtool_out(ethtool(request).1).is_some()
}

/// Bytes that a fcntl writes at its argument.
fn fcntl_out(command: u64) -> u64 {
    match us_calls::fcntl_shape(command).map(|shape| shape.arg) {
        Some(FcntlArg::Flock { out: true }) => 32,
        Some(FcntlArg::OwnerEx { out: true }) => 8,
        Some(FcntlArg::Out { len }) => u64::from(len),
        _ => 0,
    }
}

/// The descriptor that a call works on, -1 for none.
pub fn descriptor(row: &Row, args: &[u64; 6]) -> i32 {
    match row.fd {
        FdUse::Uses(arg)
        | FdUse::UsesTwo(arg, _)
        | FdUse::UsesAt(arg)
        | FdUse::UsesAtTwo(arg, _)
        | FdUse::CreatesFrom(arg)
        | FdUse::CreatesAt(arg)
        | FdUse::CreatesUnless(arg)
        | FdUse::Closes(arg)
        | FdUse::Message(arg)
        | FdUse::ClosesRange { first: arg, .. }
        | FdUse::Dups { from: arg, .. } => args[arg as usize] as i32,
        FdUse::Command => args[0] as i32,
        FdUse::None | FdUse::Creates | FdUse::CreatesPair { .. } | FdUse::InMemory | FdUse::Process => -1,
    }
}

/// What travels in the `Enter` of a call.
pub fn arguments(row: &Row, call: &Call, verify: bool) -> CallArgs {
    let fd = descriptor(row, &call.args);
    let digest = if verify { digest(row, &call.args) } else { 0 };
    CallArgs { fd, digest, len: 0 }
}

/// Digest of every input of a call.
pub fn digest(row: &Row, args: &[u64; 6]) -> u32 {
    let mut digest = Digest::new();
    for input in row.inputs {
        match *input {
            // Most are: without a call.
            In::Scalar { arg } => digest.number(args[arg as usize]),
            In::Int { arg } => digest.number(args[arg as usize] & 0xffff_ffff),
            _ => add(&mut digest, input, args),
        }
    }
    digest.finish()
}

/// Adds an input that lies in memory.
fn add(digest: &mut Digest, input: &In, args: &[u64; 6]) {
    let at = |arg: u8| args[arg as usize];
    let mut bytes = |address: u64, count: u64| {
        if address == 0 {
            digest.number(0);
        } else {
            digest.bytes(address, count as usize);
        }
    };
    match *input {
        In::Scalar { .. } | In::Int { .. } => {}
        In::Bytes { arg, len_arg } => bytes(at(arg), at(len_arg) & 0xffff_ffff),
        In::SockAddr { arg, len_arg } => bytes(at(arg), address_bytes(at(arg), at(len_arg) & 0xffff_ffff)),
        In::Msgbuf { arg, len_arg } => bytes(at(arg), 8 + at(len_arg)),
        In::Pollfds { arg, count_arg } => {
            // `revents` is rubbish before the call.
            for index in 0..at(count_arg).min(1 << 16) {
                digest.number(guest::load::<u64>(at(arg) + index * 8).unwrap_or(0) & 0xffff_ffff_ffff);
            }
        }
        In::SockOpt => {
            if us_calls::sockopt_shape(at(1), at(2), true) == us_calls::SockOpt::Plain {
                bytes(at(3), at(4) & 0xffff);
            }
        }
        In::Str { arg } => bytes(at(arg), guest::string_len(at(arg)) as u64),
        In::Fixed { arg, len } => bytes(at(arg), len as u64),
        In::Items { arg, count_arg, size } => bytes(at(arg), at(count_arg).min(1 << 20) * size as u64),
        In::Iovec { arg, count_arg } => for_vectors(at(arg), at(count_arg), u64::MAX, &mut |base, len| {
            digest.bytes(base, len);
        }),
        In::IovecLens { arg, count_arg } => digest.number(vector_bytes(at(arg), at(count_arg))),
        In::Msghdr { arg } => message_in(digest, at(arg)),
        In::Mmsghdr { arg, count_arg } => {
            for index in 0..at(count_arg).min(1024) {
                message_in(digest, at(arg) + index * MMSG_BYTES);
            }
        }
        In::FdSet { arg, nfds_arg } => bytes(at(arg), at(nfds_arg).min(1 << 20).div_ceil(64) * 8),
        In::StrArray { .. } | In::Prctl => {}
        In::Ioctl => {
            digest.number(args[1] & 0xffff_ffff);
            let (read, _) = ioctl_bytes(args[1]);
            let (from, read) = match us_calls::ioctl_out(args[1] & 0xffff_ffff) {
                IoctlOut::Ethtool if args[2] != 0 => {
                    digest.number(ethtool(args[2]).1.into());
                    interface_named(args[1] & 0xffff_ffff, args[2], read)
                }
                IoctlOut::Ifreq { .. } if args[2] != 0 => {
                    interface_named(args[1] & 0xffff_ffff, args[2], read)
                }
                _ => (args[2], read),
            };
            if read != 0 && args[2] != 0 {
                digest.bytes(from, read as usize);
            }
        }
        In::Fcntl => {
            digest.number(args[1] & 0xffff_ffff);
            match us_calls::fcntl_shape(args[1] & 0xffff_ffff).map(|shape| shape.arg) {
                Some(FcntlArg::Scalar) => digest.number(args[2] & 0xffff_ffff),
                Some(FcntlArg::Flock { .. }) => {
                    digest.bytes(args[2], 4);
                    digest.bytes(args[2] + 8, 16);
                }
                Some(FcntlArg::In { len }) => digest.bytes(args[2], len as usize),
                _ => {}
            }
        }
    }
}

/// Bytes of a socket address that mean something: a local one ends with its path, one of the internet is shorter than the structure
/// that holds any. The rest is old stack.
fn address_bytes(address: u64, len: u64) -> u64 {
    const AF_UNSPEC: u16 = linux_raw_sys::net::AF_UNSPEC as u16;
    const AF_UNIX: u16 = linux_raw_sys::net::AF_UNIX as u16;
    const AF_INET: u16 = linux_raw_sys::net::AF_INET as u16;
    const AF_INET6: u16 = linux_raw_sys::net::AF_INET6 as u16;
    match guest::load::<u16>(address) {
        // Of one that only ends a connection nothing else is looked at.
        Some(AF_UNSPEC) => len.min(2),
        Some(AF_INET) => len.min(8),
        Some(AF_INET6) => len.min(28),
        Some(AF_UNIX) if len > 2 && guest::load::<u8>(address + 2) != Some(0) => {
            (2 + guest::string_len(address + 2) as u64).min(len)
        }
        _ => len,
    }
}

/// Where an interface is named in a `struct ifreq`, and in how many bytes: its name ends with a NUL, the rest is old stack; who asks
/// for the name says the number.
fn interface_named(request: u64, address: u64, name: u64) -> (u64, u64) {
    use crate::kernel::SIOCGIFNAME;
    match request {
        SIOCGIFNAME => (address + name, 4),
        _ => (address, name.min(guest::string_len(address) as u64)),
    }
}

/// Adds what is sent by a message: payload and destination. Control data may hold padding that the guest
/// never wrote, so it is left out.
fn message_in(digest: &mut Digest, place: u64) {
    let header = guest::load::<MessageHeader>(place).unwrap_or_default();
    if header.name != 0 {
        let bytes = address_bytes(header.name, u64::from(header.name_len).min(256));
        digest.bytes(header.name, bytes as usize);
    }
    for_vectors(header.vectors, header.vector_count, u64::MAX, &mut |base, len| digest.bytes(base, len));
}

/// Where the bytes of an output lie.
#[derive(Clone, Copy)]
pub enum Source {
    /// In one place.
    Span(Vector),
    /// In several: list and count.
    Vectors(u64, u64),
    /// In a message, whose header lies here.
    Message(u64),
}

impl Source {
    /// Bytes in all.
    #[inline(always)]
    pub fn wanted(self) -> u64 {
        match self {
            Source::Span(span) => span.len,
            _ => self.gathered(),
        }
    }

    /// One call, out of the way of a span: with two of them each `write` would save more registers.
    #[inline(never)]
    fn gathered(self) -> u64 {
        match self {
            Source::Span(span) => span.len,
            Source::Vectors(list, count) => vector_bytes(list, count),
            Source::Message(at) => message_bytes(at),
        }
    }

    /// The first eight bytes as a number, 0 if there are not so many: what is added to an eventfd, or was taken out of one.
    pub fn first_word(self) -> u64 {
        const WORD: usize = 8;
        let mut word = [0u8; WORD];
        let mut at = 0;
        let mut take = |base: u64, bytes: usize| {
            let part = bytes.min(WORD - at);
            if guest::read(word[at..].as_mut_ptr(), base, part) {
                at += part;
            }
        };
        match self {
            Source::Span(span) => take(span.base, span.len.min(WORD as u64) as usize),
            Source::Vectors(list, count) => for_vectors(list, count, WORD as u64, &mut take),
            Source::Message(_) => {}
        }
        if at == WORD { u64::from_le_bytes(word) } else { 0 }
    }
}

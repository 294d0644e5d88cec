//! The kinds of objects, and what a primary prepares before a call on one.

use crate::count::{Count, Counts, Transfer};
use crate::kernel::Kernel;
use crate::object::{Append, Eventfd, File, Object, Opaque, Pipe, Socket, Tcp};
use crate::part::{Sharers, Stream};
use crate::verdict::Verdicts;

/// What a descriptor stands for, as far as settling a call in doubt needs it. Recordings hold these numbers.
#[repr(u8)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Closed, or unknown.
    None = 0,
    /// A TCP socket whose connection came from outside.
    TcpAccepted = 1,
    /// A TCP socket that connects by itself, or does not yet.
    Tcp = 2,
    /// A regular file.
    File = 3,
    /// A regular file opened with O_APPEND.
    Append = 4,
    /// Anything else.
    Other = 5,
    /// A socket that is not TCP's.
    Socket = 6,
    /// A pipe, either end.
    Pipe = 7,
    /// An eventfd: what counts as its bytes is what is added and taken.
    Event = 8,
}

/// Which way bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Into the program.
    In,
    /// Out of it.
    Out,
}

/// What a primary prepares before it makes a call that moves bytes, so that its successor can tell how far the call came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Nothing: the kernel's own totals tell, or nothing can.
    Totals,
    /// The call is made by `recvmmsg` or `sendmmsg` with its header in the slot: the kernel itself notes the count there.
    Message,
    /// The slot is filled with a pattern before a read: what is no longer pattern has been read.
    Pattern,
    /// The slot says where the file was before the call.
    Position,
}

/// Calls `$body` with `$object` as the type of `$kind`'s file.
macro_rules! dispatch {
    ($kind:expr, $object:ident => $body:expr) => {
        dispatch!($kind, $object => $body;
            Tcp: Tcp<true>,
            TcpAccepted: Tcp<false>,
            File: File,
            Append: Append,
            Pipe: Pipe,
            Event: Eventfd,
            Socket: Socket,
            None | Other: Opaque)
    };
    ($kind:expr, $object:ident => $body:expr; $($($name:ident)|+: $type:ty),+) => {
        match $kind {
            $($(Kind::$name)|+ => {
                type $object = $type;
                $body
            })+
        }
    };
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] = [
        Kind::None,
        Kind::TcpAccepted,
        Kind::Tcp,
        Kind::File,
        Kind::Append,
        Kind::Other,
        Kind::Socket,
        Kind::Pipe,
        Kind::Event,
    ];

    /// From its number; what is none reads as [`Kind::None`].
    pub const fn from_number(number: u8) -> Kind {
        let number = number as usize;
        if number < Kind::ALL.len() { Kind::ALL[number] } else { Kind::None }
    }

    /// Whether it is a socket.
    pub const fn is_socket(self) -> bool {
        self.is_tcp() || matches!(self, Kind::Socket)
    }

    /// Whether it is a TCP socket.
    pub const fn is_tcp(self) -> bool {
        matches!(self, Kind::TcpAccepted | Kind::Tcp)
    }

    /// Whether it is a regular file.
    pub const fn is_file(self) -> bool {
        matches!(self, Kind::File | Kind::Append)
    }

    /// Whether the log's count of what was written is a position in a file or folder.
    pub const fn has_position(self) -> bool {
        self.is_file() || matches!(self, Kind::Other)
    }

    /// What a primary prepares before a call. `is_plain`: one span of memory and no flags, as `read` and `write` have it.
    #[inline(always)]
    pub fn evidence(self, direction: Direction, is_plain: bool) -> Evidence {
        dispatch!(self, O => O::evidence(direction, is_plain))
    }

    /// What the log counts of a transfer.
    #[inline]
    pub fn count(self, direction: Direction, transfer: Transfer) -> Count {
        dispatch!(self, O => O::count(direction, transfer))
    }

    /// Whether a copy that acts keeps the count itself, see [`Object::IS_COUNTED`].
    #[inline]
    pub fn is_counted(self) -> bool {
        dispatch!(self, O => O::IS_COUNTED)
    }

    /// Where counting begins when a log does in the middle of a program's life. `is_shut`: the group has ended its half of
    /// the connection.
    pub fn baseline(self, fd: i32, is_shut: bool, kernel: &mut impl Kernel) -> Counts {
        dispatch!(self, O => O::baseline(fd, is_shut, kernel))
    }

    /// The same, where the kernel's figures are exact.
    pub fn exact(self, fd: i32, is_shut: bool, kernel: &mut impl Kernel) -> Option<Counts> {
        dispatch!(self, O => O::exact(fd, is_shut, kernel))
    }

    /// Judges all calls in doubt on one stream.
    pub(crate) fn judge(self, sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        dispatch!(self, O => O::judge(sharers, kernel, verdicts));
    }

    /// Bytes that a copy has taken out of an object of this kind, by what is left there; `None` where that tells nothing.
    pub(crate) fn taken(self, fd: i32, stream: &Stream, kernel: &mut impl Kernel) -> Option<u64> {
        dispatch!(self, O => O::taken(fd, stream, kernel))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_its_number() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_number(kind as u8), kind);
        }
        assert_eq!(Kind::from_number(200), Kind::None);
    }
}

//! What the kernel stores for the parent of a clone: the child's number, and a descriptor of the child. Both go into the log, and
//! whoever follows stores them in its own memory.

use linux_raw_sys::general::clone_args;
use us_abi::event::{NO_TICKET, ReturnHead};

use crate::call::{self, Call};
use crate::clock::kernel_ticket;
use crate::door::spawn::{PARENT_SETTID, PIDFD, clone_flags};
use crate::door::{numbers, pidfd, table};
use crate::fdtable::{self, Kind};
use crate::guest::{GuestMut, GuestPtr, part};
use crate::raw::nr;
use crate::thread::Thread;
use crate::thread::spawn::Stored;

impl Stored {
    /// What the guest asks for by this call.
    pub fn by(call: &Call) -> Stored {
        let flags = clone_flags(call);
        let given = GuestPtr::<clone_args>::at(call.args[0]);
        let (number, descriptor) = match call.nr {
            nr::CLONE => (call.args[2], call.args[2]),
            call::CLONE3 => (
                part!(given, clone_args, parent_tid).load().unwrap_or(0),
                part!(given, clone_args, pidfd).load().unwrap_or(0),
            ),
            _ => (0, 0),
        };
        Stored {
            number: GuestMut::at(if flags & PARENT_SETTID != 0 { number } else { 0 }),
            descriptor: GuestMut::at(if flags & PIDFD != 0 { descriptor } else { 0 }),
        }
    }

    /// In the copy that has made the child: what the `Return` says, and its ticket. A descriptor is one more in the table that
    /// all threads share, so its number is free for it only behind whoever closed it before.
    pub fn made(self, thread: &mut Thread, result: i64) -> (ReturnHead, u64) {
        let is_told = !self.descriptor.is_nowhere() && result > 0;
        let fd = if is_told { self.descriptor.written() } else { None };
        let Some(fd) = fd else { return (ReturnHead { result, identity: 0 }, NO_TICKET) };
        is_of(thread, fd, result);
        (ReturnHead { result, identity: fd as u64 + 1 }, kernel_ticket())
    }

    /// In a copy that follows, at the call's turn: stores it, and returns the call's result.
    pub fn follow(self, thread: &mut Thread, head: ReturnHead) -> i64 {
        if head.result > 0 {
            self.number.tell(&(head.result as u32));
        }
        if !self.descriptor.is_nowhere() && head.identity != 0 {
            let fd = head.identity as i32 - 1;
            self.descriptor.store(&fd);
            is_of(thread, fd, head.result);
        }
        head.result
    }
}

/// The descriptor is the child's.
fn is_of(thread: &mut Thread, fd: i32, child: i64) {
    table::opened(thread, fd, table::pack(0, Kind::Other));
    numbers::means(fd, Some(child as u32));
}

/// As [`Stored::made`], of a dead primary's clone in doubt: the descriptor that it has made and that is in no log. The kernel no
/// longer says of one whose process is gone whose it was.
pub fn descriptor_of(child: i64) -> Option<i32> {
    let (mut of_child, mut of_nobody) = (None, None);
    fdtable::for_open(|fd| {
        let is_logged = fdtable::get(fd).is_none_or(|shadow| shadow.kind() != Kind::None);
        match pidfd::process_of(fd).filter(|_| !is_logged) {
            Some(pid) if pid == child => of_child = Some(fd),
            Some(pid) if pid < 0 => of_nobody = Some(fd),
            _ => {}
        }
    });
    of_child.or(of_nobody)
}

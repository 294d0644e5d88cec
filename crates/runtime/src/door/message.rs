//! sendmsg and recvmsg.

use us_abi::event::CallArgs;
use us_calls::Row;

use crate::call::Call;
use crate::door::io::{gathered, output};
use crate::door::witness::Shape;
use crate::door::{numbers, table};
use crate::fdtable;
use crate::guest::{GuestMut, GuestPtr};
use crate::raw::failed;
use crate::sys::spans::{self, MessageHeader, Source};
use crate::thread::{Mode, Thread};

/// recvmsg: payload, address, control data and flags in one event. Descriptors that arrive enter the shadow.
pub fn receive(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    gathered(thread, row, call, Shape::Message(GuestMut::at(call.args[1])), call.args[2])
}

/// After any gathered input, in every copy; in one that acts before the log has it.
pub fn received(thread: &mut Thread, row: &Row, call: &Call, result: i64) {
    const RECVMSG: u16 = linux_raw_sys::general::__NR_recvmsg as u16;
    if row.nr == RECVMSG && !failed(result) {
        received_control(thread, GuestMut::at(call.args[1]));
    }
}

/// sendmsg: begun before, done after, like any output. Descriptors that go out are no longer the group's alone.
pub fn send(thread: &mut Thread, row: &'static Row, call: &Call) -> i64 {
    lend_descriptors(GuestPtr::at(call.args[1]));
    let arguments = |thread: &Thread| CallArgs {
        fd: call.args[0] as i32,
        digest: if thread.verify { spans::digest(row, &call.args) } else { 0 },
        len: spans::message_bytes(call.args[1]),
    };
    output(thread, row, call, arguments, Source::Message(call.args[1]))
}

/// Notes the descriptors in the control data of a message that is about to be sent.
pub fn lend_descriptors(message: GuestPtr<MessageHeader>) {
    let header = message.load().unwrap_or_default();
    if header.control_len == 0 {
        return;
    }
    spans::for_rights(header.control, header.control_len, |fd| {
        if let Some(shadow) = fdtable::get(fd) {
            shadow.set_private(false);
        }
    });
}

/// What has come in the control data of a received message: the descriptors are noted, in every copy, and one that acts puts the
/// group's numbers in place of the kernel's, before the log has them.
pub fn received_control(thread: &mut Thread, message: GuestMut<MessageHeader>) {
    let header = message.written().unwrap_or_default();
    if thread.calls() != Mode::Replay {
        numbers::told_in(header.control, header.control_len);
    }
    spans::for_rights(header.control, header.control_len, |fd| table::received(thread, fd));
}

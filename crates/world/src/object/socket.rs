//! Sockets that are not TCP's: datagrams, local sockets, netlink. The kernel keeps no totals of them.

use super::{Object, Opaque};
use crate::kernel::Kernel;
use crate::kind::{Direction, Evidence};
use crate::part::Sharers;
use crate::verdict::Verdicts;

/// A socket that is not TCP's.
pub struct Socket;

impl Object for Socket {
    fn evidence(_direction: Direction, _is_plain: bool) -> Evidence {
        Evidence::Message
    }

    fn judge(sharers: Sharers, kernel: &mut impl Kernel, verdicts: &mut Verdicts) {
        Opaque::judge(sharers, kernel, verdicts);
    }
}

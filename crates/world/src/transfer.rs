//! What becomes of one call once it is known how much it moved, and of a close.

/// What to do with a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settled {
    /// It was done: append a return with this count of bytes.
    Done(u64),
    /// A blocking write was under way: carry on behind this many bytes, then return the full length.
    Continue(u64),
    /// It had no effect: issue it again, live.
    Reissue,
    /// The kernel's figures contradict the log or allow two readings. The failover must say so.
    Unknown,
}

/// Settles a write of `len` bytes that has moved so many.
#[must_use]
pub fn write(len: u64, moved: u64, nonblocking: bool) -> Settled {
    match moved {
        0 => Settled::Reissue,
        n if n == len => Settled::Done(n),
        n if n > len => Settled::Unknown,
        n if nonblocking => Settled::Done(n),
        n => Settled::Continue(n),
    }
}

/// Which open object a descriptor number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// What the kernel says: socket cookie, or device and inode folded into one word by the caller.
    pub object: u64,
    /// How often the *log* has given this number to a new object. The kernel's answer alone is not enough:
    /// a duplicate of the same socket may have taken the number again.
    pub generation: u32,
}

/// Settles an in-doubt close.
///
/// `then` is the identity when the standby applied the `ENTER`, in ticket order. `object_now` is the kernel's
/// answer for the number (`None`: not open), `generation_now` the shadow table's after the drain.
///
/// "Not open, so it was done" holds; "open, so it was not done" does not: another thread's accept may own the
/// number by now, and closing it would cut off a client.
#[must_use]
pub fn close(then: Identity, object_now: Option<u64>, generation_now: u32) -> Settled {
    match object_now {
        Some(object) if object == then.object && generation_now == then.generation => Settled::Reissue,
        _ => Settled::Done(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_close_is_repeated_only_on_the_same_object_and_generation() {
        let then = Identity { object: 9, generation: 2 };
        assert_eq!(close(then, None, 2), Settled::Done(0));
        assert_eq!(close(then, Some(9), 2), Settled::Reissue);
        assert_eq!(close(then, Some(10), 2), Settled::Done(0));
        assert_eq!(close(then, Some(9), 3), Settled::Done(0));
    }

    #[test]
    fn impossible_figures_settle_nothing() {
        assert_eq!(write(4, 5, false), Settled::Unknown);
    }

    proptest! {
        /// After settlement exactly `len` bytes have left, however many had before.
        #[test]
        fn a_blocking_write_ends_up_whole(len in 1u64..1 << 20, done in 0u64..1 << 20) {
            let moved = done.min(len);
            let more = match write(len, moved, false) {
                Settled::Done(n) => { prop_assert_eq!(n, len); 0 }
                Settled::Continue(n) => len - n,
                Settled::Reissue => len,
                Settled::Unknown => unreachable!("moved is within the length"),
            };
            prop_assert_eq!(moved + more, len);
        }
    }
}

//! Calls that are made a second time, and may find the effect of the first.

/// A call on names or addresses whose second attempt finds the effect of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// unlink, rmdir: the name is gone.
    Removal,
    /// mkdir, link, symlink, mknod: the name is there.
    Making,
    /// rename: the old name is gone, the new one is the object.
    Renaming,
    /// connect: the socket has, or is about to have, a peer.
    Connecting,
    /// bind: the socket has its address.
    Binding,
    /// shutdown: the connection is over.
    Shutting,
    /// msgget, semget with IPC_EXCL, setxattr with XATTR_CREATE: it is there.
    Creating,
    /// removexattr: it is gone.
    Erasing,
}

/// What was seen around a call that is made a second time. Objects are 0 where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The object just before the first attempt: behind the name, or 1 for a socket that had a peer or an address.
    pub before: u64,
    /// The object after the second attempt: behind the new name of a rename, or 1 for a socket that has the
    /// address that was asked for.
    pub now: u64,
}

/// Whether a call whose first attempt entered the kernel must not be made a second time, because behind its name is
/// another object now, `seen.now`: the first attempt has taken away its own, and somebody has put this one there.
#[must_use]
pub fn is_taken_away(kind: Repeat, seen: Seen) -> bool {
    let Seen { before, now } = seen;
    matches!(kind, Repeat::Removal | Repeat::Renaming) && before != 0 && now != 0 && now != before
}

/// The result to give for a second attempt that ended with the positive errno `error`, `None` if the error is
/// genuine: the first attempt would have met it too.
#[must_use]
pub fn repeated(kind: Repeat, error: i32, seen: Seen) -> Option<i64> {
    const ENOENT: i32 = 2;
    const EEXIST: i32 = 17;
    const EINVAL: i32 = 22;
    const EADDRINUSE: i32 = 98;
    const EISCONN: i32 = 106;
    const EALREADY: i32 = 114;
    const ENOTCONN: i32 = 107;
    const ENODATA: i32 = 61;
    const EINPROGRESS: i64 = 115;
    match (kind, error) {
        (Repeat::Removal, ENOENT) if seen.before != 0 => Some(0),
        (Repeat::Making | Repeat::Creating, EEXIST) if seen.before == 0 => Some(0),
        (Repeat::Erasing, ENODATA) if seen.before != 0 => Some(0),
        (Repeat::Shutting, ENOTCONN) if seen.before != 0 => Some(0),
        (Repeat::Renaming, ENOENT) if seen.before != 0 && seen.now == seen.before => Some(0),
        (Repeat::Connecting, EISCONN) if seen.before == 0 => Some(0),
        (Repeat::Connecting, EALREADY) if seen.before == 0 => Some(-EINPROGRESS),
        (Repeat::Binding, EINVAL | EADDRINUSE) if seen.before == 0 && seen.now != 0 => Some(0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_attempt_that_finds_the_first_succeeds() {
        let seen = |before, now| Seen { before, now };
        assert_eq!(repeated(Repeat::Removal, 2, seen(7, 0)), Some(0));
        assert_eq!(repeated(Repeat::Making, 17, seen(0, 0)), Some(0));
        assert_eq!(repeated(Repeat::Renaming, 2, seen(7, 7)), Some(0));
        assert_eq!(repeated(Repeat::Connecting, 106, seen(0, 0)), Some(0));
        assert_eq!(repeated(Repeat::Connecting, 114, seen(0, 0)), Some(-115));
        assert_eq!(repeated(Repeat::Binding, 22, seen(0, 1)), Some(0));
        assert_eq!(repeated(Repeat::Shutting, 107, seen(1, 0)), Some(0));
        assert_eq!(repeated(Repeat::Creating, 17, seen(0, 0)), Some(0));
        assert_eq!(repeated(Repeat::Erasing, 61, seen(1, 0)), Some(0));
    }

    #[test]
    fn what_somebody_else_has_put_there_is_not_taken_away() {
        let seen = |before, now| Seen { before, now };
        assert!(is_taken_away(Repeat::Removal, seen(7, 8)) && is_taken_away(Repeat::Renaming, seen(7, 8)));
        assert!(!is_taken_away(Repeat::Removal, seen(7, 7)), "the first attempt has not come so far");
        assert!(!is_taken_away(Repeat::Removal, seen(7, 0)), "its error says the same");
        assert!(!is_taken_away(Repeat::Removal, seen(0, 8)), "there was nothing to take");
        assert!(!is_taken_away(Repeat::Making, seen(7, 8)));
    }

    #[test]
    fn a_genuine_error_stays_one() {
        let seen = |before, now| Seen { before, now };
        assert_eq!(repeated(Repeat::Removal, 2, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Removal, 13, seen(7, 0)), None);
        assert_eq!(repeated(Repeat::Making, 17, seen(7, 0)), None);
        assert_eq!(repeated(Repeat::Renaming, 2, seen(7, 8)), None);
        assert_eq!(repeated(Repeat::Renaming, 2, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Connecting, 106, seen(1, 0)), None);
        assert_eq!(repeated(Repeat::Connecting, 111, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Binding, 98, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Shutting, 107, seen(0, 0)), None);
        assert_eq!(repeated(Repeat::Creating, 17, seen(1, 0)), None);
        assert_eq!(repeated(Repeat::Erasing, 61, seen(0, 0)), None);
    }
}

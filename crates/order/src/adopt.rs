//! Descriptors that the table has and the log has not.
//!
//! An accept or open that returned in the kernel, but was never logged, leaves a descriptor that the shadow
//! table does not know: an *orphan*. It belongs to an in-doubt call that could have made it. Left alone, a client
//! would be connected to nobody and a number would be lost for good.

/// An in-doubt call that makes a descriptor, or an orphan: what matters is where descriptors come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Listener identity for accept, device and inode for open, the source's identity for dup; folded into one
    /// word by the caller such that the two kinds of origin never collide.
    pub source: u64,
}

/// Gives the `index`-th of the in-doubt calls `calls` its descriptor: the position in `orphans`, or `None` if the
/// call was not done and must be issued again.
///
/// The n-th call of an origin gets the n-th orphan of that origin. Which of two equal calls gets which of two
/// orphans does not matter, since neither has returned to anybody.
#[must_use]
pub fn orphan_of(index: usize, calls: &[Origin], orphans: &[Origin]) -> Option<usize> {
    let mine = calls.get(index)?;
    let rank = calls[..index].iter().filter(|c| *c == mine).count();
    orphans.iter().enumerate().filter(|(_, o)| *o == mine).nth(rank).map(|(at, _)| at)
}

/// True when some orphan has no call that could have made it: the table and the log disagree.
#[must_use]
pub fn has_foundling(calls: &[Origin], orphans: &[Origin]) -> bool {
    orphans.iter().any(|o| {
        let count = |list: &[Origin]| list.iter().filter(|x| *x == o).count();
        count(orphans) > count(calls)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn origins(list: &[u64]) -> ([Origin; 8], usize) {
        let mut out = [Origin { source: 0 }; 8];
        for (slot, &source) in out.iter_mut().zip(list) {
            *slot = Origin { source };
        }
        (out, list.len())
    }

    proptest! {
        /// No orphan is given twice, every orphan that can be is given, and origins agree.
        #[test]
        fn adoption_is_a_matching(
            calls in proptest::collection::vec(1u64..4, 0..8), orphans in proptest::collection::vec(1u64..4, 0..8),
        ) {
            let (c, cn) = origins(&calls);
            let (o, on) = origins(&orphans);
            let (c, o) = (&c[..cn], &o[..on]);
            let mut given = [false; 8];
            for i in 0..cn {
                if let Some(at) = orphan_of(i, c, o) {
                    prop_assert_eq!(c[i], o[at]);
                    prop_assert!(!given[at]);
                    given[at] = true;
                }
            }
            let all = given[..on].iter().all(|&g| g);
            prop_assert_eq!(all, !has_foundling(c, o));
        }
    }
}

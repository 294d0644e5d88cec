//! Whether the thread of a begun create exists.
//!
//! The parent publishes `ENTER(create, slot, generation)` before the call and `RETURN` after it; the child
//! publishes `START(generation)` before anything else. The child may be far ahead when the parent is
//! killed before its `RETURN`, and others may have learned from it. So the standby's parent must not wait for
//! settlement, which waits for drained rings, which wait for the child: it creates the child as soon as
//! either event is there.

/// What the standby's parent sees of a create whose `ENTER` it has consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreateView {
    /// Generation of the slot that the `ENTER` names (the slot's users so far, this one included).
    pub generation: u32,
    /// Generation of the newest published `START` in the child's ring, if it ever had one.
    pub newest_start: Option<u32>,
    /// The parent's `RETURN`, if published: did the create succeed?
    pub returned: Option<bool>,
}

/// What the parent does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Create the local child.
    Now,
    /// The primary's create failed: create nothing, return the logged error.
    Failed,
    /// Nothing is known yet. At go-live the call is simply made: threads are local to a copy, so an in-doubt
    /// create needs no other settlement.
    Wait,
}

/// Decides about a begun create, in every phase.
///
/// Slots are used again, so "the ring had a `START` once" proves nothing: generations are compared.
#[must_use]
pub fn child_exists(view: CreateView) -> Create {
    match view.returned {
        Some(true) => Create::Now,
        Some(false) => Create::Failed,
        None if view.newest_start.is_some_and(|g| g >= view.generation) => Create::Now,
        None => Create::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_of_this_generation_is_enough() {
        let mut view = CreateView { generation: 2, newest_start: Some(2), returned: None };
        assert_eq!(child_exists(view), Create::Now);
        view.newest_start = Some(1);
        assert_eq!(child_exists(view), Create::Wait);
        view.returned = Some(false);
        assert_eq!(child_exists(view), Create::Failed);
        view.returned = Some(true);
        assert_eq!(child_exists(view), Create::Now);
    }
}

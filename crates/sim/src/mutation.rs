//! Broken rules. Each must be caught by some program, or the model proves nothing about the rule.

/// One deliberate mistake in the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mutation {
    /// LOCK is published after the mutex has been released.
    PublishAfterRelease,
    /// Acquisitions take their ticket before they acquire.
    TicketBeforeAcquire,
    /// sem_post takes its ticket after its effect.
    ReleaseTicketAfterEffect,
    /// sem_post takes its ticket before, but publishes after its effect.
    ReleasePublishedAfterEffect,
    /// Gaps are computed from the rings' heads alone.
    GapFromHeadsOnly,
    /// No gap is ever skipped.
    GapNeverSkipped,
    /// A thread goes live as soon as its own ring is drained.
    GoLiveBeforeOthersDrain,
    /// Threads go live once all rings are drained, while settlement is still to come.
    GoLiveBeforeSettlement,
    /// The ring's head is advanced before the event is applied.
    HeadAdvancedBeforeApply,
    /// "The number is open, so the close was not done."
    CloseByNumberOnly,
    /// The kernel's identity is compared, the number's generation is not.
    CloseWithoutGeneration,
    /// In-doubt calls are simply issued again.
    ReissueWithoutSettlement,
    /// A partly done write is issued again from its first byte.
    PartialWriteRepeated,
    /// Descriptors unknown to the log are left alone, the call that made them is issued again.
    OrphansIgnored,
    /// Several writers in doubt on one stream: the first thread is believed to have written first.
    SharedStreamGuessed,
    /// ENTER is published after the call's effect.
    EnterPublishedAfterEffect,
    /// Acquiring calls take their ticket at entry.
    AcquiringCallTicketAtEntry,
    /// Releasing calls take their ticket after their effect; ENTER has none.
    ReleasingCallTicketAtReturn,
    /// Conditional waiters stay asleep at promotion.
    CondWaiterNotWokenAtPromotion,
    /// The standby's conditional waiter keeps the mutex until its event comes.
    CondWaitKeepsMutex,
    /// A child publishes no START.
    StartNotPublished,
    /// A create without RETURN is left to settlement.
    CreateWaitsForSettlement,
    /// Any START that the slot's ring ever had counts.
    StartOfAnyGeneration,
    /// The standby takes the mutex at a trylock's success without waiting for its holder.
    TryLockReplayedWithoutWaiting,
    /// The standby starts a thread in a slot whose last thread has not ended there.
    SlotTakenWhileBusy,
    /// RUN carries no ticket: the RUN at the head is taken for this object's.
    OnceRunWithoutTicket,
    /// RUN is published after the initialiser.
    OnceRunPublishedAtEnd,
    /// The standby arrives at a barrier when its event comes.
    BarrierArrivesAtEvent,
    /// Live threads choose the barrier's serial thread without asking the log.
    BarrierSerialIgnoresLog,
    /// Promotion begins while the primary still runs.
    PromotedBeforeFence,
}

impl Mutation {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::PublishAfterRelease,
        Self::TicketBeforeAcquire,
        Self::ReleaseTicketAfterEffect,
        Self::ReleasePublishedAfterEffect,
        Self::GapFromHeadsOnly,
        Self::GapNeverSkipped,
        Self::GoLiveBeforeOthersDrain,
        Self::GoLiveBeforeSettlement,
        Self::HeadAdvancedBeforeApply,
        Self::CloseByNumberOnly,
        Self::CloseWithoutGeneration,
        Self::ReissueWithoutSettlement,
        Self::PartialWriteRepeated,
        Self::OrphansIgnored,
        Self::SharedStreamGuessed,
        Self::EnterPublishedAfterEffect,
        Self::AcquiringCallTicketAtEntry,
        Self::ReleasingCallTicketAtReturn,
        Self::CondWaiterNotWokenAtPromotion,
        Self::CondWaitKeepsMutex,
        Self::StartNotPublished,
        Self::CreateWaitsForSettlement,
        Self::StartOfAnyGeneration,
        Self::TryLockReplayedWithoutWaiting,
        Self::SlotTakenWhileBusy,
        Self::OnceRunWithoutTicket,
        Self::OnceRunPublishedAtEnd,
        Self::BarrierArrivesAtEvent,
        Self::BarrierSerialIgnoresLog,
        Self::PromotedBeforeFence,
    ];
}

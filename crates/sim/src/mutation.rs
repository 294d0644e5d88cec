//! Broken rules. Each must be caught by some program, or the model proves nothing about the rule.

use crate::explore::Copies;
use crate::program::{Op, Program};

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
    /// A standby's signals wake nobody: its waiters know nothing of them when they are promoted.
    CondSignalsUnknownToStandby,
    /// A standby's conditional waiter joins the queue after it has released the mutex.
    CondWaiterJoinsAfterRelease,
    /// A conditional waiter whose event has been applied stays in the standby's queue.
    CondWaiterLeftInQueue,
    /// A standby's waiter was woken, the log says that it timed out, and it does not pass the signal on.
    CondTimeoutKeepsSignal,
    /// A promoted waiter that has been woken says "timed out" if its deadline passes before it has the mutex.
    CondTimeoutDropsSignal,
    /// Whoever is promoted in a conditional wait returns from it, woken or not.
    CondWaitersReturnAtPromotion,
    /// The same is left undone where it is the rule: at objects that processes share, of which a standby knows no
    /// waiters.
    SharedCondWaiterNotWokenAtPromotion,
    /// The standby's conditional waiter keeps the mutex until its event comes.
    CondWaitKeepsMutex,
    /// A child publishes no START.
    StartNotPublished,
    /// A create without RETURN is left to settlement.
    CreateWaitsForSettlement,
    /// The standby takes the mutex at a trylock's success without waiting for its holder.
    TryLockReplayedWithoutWaiting,
    /// The standby starts a thread in a slot whose last thread has not ended there.
    SlotTakenWhileBusy,
    /// The standby starts a thread in a slot whose last thread has ended there, and is still to be joined.
    SlotTakenBeforeJoin,
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
    /// The mark that says that the kernel was entered is left behind the call.
    MarkLeftAfterEffect,
    /// The poller reads a clock before it looks through the rings, and moves it afterwards.
    GapClockReadBeforeScan,
    /// A number whose close was not done counts as one that somebody has just made.
    CloseClaimsNothing,
    /// Whoever comes first chooses among the orphans, duplicates not before the others.
    DuplicatesNotFirst,
    /// dup2 is not asked about orphans: its number goes to whoever could have made it, too.
    NumberedDuplicateNotAsked,
    /// What nobody outside can have noticed is not closed, and is made once more.
    OrphanLeftOpen,
    /// What looks like what a call makes is closed, although each such call has its own.
    StrangersOrphanClosed,
    /// A program is cloned while a thread is between its effect and its event.
    ClonedInsideDoor,
    /// What settlement compares with is not asked from the kernel at a clone.
    CloneTakesNoStock,
    /// A transfer that was cut off for a clone begins from its first byte.
    CloneForgetsPart,
    /// A copy that has taken over does not say that it makes a call in doubt again.
    AgainNotLogged,
    /// Whoever takes over settles the calls in doubt before its spare has applied what the dead primary had logged.
    SettledBeforeSpareDrained,
    /// Whoever takes over settles, and goes live, wherever its spare is in the dead primary's log.
    SpareNotAwaited,
    /// A spare skips tickets while the copy that it follows lives.
    SpareClosesGapsLate,
    /// A thread that waits for a lock gives its turn to others and logs nothing.
    YieldNotLogged,
    /// A standby's thread runs guest code without waiting for its turn.
    TurnNotAwaited,
    /// A turn that was taken at another one's side waits for that one's end.
    PassedOverAwaitsEnd,
    /// Who has taken over numbers its turns from the first one on, and the spare counts on.
    TurnsNumberedAnew,
    /// Who has taken over does not know that a thread has the turn, and gives it to another one.
    TurnFreeAtPromotion,
    /// At the death of a member nobody but its own standby takes over.
    FamilyDeathOfOne,
    /// A member's standby acts as soon as it has settled its own calls, wherever the others are.
    FamilyActsBeforeAllSettled,
    /// The memory stays as the dead primaries have left it.
    FamilyMemoryNotPutBack,
    /// A standby whose thread is on its way to its next door says that it stands.
    FamilySettledInGuestCode,
    /// A child whose standby came too late takes a turn while the others take over.
    FamilyTurnWhilePromoting,
    /// A child of a family runs before it has a standby.
    FamilyChildActsAlone,
    /// A member leaves before its standby has ended its last turn.
    FamilyLeavesUnfollowed,
    /// A member that has left ends its standby without a look whether the others take over with it.
    FamilyEndsWhilePromoting,
    /// A member of a family that is being formed forks as soon as it stands still itself.
    FamilyForkedBeforeAllStand,
    /// Nobody looks whether a process that is no member has the memory.
    FamilyStrangersIgnored,
    /// The order goes on for the others when one member has lost its standby.
    FamilyLogEndsOfOne,
    /// Those who take over wait for a member whose standby has come to a fault of the program's own.
    FamilyFaultAwaited,
    /// The same of one that came to it before those who take over were counted.
    FamilyFallenCounted,
    /// A ring's writer asks the standby how far it has read, and not the recorder.
    RingRecorderIgnored,
    /// A ring is written without a question whether there is memory.
    RingMemoryNotAsked,
    /// A reader gives an event back before it has applied it.
    RingReleasedBeforeApply,
}

impl Mutation {
    /// False if no step of the program can tell this rule from the right one.
    #[must_use]
    pub fn concerns(self, program: &Program) -> bool {
        let waits = |op: &Op| matches!(op, Op::CondWait(..) | Op::TimedWait(..));
        let is_about_waits = !matches!(
            self,
            Self::CondSignalsUnknownToStandby
                | Self::CondWaiterJoinsAfterRelease
                | Self::CondWaiterLeftInQueue
                | Self::CondTimeoutKeepsSignal
                | Self::CondTimeoutDropsSignal
                | Self::CondWaitersReturnAtPromotion
                | Self::SharedCondWaiterNotWokenAtPromotion
                | Self::CondWaitKeepsMutex
        ) || program.code.iter().any(waits);
        let takes_turns = matches!(
            self,
            Self::YieldNotLogged
                | Self::TurnNotAwaited
                | Self::PassedOverAwaitsEnd
                | Self::TurnsNumberedAnew
                | Self::TurnFreeAtPromotion
        );
        is_about_waits && (program.turns || !takes_turns)
    }

    /// Where further standbys have to come from for this rule to matter.
    #[must_use]
    pub fn copies(self) -> Copies {
        match self {
            Self::ClonedInsideDoor | Self::CloneTakesNoStock | Self::CloneForgetsPart => Copies::Clones,
            Self::AgainNotLogged
            | Self::SettledBeforeSpareDrained
            | Self::SpareNotAwaited
            | Self::SpareClosesGapsLate
            | Self::TurnsNumberedAnew
            | Self::TurnFreeAtPromotion
            | Self::GapClockReadBeforeScan => Copies::Spares,
            _ => Copies::None,
        }
    }

    /// True if only the search without the split shows what a standby concludes from an event that is not there yet.
    #[must_use]
    pub fn needs_joint(self) -> bool {
        matches!(self, Self::PromotedBeforeFence | Self::SpareNotAwaited | Self::SpareClosesGapsLate)
    }

    /// True if it is a rule of processes that share memory, which have a model of their own ([`crate::family`]).
    #[must_use]
    pub fn is_of_family(self) -> bool {
        use Mutation::*;
        matches!(
            self,
            FamilyDeathOfOne
                | FamilyActsBeforeAllSettled
                | FamilyMemoryNotPutBack
                | FamilySettledInGuestCode
                | FamilyTurnWhilePromoting
                | FamilyChildActsAlone
                | FamilyLeavesUnfollowed
                | FamilyEndsWhilePromoting
                | FamilyForkedBeforeAllStand
                | FamilyStrangersIgnored
                | FamilyLogEndsOfOne
                | FamilyFaultAwaited
                | FamilyFallenCounted
        )
    }

    /// True if it is a rule of one ring, which has a model of its own ([`crate::ring`]).
    #[must_use]
    pub fn is_of_ring(self) -> bool {
        matches!(self, Self::RingRecorderIgnored | Self::RingMemoryNotAsked | Self::RingReleasedBeforeApply)
    }

    /// All of them.
    pub const ALL: [Self; 71] = [
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
        Self::CondSignalsUnknownToStandby,
        Self::CondWaiterJoinsAfterRelease,
        Self::CondWaiterLeftInQueue,
        Self::CondTimeoutKeepsSignal,
        Self::CondTimeoutDropsSignal,
        Self::CondWaitersReturnAtPromotion,
        Self::SharedCondWaiterNotWokenAtPromotion,
        Self::CondWaitKeepsMutex,
        Self::StartNotPublished,
        Self::CreateWaitsForSettlement,
        Self::TryLockReplayedWithoutWaiting,
        Self::SlotTakenWhileBusy,
        Self::SlotTakenBeforeJoin,
        Self::OnceRunWithoutTicket,
        Self::OnceRunPublishedAtEnd,
        Self::BarrierArrivesAtEvent,
        Self::BarrierSerialIgnoresLog,
        Self::PromotedBeforeFence,
        Self::MarkLeftAfterEffect,
        Self::CloseClaimsNothing,
        Self::DuplicatesNotFirst,
        Self::NumberedDuplicateNotAsked,
        Self::OrphanLeftOpen,
        Self::StrangersOrphanClosed,
        Self::GapClockReadBeforeScan,
        Self::ClonedInsideDoor,
        Self::CloneTakesNoStock,
        Self::CloneForgetsPart,
        Self::AgainNotLogged,
        Self::SettledBeforeSpareDrained,
        Self::SpareNotAwaited,
        Self::SpareClosesGapsLate,
        Self::YieldNotLogged,
        Self::TurnNotAwaited,
        Self::PassedOverAwaitsEnd,
        Self::TurnsNumberedAnew,
        Self::TurnFreeAtPromotion,
        Self::FamilyDeathOfOne,
        Self::FamilyActsBeforeAllSettled,
        Self::FamilyMemoryNotPutBack,
        Self::FamilySettledInGuestCode,
        Self::FamilyTurnWhilePromoting,
        Self::FamilyChildActsAlone,
        Self::FamilyLeavesUnfollowed,
        Self::FamilyEndsWhilePromoting,
        Self::FamilyForkedBeforeAllStand,
        Self::FamilyStrangersIgnored,
        Self::FamilyLogEndsOfOne,
        Self::FamilyFaultAwaited,
        Self::FamilyFallenCounted,
        Self::RingRecorderIgnored,
        Self::RingMemoryNotAsked,
        Self::RingReleasedBeforeApply,
    ];
}

//! What is known of each call in doubt.

/// What is known of a call in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It has moved nothing that counts: made again.
    Again,
    /// It has moved so many bytes.
    Moved(u64),
    /// It has been told that its connection was reset, which is told once.
    Failed,
    /// Nobody can tell.
    Unknown,
}

/// The verdicts, by slot. Slots beyond the list's end are Unknown, once they have been judged.
pub struct Verdicts<'a> {
    all: &'a mut [Option<Verdict>],
}

impl<'a> Verdicts<'a> {
    /// None yet. The list has a place for every slot with a call in doubt.
    pub fn new(all: &'a mut [Option<Verdict>]) -> Verdicts<'a> {
        all.fill(None);
        Verdicts { all }
    }

    /// The verdict about a slot's call; `None` if none was asked for.
    pub fn of(&self, slot: u32) -> Option<Verdict> {
        match self.all.get(slot as usize) {
            Some(verdict) => *verdict,
            None => Some(Verdict::Unknown),
        }
    }

    /// Notes one, unless there is one.
    pub fn put(&mut self, slot: u32, verdict: Verdict) {
        if let Some(place @ None) = self.all.get_mut(slot as usize) {
            *place = Some(verdict);
        }
    }

    /// Replaces [`Verdict::Unknown`] by what else has told.
    pub(crate) fn learn(&mut self, slot: u32, verdict: Verdict) {
        if let Some(place @ Some(Verdict::Unknown)) = self.all.get_mut(slot as usize) {
            *place = Some(verdict);
        }
    }
}

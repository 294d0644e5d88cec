//! What happens to a guest at seeded moments besides kills: a checkpoint, upgrades.

use std::time::Duration;

use anyhow::Result;

use super::{Mode, Session};
use crate::checkpoint::Checkpointed;
use crate::guest::Guest;
use crate::rng::Rng;
use crate::trial::{Reference, Verdict};

impl<'a> Session<'a> {
    /// One checkpoint at a seeded moment. What no checkpoint can have is no failure: the program went on, and that was as it should be.
    pub(super) fn checkpoint_once(
        &self,
        guest: &'a Guest,
        reference: &Reference,
        window: Duration,
        seed: u64,
    ) -> Result<()> {
        let mut rng = Rng::new(seed, &format!("{} checkpoint", guest.name));
        let at = window.mul_f64(rng.fraction());
        match self.stage.checkpointed(guest, reference, at)? {
            Checkpointed::Judged(verdict) => self.judge(guest, Mode::Checkpoint, seed, verdict).map(|_| ()),
            Checkpointed::Refused(why) => {
                self.report.skip(&format!("{} {}", guest.name, Mode::Checkpoint.name()), &why);
                Ok(())
            }
        }
    }

    /// Three upgrades at seeded moments.
    pub(super) fn upgrades_once(
        &self,
        guest: &'a Guest,
        reference: &Reference,
        window: Duration,
        seed: u64,
    ) -> Result<()> {
        let mut rng = Rng::new(seed, &format!("{} upgrade", guest.name));
        let times = [(); 3].map(|()| window.mul_f64(rng.fraction() / 3.0));
        let (verdict, done) = self.stage.upgraded(guest, reference, &times)?;
        match verdict {
            Verdict::Pass { elapsed, .. } => {
                let detail = format!("seed {seed}, {done} upgrades, {elapsed:.0?}");
                self.report.pass(&format!("{} upgrade", guest.name), &detail);
                Ok(())
            }
            other => self.judge(guest, Mode::Upgrade, seed, other).map(|_| ()),
        }
    }
}

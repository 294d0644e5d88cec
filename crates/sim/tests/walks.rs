//! Seeded random walks. `SIM_SEED=n` repeats one.

use us_sim::mutation::Mutation;
use us_sim::walk::{Random, random_program, walk};

const WALKS: u64 = 20_000;

/// One seed: a program, a schedule, a kill. The failure, if any, as text.
fn run(seed: u64, mutation: Option<Mutation>) -> Result<(), String> {
    let mut random = Random::new(seed);
    let program = random_program(&mut random);
    let native = walk(&program, None, &mut random, None).expect("a random program ends natively");
    // Some kills come after the end: then the log is complete, and the standby must equal the primary.
    let kill = random.below(700);
    match walk(&program, mutation, &mut random, Some(kill)) {
        Ok(summary) if summary == native => Ok(()),
        Ok(summary) => Err(format!("seed {seed}: natively {native:?}, after the failover {summary:?}")),
        Err((violation, trace)) => Err(format!("seed {seed}: {violation:?}\n  {}", trace.join("\n  "))),
    }
}

#[test]
fn random_programs_survive_random_kills() {
    let seeds = match std::env::var("SIM_SEED") {
        Ok(seed) => vec![seed.parse().expect("SIM_SEED is a number")],
        Err(_) => (0..WALKS).collect(),
    };
    for seed in seeds {
        run(seed, None).unwrap_or_else(|text| panic!("{text}"));
    }
}

/// The walks must be able to fail: rules that the programs exercise are broken, and a seed shows it.
#[test]
fn random_walks_find_broken_rules() {
    for mutation in [
        Mutation::PublishAfterRelease,
        Mutation::ReleaseTicketAfterEffect,
        Mutation::GapFromHeadsOnly,
        Mutation::GapNeverSkipped,
        Mutation::GoLiveBeforeOthersDrain,
        Mutation::HeadAdvancedBeforeApply,
        Mutation::ReissueWithoutSettlement,
        Mutation::PartialWriteRepeated,
        Mutation::OrphansIgnored,
        Mutation::BarrierSerialIgnoresLog,
        Mutation::OnceRunWithoutTicket,
        Mutation::TryLockReplayedWithoutWaiting,
    ] {
        let seed = (0..WALKS).find(|&seed| run(seed, Some(mutation)).is_err());
        println!("{mutation:?}: seed {seed:?}");
        assert!(seed.is_some(), "{mutation:?} survives {WALKS} walks");
    }
}

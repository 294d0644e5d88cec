//! Leader and follower over a false network, from one seed: messages are lost, come twice, late and in another order, links
//! break, machines and processes die. What must hold is looked at after each step, and each rule that is broken must be
//! found by some seed.

mod world;

use ship::hello::Commit;
use ship::{Broken, Limits};
use world::{Scene, World};

/// Seeds of each scene; `SHIP_SEEDS` says otherwise.
fn seeds() -> u64 {
    std::env::var("SHIP_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(400)
}

fn scene(commit: Commit) -> Scene {
    Scene { commit, entries: 60, is_foreign: false, dies: false, limits: limits() }
}

fn limits() -> Limits {
    Limits {
        window: 4000,
        entries: 8,
        backlog: u64::MAX,
        beat: 20_000_000,
        silence: 200_000_000,
        pause: (5_000_000, 100_000_000),
    }
}

fn all_hold(scene: Scene) {
    for seed in 0..seeds() {
        if let Err(what) = World::new(seed, scene, None).run() {
            panic!("seed {seed}: {what}");
        }
    }
}

/// A seed that finds the broken rule.
fn is_found(scene: Scene, rule: Broken, words: &str) {
    let found = (0..seeds()).find_map(|seed| {
        let what = World::new(seed, scene, Some(rule)).run().err()?;
        Some((seed, what))
    });
    let Some((seed, what)) = found else { panic!("no seed finds that {rule:?} is broken") };
    assert!(what.contains(words), "{rule:?}, seed {seed}: {what}");
}

#[test]
fn committed_in_memory() {
    all_hold(scene(Commit::Memory));
}

#[test]
fn committed_on_disk() {
    all_hold(scene(Commit::Disk));
}

#[test]
fn the_leader_dies() {
    all_hold(Scene { dies: true, ..scene(Commit::Memory) });
    all_hold(Scene { dies: true, ..scene(Commit::Disk) });
}

#[test]
fn another_log_stands_there() {
    all_hold(Scene { is_foreign: true, ..scene(Commit::Disk) });
}

#[test]
fn a_follower_far_behind_is_given_up() {
    let limits = Limits { backlog: 3000, ..limits() };
    let mut given_up = 0;
    for seed in 0..seeds().min(300) {
        given_up +=
            u32::from(World::new(seed, Scene { limits, ..scene(Commit::Disk) }, None).run_or_give_up());
    }
    assert!(given_up > 0, "no follower was given up");
}

#[test]
fn a_gap_is_found() {
    is_found(scene(Commit::Memory), Broken::Gaps, "is not the log's");
}

#[test]
fn what_is_not_synced_is_found() {
    is_found(scene(Commit::Disk), Broken::Unsynced, "was committed, and is not there");
}

#[test]
fn going_on_where_the_leader_was_is_found() {
    is_found(scene(Commit::Memory), Broken::Resume, "not done");
}

#[test]
fn a_commit_that_is_taken_back_is_found() {
    is_found(scene(Commit::Memory), Broken::TakenBack, "taken back");
}

#[test]
fn a_lease_from_the_answer_on_is_found() {
    is_found(scene(Commit::Memory), Broken::Lease, "lease");
}

#[test]
fn a_window_without_an_end_is_found() {
    is_found(scene(Commit::Memory), Broken::Window, "on their way");
}

#[test]
fn answers_of_older_links_are_found() {
    is_found(scene(Commit::Memory), Broken::Sessions, "");
}

#[test]
fn another_log_that_is_not_compared_is_found() {
    is_found(Scene { is_foreign: true, ..scene(Commit::Disk) }, Broken::Unlike, "is not the log's");
}

/// One step after the other, of a seed that fails: `SHIP_SEED=7 cargo test -p us-ship --test simulate one_seed -- --nocapture`.
#[test]
fn one_seed() {
    let Some(seed) = std::env::var("SHIP_SEED").ok().and_then(|seed| seed.parse().ok()) else { return };
    let mut world = World::new(seed, scene(Commit::Memory), None);
    world.talks = true;
    world.run().unwrap();
}

use super::*;

const SHELL: u32 = 100;
const ENDED: Reaped = Reaped { status: 3 << 8, used_us: [40, 2], whose: None };

fn alive(_: u32) -> bool {
    true
}

fn dead(_: u32) -> bool {
    false
}

/// A roster with the program in it.
fn roster() -> Roster {
    let folder = tempfile::tempdir().unwrap();
    let roster = Roster::create(&crate::dir::Dir::open(folder.path()).unwrap()).unwrap();
    roster.enter_root(SHELL);
    roster
}

/// Lists a child as the runtime does.
fn list(roster: &Roster, pid: u32, parent: u32, born_ns: u64) -> Place {
    let processes = &roster.shared().processes;
    let at = processes.iter().position(|entry| entry.state.load(Ordering::Relaxed) == process::FREE).unwrap();
    let entry = &processes[at];
    for (word, value) in
        [(&entry.pid, pid), (&entry.parent, parent), (&entry.kin, kin::KERNEL), (&entry.end, end::NONE)]
    {
        word.store(value, Ordering::Relaxed);
    }
    entry.born_ns.store(born_ns, Ordering::Relaxed);
    roster.header().used.fetch_max(at as u32 + 1, Ordering::Relaxed);
    entry.state.store(process::LISTED, Ordering::Release);
    place(at, entry)
}

/// Kin, end, parent and primary of an entry, `None` once it is free.
fn seen(roster: &Roster, place: Place) -> Option<[u32; 4]> {
    let entry = roster.get(place)?;
    let [kin, end, parent] = [&entry.kin, &entry.end, &entry.parent].map(|word| word.load(Ordering::Relaxed));
    Some([kin, end, parent, roster.primary_of(place)])
}

fn told(roster: &Roster) -> u32 {
    roster.header().ends.0.load(Ordering::Relaxed)
}

#[test]
fn the_program_is_listed_first_and_is_ours() {
    let roster = roster();
    let (place, _) = roster.find(SHELL).unwrap();
    assert_eq!((place.at, roster.listed().count()), (ROOT, 1));
    assert_eq!(seen(&roster, place), Some([kin::ADOPTED, end::NONE, 0, SHELL]));
    // Nobody can ask for its end but us.
    assert_eq!(roster.ended(place, &ENDED, alive), None);
    assert_eq!(roster.listed().count(), 0);
}

#[test]
fn a_failover_makes_a_process_and_its_children_ours() {
    let roster = roster();
    let make = list(&roster, 200, SHELL, 5);
    let cc = list(&roster, 300, 200, 6);
    let sibling = list(&roster, 400, SHELL, 7);
    let before = told(&roster);
    roster.failed_over(make, 250, alive);
    assert_eq!(told(&roster), before + 1);
    assert_eq!(seen(&roster, make), Some([kin::ADOPTED, end::NONE, SHELL, 250]));
    assert_eq!(seen(&roster, cc), Some([kin::ADOPTED, end::NONE, 200, 300]));
    assert_eq!(seen(&roster, sibling), Some([kin::KERNEL, end::NONE, SHELL, 400]));
    // Found by the kernel's number of its new primary, and no longer by that of its old one, which ends as well.
    assert_eq!(roster.with_primary(250).unwrap().0, make);
    assert!(roster.with_primary(200).is_none());
}

#[test]
fn a_child_that_was_listed_late_is_ours_one_of_the_new_primarys_is_not() {
    let roster = roster();
    let (late, new) = (list(&roster, 200, SHELL, 99), list(&roster, 201, SHELL, 101));
    assert!(roster.adopt_children(SHELL, 100, alive));
    assert_eq!(seen(&roster, late), Some([kin::ADOPTED, end::NONE, SHELL, 200]));
    assert_eq!(seen(&roster, new), Some([kin::KERNEL, end::NONE, SHELL, 201]));
    assert!(!roster.adopt_children(SHELL, 100, alive));
}

#[test]
fn a_child_that_the_kernel_has_discarded_is_nobodys() {
    let roster = roster();
    let (gone, joined) = (list(&roster, 200, SHELL, 5), list(&roster, 201, SHELL, 6));
    roster.get(joined).unwrap().joined.store(1, Ordering::Relaxed);
    assert!(roster.adopt_children(SHELL, 100, dead));
    assert_eq!(seen(&roster, gone), None);
    // It may be between two primaries.
    assert_eq!(seen(&roster, joined), Some([kin::ADOPTED, end::NONE, SHELL, 201]));
}

#[test]
fn the_end_of_an_adopted_process_is_kept_for_its_parent() {
    let roster = roster();
    let child = list(&roster, 200, SHELL, 5);
    roster.failed_over(child, 250, alive);
    let before = told(&roster);
    assert_eq!(roster.ended(child, &ENDED, alive), Some(SHELL));
    assert_eq!(told(&roster), before + 1);
    assert_eq!(seen(&roster, child), Some([kin::ADOPTED, end::ENDED, SHELL, 250]));
    let entry = roster.get(child).unwrap();
    assert_eq!(entry.status.load(Ordering::Relaxed), 3 << 8);
    assert_eq!([0, 1].map(|kind| entry.used_us[kind].load(Ordering::Relaxed)), [40, 2]);
    // Its parent ends without having asked.
    roster.orphan(SHELL);
    assert_eq!(seen(&roster, child), None);
}

#[test]
fn the_kernels_word_is_confirmed_for_its_own_children_only() {
    let roster = roster();
    let child = list(&roster, 200, SHELL, 5);
    let before = told(&roster);
    roster.is_final(child);
    assert_eq!(told(&roster), before + 1);
    assert_eq!(seen(&roster, child), Some([kin::KERNEL, end::FINAL, SHELL, 200]));
    let adopted = list(&roster, 201, SHELL, 5);
    roster.adopt_children(SHELL, u64::MAX, alive);
    roster.is_final(adopted);
    assert_eq!(seen(&roster, adopted), Some([kin::ADOPTED, end::NONE, SHELL, 201]));
}

#[test]
fn an_orphan_that_ends_leaves_the_list() {
    let roster = roster();
    let child = list(&roster, 200, SHELL, 5);
    roster.orphan(SHELL);
    assert_eq!(seen(&roster, child), Some([kin::KERNEL, end::NONE, 0, 200]));
    assert_eq!(roster.ended(child, &ENDED, alive), None);
    assert_eq!(seen(&roster, child), None);
}

#[test]
fn nobody_keeps_an_end_for_a_parent_that_is_gone() {
    let roster = roster();
    let parent = list(&roster, 200, SHELL, 5);
    let child = list(&roster, 300, 200, 6);
    roster.is_final(parent);
    // Its parent's parent has not asked for it yet.
    assert_eq!(roster.ended(child, &ENDED, dead), None);
    assert_eq!(seen(&roster, child), None);
    // The word was said early of one that nobody watches: it lives, and may ask.
    let child = list(&roster, 301, 200, 6);
    assert_eq!(roster.ended(child, &ENDED, alive), Some(200));
    // One that never joined has ended, and its own parent has not said so; of one that has, a copy may take over.
    roster.get(parent).unwrap().end.store(end::NONE, Ordering::Relaxed);
    let orphan = list(&roster, 303, 200, 6);
    assert_eq!(roster.ended(orphan, &ENDED, dead), None);
    roster.get(parent).unwrap().joined.store(1, Ordering::Relaxed);
    let orphan = list(&roster, 304, 200, 6);
    assert_eq!(roster.ended(orphan, &ENDED, dead), Some(200));
    // So may one for the program itself.
    let child = list(&roster, 305, SHELL, 6);
    assert_eq!(roster.ended(child, &ENDED, dead), Some(SHELL));
    // A parent that was never listed.
    let stranger = list(&roster, 302, 999, 6);
    assert_eq!(roster.ended(stranger, &ENDED, alive), None);
    assert_eq!(seen(&roster, stranger), None);
}

#[test]
fn what_was_kept_for_a_parent_goes_when_that_has_ended_unwatched() {
    let roster = roster();
    let parent = list(&roster, 200, SHELL, 5);
    let (child, runs) = (list(&roster, 300, 200, 6), list(&roster, 301, 200, 6));
    assert_eq!(roster.ended(child, &ENDED, alive), Some(200));
    roster.forget_unasked(alive);
    assert_eq!(seen(&roster, child), Some([kin::ADOPTED, end::ENDED, 200, 300]));
    // The shell has waited for it.
    roster.free(parent);
    roster.forget_unasked(alive);
    assert_eq!(seen(&roster, child), None);
    assert_eq!(seen(&roster, runs), Some([kin::KERNEL, end::NONE, 0, 301]));
}

#[test]
fn an_entry_or_a_number_that_is_used_again_is_another_process() {
    let roster = roster();
    let old = list(&roster, 200, SHELL, 5);
    roster.free(old);
    let new = list(&roster, 200, SHELL, 8);
    assert_eq!((old.at, old.pid), (new.at, new.pid));
    roster.is_final(old);
    roster.failed_over(old, 250, alive);
    assert_eq!(roster.ended(old, &ENDED, alive), None);
    roster.free(old);
    // Its new parent's failover, which the line above also stood for, would be another matter: these are not its words.
    assert_eq!(seen(&roster, new), Some([kin::KERNEL, end::NONE, SHELL, 200]));
}

#[test]
fn wild_values_lead_nowhere() {
    let roster = roster();
    roster.header().used.store(u32::MAX, Ordering::Relaxed);
    assert_eq!(roster.listed().count(), 1);
    assert!(roster.get(Place { at: usize::MAX, pid: 1, born_ns: 1 }).is_none());
    let entry = &roster.shared().processes[ROOT];
    entry.parent.store(SHELL, Ordering::Relaxed);
    entry.end.store(77, Ordering::Relaxed);
    let (place, _) = roster.find(SHELL).unwrap();
    assert_eq!(roster.ended(place, &ENDED, alive), None);
}

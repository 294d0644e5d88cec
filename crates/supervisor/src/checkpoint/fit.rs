//! Whether a checkpoint fits this machine, and its head fits together.

use checkpoint::{Head, Mapping, Object, Process};
use us_abi::{PROCESSES_MAX, VERSION};

use super::image::{PAGE, TASK_END};
use super::raw;
use crate::proc;
use crate::recorder::surroundings;

/// What differs here from where the checkpoint was taken, if it matters.
///
/// # Errors
/// That, in words, and a head that does not fit together.
pub(super) fn check(head: &Head) -> Result<(), String> {
    if head.segment_version != VERSION {
        return Err("it was taken by another version of Understudy".into());
    }
    let kernel = surroundings::kernel();
    if head.kernel != kernel {
        return Err(format!("it was taken on Linux {}, and this is {kernel}", head.kernel));
    }
    if let Some(flag) = surroundings::lacking(&head.processor, &proc::features()).next() {
        return Err(format!("it was taken on a processor with {flag}, which this one has not"));
    }
    let mut system_v =
        head.processes.iter().flat_map(|process| &process.mappings).filter_map(|one| one.system_v);
    if let Some(number) = system_v.find(|number| raw::system_v_bytes(*number).is_none()) {
        return Err(format!("System V's shared memory {number} is not there any more"));
    }
    if head.processes.iter().all(|process| is_sound(head, process)) && are_apart(head) {
        Ok(())
    } else {
        Err("its head does not fit together".into())
    }
}

fn is_sound(head: &Head, process: &Process) -> bool {
    let in_order = process.mappings.windows(2).all(|two| two[0].end <= two[1].start);
    let sound = |mapping: &Mapping| {
        mapping.start < mapping.end
            && mapping.start >= PAGE
            && mapping.end <= TASK_END
            && mapping.start.is_multiple_of(PAGE)
            && mapping.end.is_multiple_of(PAGE)
            && mapping.file.is_none_or(|(file, _)| file < head.files.len())
            && mapping
                .shared
                .is_none_or(|(piece, offset)| piece < head.shared.len() && offset.is_multiple_of(PAGE))
    };
    in_order
        && process.mappings.iter().all(sound)
        && process.slots as usize <= us_abi::THREADS_MAX
        && (process.place as usize) < PROCESSES_MAX
        && process.descriptors.iter().all(|one| one.fd >= 0 && one.object < head.objects.len())
        && head.objects.iter().all(|object| match object {
            Object::Memory { piece, .. } => *piece < head.shared.len(),
            _ => true,
        })
}

/// Whether the processes are as many as there is room for, the program itself in its place, and each number and place one's.
fn are_apart(head: &Head) -> bool {
    let all = &head.processes;
    let is_one =
        |at: usize| all[..at].iter().all(|other| other.pid != all[at].pid && other.place != all[at].place);
    all.len() <= PROCESSES_MAX
        && (head.recorded.is_none() || all.len() == 1)
        && head.root().place as usize == crate::roster::ROOT
        && (0..all.len()).all(is_one)
}

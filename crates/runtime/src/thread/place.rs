//! Where a thread runs, how often, and under which name: what the guest has asked for.
//!
//! Any thread may set it for any other, in the guest's own order, and a promotion gives it to the kernel.

use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};

/// A policy: the kernel's `sched_attr`, in its first version.
#[allow(missing_docs)]
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SchedAttr {
    pub size: u32,
    pub policy: u32,
    pub flags: u64,
    pub nice: i32,
    pub priority: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}
const _: () = assert!(size_of::<SchedAttr>() == SCHED_ATTR_SIZE_VER0);
/// So the kernel calls it.
const SCHED_ATTR_SIZE_VER0: usize = 48;

/// What of one is remembered.
struct Scheduling {
    policy: AtomicU32,
    nice: AtomicI32,
    priority: AtomicU32,
    flags: AtomicU64,
    times: [AtomicU64; 3],
}

/// Of `nice`: that there is one.
const GIVEN: u32 = 1 << 8;

/// What the guest has asked for.
pub struct Place {
    affinity: [AtomicU64; 16],
    /// The priority as a byte, with `GIVEN`; 0 for none.
    nice: AtomicU32,
    /// The priority of its input and output, and one more; 0 for none.
    io_priority: AtomicU32,
    scheduling: Scheduling,
    has_scheduling: AtomicBool,
    name: [AtomicU64; 2],
    /// Whether the kernel has been told of these, and of the thread's number here: at a promotion, before anybody is live.
    pub is_given: AtomicBool,
}

impl Place {
    /// Nothing has been asked for.
    pub const fn new() -> Place {
        Place {
            affinity: [const { AtomicU64::new(0) }; 16],
            nice: AtomicU32::new(0),
            io_priority: AtomicU32::new(0),
            scheduling: Scheduling {
                policy: AtomicU32::new(0),
                nice: AtomicI32::new(0),
                priority: AtomicU32::new(0),
                flags: AtomicU64::new(0),
                times: [const { AtomicU64::new(0) }; 3],
            },
            has_scheduling: AtomicBool::new(false),
            name: [const { AtomicU64::new(0) }; 2],
            is_given: AtomicBool::new(false),
        }
    }

    /// The processors that the guest knows of.
    pub fn affinity(&self) -> [u64; 16] {
        self.affinity.each_ref().map(|word| word.load(Ordering::Relaxed))
    }

    /// Sets them.
    pub fn set_affinity(&self, affinity: [u64; 16]) {
        self.affinity.iter().zip(affinity).for_each(|(to, from)| to.store(from, Ordering::Relaxed));
    }

    /// The priority ("nice") that the guest has given it, if it has.
    pub fn nice(&self) -> Option<i8> {
        let nice = self.nice.load(Ordering::Relaxed);
        (nice != 0).then_some(nice as u8 as i8)
    }

    /// Sets it.
    pub fn set_nice(&self, nice: Option<i8>) {
        self.nice.store(nice.map_or(0, |nice| GIVEN | u32::from(nice as u8)), Ordering::Relaxed);
    }

    /// The priority of its input and output that the guest has given it, if it has.
    pub fn io_priority(&self) -> Option<u32> {
        self.io_priority.load(Ordering::Relaxed).checked_sub(1)
    }

    /// Sets it.
    pub fn set_io_priority(&self, priority: Option<u32>) {
        self.io_priority.store(priority.map_or(0, |priority| priority.wrapping_add(1)), Ordering::Relaxed);
    }

    /// The policy that the guest has given it, if it has.
    pub fn scheduling(&self) -> Option<SchedAttr> {
        let is_there = self.has_scheduling.load(Ordering::Acquire);
        let kept = &self.scheduling;
        let [runtime, deadline, period] = kept.times.each_ref().map(|time| time.load(Ordering::Relaxed));
        is_there.then(|| SchedAttr {
            size: size_of::<SchedAttr>() as u32,
            policy: kept.policy.load(Ordering::Relaxed),
            flags: kept.flags.load(Ordering::Relaxed),
            nice: kept.nice.load(Ordering::Relaxed),
            priority: kept.priority.load(Ordering::Relaxed),
            runtime,
            deadline,
            period,
        })
    }

    /// Sets it.
    pub fn set_scheduling(&self, scheduling: Option<SchedAttr>) {
        if let Some(attributes) = scheduling {
            let SchedAttr { policy, flags, nice, priority, runtime, deadline, period, .. } = attributes;
            let kept = &self.scheduling;
            kept.policy.store(policy, Ordering::Relaxed);
            kept.priority.store(priority, Ordering::Relaxed);
            kept.flags.store(flags, Ordering::Relaxed);
            kept.nice.store(nice, Ordering::Relaxed);
            for (to, from) in kept.times.iter().zip([runtime, deadline, period]) {
                to.store(from, Ordering::Relaxed);
            }
        }
        self.has_scheduling.store(scheduling.is_some(), Ordering::Release);
    }

    /// The thread's name as the guest has set it, in a standby.
    pub fn name(&self) -> [u8; 16] {
        let [first, second] = self.name.each_ref().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
        let mut name = [0; 16];
        name[..8].copy_from_slice(&first);
        name[8..].copy_from_slice(&second);
        name
    }

    /// Sets it.
    pub fn set_name(&self, name: [u8; 16]) {
        let word = u128::from_ne_bytes(name);
        self.name[0].store(word as u64, Ordering::Relaxed);
        self.name[1].store((word >> 64) as u64, Ordering::Relaxed);
    }
}

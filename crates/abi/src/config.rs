//! What the supervisor tells the runtime of a group, and the flags in it.

/// What the supervisor decides before the program starts. Constant afterwards.
#[repr(C)]
#[derive(Debug)]
pub struct Config {
    /// `--lag-timeout`, milliseconds.
    pub lag_timeout_ms: u32,
    /// `--standbys`: 0 to [`SEATS`](crate::SEATS).
    pub standbys: u32,
    /// `--lag-limit`, bytes that one thread's standby may be behind; at least [`LAG_LIMIT_MIN`](crate::LAG_LIMIT_MIN).
    pub lag_limit: u64,
    /// `--verify`: 0 off, 1 fast, 2 full.
    pub verify: u32,
    /// Bit 0: [`Config::primary_cpus`] and `standby_cpus` are set.
    pub flags: u32,
    /// `--lead`, microseconds.
    pub lead_us: u32,
    /// Zero.
    pub pad: u32,
    /// Affinity mask of the primary's threads.
    pub primary_cpus: [u64; 16],
    /// Affinity mask of the standby's threads.
    pub standby_cpus: [u64; 16],
}

/// [`Config::flags`]: pin the copies.
pub const CONFIG_PINNED: u32 = 1;
/// [`Config::flags`]: the supervisor takes the events into a recording, beside a standby or without one.
pub const CONFIG_RECORDED: u32 = 2;
/// [`Config::flags`]: this is a replay of a recording, without any kernel object of the original.
pub const CONFIG_DETACHED: u32 = 4;
/// [`Config::flags`]: `--order serial`.
pub const CONFIG_SERIAL: u32 = 8;
/// [`Config::flags`]: `--order auto`. Threads of a process whose standbys diverge take turns from then on.
pub const CONFIG_AUTO: u32 = 16;
/// [`Config::flags`], with [`CONFIG_DETACHED`]: what is replayed is still recorded, on another machine, and this process has kernel
/// objects of its own, with which it may take over.
pub const CONFIG_MIRRORED: u32 = 32;
/// [`Config::flags`]: `--huge-pages`.
pub const CONFIG_HUGE: u32 = 64;
/// [`Config::flags`]: with `--order schedule`, atomic instructions of the program's own are ordered.
pub const CONFIG_ATOMICS: u32 = 128;
/// [`Config::flags`]: what is known of connections is kept in the [table](crate::Connections): packets wait for it.
pub const CONFIG_GATED: u32 = 256;
/// [`Config::flags`], with [`CONFIG_SERIAL`]: whose turn it is next is computed, of the threads of one process.
pub const CONFIG_COMPUTED: u32 = 512;
/// [`Config::flags`], with [`CONFIG_COMPUTED`]: `--order deterministic`. Threads run at the same time between their turns.
pub const CONFIG_PARALLEL: u32 = 1024;

/// No two flags are one bit.
const _: () = {
    let all = [
        CONFIG_PINNED,
        CONFIG_RECORDED,
        CONFIG_DETACHED,
        CONFIG_SERIAL,
        CONFIG_AUTO,
        CONFIG_MIRRORED,
        CONFIG_HUGE,
        CONFIG_ATOMICS,
        CONFIG_GATED,
        CONFIG_COMPUTED,
        CONFIG_PARALLEL,
    ];
    let (mut seen, mut at) = (0, 0);
    while at < all.len() {
        assert!(all[at].is_power_of_two() && seen & all[at] == 0);
        seen |= all[at];
        at += 1;
    }
};

//! `run --address`: the gate of a service's address, which lets a packet leave once what it tells is kept by another machine.
//!
//! Packets of the address are led to a device of ours (TUN). A thread takes them there, and sends those that may leave
//! (`crates/gate` has the rules). The recorder counts its passes over the rings: a packet waits for one that began behind it. When
//! this process is gone so is the device, and the packets go nowhere: another machine may have the address by then.

mod answers;
pub mod diag;
#[allow(unsafe_code)]
pub mod kernel;
mod ledger;
pub mod net;
pub mod rebuild;
mod socket;

use std::collections::VecDeque;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

pub use gate::Address;
use gate::{Adopted, Found, Gate, Mode, Note, Pair, Reading};
pub use ledger::Ledger;
use node::{Seen, Watch};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde::{Deserialize, Serialize};
use us_abi::connection;

use crate::clock;
use crate::dir::Dir;
use crate::error::Error;

/// Where `status` finds how the gate stands.
pub const GATE: &str = "gate.json";

/// How often that is written down.
const LOOK_NS: u64 = 250_000_000;

/// Packets that are taken at once.
const BATCH: usize = 256;

/// Passes that are remembered one by one.
const PASSES: usize = 512;

/// A machine whose copy is so far behind follows: the gate may be strict.
const NEAR_US: u64 = 100_000;

/// A machine that has fallen silent may be one that takes over. For so long nothing leaves that it has not got. Nobody waits for
/// longer, whatever stands against its keeping the log.
const SILENT_NS: u64 = 10_000_000_000;

/// The thread looks by itself after so long: while it waits for a kernel's answer, and else.
const SOON_NS: u64 = 1_000_000;
const IDLE_NS: u64 = 20_000_000;

/// The address stays for so long behind the program.
const LINGER: Duration = Duration::from_millis(300);

/// How the gate stands, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// The address and its network's bits, and the device.
    pub address: String,
    /// `strict`, `open`, `shut` or `relaxed`.
    pub mode: String,
    /// Connections of the address.
    pub connections: u64,
    /// Bytes that wait to leave.
    pub held_bytes: u64,
    /// How long the last packet has waited, microseconds.
    pub waited_us: u64,
    /// Packets that have left.
    pub left: u64,
    /// Packets that were lost.
    pub lost: u64,
    /// Acknowledgements that went less far than the kernel's.
    pub shortened: u64,
    /// How often one went further than what had been read, since that took too long.
    pub beyond: u64,
}

impl Standing {
    /// In words.
    pub fn words(&self) -> String {
        let Standing { address, connections, held_bytes, .. } = self;
        let waits = format!(
            "{connections} connections, {held_bytes} bytes wait, the last packet waited {:.1} ms",
            self.waited_us as f64 / 1000.0
        );
        match self.mode.as_str() {
            "strict" => format!("{address}: clients hear what another machine has the log of; {waits}"),
            "open" => format!(
                "{address}: nobody follows: clients hear at once what would be lost with this machine; {connections} connections"
            ),
            "relaxed" => format!(
                "{address}: clients hear at once what is not kept yet, and are reset at a take-over; {connections} connections"
            ),
            _ => format!("{address}: another machine has taken over: nothing leaves"),
        }
    }
}

/// What the gate and the recorder have in common.
pub struct Door {
    state: Mutex<Passes>,
    bell: OwnedFd,
}

#[derive(Default)]
struct Passes {
    /// Passes that have begun.
    begun: u64,
    all: VecDeque<Pass>,
    last: Vec<Reading>,
    notes: Vec<Note>,
    /// One is to begin soon, and to be written down.
    is_wanted: bool,
    is_flushed: bool,
    /// It is to be said of each connection how much has been acknowledged.
    is_measured: bool,
    /// Nothing is recorded any more.
    is_stopped: bool,
    is_over: bool,
}

struct Pass {
    number: u64,
    /// The recording's bytes at its end, once it is written down.
    end: Option<u64>,
    readings: Vec<Reading>,
}

impl Door {
    fn new() -> Result<Door, Error> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = bell.map_err(|cause| Error::system("make an eventfd", cause))?;
        Ok(Door { state: Mutex::default(), bell })
    }

    fn state(&self) -> MutexGuard<'_, Passes> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    /// A pass over the rings begins. What is to be written into the log first, and whether the pass is to be written down at its end.
    pub fn begin(&self, readings: Vec<Reading>, takes_notes: bool) -> (Vec<Note>, bool) {
        let mut state = self.state();
        state.begun += 1;
        let (number, is_new) = (state.begun, readings != state.last);
        let readings = if is_new { readings } else { Vec::new() };
        if is_new {
            state.last.clone_from(&readings);
        }
        let is_full = state.all.len() >= PASSES;
        match state.all.back_mut() {
            Some(last) if readings.is_empty() && last.end.is_none() && last.readings.is_empty() => {
                last.number = number;
            }
            Some(last) if is_full => {
                last.number = number;
                last.end = None;
                last.readings.extend(readings);
            }
            _ => state.all.push_back(Pass { number, end: None, readings }),
        }
        state.is_flushed = std::mem::take(&mut state.is_wanted);
        let notes = if takes_notes { std::mem::take(&mut state.notes) } else { Vec::new() };
        (notes, state.is_flushed)
    }

    /// All passes that have begun are written down: the recording has so many bytes.
    pub fn end(&self, bytes: u64) {
        let mut state = self.state();
        state.all.iter_mut().filter(|pass| pass.end.is_none()).for_each(|pass| pass.end = Some(bytes));
    }

    /// Has the gate say in the log how much has been acknowledged on each connection.
    pub fn measure(&self) {
        self.state().is_measured = true;
        self.ring();
    }

    /// Nothing is recorded any more.
    pub fn stop(&self) {
        if !std::mem::replace(&mut self.state().is_stopped, true) {
            self.ring();
        }
    }

    /// Has this said in the log. The number of the pass with which it will be, and whether the recorder is to be told.
    fn ask(&self, notes: Vec<Note>) -> (u64, bool) {
        let mut state = self.state();
        state.notes.extend(notes);
        let is_news = !std::mem::replace(&mut state.is_wanted, true);
        (state.begun + 1, is_news)
    }

    /// The passes that are committed if so many bytes are.
    fn committed(&self, bytes: u64) -> Vec<Pass> {
        let mut state = self.state();
        let many = state.all.iter().take_while(|pass| pass.end.is_some_and(|end| end <= bytes)).count();
        state.all.drain(..many).collect()
    }
}

/// A gate before its program runs: the address is there, and its packets are led to us.
pub struct Prepared {
    address: Address,
    is_relaxed: bool,
    /// It was not this machine's before.
    is_taken: bool,
    tun: File,
    sender: OwnedFd,
    /// Connections that were made anew here, and which machine this is of those that have had the program.
    adopted: (Vec<Adopted>, u64),
}

impl Prepared {
    /// As was asked for.
    ///
    /// # Errors
    /// What stands against it: a right that is missing, another address, the kernel.
    pub fn new(address: &Address, is_relaxed: bool) -> Result<Prepared, Error> {
        let mut prepared = Prepared::before(address, is_relaxed)?;
        prepared.take()?;
        Ok(prepared)
    }

    /// The same, while the address is still another machine's: what is sent from there waits.
    ///
    /// # Errors
    /// As there.
    pub fn before(address: &Address, is_relaxed: bool) -> Result<Prepared, Error> {
        let told = |why: String| Error::NothingRun(format!("--address: {why}"));
        let kernel = |what: &str, cause: std::io::Error| {
            told(format!("{what}: {cause} (it takes CAP_NET_ADMIN and CAP_NET_RAW)"))
        };
        let name = format!("us{}", std::process::id());
        let tun =
            kernel::tun(&name).map_err(|cause| kernel("cannot make a device for its packets", cause))?;
        let sender = kernel::sender(net::MARK).map_err(|cause| kernel("cannot send packets", cause))?;
        net::lead(address, &name).map_err(told)?;
        let adopted = (Vec::new(), 0);
        Ok(Prepared { address: address.clone(), is_relaxed, is_taken: false, tun, sender, adopted })
    }

    /// The address is this machine's from here on.
    ///
    /// # Errors
    /// What stands against it.
    pub fn take(&mut self) -> Result<(), Error> {
        let told = |why: String| Error::NothingRun(format!("--address: {why}"));
        self.is_taken = net::take(&self.address).map_err(told)?;
        let _ = kernel::announce(&self.address.device, self.address.address);
        Ok(())
    }

    /// These connections were made anew here; this machine has so many before it of those that have had the program.
    pub fn adopt(&mut self, adopted: Vec<Adopted>, machine: u64) {
        self.adopted = (adopted, machine);
    }

    /// Begins to let packets through. `look` has the recorder begin a pass.
    ///
    /// # Errors
    /// There is no room for a thread.
    pub fn start(
        self,
        dir: &Arc<Dir>,
        watches: Vec<Watch>,
        look: impl Fn() + Send + 'static,
    ) -> Result<Running, Error> {
        let door = Arc::new(Door::new()?);
        let bell = door.bell.try_clone().map_err(|cause| Error::system("copy an eventfd", cause))?;
        let bell = Arc::new(bell);
        watches.iter().for_each(|watch| watch.ring(&bell));
        let mut thread = Thread {
            gate: Gate::default(),
            door: Arc::clone(&door),
            prepared: self,
            dir: Arc::clone(dir),
            watches,
            look: Box::new(look),
            look_at_ns: 0,
            shown: Standing::default(),
            seen: Vec::new(),
            followed_ns: 0,
            followed_bytes: 0,
            lost: 0,
        };
        let begun = std::thread::Builder::new().name("gate".into()).spawn(move || thread.run());
        let begun = begun.map_err(|cause| Error::system("start the gate", cause))?;
        Ok(Running { door, thread: Some(begun) })
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        net::lead_no_more(&self.address);
        if self.is_taken {
            net::leave(&self.address);
        }
    }
}

/// A gate that runs.
pub struct Running {
    door: Arc<Door>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// What the recorder tells it by.
    pub fn door(&self) -> Arc<Door> {
        Arc::clone(&self.door)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.door.state().is_over = true;
        self.door.ring();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Thread {
    gate: Gate,
    door: Arc<Door>,
    prepared: Prepared,
    dir: Arc<Dir>,
    watches: Vec<Watch>,
    look: Box<dyn Fn() + Send>,
    look_at_ns: u64,
    shown: Standing,
    seen: Vec<Seen>,
    /// When somebody followed last, and how much was committed then.
    followed_ns: u64,
    followed_bytes: u64,
    /// Packets that the kernel would not send.
    lost: u64,
}

/// One that cannot take over keeps a recording, for which no client is to wait.
fn follows(seen: &Seen) -> bool {
    matches!(seen.state.as_str(), "shipping" | "ended") && seen.obstacle.is_none()
}

impl Thread {
    fn run(&mut self) {
        let relaxed = self.prepared.is_relaxed.then_some(Note::Relaxed);
        self.door.ask([Note::Address(self.prepared.address.clone())].into_iter().chain(relaxed).collect());
        for adopted in std::mem::take(&mut self.prepared.adopted.0) {
            if let Some(found) = self.find(&adopted.facts.pair) {
                self.gate.adopt(&adopted, found.identity, clock::monotonic_ns());
            }
        }
        let mut room = vec![0; 1 << 16];
        loop {
            let (is_stopped, is_over) = {
                let state = self.door.state();
                (state.is_stopped, state.is_over)
            };
            let now = clock::monotonic_ns();
            self.stand(is_stopped, now);
            self.take(&mut room, now);
            if !self.prepared.is_relaxed {
                for pair in self.gate.asks(now) {
                    self.gate.found(&pair, self.find(&pair));
                }
                if std::mem::take(&mut self.door.state().is_measured) {
                    self.gate.measure_all();
                }
                for pair in self.gate.measures(now) {
                    self.gate.measured(&pair, self.find(&pair));
                }
            }
            self.gate.tick(now);
            if self.gate.wants_pass() {
                let (pass, is_news) = self.door.ask(self.gate.notes());
                self.gate.stamp(pass, now);
                if is_news && !is_stopped {
                    (self.look)();
                }
            }
            for pass in self.door.committed(self.committed()) {
                self.gate.committed(pass.number, &pass.readings, now);
            }
            while let Some(packet) = self.gate.next_out() {
                // What a line does not take is lost, and sent again.
                self.lost += u64::from(kernel::send(&self.prepared.sender, &packet).is_err());
            }
            self.show(now);
            if is_over {
                return self.end(now);
            }
            self.wait();
        }
    }

    /// What the kernel says of a connection, by the identity that the log has.
    fn find(&self, pair: &Pair) -> Option<Found> {
        let found = diag::find(pair)?;
        Some(Found { identity: found.identity ^ connection::of_machine(self.prepared.adopted.1), ..found })
    }

    /// The program has ended: what is left leaves.
    fn end(&mut self, now: u64) {
        if self.gate.mode() != Mode::Shut {
            self.gate.set_mode(Mode::Open, now);
        }
        net::lead_no_more(&self.prepared.address);
        while let Some(packet) = self.gate.next_out() {
            self.lost += u64::from(kernel::send(&self.prepared.sender, &packet).is_err());
        }
        // Of connections that the kernel is still ending.
        std::thread::sleep(LINGER);
    }

    /// How the gate is to stand, by what is known of the machines that follow.
    fn stand(&mut self, is_stopped: bool, now: u64) {
        self.seen = self.watches.iter().map(Watch::seen).collect();
        let is_fenced = |seen: &Seen| seen.trouble.as_ref().is_some_and(|why| why.contains(node::FENCED));
        let is_near = |seen: &Seen| seen.lag_us < NEAR_US;
        let was_strict = self.gate.mode() == Mode::Strict;
        // One that makes links and keeps nothing, as with a full disk, does not follow.
        let keeps = |seen: &&Seen| {
            follows(seen) && (seen.lag_bytes == 0 || seen.committed_bytes != self.followed_bytes)
        };
        if let Some(seen) = self.seen.iter().find(keeps) {
            (self.followed_ns, self.followed_bytes) = (now, seen.committed_bytes);
        }
        let is_too_late = |seen: &Seen| seen.lag_us * 1000 > SILENT_NS || now > self.followed_ns + SILENT_NS;
        // Cut off, this one cannot know, and what left before the other one is heard would be a second answer. One that is there,
        // and whose node has ended, refuses.
        let is_silent = |seen: &Seen| seen.state == "apart" && !seen.is_refused;
        let is_waited_for =
            was_strict && self.seen.iter().any(is_silent) && now - self.followed_ns < SILENT_NS;
        let mode = if self.seen.iter().any(is_fenced) || self.gate.mode() == Mode::Shut {
            Mode::Shut
        } else if self.prepared.is_relaxed || is_stopped {
            Mode::Open
        } else if is_waited_for
            || self
                .seen
                .iter()
                .any(|seen| follows(seen) && (was_strict && !is_too_late(seen) || is_near(seen)))
        {
            Mode::Strict
        } else {
            Mode::Open
        };
        if mode == Mode::Shut && self.gate.mode() != Mode::Shut {
            // Nobody is to find it here any more.
            net::leave(&self.prepared.address);
        }
        self.gate.set_mode(mode, now);
    }

    /// Bytes of the recording that all have who follow.
    fn committed(&self) -> u64 {
        let follow = self.seen.iter().filter(|seen| follows(seen));
        follow.map(|seen| seen.committed_bytes).min().unwrap_or(0)
    }

    fn take(&mut self, room: &mut [u8], now: u64) {
        for _ in 0..BATCH {
            match rustix::io::read(&self.prepared.tun, &mut *room) {
                Ok(bytes) if bytes > 0 => self.gate.arrived(room[..bytes].to_vec(), now),
                _ => return,
            }
        }
    }

    fn wait(&self) {
        let mut fds = [
            PollFd::from_borrowed_fd(self.prepared.tun.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(self.door.bell.as_fd(), PollFlags::IN),
        ];
        let limit = if self.gate.is_asking() { SOON_NS } else { IDLE_NS };
        let _ = poll(&mut fds, Some(&clock::timespec(limit)));
        let _ = rustix::io::read(&self.door.bell, &mut [0u8; 8]);
    }

    fn show(&mut self, now: u64) {
        if now < self.look_at_ns {
            return;
        }
        self.look_at_ns = now + LOOK_NS;
        let (connections, held_bytes) = self.gate.load();
        let counted = self.gate.counted();
        let Address { address, bits, device } = &self.prepared.address;
        let shown = Standing {
            address: format!("{}/{bits} on {device}", net::words(*address)),
            mode: match self.gate.mode() {
                Mode::Strict => "strict",
                Mode::Shut => "shut",
                Mode::Open if self.prepared.is_relaxed => "relaxed",
                Mode::Open => "open",
            }
            .into(),
            connections: connections as u64,
            held_bytes: held_bytes as u64,
            waited_us: counted.waited_ns / 1000,
            left: counted.left,
            lost: counted.lost + self.lost,
            shortened: counted.shortened,
            beyond: counted.beyond,
        };
        if shown != self.shown {
            // A full folder costs `status` this, nothing else.
            let bytes = serde_json::to_vec(&shown).unwrap_or_default();
            let _ = self.dir.replace(GATE, &bytes);
            self.shown = shown;
        }
    }
}

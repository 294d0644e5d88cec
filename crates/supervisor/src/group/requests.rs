//! What somebody wants of the group: callers at the desk, and the probe.

use std::os::unix::net::UnixStream;

use serde_json::json;

use super::{Group, Held};
use crate::checkpoint::{self, output::Output};
use crate::clock;
use crate::options::Verbosity;
use crate::probe::{self, Finding, Probe};
use crate::request;
use crate::watch::Watch;

impl<'a> Group<'a> {
    // ---- Callers ----

    /// Hears what callers want.
    pub(super) fn hear_requests(&mut self) {
        self.requests.extend(self.desk.as_mut().map(|desk| desk.requests()).unwrap_or_default());
        for (what, caller) in std::mem::take(&mut self.requests) {
            let mut words = what.split_ascii_whitespace();
            let refusal = match (words.next(), words.next()) {
                (Some(request::FAILOVER), pid) => match self.whom(pid) {
                    Some(watch) => {
                        let back = watch.ask_switch(caller);
                        self.requests.extend(back.map(|caller| (what, caller)));
                        continue;
                    }
                    None => self.nobody(pid),
                },
                (Some(request::CHECKPOINT), Some(_)) if self.watches.iter().any(Watch::is_busy) => {
                    self.requests.push((what, caller));
                    continue;
                }
                (Some(request::CHECKPOINT), Some(number)) => {
                    let more: Vec<&str> = words.collect();
                    let stops = more.contains(&request::AND_STOP);
                    let key = more.iter().find_map(|word| word.strip_prefix(request::AND_SEAL));
                    match self.take_checkpoint(&caller, [Some(number), key], stops) {
                        Ok((copy, described, file)) => {
                            let end = self.watches.first().filter(|_| stops).map(Watch::end_when_written);
                            let then = move |is_written| {
                                if let Some(end) = end {
                                    end(is_written);
                                }
                            };
                            let writer = checkpoint::take::write_beside(copy, described, file, caller, then);
                            if writer.is_err() {
                                self.watches.iter().for_each(Watch::let_go_from_checkpoint);
                            }
                            self.writers.extend(writer);
                            continue;
                        }
                        Err(why) => why,
                    }
                }
                (Some(request::STOP), None) => {
                    self.is_stopping = true;
                    request::answer(caller, &json!({}));
                    continue;
                }
                (Some(request::SIGNAL), Some(number)) => match crate::signals::parse(number) {
                    Ok(number) => {
                        self.held.push(Held { number, caller: Some(caller) });
                        continue;
                    }
                    Err(why) => why,
                },
                (Some(request::KILL), None) => {
                    self.roster.doom_all();
                    request::answer(caller, &json!({}));
                    continue;
                }
                _ => format!("{what:?} is not a request"),
            };
            request::answer(caller, &json!({ "error": refusal }));
        }
        self.watches.iter_mut().filter(|watch| watch.is_switching()).for_each(Watch::drive_switch);
    }

    /// Takes a checkpoint of the program, into the caller's file.
    fn take_checkpoint(
        &mut self,
        caller: &UnixStream,
        [number, key]: [Option<&str>; 2],
        stops: bool,
    ) -> Result<(checkpoint::take::Copy, checkpoint::take::Described, Output), String> {
        let key = key.map(|number| checkpoint::output::callers_key(caller, number)).transpose()?;
        let file = checkpoint::output::callers_file(caller, number.unwrap_or_default())?;
        let output =
            Output::new(file, key).map_err(|cause| format!("cannot write the checkpoint: {cause}"))?;
        if self.watches.len() != 1 || self.roster.listed().count() != 1 {
            return Err("a checkpoint has one process, and the group has several".into());
        }
        let watch = self.watches.first().ok_or("the program has ended")?;
        let (copy, mut described) = watch.take_checkpoint(stops)?;
        let meta = &self.book.borrow().meta;
        (described.head.program, described.head.order) = (meta.program.clone(), meta.order.clone());
        Ok((copy, described, output))
    }

    /// That a caller means none of the processes here, and which there are.
    fn nobody(&self, pid: Option<&str>) -> String {
        let Some(pid) = pid else { return "the program has ended".into() };
        let all: Vec<String> = self.watches.iter().map(|watch| watch.guest_pid().to_string()).collect();
        let all = if all.is_empty() { "none is".into() } else { format!("these are: {}", all.join(", ")) };
        format!("no process {pid} is protected here; {all}")
    }

    /// The process that a caller means: the one that leads, or the one that knows itself by this number.
    fn whom(&mut self, pid: Option<&str>) -> Option<&mut Watch<'a>> {
        match pid {
            None => self.lead(),
            Some(pid) => {
                let pid: u32 = pid.parse().ok()?;
                self.watches.iter_mut().find(|watch| watch.guest_pid() == pid)
            }
        }
    }

    // ---- The probe ----

    /// When to look again, CLOCK_MONOTONIC ns.
    pub(super) fn probe_at_ns(&self) -> Option<u64> {
        self.probe.as_ref().and_then(Probe::look_at_ns)
    }

    /// Whether the program's standby could take over.
    fn can_switch_root(&mut self) -> bool {
        self.root().is_some_and(|root| root.can_switch() && !root.is_switching())
    }

    fn root(&mut self) -> Option<&mut Watch<'a>> {
        self.watches.iter_mut().find(|watch| watch.is_root())
    }

    /// One step of the probe.
    pub(super) fn drive_probe(&mut self) {
        let now = clock::monotonic_ns();
        let can_switch = self.can_switch_root();
        let Some(probe) = &mut self.probe else { return };
        match (can_switch, probe.is_on()) {
            (true, false) => {
                probe.begin(now);
                self.say(Verbosity::Verbose, &format!("{}: the probe begins", self.name()));
            }
            (false, true) => {
                probe.pause();
                let line = format!("{}: the probe waits until there is a standby", self.name());
                self.say(Verbosity::Verbose, &line);
            }
            (true, true) => {
                let finding = probe.look(now);
                self.act_on(finding);
            }
            (false, false) => {}
        }
    }

    /// Draws the consequence of what the probe found.
    pub(super) fn act_on(&mut self, finding: Finding) {
        match finding {
            Finding::Nothing => {}
            Finding::Failed(why) => {
                self.say(Verbosity::Verbose, &format!("{}: the probe failed: {why}", self.name()));
            }
            // Asked anew: it may have lost its standby since the probe began.
            Finding::Fence => {
                if let Some(root) = self.root().filter(|root| root.can_switch()) {
                    root.fence(probe::REASON, clock::monotonic_ns());
                }
            }
        }
    }
}

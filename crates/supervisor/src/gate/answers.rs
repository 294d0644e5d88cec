//! How much the other sides of connections have, by their own word.
//!
//! No log tells it: what the machine that died had sent may have come or not. Each is sent a byte that it has, and answers at once
//! where it is.

use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;

use gate::packet::flag;
use gate::{Pair, Segment};
use rustix::event::{PollFd, PollFlags, poll};

use super::kernel;
use crate::clock;

/// It is waited for so long, ns, and asked so often.
const PATIENCE_NS: u64 = 40_000_000;
const AGAIN_NS: u64 = 3_000_000;

/// Packets of other connections come here as well: no more than this are looked at between two questions.
const MANY: usize = 4096;

/// What is asked, of whom: the number of a byte that has come there, and what has come here.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    pub pair: Pair,
    pub before: u32,
    pub acknowledged: u32,
}

impl Question {
    /// As a packet: a number that is old there is answered at once. Without a byte not more often than twice a second.
    pub fn segment(&self) -> Segment {
        Segment::new(&self.pair, self.before, self.acknowledged, flag::ACK, u16::MAX)
    }
}

/// What has come there, and the window as it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub acknowledged: u32,
    pub window: u16,
}

/// Asks, and listens for a while. Who says the same twice has an answer: nothing of the other machine's is on its way there any more.
pub fn hear(questions: &[Question], sender: &OwnedFd) -> HashMap<Pair, Answer> {
    let mut answers = HashMap::new();
    if questions.is_empty() {
        return answers;
    }
    let Ok(hearer) = kernel::hearer() else { return answers };
    let asked: HashSet<Pair> = questions.iter().map(|question| question.pair).collect();
    let began_ns = clock::monotonic_ns();
    let mut said: HashMap<Pair, (u32, Answer)> = HashMap::new();
    let mut round = 0;
    while answers.len() < questions.len() {
        let now = clock::monotonic_ns();
        if now > began_ns + PATIENCE_NS {
            break;
        }
        round += 1;
        for question in questions.iter().filter(|question| !answers.contains_key(&question.pair)) {
            let _ = kernel::send(sender, &question.segment().with_byte().into_bytes());
        }
        let until_ns = now + AGAIN_NS;
        let mut are_new = 0;
        while are_new < questions.len() - answers.len() && clock::monotonic_ns() < until_ns {
            for (pair, answer) in listen(&hearer, until_ns) {
                if !asked.contains(&pair) || answers.contains_key(&pair) {
                    continue;
                }
                match said.insert(pair, (round, answer)) {
                    Some((before, same)) if same.acknowledged == answer.acknowledged && before < round => {
                        answers.insert(pair, answer);
                    }
                    Some((before, _)) if before == round => {}
                    _ => are_new += 1,
                }
            }
        }
    }
    answers
}

/// What has come until then, or is there: the first packets of it.
fn listen(hearer: &OwnedFd, until_ns: u64) -> Vec<(Pair, Answer)> {
    let left = until_ns.saturating_sub(clock::monotonic_ns());
    let mut fds = [PollFd::new(hearer, PollFlags::IN)];
    let _ = poll(&mut fds, Some(&clock::timespec(left)));
    let mut heard = Vec::new();
    let mut room = vec![0; 1 << 16];
    for _ in 0..MANY {
        let Ok((bytes, _)) = rustix::net::recv(hearer, &mut room[..], rustix::net::RecvFlags::DONTWAIT)
        else {
            break;
        };
        let Ok(segment) = Segment::of(room[..bytes].to_vec()) else { continue };
        if segment.has(flag::ACK) && !segment.has(flag::SYN | flag::RST) {
            let Pair { own, other } = segment.pair();
            let answer = Answer { acknowledged: segment.acknowledged(), window: segment.window() };
            heard.push((Pair { own: other, other: own }, answer));
        }
    }
    heard
}

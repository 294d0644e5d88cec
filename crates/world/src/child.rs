//! Children: what their ends, stops and continuations mean, whom a wait in doubt has told of, and who is told of what again.
//!
//! The kernel tells a parent of the death of its child's *primary*. Whether the child has ended is another question: a standby may
//! take over. And of a child whose parent, or which itself, has failed over (*adopted*) the kernel tells nobody; the supervisor
//! writes into the roster how it ended.

/// `si_code` of a child that has ended by exit.
pub const EXITED: i32 = 1;
/// By a signal.
pub const KILLED: i32 = 2;
/// The same, with a dump.
pub const DUMPED: i32 = 3;
/// It was stopped.
pub const STOPPED: i32 = 5;
/// It goes on after a stop.
pub const CONTINUED: i32 = 6;

/// What `wait4` gives of a process that goes on.
const GOES_ON: i32 = 0xffff;
const SIGKILL: i32 = 9;
const SIGCONT: i32 = 18;

/// What there is to tell of a child, as `waitid` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct News {
    /// One of the codes above.
    pub code: i32,
    /// The exit code, or the signal.
    pub status: i32,
}

impl News {
    /// Of an end as `wait4` has it.
    #[must_use]
    pub const fn of_end(word: i32) -> News {
        match word & 0x7f {
            0 => News { code: EXITED, status: word >> 8 & 0xff },
            signal if word & 0x80 != 0 => News { code: DUMPED, status: signal },
            signal => News { code: KILLED, status: signal },
        }
    }

    /// As `wait4` has it.
    #[must_use]
    pub const fn word(self) -> i32 {
        match self.code {
            EXITED => self.status << 8,
            KILLED => self.status,
            DUMPED => self.status | 0x80,
            CONTINUED => GOES_ON,
            _ => self.status << 8 | 0x7f,
        }
    }

    /// Whether it is an end.
    #[must_use]
    pub const fn is_end(self) -> bool {
        is_end(self.code)
    }

    /// Whether it is an end that a standby takes over at.
    #[must_use]
    pub const fn is_violent(self) -> bool {
        matches!(self.code, KILLED | DUMPED)
    }

    const fn is_kill(self) -> bool {
        self.code == KILLED && self.status == SIGKILL
    }

    /// A child that was killed when it was about to end has ended as it was about to: `willed` says how, if it had said so.
    #[must_use]
    pub const fn or_as_willed(self, willed: Option<News>) -> News {
        match willed {
            Some(willed) if self.is_kill() => willed,
            _ => self,
        }
    }
}

/// Whether a child of which this code tells has ended.
#[must_use]
pub const fn is_end(code: i32) -> bool {
    matches!(code, EXITED | KILLED | DUMPED)
}

/// How far the supervisor has said that a child has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Not.
    None,
    /// Its primary has died and nobody takes over. The kernel tells its parent.
    Final,
    /// The roster says how.
    Ended,
}

/// What the roster says of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Child {
    /// It may have a standby.
    pub has_joined: bool,
    /// The supervisor tells of its end, and not the kernel.
    pub is_adopted: bool,
    /// Its first primary is its primary still, as far as it has been said.
    pub is_first: bool,
    /// A process of its group has sent it SIGKILL: nobody takes over.
    pub is_doomed: bool,
    /// Whether it has ended.
    pub end: End,
    /// A signal has told this process of its end.
    pub is_told: bool,
}

/// What the death of a child's primary means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// The child's end.
    Ends,
    /// Nothing: its standby takes over.
    Lives,
    /// That has not been decided yet.
    Undecided,
}

impl Child {
    /// What it means that the kernel tells this parent's primary of an end.
    #[must_use]
    pub const fn meaning(self, news: News) -> Meaning {
        match self.end {
            _ if !news.is_violent() || !self.has_joined => Meaning::Ends,
            _ if self.is_adopted => Meaning::Lives,
            End::Final => Meaning::Ends,
            _ => Meaning::Undecided,
        }
    }

    /// The same of what the kernel had told this parent's dead primary. That failed over as well, so the child is adopted. Nobody
    /// else has been told: what the supervisor decides stands in the roster.
    #[must_use]
    pub const fn meaning_then(self, news: News) -> Meaning {
        match self.end {
            _ if !news.is_violent() => Meaning::Ends,
            End::None if self.is_first && self.has_joined && self.is_adopted => Meaning::Undecided,
            End::Final => Meaning::Ends,
            _ if self.is_first => Meaning::Ends,
            _ => Meaning::Lives,
        }
    }

    /// Whether a SIGCHLD of the kernel's, of a primary's violent end, may not tell of the child's. An adopted one's is its first
    /// primary's, which may have waited here until that one's successor has ended too.
    #[must_use]
    pub const fn is_undecided(self) -> bool {
        self.is_adopted || (self.has_joined && !self.is_doomed && matches!(self.end, End::None))
    }

    /// Whether the supervisor has said how it ended, and no signal has told of it.
    #[must_use]
    pub const fn is_untold(self) -> bool {
        matches!(self.end, End::Ended) && !self.is_told
    }

    /// What a SIGCHLD of the kernel's tells of this child, which is on the list; `None` for nothing. `willed`: the end that it had
    /// said it was about to have.
    #[must_use]
    pub fn told_by_signal(self, news: News, willed: Option<News>) -> Option<News> {
        let willed = willed.filter(|_| news.is_kill());
        let is_open = news.code != EXITED && willed.is_none() && self.is_undecided();
        (!self.is_told && !is_open).then_some(willed.unwrap_or(news))
    }

    /// The same of one that is off the list: a wait has told of its end while this signal waited behind a mask. What the kernel says
    /// in it of an adopted one is the death of its first primary; `in_roster` is the child's.
    #[must_use]
    pub fn told_behind_wait(self, news: News, in_roster: News) -> Option<News> {
        let is_rosters = self.is_adopted && matches!(self.end, End::Ended);
        (!self.is_told).then_some(if is_rosters { in_roster } else { news })
    }
}

/// What a parent hears of an adopted child's stop or continuation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// There is none.
    None,
    /// It has been told of this: a copy that has been stopped again in its predecessor's place is the same stop.
    Known,
    /// It did not ask for this.
    Unasked,
    /// This.
    News(News),
}

/// What there is to tell of a child that the roster says to have been stopped, or to go on: `word` is what `wait4` gives, 0 for none.
/// `told_stopped`: its parent has been told of a stop, and of no continuation since.
#[must_use]
pub const fn standing(word: u32, told_stopped: bool, stops: bool, continuations: bool) -> Standing {
    let is_stopped = word != GOES_ON as u32;
    let (wanted, news) = match is_stopped {
        true => (stops, News { code: STOPPED, status: word as i32 >> 8 & 0xff }),
        false => (continuations, News { code: CONTINUED, status: SIGCONT }),
    };
    match word {
        0 => Standing::None,
        _ if is_stopped == told_stopped => Standing::Known,
        _ if !wanted => Standing::Unasked,
        _ => Standing::News(news),
    }
}

/// Whether a stop or continuation in the roster is the one that a parent has just been told of. What has come since still has to be
/// told.
#[must_use]
pub const fn is_the_told(word: u32, code: i32) -> bool {
    word != 0 && (word != GOES_ON as u32) == (code == STOPPED)
}

/// A wait in doubt, whose slot shows what the kernel, or the roster, had told the dead primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// What of; `None` for no child, or if nothing was told.
    pub news: Option<News>,
    /// What a violent end meant ([`Child::meaning_then`]); of a child that is not listed that is its end.
    pub meaning: Meaning,
    /// It only peeked: the child can be asked for once more.
    pub peeks: bool,
}

/// What becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// It is made again.
    Again,
    /// It was told, and nothing else changes.
    Told,
    /// It was told of an end: the child is reaped, and is struck off the list.
    Reaped,
    /// It was told of a stop or a continuation, and its successor is not to be told of the same.
    Stood,
}

/// See [`Waited`].
#[must_use]
pub const fn judge(wait: Wait) -> Waited {
    match wait.news {
        None => Waited::Again,
        Some(news) if news.is_violent() && matches!(wait.meaning, Meaning::Lives) => Waited::Again,
        Some(_) if wait.peeks => Waited::Told,
        Some(news) if news.is_end() => Waited::Reaped,
        Some(_) => Waited::Stood,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHILD: Child = Child {
        has_joined: true,
        is_adopted: false,
        is_first: true,
        is_doomed: false,
        end: End::None,
        is_told: false,
    };
    const KILL: News = News { code: KILLED, status: SIGKILL };

    #[test]
    fn a_word_is_what_it_says() {
        for word in [0, 7 << 8, 9, 11 | 0x80] {
            assert_eq!(News::of_end(word).word(), word);
        }
        assert_eq!(News { code: STOPPED, status: 19 }.word(), 19 << 8 | 0x7f);
        assert_eq!(News { code: CONTINUED, status: SIGCONT }.word(), 0xffff);
    }

    #[test]
    fn a_primarys_death_is_the_childs_if_nobody_takes_over() {
        assert_eq!(CHILD.meaning(KILL), Meaning::Undecided);
        assert_eq!(Child { is_adopted: true, ..CHILD }.meaning(KILL), Meaning::Lives);
        assert_eq!(Child { end: End::Final, ..CHILD }.meaning(KILL), Meaning::Ends);
        assert_eq!(Child { has_joined: false, ..CHILD }.meaning(KILL), Meaning::Ends);
        assert_eq!(CHILD.meaning(News { code: EXITED, status: 3 }), Meaning::Ends);
    }

    #[test]
    fn what_a_dead_parent_was_told_means_what_the_roster_says() {
        let adopted = Child { is_adopted: true, ..CHILD };
        assert_eq!(adopted.meaning_then(KILL), Meaning::Undecided);
        assert_eq!(Child { is_first: false, ..adopted }.meaning_then(KILL), Meaning::Lives);
        assert_eq!(Child { is_first: false, end: End::Ended, ..adopted }.meaning_then(KILL), Meaning::Lives);
        assert_eq!(Child { end: End::Ended, ..adopted }.meaning_then(KILL), Meaning::Ends);
        assert_eq!(CHILD.meaning_then(KILL), Meaning::Ends);
    }

    #[test]
    fn a_signal_tells_of_an_end_once_and_of_no_primarys() {
        let exited = News { code: EXITED, status: 3 };
        assert_eq!(CHILD.told_by_signal(KILL, None), None);
        assert_eq!(CHILD.told_by_signal(exited, None), Some(exited));
        assert_eq!(CHILD.told_by_signal(KILL, Some(exited)), Some(exited), "it was about to end like that");
        assert_eq!(CHILD.told_by_signal(KILL, Some(KILL)), Some(KILL));
        assert_eq!(Child { is_doomed: true, ..CHILD }.told_by_signal(KILL, None), Some(KILL));
        assert_eq!(Child { is_told: true, ..CHILD }.told_by_signal(exited, None), None);
        assert_eq!(CHILD.told_behind_wait(KILL, exited), Some(KILL));
        let adopted = Child { is_adopted: true, end: End::Ended, ..CHILD };
        assert_eq!(adopted.told_behind_wait(KILL, exited), Some(exited));
    }

    #[test]
    fn a_stop_is_told_once() {
        let stop = 19 << 8 | 0x7f;
        assert_eq!(standing(stop, false, true, true), Standing::News(News { code: STOPPED, status: 19 }));
        assert_eq!(standing(stop, true, true, true), Standing::Known);
        assert_eq!(standing(0xffff, true, true, false), Standing::Unasked);
        assert_eq!(standing(0xffff, false, true, true), Standing::Known);
        assert_eq!(standing(0, false, true, true), Standing::None);
        assert!(is_the_told(stop, STOPPED) && is_the_told(0xffff, CONTINUED));
        assert!(!is_the_told(0xffff, STOPPED) && !is_the_told(0, CONTINUED));
    }

    #[test]
    fn a_wait_in_doubt_reaps_whom_it_was_told_of() {
        let wait = |news, meaning, peeks| judge(Wait { news, meaning, peeks });
        assert_eq!(wait(None, Meaning::Ends, false), Waited::Again);
        assert_eq!(wait(Some(KILL), Meaning::Lives, false), Waited::Again);
        assert_eq!(wait(Some(KILL), Meaning::Ends, false), Waited::Reaped);
        assert_eq!(wait(Some(KILL), Meaning::Ends, true), Waited::Told);
        let stop = Some(News { code: STOPPED, status: 19 });
        assert_eq!(wait(stop, Meaning::Lives, false), Waited::Stood, "no end of anybody");
    }
}

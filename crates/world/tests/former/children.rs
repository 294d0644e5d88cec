//! Random children: what their ends mean, and whom a wait in doubt has told of what, by the rules here and by what the runtime did
//! before. No difference.

use proptest::prelude::*;
use us_world::child::{self, Child, End, Meaning, News, Standing, Wait, Waited};

/// What stood in the runtime.
mod former {
    use super::{Child, End};

    pub fn parts(status: i32) -> (i32, i32) {
        match status & 0x7f {
            0 => (1, status >> 8 & 0xff),
            signal if status & 0x80 != 0 => (3, signal),
            signal => (2, signal),
        }
    }

    pub fn status_word(code: i32, status: i32) -> i32 {
        match code {
            1 => status << 8,
            2 => status,
            3 => status | 0x80,
            6 => 0xffff,
            _ => status << 8 | 0x7f,
        }
    }

    pub fn is_violent(code: i32) -> bool {
        matches!(code, 2 | 3)
    }

    /// `lives_on`, where `None` is one more look.
    pub fn lives_on(child: Child, code: i32) -> Option<bool> {
        if is_violent(code) && child.has_joined {
            if child.is_adopted {
                return Some(true);
            }
            if child.end == End::Final {
                return Some(false);
            }
            return None;
        }
        Some(false)
    }

    /// `is_followed`, likewise.
    pub fn is_followed(child: Child) -> Option<bool> {
        if child.has_joined && child.is_adopted && child.is_first && child.end == End::None {
            return None;
        }
        Some(!child.is_first && child.end != End::Final)
    }

    pub fn is_undecided(child: Child) -> bool {
        child.is_adopted || (child.has_joined && !child.is_doomed && child.end == End::None)
    }

    /// `is_news` of a child on the list.
    pub fn is_news(child: Child, news: (i32, i32), willed: Option<(i32, i32)>) -> Option<(i32, i32)> {
        let willed = willed.filter(|_| news.0 == 2 && news.1 == 9);
        if child.is_told || (news.0 != 1 && willed.is_none() && is_undecided(child)) {
            return None;
        }
        Some(willed.unwrap_or(news))
    }

    /// `is_news_of_the_told`.
    pub fn is_news_of_the_told(child: Child, news: (i32, i32), roster: (i32, i32)) -> Option<(i32, i32)> {
        if child.is_told {
            return None;
        }
        Some(if !child.is_adopted || child.end != End::Ended { news } else { roster })
    }

    /// `standing`: what is told, and whether the word is cleared.
    pub fn standing(seen: u32, told_stopped: bool, options: u64) -> (Option<(i32, i32)>, bool) {
        let is_stopped = seen != 0xffff;
        if seen == 0 {
            return (None, false);
        }
        if is_stopped == told_stopped {
            return (None, true);
        }
        let (wanted, code, status) = match is_stopped {
            true => (2, 5, seen as i32 >> 8 & 0xff),
            false => (8, 6, 18),
        };
        ((options & wanted != 0).then_some((code, status)), false)
    }

    pub fn clears(seen: u32, code: i32) -> bool {
        let is_stop = code == 5;
        seen != 0 && (seen != 0xffff) == is_stop
    }

    #[derive(Debug, PartialEq, Eq)]
    pub enum Did {
        Nothing,
        Told,
        StruckOff,
        Stood,
    }

    /// `told`, of a child that is listed.
    pub fn told(pid: u32, code: i32, is_followed: bool, peeks: bool) -> Did {
        let lives = is_violent(code) && is_followed;
        if pid == 0 || lives {
            return Did::Nothing;
        }
        match matches!(code, 1..=3) {
            _ if peeks => Did::Told,
            true => Did::StruckOff,
            false => Did::Stood,
        }
    }
}

fn children() -> impl Strategy<Value = Child> {
    let end = prop_oneof![Just(End::None), Just(End::Final), Just(End::Ended)];
    (any::<[bool; 5]>(), end).prop_map(|([has_joined, is_adopted, is_first, is_doomed, is_told], end)| {
        Child { has_joined, is_adopted, is_first, is_doomed, end, is_told }
    })
}

fn news() -> impl Strategy<Value = News> {
    let code = prop_oneof![1i32..4, 5i32..7];
    (code, prop_oneof![Just(9), 0i32..65]).prop_map(|(code, status)| News { code, status })
}

fn pair(news: News) -> (i32, i32) {
    (news.code, news.status)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(20_000) })]

    #[test]
    fn ends_mean_what_they_meant(child in children(), news in news()) {
        if news.is_end() {
            let is = match child.meaning(news) {
                Meaning::Ends => Some(false),
                Meaning::Lives => Some(true),
                Meaning::Undecided => None,
            };
            prop_assert_eq!(is, former::lives_on(child, news.code));
        }
        prop_assert_eq!(child.is_undecided(), former::is_undecided(child));
        prop_assert_eq!(child.is_untold(), child.end == End::Ended && !child.is_told);
    }

    #[test]
    fn waits_in_doubt_have_told_what_they_had(child in children(), news in news(), pid in 0u32..4, peeks: bool) {
        // Undecided for too long was no standby.
        let is_followed = former::is_followed(child);
        let meaning = child.meaning_then(news);
        if news.is_violent() {
            let is = match meaning {
                Meaning::Ends => Some(false),
                Meaning::Lives => Some(true),
                Meaning::Undecided => None,
            };
            prop_assert_eq!(is, is_followed);
        }
        let meaning = if meaning == Meaning::Undecided { Meaning::Ends } else { meaning };
        let was = former::told(pid, news.code, is_followed.unwrap_or(false), peeks);
        let is = match child::judge(Wait { news: (pid != 0).then_some(news), meaning, peeks }) {
            Waited::Again => former::Did::Nothing,
            Waited::Told => former::Did::Told,
            Waited::Reaped => former::Did::StruckOff,
            Waited::Stood => former::Did::Stood,
        };
        prop_assert_eq!(is, was);
    }

    #[test]
    fn signals_tell_what_they_told(child in children(), news in news(), other in news(), is_willed: bool) {
        let willed = is_willed.then_some(other);
        let is = child.told_by_signal(news, willed).map(pair);
        prop_assert_eq!(is, former::is_news(child, pair(news), willed.map(pair)));
        let is = child.told_behind_wait(news, other).map(pair);
        prop_assert_eq!(is, former::is_news_of_the_told(child, pair(news), pair(other)));
        let was = if news.code == 2 && news.status == 9 { willed.map_or(pair(news), pair) } else { pair(news) };
        prop_assert_eq!(pair(news.or_as_willed(willed)), was);
    }

    #[test]
    fn stops_and_words_are_what_they_were(
        word in prop_oneof![Just(0u32), Just(0xffff), (1u32..65).prop_map(|signal| signal << 8 | 0x7f)],
        told_stopped: bool, options in 0u64..16, news in news(), status in 0i32..0x10000
    ) {
        let is = child::standing(word, told_stopped, options & 2 != 0, options & 8 != 0);
        let told = if let Standing::News(news) = is { Some(pair(news)) } else { None };
        prop_assert_eq!((told, is == Standing::Known), former::standing(word, told_stopped, options));
        if matches!(news.code, 5 | 6) {
            prop_assert_eq!(child::is_the_told(word, news.code), former::clears(word, news.code));
        }
        prop_assert_eq!(pair(News::of_end(status)), former::parts(status));
        prop_assert_eq!(news.word(), former::status_word(news.code, news.status));
    }
}

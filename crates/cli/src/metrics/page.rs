//! The page of `serve`, and the figures that it asks for.
//!
//! The page itself has nothing of a group's in it: names and reasons come as JSON, and are put into it as text.

use serde_json::{Value, json};
use us_supervisor::status::{Group, GuestProcess};
use us_supervisor::terminal::plain;

use super::{Metrics, Sums};

/// Style and script are in it. No other file is asked for, and none would be loaded.
const PAGE: &str = include_str!("page.html");

/// Groups that have ended, at most: the last ones.
const ENDED_SHOWN: usize = 20;

/// The page, and what a browser may do with it: run the one script that has this nonce, and ask the server that it came from.
pub fn page(nonce: &str) -> (String, String) {
    let policy = format!(
        "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    );
    (PAGE.replace("@NONCE@", nonce), policy)
}

impl Metrics {
    /// What the page shows, as JSON. Arguments of programs may hold a password: they are not in it.
    pub fn figures(&self) -> Value {
        let groups = self.groups.iter().filter_map(|group| Some(shown(group, self.sums.get(&group.name)?)));
        let ended = self.ended.iter().take(ENDED_SHOWN);
        let ended =
            ended.map(|ended| json!({ "name": ended.name, "at": ended.at, "how": plain(&ended.how) }));
        json!({ "version": 1, "groups": groups.collect::<Vec<_>>(), "ended": ended.collect::<Vec<_>>() })
    }
}

fn shown(group: &Group, sums: &Sums) -> Value {
    json!({
        "name": group.name,
        "since": group.since,
        "state": group.state,
        "why": group.why.as_deref().map(plain),
        "protected_share": group.protected_share,
        "failovers": group.failovers_total,
        "unsettled": group.unsettled_total,
        "reclones": group.reclones_total,
        "divergences": group.divergences_total,
        "lost": group.lost_total,
        "events_total": group.events_total,
        "bytes_total": group.bytes_total,
        "blackout": sums.blackout.figures(),
        "pause": sums.pause.figures(),
        "processes": group.processes.iter().map(process).collect::<Vec<_>>(),
    })
}

fn process(process: &GuestProcess) -> Value {
    let standby = |standby: &us_supervisor::status::StandbyCopy| {
        json!({
            "pid": standby.pid,
            "state": standby.state,
            "lag_events": standby.lag_events,
            "lag_bytes": standby.lag_bytes,
        })
    };
    json!({
        "guest_pid": process.guest_pid,
        "parent_pid": process.parent_pid,
        "program": plain(&process.program),
        "state": process.state,
        "why": process.why.as_deref().map(plain),
        "primary_pid": process.primary.as_ref().map(|primary| primary.pid),
        "standbys": process.standbys.iter().map(standby).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A script or a style without the nonce would not run, and a source outside would not be loaded.
    #[test]
    fn the_page_is_all_there_is() {
        let (page, policy) = page("n0nce");
        assert!(policy.contains("script-src 'nonce-n0nce'") && policy.starts_with("default-src 'none'"));
        for tag in ["<script", "<style"] {
            let tags: Vec<_> = page.match_indices(tag).collect();
            assert_eq!(tags.len(), 1, "{tag}");
            assert!(page[tags[0].0..].starts_with(&format!("{tag} nonce=\"n0nce\">")), "{tag}");
        }
        // The namespace of drawings is a name, and nothing is loaded from it.
        let text = page.replace("http://www.w3.org/2000/svg", "");
        for bad in ["://", "innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", " style="] {
            assert!(!text.contains(bad), "{bad}");
        }
    }
}

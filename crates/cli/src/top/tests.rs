use std::collections::{BTreeMap, VecDeque};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use us_supervisor::history::Failover;
use us_supervisor::status::{Group, GuestProcess, PrimaryCopy, StandbyCopy, Status};

use super::{Act, Key, Screen, Then, draw};

fn process(pid: u32, parent: u32, lag_bytes: u64) -> GuestProcess {
    GuestProcess {
        guest_pid: pid,
        parent_pid: parent,
        program: "server".into(),
        state: "protected",
        is_coming: false,
        age_s: 60.0,
        order: "schedule",
        computed: None,
        why: None,
        runtime: None,
        primary: Some(PrimaryCopy { pid, threads: 1, cpu_s: 0.5, rss_bytes: 1 << 20 }),
        standbys: vec![StandbyCopy {
            pid: pid + 1,
            state: "following",
            lag_events: 3,
            lag_bytes,
            cpu_s: 0.25,
            rss_bytes: 1 << 20,
        }],
    }
}

fn group(name: &str, events: u64, lag_bytes: u64) -> Group {
    Group {
        name: name.into(),
        order: "schedule".into(),
        epoch: 0,
        state: "protected",
        why: None,
        protected_share: 0.995,
        protected_s: 60.0,
        since: String::new(),
        program: vec!["server".into()],
        supervisor_pid: 1,
        processes: vec![process(100, 0, lag_bytes), process(200, 100, 0)],
        events_total: events,
        bytes_total: 0,
        events_by_class: BTreeMap::new(),
        failovers: VecDeque::new(),
        failovers_total: 0,
        unsettled_total: 0,
        reclones: VecDeque::new(),
        reclones_total: 0,
        reclones_failed: 0,
        divergences: VecDeque::new(),
        divergences_total: 0,
        lost: VecDeque::new(),
        lost_total: 0,
        refused_calls: BTreeMap::new(),
        signals_late: 0,
        recording: None,
        mirror: None,
        gate: None,
        machines: Vec::new(),
        probe: None,
        lag_waits_ms: 0,
        guarantee: String::new(),
    }
}

fn status(groups: Vec<Group>) -> Status {
    Status { version: 1, groups, others: Vec::new(), ended: Vec::new() }
}

fn picture(screen: &Screen, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw::draw(frame, screen, true)).unwrap();
    let buffer = terminal.backend().buffer();
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
    (0..height).map(line).collect()
}

#[test]
fn groups_are_shown_as_trees_with_curves_and_news() {
    let mut screen = Screen::new("");
    screen.update(&status(vec![group("a", 0, 0), group("b", 0, 0)]), 0.0);
    screen.update(&status(vec![group("a", 500, 2048), group("b", 0, 0)]), 0.5);
    let mut failed_over = group("a", 500, 0);
    failed_over.epoch = 1;
    failed_over.failovers_total = 1;
    failed_over.failovers.push_back(Failover {
        process: 100,
        at: "2026-01-01T00:00:00.000Z".into(),
        reason: "killed by SIGKILL".into(),
        blackout_us: 400,
        in_doubt: 1,
        unsettled: 0,
        unsettled_calls: Vec::new(),
    });
    let shown = picture(&screen, 110, 20);
    assert!(shown[0].starts_with("NAME          STATE      PRIMARY  STANDBY  LAG"), "{shown:#?}");
    assert!(
        shown[1].starts_with("a             protected  100      101      3 events, 2.0 KiB"),
        "{shown:#?}"
    );
    assert!(shown[2].starts_with("  200 server  protected  200      201"), "{shown:#?}");
    assert!(
        shown.iter().any(|line| line.contains("a: lag 2.0 KiB") && line.contains("a: 1000 events/s")),
        "{shown:#?}"
    );
    assert!(shown.iter().any(|line| line.contains('█')), "{shown:#?}");
    assert_eq!(shown[19], "q quit   up/down choose   f fail over   s stop   / filter");
    // It is counted before it is known how the primary ended.
    let mut counted = group("a", 500, 0);
    counted.epoch = 1;
    screen.update(&status(vec![counted, group("b", 0, 0)]), 0.75);
    screen.update(&status(vec![failed_over]), 1.0);
    let shown = picture(&screen, 110, 20);
    let told =
        "a: failover 2026-01-01T00:00:00.000Z: killed by SIGKILL, blackout 0.4 ms, in doubt 1, unsettled 0";
    assert!(shown.iter().any(|line| line == told), "{shown:#?}");
    assert!(shown.iter().any(|line| line == "b has ended"), "{shown:#?}");
}

#[test]
fn any_size_of_terminal_will_do() {
    let mut screen = Screen::new("");
    screen.update(&status((0..30).map(|number| group(&format!("g{number}"), 0, 0)).collect()), 0.0);
    for (width, height) in [(1, 1), (10, 2), (40, 5), (40, 9), (80, 12), (300, 100)] {
        let shown = picture(&screen, width, height);
        assert_eq!(shown.len(), usize::from(height));
    }
    // The one that is chosen is in sight.
    (0..29).for_each(|_| _ = screen.key(Key::Down));
    assert!(picture(&screen, 60, 12).iter().any(|line| line.starts_with("g29 ")));
    assert_eq!(picture(&Screen::new(""), 40, 10)[1], "no groups");
    // Not all of many rows: how many there are besides.
    let mut many = Screen::new("");
    many.update(&status((0..30).map(|number| group(&format!("g{number}"), 0, 0)).collect()), 0.0);
    let shown = picture(&many, 80, 24);
    let rows = shown.iter().filter(|line| line.contains(" protected ")).count();
    let more = format!("… {} more rows: PgDn and PgUp show them, / chooses some", 60 - rows);
    assert!(shown.contains(&more), "{more}: {shown:#?}");
    // Page by page to the end, where a further key changes nothing, and back.
    (0..20).for_each(|_| {
        many.key(Key::PageDown);
        picture(&many, 80, 24);
    });
    let at_the_end = picture(&many, 80, 24);
    assert!(at_the_end[rows - 1].starts_with("g29 "), "{at_the_end:#?}");
    many.key(Key::PageUp);
    assert!(!picture(&many, 80, 24).iter().any(|line| line.starts_with("g29 ")));
    (0..20).for_each(|_| {
        many.key(Key::PageUp);
        picture(&many, 80, 24);
    });
    assert_eq!(picture(&many, 80, 24), shown);
    // Of a group that is chosen, as many processes as there is room for.
    (0..15).for_each(|_| _ = many.key(Key::Down));
    let chosen = picture(&many, 80, 24);
    let first = chosen.iter().position(|line| line.starts_with("g15 ")).unwrap();
    assert!(chosen[first + 1].starts_with("  200 server"), "{chosen:#?}");
    many.key(Key::PageUp);
    many.key(Key::Up);
    assert!(picture(&many, 80, 24).iter().any(|line| line.starts_with("g14 ")));
    (0..30).for_each(|_| _ = many.key(Key::Up));
    // What happened is told to its end.
    many.say(&format!("g1: failover: {} unsettled 1", "a reason of many words, ".repeat(5)));
    assert!(
        picture(&many, 60, 24).iter().any(|line| line.ends_with("unsettled 1")),
        "{:#?}",
        picture(&many, 60, 24)
    );
    // Keys and figures are there on a narrow one.
    let narrow = picture(&many, 40, 15);
    assert_eq!(narrow[14], "q quit  f fail over  s stop  / filter");
    // A long name leaves the others their room.
    let mut screen = Screen::new("");
    screen.update(&status(vec![group(&"n".repeat(64), 0, 2048)]), 0.0);
    for (width, most) in [(80, 32), (60, 24), (36, 16)] {
        let row = picture(&screen, width, 12)[1].clone();
        let (first, last) = (most - 1 - (most - 1) / 2, (most - 1) / 2);
        let shown = format!("{}…{}  protected", "n".repeat(first), "n".repeat(last));
        assert!(row.starts_with(&shown), "{row}");
    }
    let figures = |line: &String| line.contains("n: lag 2.0 KiB") && line.contains("n: 0 events/s");
    assert!(picture(&screen, 60, 24).iter().any(figures), "{:#?}", picture(&screen, 60, 24));
    assert!(picture(&screen, 80, 12)[1].contains("  3 events"), "{:?}", picture(&screen, 80, 12));
}

#[test]
fn keys_choose_filter_and_ask_before_they_act() {
    let mut screen = Screen::new("");
    screen.update(&status(vec![group("a", 0, 0), group("b", 0, 0)]), 0.0);
    assert_eq!(screen.key(Key::Down), Then::Go);
    assert_eq!(screen.key(Key::Char('f')), Then::Go);
    assert_eq!(picture(&screen, 60, 10)[9], "b: the standby takes over now? y/n");
    assert_eq!(screen.key(Key::Char('y')), Then::Do(Act::Failover, "b".into()));
    screen.key(Key::Char('s'));
    assert_eq!(picture(&screen, 60, 10)[9], "b: end it? y/n");
    // Anything but a yes is a no.
    assert_eq!(screen.key(Key::Char('q')), Then::Go);
    for key in [Key::Char('/'), Key::Char('a')] {
        screen.key(key);
    }
    assert_eq!(picture(&screen, 60, 10)[9], "names with: a_   Enter keeps it, Esc clears it");
    screen.key(Key::Enter);
    assert!(picture(&screen, 90, 10)[9].ends_with("only names with \"a\""));
    assert_eq!(screen.key(Key::Char('s')), Then::Go);
    assert_eq!(screen.key(Key::Char('y')), Then::Do(Act::Stop, "a".into()));
    screen.key(Key::Char('/'));
    screen.key(Key::Char('x'));
    assert_eq!(picture(&screen, 60, 10)[1], "no group has such a name");
    assert_eq!(screen.key(Key::Back), Then::Go);
    screen.key(Key::Escape);
    assert_eq!(screen.key(Key::Escape), Then::Quit);
}

#[test]
fn nothing_that_a_program_says_acts_on_the_terminal() {
    let mut screen = Screen::new("");
    let mut evil = group("a", 0, 0);
    evil.processes[1].program = "\u{1b}[31mred".into();
    screen.update(&status(vec![evil]), 0.0);
    screen.say("\u{1b}]0;title\u{7}");
    let shown = picture(&screen, 120, 20).join("\n");
    assert!(!shown.contains('\u{1b}') && shown.contains(r"\u{1b}[31mred"), "{shown}");
}

//! The picture.

use std::collections::VecDeque;
use std::ops::Range;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Line as TextLine;
use ratatui::widgets::{Block, Borders, Paragraph, Row, Sparkline, Table};
use us_supervisor::history;
use us_supervisor::terminal::plain;

use super::{Act, Line, Mode, Screen};
use crate::report;

/// Lines for what happened.
const NEWS_LINES: u16 = 6;

/// Lines for the curves.
const CURVE_LINES: u16 = 4;

/// Letters of a name that are shown wherever it is longer.
const NAME_LEAST: usize = 16;

/// Draws it all.
pub fn draw(frame: &mut Frame, screen: &Screen, colours: bool) {
    // Where there is little room, the table is what matters.
    let spare = frame.area().height.saturating_sub(8);
    let curves = if spare >= CURVE_LINES { CURVE_LINES } else { 0 };
    let news = (spare - curves).min(NEWS_LINES);
    let rows =
        [Constraint::Min(3), Constraint::Length(curves), Constraint::Length(news), Constraint::Length(1)];
    let [table, middle, below, foot] = Layout::vertical(rows).areas(frame.area());
    draw_table(frame, screen, colours, table);
    if curves > 0 {
        draw_curves(frame, screen, middle);
    }
    draw_news(frame, screen, below);
    frame.render_widget(Paragraph::new(footer(screen, foot.width)).style(reversed()), foot);
}

fn reversed() -> Style {
    Style::default().add_modifier(Modifier::REVERSED)
}

fn draw_table(frame: &mut Frame, screen: &Screen, colours: bool, mut area: Rect) {
    let lines: Vec<_> = screen.shown().collect();
    let shown = usize::from(area.height.saturating_sub(2));
    if area.height >= 4 && lines.len() >= usize::from(area.height) {
        area.height -= 1;
        let below = Rect { y: area.y + area.height, height: 1, ..area };
        let more = lines.len() - shown;
        let words = match area.width {
            0..60 => format!("… {more} more rows: PgDn, PgUp or /"),
            _ => format!("… {more} more rows: PgDn and PgUp show them, / chooses some"),
        };
        frame.render_widget(Paragraph::new(words).style(Style::default().add_modifier(Modifier::DIM)), below);
    }
    let room = usize::from(area.width);
    let mut cells: Vec<[String; report::COLUMNS]> = lines.iter().map(|line| line.cells.clone()).collect();
    for row in &mut cells {
        row[0] = shortened(&plain(&row[0]), (room * 2 / 5).max(NAME_LEAST));
    }
    let head = report::HEAD.map(String::from);
    let all: Vec<_> = std::iter::once(&head).chain(&cells).cloned().collect();
    let (shown, widths) = report::columns(&all, Some(room));
    let row = |cells: &[String; report::COLUMNS]| -> Vec<String> {
        shown.iter().map(|column| plain(&cells[*column]).into_owned()).collect()
    };
    let is_selected = |line: &&Line| Some(&line.group) == screen.selected.as_ref();
    let selected = lines.iter().position(&is_selected);
    let first = first_row(
        screen,
        selected.unwrap_or(0)..lines.iter().rposition(&is_selected).map_or(0, |last| last + 1),
        lines.len(),
        usize::from(area.height.saturating_sub(1)),
    );
    let rows = cells.iter().enumerate().skip(first).map(|(at, cells)| {
        let state = cells[report::STATE].as_str();
        let style = match crate::style::meaning(state) {
            Some(colour) if colours => Style::default().fg(of_ansi(colour)),
            _ => Style::default(),
        };
        let style = if selected == Some(at) { style.add_modifier(Modifier::REVERSED) } else { style };
        Row::new(row(cells)).style(style)
    });
    let widths: Vec<Constraint> =
        shown.iter().map(|column| Constraint::Length(widths[*column] as u16)).collect();
    let table = Table::new(rows, widths)
        .header(Row::new(row(&head)).style(Style::default().add_modifier(Modifier::BOLD)))
        .column_spacing(2);
    frame.render_widget(table, area);
    if lines.is_empty() {
        let none = if screen.lines.is_empty() { "no groups" } else { "no group has such a name" };
        let below = Rect { y: area.y + 1, height: 1, ..area };
        frame.render_widget(Paragraph::new(none), below.intersection(area));
    }
}

/// The row at the top: where most of the chosen group's rows are in sight, and so many screens from there.
fn first_row(screen: &Screen, chosen: Range<usize>, rows: usize, room: usize) -> usize {
    let last = rows.saturating_sub(room);
    let by_itself = chosen.start.min(chosen.end.saturating_sub(room)).min(last);
    let page = room.max(2) - 1;
    // No key leads beyond an end, or one would have to come back from there.
    let (up, down) = (by_itself.div_ceil(page) as isize, (last - by_itself).div_ceil(page) as isize);
    screen.pages.set(screen.pages.get().clamp(-up, down));
    by_itself.saturating_add_signed(screen.pages.get() * page as isize).min(last)
}

/// A name, or its two ends where the other columns need the room: names of one kind differ at the end.
fn shortened(name: &str, most: usize) -> String {
    let letters: Vec<char> = name.chars().collect();
    if letters.len() <= most {
        return name.into();
    }
    let last = (most - 1) / 2;
    let (first, last) = (&letters[..most - 1 - last], &letters[letters.len() - last..]);
    first.iter().chain(&['…']).chain(last).collect()
}

fn of_ansi(colour: u8) -> Color {
    match colour {
        31 => Color::Red,
        33 => Color::Yellow,
        _ => Color::Green,
    }
}

fn draw_curves(frame: &mut Frame, screen: &Screen, area: Rect) {
    let Some((name, track)) = screen.selected.as_ref().and_then(|name| screen.tracks.get_key_value(name))
    else {
        return;
    };
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).spacing(1);
    let [left, right] = halves.areas(area);
    let last = |curve: &VecDeque<u64>| curve.back().copied().unwrap_or(0);
    draw_curve(frame, &track.lag, name, &format!("lag {}", report::size(last(&track.lag))), left);
    draw_curve(frame, &track.rate, name, &format!("{} events/s", last(&track.rate)), right);
}

/// The last of a curve, its newest moment at the right. Its figure is what matters, and the name has what room is left.
fn draw_curve(frame: &mut Frame, curve: &VecDeque<u64>, name: &str, figure: &str, area: Rect) {
    let width = usize::from(area.width);
    let room = width.saturating_sub(figure.chars().count() + 2);
    let title = if room >= 4 { format!("{}: {figure}", shortened(name, room)) } else { figure.into() };
    let mut moments: Vec<u64> = history::last(curve, width).copied().collect();
    moments.splice(0..0, std::iter::repeat_n(0, width - moments.len()));
    let block = Block::default().borders(Borders::TOP).title(plain(&title).into_owned());
    frame.render_widget(Sparkline::default().block(block).data(&moments), area);
}

fn draw_news(frame: &mut Frame, screen: &Screen, area: Rect) {
    if area.height == 0 {
        return;
    }
    let room = usize::from(area.height - 1);
    let width = usize::from(area.width).max(1);
    let last = &screen.news[screen.news.len().saturating_sub(room)..];
    let mut lines: Vec<TextLine> =
        last.iter().flat_map(|line| folded(line, width)).map(TextLine::raw).collect();
    lines.drain(..lines.len().saturating_sub(room));
    let block = Block::default().borders(Borders::TOP).title("since top was started");
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

/// A line in as many as it takes, broken between words where that can be; what follows is set in.
fn folded(line: &str, width: usize) -> Vec<String> {
    const INDENT: &str = "  ";
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let last = lines.last_mut().expect("there is always one");
        let used = last.chars().count();
        if used == 0 || last == INDENT {
            last.push_str(word);
        } else if used + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(format!("{INDENT}{word}"));
        }
    }
    lines
}

/// What the keys mean.
fn footer(screen: &Screen, width: u16) -> String {
    let filter = match screen.filter.as_str() {
        "" => String::new(),
        text => format!("   only names with {text:?}"),
    };
    match &screen.mode {
        Mode::Look if width < 57 => format!("q quit  f fail over  s stop  / filter{filter}"),
        Mode::Look => format!("q quit   up/down choose   f fail over   s stop   / filter{filter}"),
        Mode::Filter => format!("names with: {}_   Enter keeps it, Esc clears it", screen.filter),
        Mode::Confirm(Act::Failover, group) => format!("{group}: the standby takes over now? y/n"),
        Mode::Confirm(Act::Stop, group) => format!("{group}: end it? y/n"),
    }
}

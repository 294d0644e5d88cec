//! The message breakdown as a picture: what share of events, of bytes and of the file each kind of message has.

use std::cmp::Reverse;
use std::fmt::Write;

use us_supervisor::terminal::plain;

use super::{Count, Inspection, MESSAGES};

/// A kind of message, and its colour.
struct Part {
    name: String,
    colour: &'static str,
    count: Count,
}

/// What a bar shows.
type Measure = fn(&Count) -> f64;

/// System calls that get a colour of their own; the others share one.
const CALLS: usize = 6;

/// Apart from each other also for people who do not see red and green.
const SCHEDULE: &str = "#0072b2";
const CLOCK: &str = "#e69f00";
const CALL: [&str; CALLS] = ["#009e73", "#56b4e9", "#f0e442", "#d55e00", "#cc79a7", "#7f7f7f"];
const OTHER: &str = "#bdbdbd";
const OUTPUT: &str = "#8c510a";
const SIGNAL: &str = "#5e3c99";
const THREAD: &str = "#333333";
const REST: &str = "#dddddd";

const LEFT: f64 = 90.0;
const WIDTH: f64 = 600.0;
const BAR: f64 = 34.0;
const GAP: f64 = 14.0;
const TOP: f64 = 44.0;
const LINE: f64 = 20.0;

/// The picture, as SVG.
pub fn draw(found: &Inspection) -> String {
    let parts = parts(found);
    let bars: [(&str, Measure); 3] = [
        ("events", |count| count.events as f64),
        ("bytes", |count| count.bytes as f64),
        ("in the file", |count| count.bytes_file),
    ];
    let below = TOP + bars.len() as f64 * (BAR + GAP) + 8.0;
    let height = below + parts.len().div_ceil(2) as f64 * LINE + 12.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{height}\" viewBox=\"0 0 {0} {height}\" \
         font-family=\"sans-serif\" font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        LEFT + WIDTH + 20.0
    );
    let title = format!("{}: {} events", found.command(), found.events);
    // What fits in the width, about.
    let title: String = title.chars().take(85).collect();
    let _ = writeln!(svg, "<text x=\"10\" y=\"24\" font-size=\"15\">{}</text>", escape(&plain(&title)));
    for (at, (name, measure)) in bars.into_iter().enumerate() {
        bar(&mut svg, name, TOP + at as f64 * (BAR + GAP), &parts, measure);
    }
    for (at, part) in parts.iter().enumerate() {
        let (x, y) = (LEFT + (at % 2) as f64 * WIDTH / 2.0, below + (at / 2) as f64 * LINE);
        let _ =
            writeln!(svg, "<rect x=\"{x}\" y=\"{y}\" width=\"12\" height=\"12\" fill=\"{}\"/>", part.colour);
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\">{}, {} events</text>",
            x + 18.0,
            y + 11.0,
            escape(&part.name),
            part.count.events
        );
    }
    svg + "</svg>\n"
}

/// One stacked bar, of the length of all others.
fn bar(svg: &mut String, name: &str, y: f64, parts: &[Part], measure: Measure) {
    let middle = y + BAR / 2.0 + 4.5;
    let _ = writeln!(svg, "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{name}</text>", LEFT - 10.0);
    let total: f64 = parts.iter().map(|part| measure(&part.count)).sum();
    let mut x = LEFT;
    for part in parts {
        let share = if total > 0.0 { measure(&part.count) / total } else { 0.0 };
        let width = share * WIDTH;
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"{BAR}\" fill=\"{}\"><title>{}: {:.1} %</title></rect>",
            part.colour,
            escape(&part.name),
            share * 100.0
        );
        x += width;
    }
}

/// In the order of a stack.
fn parts(found: &Inspection) -> Vec<Part> {
    let mut calls: Vec<(&String, &Count)> = found.by_call.iter().collect();
    calls.sort_by_key(|(_, count)| Reverse(count.events));
    let mut parts = Vec::new();
    for message in MESSAGES {
        let count = found.by_message[message];
        let colour = match message {
            "call" => {
                let own = calls.iter().zip(CALL);
                parts.extend(own.map(|((name, count), colour)| Part {
                    name: (*name).clone(),
                    colour,
                    count: **count,
                }));
                let others = calls.iter().skip(CALLS).fold(Count::default(), |mut sum, (_, count)| {
                    sum.add(**count);
                    sum
                });
                parts.push(Part { name: "other calls".into(), colour: OTHER, count: others });
                continue;
            }
            "schedule" => SCHEDULE,
            "clock" => CLOCK,
            "output" => OUTPUT,
            "signal" => SIGNAL,
            "thread" => THREAD,
            _ => REST,
        };
        parts.push(Part { name: message.into(), colour, count });
    }
    parts.retain(|part| part.count.events > 0);
    parts
}

/// As text in XML.
fn escape(text: &str) -> String {
    let each = |c: char| match c {
        '&' => "&amp;".into(),
        '<' => "&lt;".into(),
        '>' => "&gt;".into(),
        '"' => "&quot;".into(),
        c => c.to_string(),
    };
    text.chars().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_cannot_write_into_the_picture() {
        assert_eq!(escape("<a b=\"&\">"), "&lt;a b=&quot;&amp;&quot;&gt;");
    }
}

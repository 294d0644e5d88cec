//! `top`: the terminal, the clock and the groups behind what `crate::top` shows.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use us_supervisor::run::explain;
use us_supervisor::{Error, control, folder, request, status};

use crate::report;
use crate::style::Style;
use crate::top::{Act, Key, Screen, Then, draw};

/// How long `s` gives a group before it is killed: as `stop` does.
const STOP: Duration = Duration::from_secs(10);

/// Shows the groups until `q`.
pub fn run(name: Option<&str>, interval: Duration) -> Result<i32, Error> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(Error::Usage("top needs a terminal; status --watch writes to anything".into()));
    }
    let mut terminal = ratatui::try_init().map_err(|cause| Error::system("use the terminal", cause))?;
    let outcome = follow(&mut terminal, &mut Screen::new(name.unwrap_or_default()), interval);
    ratatui::restore();
    outcome.map(|()| 0).map_err(|cause| Error::system("use the terminal", cause))
}

fn follow(
    terminal: &mut ratatui::DefaultTerminal,
    screen: &mut Screen,
    interval: Duration,
) -> std::io::Result<()> {
    let colours = Style::of_stdout().colours;
    let (done, said): (Sender<String>, Receiver<String>) = channel();
    let begun = Instant::now();
    let mut next = begun;
    loop {
        if Instant::now() >= next {
            if let Ok(found) = status::read(None) {
                screen.update(&found, begun.elapsed().as_secs_f64());
            }
            next = Instant::now() + interval;
        }
        said.try_iter().for_each(|line| screen.say(&line));
        terminal.draw(|frame| draw::draw(frame, screen, colours))?;
        if !event::poll(next.saturating_duration_since(Instant::now()))? {
            continue;
        }
        let Some(key) = key(&event::read()?) else { continue };
        match key.map_or(Then::Quit, |key| screen.key(key)) {
            Then::Go => {}
            Then::Quit => return Ok(()),
            Then::Do(act, group) => {
                let done = done.clone();
                // Its end may take seconds, in which there is something to see.
                std::thread::spawn(move || done.send(carry_out(act, &group)));
            }
        }
    }
}

/// The key; `Some(None)` for the one that ends programs.
fn key(event: &Event) -> Option<Option<Key>> {
    let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press | KeyEventKind::Repeat, .. }) =
        event
    else {
        return None;
    };
    Some(match code {
        KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => None,
        KeyCode::Char(c) => Some(Key::Char(*c)),
        KeyCode::Up => Some(Key::Up),
        KeyCode::Down => Some(Key::Down),
        KeyCode::PageUp => Some(Key::PageUp),
        KeyCode::PageDown => Some(Key::PageDown),
        KeyCode::Enter => Some(Key::Enter),
        KeyCode::Backspace => Some(Key::Back),
        KeyCode::Esc => Some(Key::Escape),
        _ => return None,
    })
}

fn carry_out(act: Act, name: &str) -> String {
    let outcome = folder::find(name).and_then(|group| match act {
        Act::Failover => request::ask(&group, request::FAILOVER)
            .map(|done| report::failover(name, &done).trim_end().to_owned()),
        Act::Stop => control::stop(&group, libc_term(), STOP).map(|()| format!("{name}: stopped")),
    });
    outcome.unwrap_or_else(|error| explain(&error))
}

/// SIGTERM.
fn libc_term() -> i32 {
    us_supervisor::signals::parse("TERM").unwrap_or(15)
}

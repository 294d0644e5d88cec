//! What is shown while something takes longer than a second: a line on stderr, if that is a terminal, which goes away at the end.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// What takes no longer is not worth a line.
const PATIENCE: Duration = Duration::from_secs(1);

/// The line.
pub struct Progress {
    bar: ProgressBar,
    begun: Instant,
}

impl Progress {
    /// Of something that is done at `whole`; 0 where nobody knows when that is.
    pub fn new(whole: u64) -> Progress {
        let bar = ProgressBar::with_draw_target(Some(whole), ProgressDrawTarget::hidden());
        let template = match whole {
            0 => "{spinner} {msg} ({elapsed})",
            _ => "{msg} [{bar:30}] {percent} % ({elapsed})",
        };
        let style = ProgressStyle::with_template(template).expect("the template is one of two");
        bar.set_style(style.progress_chars("=> "));
        Progress { bar, begun: Instant::now() }
    }

    /// How far it is, and with what.
    pub fn at(&self, done: u64, what: &str) {
        if self.bar.is_hidden() && self.begun.elapsed() > PATIENCE {
            // Hides itself where stderr is no terminal.
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.bar.message() != what {
            self.bar.set_message(what.to_owned());
        }
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

//! Tells the person who waits which step is under way.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// One line per step: a spinner with the elapsed time on a terminal, plain text elsewhere.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: Option<ProgressBar>,
    quiet: bool,
    current: Option<(String, Instant)>,
}

impl Progress {
    pub(crate) fn new(quiet: bool) -> Self {
        let bar = (!quiet && std::io::stderr().is_terminal()).then(|| {
            let bar = ProgressBar::new_spinner();
            // the template is a constant; a wrong one would show in the first run
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(120));
            bar
        });
        Self {
            bar,
            quiet,
            current: None,
        }
    }

    /// Begins a step and ends the one before it. Naming the current step again does nothing.
    pub(crate) fn step(&mut self, name: &str) {
        if self
            .current
            .as_ref()
            .is_some_and(|(current, _)| current == name)
        {
            return;
        }
        self.end_step();
        if let Some(bar) = &self.bar {
            bar.reset_elapsed();
            bar.set_message(name.to_owned());
        } else if !self.quiet {
            eprintln!("testbed: {name}");
        }
        self.current = Some((name.to_owned(), Instant::now()));
    }

    /// Ends the last step; the line of each finished step stays.
    pub(crate) fn finish(&mut self) {
        self.end_step();
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn end_step(&mut self) {
        if let Some((name, began)) = self.current.take()
            && let Some(bar) = &self.bar
        {
            bar.println(format!("  {name} ({:.1} s)", began.elapsed().as_secs_f64()));
        }
    }
}

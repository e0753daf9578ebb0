//! How far it is, for the person who waits.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar on a terminal, a line elsewhere.
pub(crate) fn steps(what: &str, count: usize) -> ProgressBar {
    let bar = ProgressBar::new(count as u64);
    if bar.is_hidden() {
        bench::times::progress(what);
    }
    // the template is a constant; a wrong one would show in the first run
    if let Ok(style) = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} ({elapsed})") {
        bar.set_style(style);
    }
    bar.with_message(what.to_owned())
}

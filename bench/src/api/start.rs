//! From the start of the process to the first answer.

use std::path::Path;

use anyhow::Result;

use crate::sandbar::Program;
use crate::table::{Table, Target, Unit};
use bench::times::{Times, millis, progress};

const STARTS: usize = 5;

/// `filled` is a directory with many objects.
pub(crate) async fn measure(table: &mut Table, program: &Program, filled: &Path) -> Result<()> {
    progress("starts");
    let mut empty = Vec::new();
    for _ in 0..STARTS {
        let server = program.start_empty().await?;
        empty.push(server.ready_after);
        server.stop().await?;
    }
    let mut full = Vec::new();
    for _ in 0..STARTS {
        let server = program.start(filled).await?;
        full.push(server.ready_after);
        server.stop().await?;
    }
    for (what, times, most) in [
        ("start to ready, empty state", empty, 300.0),
        ("start to ready, 10,000 Sandboxes", full, 2000.0),
    ] {
        let median = millis(Times::new(times).median());
        table.row(what, median, Unit::Millis, Target::AtMost(most));
    }
    Ok(())
}

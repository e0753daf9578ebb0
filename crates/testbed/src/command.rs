//! Runs other programs to their end.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs a command to its end; its output becomes part of the error.
pub(crate) fn run(command: &mut Command, doing: &str) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{doing}: starting {}", command.get_program().display()))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{doing}: {} ended with {}\n{}",
            command.get_program().display(),
            output.status,
            last_lines(&format!("{text}{errors}"), 30)
        );
    }
    Ok(text)
}

/// The last `count` lines of `text`.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

//! What the kernel says about processes.

use std::time::Duration;

use anyhow::{Context as _, Result};

/// The kernel's unit of processor time, on every architecture.
const TICKS_PER_SECOND: u64 = 100;

/// Fields of `/proc/<pid>/stat` from the state on.
fn stat(pid: u32) -> Result<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // the name in parentheses may contain spaces and parentheses
    let (_, rest) = stat.rsplit_once(')').context("no name in stat")?;
    Ok(rest.split_whitespace().map(str::to_owned).collect())
}

/// Processor time that the processes have used so far, all threads, in the kernel and outside.
pub(crate) fn cpu(pids: &[u32]) -> Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let stat = stat(*pid)?;
        for field in &stat[11..13] {
            ticks += field.parse::<u64>()?;
        }
    }
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

pub(crate) fn parent(pid: u32) -> Result<u32> {
    Ok(stat(pid)?[1].parse()?)
}

/// Resident memory, MiB.
pub(crate) fn resident(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.context("no VmRSS")?.trim_end_matches("kB").trim();
    Ok(kib.parse::<f64>()? / 1024.0)
}

/// Processes by their command lines.
pub(crate) fn find(wanted: impl Fn(&str) -> bool) -> Result<Vec<u32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")?.flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse() else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if wanted(&String::from_utf8_lossy(&line)) {
            found.push(pid);
        }
    }
    Ok(found)
}

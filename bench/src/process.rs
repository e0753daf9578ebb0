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
pub fn cpu(pids: &[u32]) -> Result<Duration> {
    let mut ticks = 0;
    for pid in pids {
        let stat = stat(*pid)?;
        for field in &stat[11..13] {
            ticks += field.parse::<u64>()?;
        }
    }
    Ok(Duration::from_millis(ticks * 1000 / TICKS_PER_SECOND))
}

pub fn parent(pid: u32) -> Result<u32> {
    Ok(stat(pid)?[1].parse()?)
}

/// The name that a process has, which may be one it gave itself.
pub fn name(pid: u32) -> Result<String> {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm"))?;
    Ok(name.trim_end().to_owned())
}

/// The children of a process that have that name.
pub fn children(of: u32, named: &str) -> Result<Vec<u32>> {
    let is_child = |pid: &u32| {
        parent(*pid).is_ok_and(|parent| parent == of) && name(*pid).is_ok_and(|name| name == named)
    };
    Ok(all()?.into_iter().filter(is_child).collect())
}

/// The members of a process group.
pub fn group(leader: u32) -> Result<Vec<u32>> {
    let wanted = leader.to_string();
    let is_member = |pid: &u32| stat(*pid).is_ok_and(|stat| stat.get(2) == Some(&wanted));
    Ok(all()?.into_iter().filter(is_member).collect())
}

/// Resident memory, MiB.
pub fn resident(pid: u32) -> Result<f64> {
    memory(pid, "status", "VmRSS:")
}

/// The most memory that was ever resident, MiB.
pub fn peak(pid: u32) -> Result<f64> {
    memory(pid, "status", "VmHWM:")
}

/// Its share of the resident memory, where what several processes have in common is divided among them, MiB.
pub fn share(pid: u32) -> Result<f64> {
    memory(pid, "smaps_rollup", "Pss:")
}

/// The memory that it has changed and has for itself, MiB.
pub fn own(pid: u32) -> Result<f64> {
    memory(pid, "smaps_rollup", "Private_Dirty:")
}

fn memory(pid: u32, file: &str, field: &str) -> Result<f64> {
    let said = std::fs::read_to_string(format!("/proc/{pid}/{file}"))?;
    let line = said.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.with_context(|| format!("no {field}"))?;
    Ok(kib.trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
}

fn all() -> Result<Vec<u32>> {
    let entries = std::fs::read_dir("/proc")?.flatten();
    let pid = |entry: std::fs::DirEntry| entry.file_name().to_string_lossy().parse().ok();
    Ok(entries.filter_map(pid).collect())
}

/// Processes by their command lines.
pub fn find(wanted: impl Fn(&str) -> bool) -> Result<Vec<u32>> {
    let fits = |pid: &u32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        wanted(&String::from_utf8_lossy(&line))
    };
    Ok(all()?.into_iter().filter(fits).collect())
}

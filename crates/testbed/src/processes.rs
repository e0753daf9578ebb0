//! Finds and ends the processes of an instance. They are known by their command line, which names the instance's
//! directory: unlike a recorded process id it cannot come to mean somebody else.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// The hidden subcommands, outermost first.
pub(crate) const HOLD: &str = "__hold";
pub(crate) const INIT: &str = "__init";
pub(crate) const SUPERVISE: &str = "__supervise";

/// Processes with `role` and `dir` as neighbours on their command line. `unshare` and `setpriv`, which carry the
/// command line of what they start, count too.
pub(crate) fn find(role: &str, dir: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|pid| has_role(*pid, role, dir) && began(*pid).is_some())
        .collect()
}

fn has_role(pid: u32, role: &str, dir: &Path) -> bool {
    let Ok(line) = fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    let arguments: Vec<&[u8]> = line.split(|b| *b == 0).collect();
    arguments
        .windows(2)
        .any(|w| w[0] == role.as_bytes() && w[1] == dir.as_os_str().as_encoded_bytes())
}

/// When the process began, by which it is told from a later one with its id; `None` if it is gone or only waits to be
/// reaped.
fn began(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // the name in parentheses may itself contain spaces and parentheses
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    let began = fields.nth(18)?.to_owned();
    (!is_over).then_some(began)
}

/// The process that is pid 1 inside the namespaces.
pub(crate) fn init_of(dir: &Path) -> Option<u32> {
    find(INIT, dir).into_iter().find(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        // the innermost id comes last
        name.lines()
            .find(|l| l.starts_with("NSpid:"))
            .is_some_and(|l| l.split_whitespace().count() > 2 && l.ends_with("\t1"))
    })
}

/// Kills everything of the instance and waits until it is gone. Pid 1 of the namespace takes all others with it,
/// containers included.
pub(crate) fn end_all(dir: &Path) -> Result<()> {
    let give_up = Instant::now() + Duration::from_secs(30);
    // a process that is ending has lost its command line before it is gone, and the first that is killed takes
    // others along: all are noted before any is killed
    let mut ending: BTreeMap<u32, String> = BTreeMap::new();
    loop {
        let found = [HOLD, INIT, SUPERVISE]
            .iter()
            .flat_map(|role| find(role, dir));
        let found = found.filter(|pid| *pid != std::process::id());
        ending.extend(found.filter_map(|pid| Some((pid, began(pid)?))));
        ending.retain(|pid, then| began(*pid).as_ref() == Some(then));
        if ending.is_empty() {
            return Ok(());
        }
        for pid in ending.keys() {
            kill(*pid);
        }
        if Instant::now() > give_up {
            let left: Vec<_> = ending.keys().collect();
            bail!("processes {left:?} of {} do not end", dir.display());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills one process; one that is gone already is fine.
pub(crate) fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

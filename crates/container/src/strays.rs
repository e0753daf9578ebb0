//! Processes of containers that are not kept apart. Nothing but a mark in their environment says whose they are, and no
//! namespace ends with them: they are looked for, and killed one by one.

use std::path::Path;
use std::time::Duration;
use std::{fs, thread};

use crate::{process, sys};

/// The variable that names the directory of the container that a process belongs to.
pub(crate) const MARK: &str = "SANDBAR_CONTAINER";

/// Who forks while it is looked for is found the next time.
const ROUNDS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Kills all processes of the containers whose directories are below this one.
pub(crate) fn kill_marked(below: &Path) {
    until_none(|pid| is_marked(pid, below));
}

/// Kills all children of this process, and theirs, which become its own when they are orphans.
pub(crate) fn kill_children() {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    until_none(|pid| process::parent(pid) == Some(own));
}

fn until_none(is_one: impl Fn(i32) -> bool) {
    for _ in 0..ROUNDS {
        let found: Vec<i32> = processes().filter(|pid| is_one(*pid)).collect();
        if found.is_empty() && !processes().any(is_between_programs) {
            return;
        }
        for pid in found {
            let _ = sys::kill(pid, libc::SIGKILL);
        }
        thread::sleep(PAUSE);
    }
}

/// Who is about to run another program has no environment for a moment, and so no mark. Whoever was left alone by then is a
/// child of this process.
fn is_between_programs(pid: i32) -> bool {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let environment = fs::read(format!("/proc/{pid}/environ"));
    process::parent(pid) == Some(own)
        && environment.is_ok_and(|environment| environment.is_empty())
        // who has ended has no program
        && fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

fn processes() -> impl Iterator<Item = i32> {
    let own = i32::try_from(std::process::id()).unwrap_or_default();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.filter(move |pid| *pid != own)
}

/// The environment of who has ended is empty, and that of somebody else is not ours to read.
fn is_marked(pid: i32, below: &Path) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut variables = environment.split(|byte| *byte == 0);
    variables.any(|variable| {
        let text = str::from_utf8(variable).unwrap_or_default();
        let dir = text
            .strip_prefix(MARK)
            .and_then(|rest| rest.strip_prefix('='));
        dir.is_some_and(|dir| Path::new(dir).starts_with(below))
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::{Child, Command};

    use super::{MARK, kill_marked};

    fn marked(dir: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env(MARK, dir).spawn().unwrap()
    }

    #[test]
    fn only_processes_below_a_directory_are_killed() {
        let [mut ours, mut other, mut alike] =
            ["/strays/a/containers/x/0", "/strays/b", "/strays/ab"].map(marked);
        kill_marked(Path::new("/strays/a"));
        assert!(!ours.wait().unwrap().success());
        for spared in [&mut other, &mut alike] {
            assert!(spared.try_wait().unwrap().is_none());
            spared.kill().unwrap();
            spared.wait().unwrap();
        }
    }
}

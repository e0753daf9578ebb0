//! Which process is which: a process id alone does not say, because ids are used again.

use std::{fs, io};

use serde::{Deserialize, Serialize};

/// A process that cannot be taken for another one, not even after a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    /// Clock ticks from boot to the start of the process.
    pub(crate) started: u64,
    pub(crate) boot: String,
}

impl Identity {
    pub(crate) fn of(pid: i32) -> io::Result<Self> {
        Ok(Self {
            pid,
            started: read_stat(pid)?.started,
            boot: boot()?,
        })
    }

    /// Whether it still runs. One that has ended and waits to be reaped does not.
    pub(crate) fn is_alive(&self) -> bool {
        let same_boot = boot().is_ok_and(|boot| boot == self.boot);
        same_boot && read_stat(self.pid).is_ok_and(|s| s.started == self.started && !s.ended)
    }
}

/// The process that a process is a child of, unless it has ended.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = read_stat(pid).ok()?;
    (!stat.ended).then_some(stat.parent)
}

struct Stat {
    parent: i32,
    started: u64,
    ended: bool,
}

fn read_stat(pid: i32) -> io::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

/// The name of the program is in parentheses and may itself contain some: fields are counted from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
    })
}

fn boot() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?
        .trim()
        .to_owned())
}

#[cfg(test)]
mod tests {
    use super::{Identity, parse_stat};

    #[test]
    fn a_program_named_like_the_line_itself_is_read_right() {
        let line = "7 (a) Z 1 (b)) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 12345 99 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!((stat.started, stat.parent), (12345, 1));
        assert!(!stat.ended);
    }

    #[test]
    fn a_process_is_itself_and_no_other() {
        let me = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        let earlier = Identity {
            started: me.started - 1,
            ..me.clone()
        };
        assert!(!earlier.is_alive());
        let before_reboot = Identity {
            boot: "another".to_owned(),
            ..me
        };
        assert!(!before_reboot.is_alive());
    }
}

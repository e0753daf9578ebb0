//! `GET /metrics`: what the sandbox uses.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

const MIB: u64 = 1 << 20;

#[derive(Default)]
pub(super) struct Meter {
    last: Mutex<Ticks>,
}

#[derive(Clone, Copy, Default)]
struct Ticks {
    busy: u64,
    all: u64,
}

#[derive(Serialize)]
pub(super) struct Metrics {
    ts: u64,
    cpu_count: usize,
    cpu_used_pct: f64,
    mem_total: u64,
    mem_used: u64,
    mem_cache: u64,
    mem_total_mib: u64,
    mem_used_mib: u64,
    disk_used: u64,
    disk_total: u64,
}

impl Meter {
    /// The share of the processors is of the time since the last reading.
    pub(super) fn read(&self) -> Metrics {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let amount = |name| kilobytes(&meminfo, name).unwrap_or(0) * 1024;
        let total = amount("MemTotal");
        let used = total.saturating_sub(amount("MemAvailable"));
        let disk = rustix::fs::statvfs("/").ok();
        let (disk_total, disk_free) = disk.map_or((0, 0), |disk| {
            (disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize)
        });
        Metrics {
            ts: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            cpu_count: stat.lines().filter(|line| is_processor(line)).count(),
            cpu_used_pct: self.busy_share(ticks(&stat)),
            mem_total: total,
            mem_used: used,
            mem_cache: amount("Cached"),
            mem_total_mib: total / MIB,
            mem_used_mib: used / MIB,
            disk_used: disk_total.saturating_sub(disk_free),
            disk_total,
        }
    }

    fn busy_share(&self, now: Ticks) -> f64 {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *last, now);
        let all = now.all.saturating_sub(before.all);
        let busy = now.busy.saturating_sub(before.busy);
        if all == 0 {
            return 0.0;
        }
        #[allow(clippy::cast_precision_loss, reason = "a percentage of two digits")]
        let percent = 100.0 * busy as f64 / all as f64;
        (percent * 100.0).round() / 100.0
    }
}

fn is_processor(line: &str) -> bool {
    line.strip_prefix("cpu")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// Of all processors together. The last two fields, time given to guests, are contained in the first two.
fn ticks(stat: &str) -> Ticks {
    let line = stat.lines().next().unwrap_or_default();
    let fields: Vec<u64> = line
        .split_ascii_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    let idle: u64 = fields.iter().skip(3).take(2).sum();
    let all: u64 = fields.iter().sum();
    Ticks {
        busy: all - idle,
        all,
    }
}

fn kilobytes(meminfo: &str, name: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{Meter, kilobytes, ticks};

    #[test]
    fn the_share_of_processors_is_since_the_last_reading() {
        let meter = Meter::default();
        meter.busy_share(ticks("cpu  100 0 100 800 0 0 0 0 0 0\n"));
        let share = meter.busy_share(ticks("cpu  150 0 125 1025 0 0 0 0 0 0\n"));
        assert!((share - 25.0).abs() < f64::EPSILON, "{share}");
    }

    #[test]
    fn amounts_of_memory_are_found_by_their_whole_name() {
        let text = "MemTotal:       100 kB\nSwapCached:  7 kB\nCached:  5 kB\n";
        assert_eq!(kilobytes(text, "Cached"), Some(5));
        assert_eq!(kilobytes(text, "Mem"), None);
    }
}

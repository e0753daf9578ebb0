//! What the system knows of this process.

use k8s_openapi::jiff::Timestamp;

use super::text::Text;

/// Programs see times in hundredths of a second, however the kernel counts them.
const TICKS_A_SECOND: f64 = 100.0;

pub(super) fn write(to: &mut Text, started: Timestamp) {
    let start = started.as_duration().as_secs_f64();
    to.single(
        "process_start_time_seconds",
        "When the process started, in seconds since 1970.",
        "gauge",
        start,
    );
    let read = |file: &str| std::fs::read_to_string(format!("/proc/self/{file}")).ok();
    if let Some(seconds) = read("stat").as_deref().and_then(cpu_seconds) {
        let help = "CPU time used, in seconds.";
        to.single("process_cpu_seconds_total", help, "counter", seconds);
    }
    let status = read("status").unwrap_or_default();
    for (name, field, help) in [
        (
            "process_resident_memory_bytes",
            "VmRSS:",
            "Memory in use, in bytes.",
        ),
        (
            "process_virtual_memory_bytes",
            "VmSize:",
            "Memory mapped, in bytes.",
        ),
    ] {
        if let Some(bytes) = bytes(&status, field) {
            to.single(name, help, "gauge", bytes);
        }
    }
    if let Ok(files) = std::fs::read_dir("/proc/self/fd") {
        let help = "Files that are open.";
        to.single("process_open_fds", help, "gauge", files.count());
    }
}

/// Fields 14 and 15, counted from behind the name, which may hold anything.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_A_SECOND)
}

fn bytes(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    let kilobytes = line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::{bytes, cpu_seconds};

    #[test]
    fn times_are_found_behind_any_name() {
        let stat = "7 (a) 1 b) S 1 7 7 0 -1 4194560 2 0 0 0 150 25 0 0 20 0 1";
        assert_eq!(cpu_seconds(stat), Some(1.75));
        assert_eq!(cpu_seconds("nothing"), None);
    }

    #[test]
    fn memory_is_told_in_bytes() {
        let status = "Name:\tx\nVmSize:\t  2048 kB\nVmRSS:\t   12 kB\n";
        assert_eq!(bytes(status, "VmRSS:"), Some(12 * 1024));
        assert_eq!(bytes(status, "VmPeak:"), None);
    }
}

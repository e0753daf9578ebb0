//! Which file holds which limit, as pure functions.

use crate::settings::Limits;

const DEFAULT_PERIOD: u64 = 100_000;
/// The kernel takes no shorter one.
const MIN_QUOTA: u64 = 1_000;
/// Bounds of `cpu.shares`.
const SHARES: (u64, u64) = (2, 262_144);

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) file: &'static str,
    pub(super) value: String,
    /// Whether it does no harm if the kernel does not know it.
    pub(super) optional: bool,
}

fn setting(file: &'static str, limit: Option<u64>, unlimited: &str) -> Setting {
    Setting {
        file,
        value: limit.map_or_else(|| unlimited.to_owned(), |l| l.to_string()),
        optional: limit.is_none(),
    }
}

pub(super) fn v1(limits: &Limits, controllers: &[String]) -> Vec<Setting> {
    let has = |name: &str| controllers.iter().any(|c| c == name);
    let mut settings = Vec::new();
    if has("cpu") {
        let shares = limits.cpu_shares.map(|s| s.clamp(SHARES.0, SHARES.1));
        settings.push(setting("cpu.shares", shares, "1024"));
        settings.push(Setting {
            file: "cpu.cfs_period_us",
            value: period(limits).to_string(),
            optional: limits.cpu_quota.is_none(),
        });
        settings.push(setting("cpu.cfs_quota_us", quota(limits), "-1"));
    }
    if has("memory") {
        settings.push(setting("memory.limit_in_bytes", limits.memory, "-1"));
        // memory and swap together: no swap beyond the limit. Absent where the kernel does not account swap
        let both = setting("memory.memsw.limit_in_bytes", limits.memory, "-1");
        settings.push(Setting {
            optional: true,
            ..both
        });
    }
    if has("pids") {
        settings.push(setting("pids.max", limits.pids, "max"));
    }
    settings
}

pub(super) fn v2(limits: &Limits) -> Vec<Setting> {
    let weight = limits.cpu_shares.map(weight_of_shares);
    let quota = quota(limits).map_or("max".to_owned(), |q| q.to_string());
    let swap = limits.memory.map(|_| 0);
    let group = limits.memory.map(|_| 1);
    let mut settings = vec![
        setting("cpu.weight", weight, "100"),
        Setting {
            file: "cpu.max",
            value: format!("{quota} {}", period(limits)),
            optional: limits.cpu_quota.is_none(),
        },
        setting("memory.max", limits.memory, "max"),
        setting("memory.swap.max", swap, "max"),
        // half a container is worse than none
        setting("memory.oom.group", group, "0"),
        setting("pids.max", limits.pids, "max"),
    ];
    for setting in &mut settings {
        setting.optional |= matches!(setting.file, "memory.swap.max" | "memory.oom.group");
    }
    settings
}

fn period(limits: &Limits) -> u64 {
    limits.cpu_period.unwrap_or(DEFAULT_PERIOD)
}

fn quota(limits: &Limits) -> Option<u64> {
    limits.cpu_quota.map(|q| q.max(MIN_QUOTA))
}

/// From 2…262144 to 1…10000, as every container runtime does it.
fn weight_of_shares(shares: u64) -> u64 {
    let shares = shares.clamp(SHARES.0, SHARES.1);
    1 + (shares - SHARES.0) * 9_999 / (SHARES.1 - SHARES.0)
}

#[cfg(test)]
mod tests {
    use super::{Setting, v1, v2};
    use crate::settings::Limits;

    fn limits() -> Limits {
        Limits {
            cpu_shares: Some(512),
            cpu_quota: Some(50_000),
            cpu_period: None,
            memory: Some(1 << 20),
            pids: Some(64),
        }
    }

    fn values(settings: &[Setting]) -> Vec<(&str, &str)> {
        settings
            .iter()
            .map(|s| (s.file, s.value.as_str()))
            .collect()
    }

    #[test]
    fn version_1_sets_what_the_hierarchy_controls() {
        let all = ["cpu", "memory", "pids"].map(str::to_owned);
        let expected = [
            ("cpu.shares", "512"),
            ("cpu.cfs_period_us", "100000"),
            ("cpu.cfs_quota_us", "50000"),
            ("memory.limit_in_bytes", "1048576"),
            ("memory.memsw.limit_in_bytes", "1048576"),
            ("pids.max", "64"),
        ];
        assert_eq!(values(&v1(&limits(), &all)), expected);
        assert_eq!(values(&v1(&limits(), &all[2..])), [("pids.max", "64")]);
    }

    #[test]
    fn version_2_sets_all_in_its_own_units() {
        let expected = [
            ("cpu.weight", "20"),
            ("cpu.max", "50000 100000"),
            ("memory.max", "1048576"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("pids.max", "64"),
        ];
        assert_eq!(values(&v2(&limits())), expected);
    }

    #[test]
    fn no_limit_lifts_what_was_there_and_needs_no_file() {
        let all = ["cpu", "memory", "pids"].map(str::to_owned);
        let none = Limits::default();
        assert!(values(&v2(&none)).contains(&("memory.max", "max")));
        assert!(values(&v1(&none, &all)).contains(&("cpu.cfs_quota_us", "-1")));
        let needed = v2(&none).into_iter().filter(|s| !s.optional).count();
        assert_eq!(needed, 0);
    }
}

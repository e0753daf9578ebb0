//! How much of the machine one sandbox of the default pool may use.

use std::{fmt, path::Path, str::FromStr};

use anyhow::{Context as _, Result};
use quantity::Quantity;
use rustix::{fs::statvfs, system::sysinfo};
use serde_json::{Map, Value, json};

use super::isolation::Isolation;

/// Of the machine's memory, and of the free part of its disk, a sandbox may have one in so many: the pool that `sandbar up` begins
/// with and a claimed sandbox can all have their fill, and something is left.
const PART: u64 = 4;
/// On whatever machine: less than this and the base image hardly works.
const LEAST: u64 = 64 * MI;
const MI: u64 = 1 << 20;
const GI: u64 = 1 << 30;

/// What was asked for by a flag: an amount, or `none` for no limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish(Option<String>);

impl FromStr for Wish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let remedy = "give an amount such as 2Gi or 500Mi, or none for no limit";
        let amount = Quantity::parse(text).map_err(|error| format!("{error}: {remedy}"))?;
        let least = i64::try_from(MI).unwrap_or(i64::MAX);
        match amount.value() >= least {
            true => Ok(Self(Some(amount.to_string()))),
            false => Err(format!("it is less than 1Mi: {remedy}")),
        }
    }
}

#[derive(clap::Args)]
pub(super) struct Wishes {
    /// How much memory a sandbox of the pool `base` may use, such as 2Gi, or none for no limit; it counts when the pool is made
    /// [default: a quarter of this machine's]
    #[arg(long, value_name = "AMOUNT")]
    pool_memory: Option<Wish>,
    /// How much a sandbox of the pool `base` may keep on disk outside of claimed volumes, such as 10Gi, or none for no limit; it
    /// counts when the pool is made [default: a quarter of what is free]
    #[arg(long, value_name = "AMOUNT")]
    pool_disk: Option<Wish>,
}

impl Wishes {
    /// The flags that were given.
    pub(super) fn given(&self) -> Vec<&'static str> {
        let Self {
            pool_memory,
            pool_disk,
        } = self;
        let all = [("--pool-memory", pool_memory), ("--pool-disk", pool_disk)];
        let given = all.into_iter().filter(|(_, wish)| wish.is_some());
        given.map(|(flag, _)| flag).collect()
    }

    /// For an instance that keeps its data in a directory.
    pub(super) fn limits(&self, isolation: Isolation, directory: &Path) -> Result<Limits> {
        let memory = match &self.pool_memory {
            Some(Wish(limit)) => limit.clone(),
            // without cgroups nobody could hold to it, and every sandbox would say so
            None if !isolation.has_cgroups() => None,
            None => {
                let machine = sysinfo();
                let unit = u64::from(machine.mem_unit);
                Some(part_of(machine.totalram.saturating_mul(unit)))
            }
        };
        let disk = match &self.pool_disk {
            Some(Wish(limit)) => limit.clone(),
            None => {
                let disk = statvfs(directory);
                let disk = disk.with_context(|| format!("looking at {}", directory.display()))?;
                Some(part_of(disk.f_bavail.saturating_mul(disk.f_frsize)))
            }
        };
        Ok(Limits { memory, disk })
    }
}

/// In whole gibibytes where there are some.
fn part_of(bytes: u64) -> String {
    match (bytes / PART).max(LEAST) {
        few @ ..GI => format!("{}Mi", few / MI),
        few if few < 4 * GI => format!("{}Mi", few / (GI / 4) * 256),
        many => format!("{}Gi", many / GI),
    }
}

/// What one sandbox may use at most; what is not there is not limited.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory: Option<String>,
    pub(super) disk: Option<String>,
}

impl Limits {
    /// As a container has them. It asks for nothing: otherwise it would be taken to ask for as much as it may have.
    pub(super) fn resources(&self) -> Value {
        let limits = self.named().filter_map(|(name, amount)| {
            let amount = amount.as_ref()?;
            Some((name.to_owned(), json!(amount)))
        });
        let limits: Map<String, Value> = limits.collect();
        let requests = limits.keys().map(|name| (name.clone(), json!("0")));
        let requests: Map<String, Value> = requests.collect();
        match limits.is_empty() {
            true => json!({}),
            false => json!({"limits": limits, "requests": requests}),
        }
    }

    /// Those of a container.
    pub(super) fn of(container: &Value) -> Self {
        let limit = |name: &str| {
            let limit = &container["resources"]["limits"][name];
            limit.as_str().map(str::to_owned)
        };
        Self {
            memory: limit("memory"),
            disk: limit("ephemeral-storage"),
        }
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &Option<String>)> {
        [("memory", &self.memory), ("ephemeral-storage", &self.disk)].into_iter()
    }
}

impl fmt::Display for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.memory, &self.disk) {
            (Some(memory), Some(disk)) => {
                write!(f, "up to {memory} of memory and {disk} of disk each")
            }
            (Some(memory), None) => write!(f, "up to {memory} of memory each, no limit of disk"),
            (None, Some(disk)) => write!(f, "up to {disk} of disk each, no limit of memory"),
            (None, None) => write!(f, "no limits of memory and disk"),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use serde_json::json;

    use super::{GI, Limits, MI, Wish, part_of};

    #[test]
    fn a_sandbox_may_have_a_quarter_of_the_machine_in_round_numbers() {
        for (bytes, expected) in [
            (0, "64Mi"),
            (2 * GI, "512Mi"),
            (8 * GI - 500 * MI, "1792Mi"),
            (8 * GI, "2048Mi"),
            (24 * GI - 400 * MI, "5Gi"),
            (78 * GI, "19Gi"),
        ] {
            assert_eq!(part_of(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn what_is_asked_for_is_an_amount_or_none() {
        let wish = |text: &str| text.parse::<Wish>();
        assert_eq!(wish("none").unwrap(), Wish(None));
        assert_eq!(wish("1.5Gi").unwrap(), Wish(Some("1536Mi".to_owned())));
        for text in ["lots", "", "0", "-1Gi", "5", "500m"] {
            let error = wish(text).unwrap_err();
            assert!(
                error.contains("2Gi") && error.contains("none"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn limits_of_a_template_are_read_as_they_were_written() {
        for (memory, disk) in [
            (Some("1Gi"), Some("2Gi")),
            (Some("1Gi"), None),
            (None, Some("2Gi")),
            (None, None),
        ] {
            let limits = Limits {
                memory: memory.map(str::to_owned),
                disk: disk.map(str::to_owned),
            };
            let container = json!({"resources": limits.resources()});
            assert_eq!(Limits::of(&container), limits);
        }
    }
}

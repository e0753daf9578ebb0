//! What a run of claims costs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use testbed::{Mark, Write, Writes};

/// Programs whose writes are nobody's under measurement.
const OTHERS: [&str; 5] = [
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kwok",
    "bench",
];

/// Which writes are the controller's.
#[derive(Clone, Default)]
pub(crate) struct Writer {
    /// The beginning of its user agent; without it, everybody whom we do not know.
    pub(crate) agent: Option<String>,
}

impl Writer {
    fn made(&self, write: &Write) -> bool {
        // a lease is renewed by the clock, whether there are claims or not
        if write.resource == "leases" {
            return false;
        }
        match &self.agent {
            Some(agent) => write.user_agent.starts_with(agent.as_str()),
            None => !OTHERS.contains(&program(write)),
        }
    }

    pub(crate) fn count(&self, writes: &Writes) -> Counts {
        let mut counts = Counts::default();
        for write in &writes.0 {
            let kind = format!("{} {}", write.verb, write.resource);
            if !self.made(write) {
                let other = format!("{} {kind}", program(write));
                *counts.others.entry(other).or_default() += 1;
                continue;
            }
            *counts.agents.entry(write.user_agent.clone()).or_default() += 1;
            match write.code {
                200..300 => {
                    counts.done += 1;
                    *counts.kinds.entry(kind).or_default() += 1;
                }
                409 => counts.conflicts += 1,
                _ => counts.refused += 1,
            }
        }
        counts
    }
}

fn program(write: &Write) -> &str {
    let mut words = write.user_agent.split(['/', ' ']);
    words.next().unwrap_or_default()
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Writes that succeeded, events among them.
    pub(crate) done: usize,
    pub(crate) conflicts: usize,
    pub(crate) refused: usize,
    /// What succeeded, by verb and resource.
    pub(crate) kinds: BTreeMap<String, usize>,
    pub(crate) agents: BTreeMap<String, usize>,
    /// What everybody else wrote, by program, verb and resource.
    pub(crate) others: BTreeMap<String, usize>,
}

/// Everything that is counted, at one moment.
#[derive(Clone)]
pub(crate) struct Reading {
    pub(crate) at: Instant,
    pub(crate) mark: Mark,
    pub(crate) api_server: Duration,
    pub(crate) controller: Duration,
    pub(crate) reconciles: Option<f64>,
}

/// Processor seconds a second when nothing happens.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Idle {
    pub(crate) api_server: f64,
    pub(crate) controller: f64,
}

impl Idle {
    pub(crate) fn between(first: &Reading, last: &Reading) -> Self {
        let seconds = (last.at - first.at).as_secs_f64();
        let share = |used: Duration| used.as_secs_f64() / seconds;
        Self {
            api_server: share(last.api_server.saturating_sub(first.api_server)),
            controller: share(last.controller.saturating_sub(first.controller)),
        }
    }
}

/// Of one claim, its refill included.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    pub(crate) writes: f64,
    pub(crate) conflicts: f64,
    pub(crate) refused: f64,
    pub(crate) reconciles: Option<f64>,
    /// Milliseconds of processor time beyond what idling costs.
    pub(crate) api_server: f64,
    pub(crate) controller: f64,
    pub(crate) kinds: BTreeMap<String, f64>,
    pub(crate) agents: Vec<String>,
    pub(crate) others: BTreeMap<String, f64>,
}

impl Cost {
    pub(crate) fn of(
        claims: usize,
        counts: Counts,
        first: &Reading,
        last: &Reading,
        idle: Idle,
    ) -> Self {
        let claims = claims.max(1) as f64;
        let seconds = (last.at - first.at).as_secs_f64();
        let millis = |used: Duration, idle: f64| {
            ((used.as_secs_f64() - idle * seconds) * 1e3 / claims).max(0.0)
        };
        let reconciles = last.reconciles.zip(first.reconciles);
        let each = |counts: BTreeMap<String, usize>| {
            let each = counts.into_iter();
            each.map(|(what, count)| (what, count as f64 / claims))
                .collect()
        };
        Self {
            writes: counts.done as f64 / claims,
            conflicts: counts.conflicts as f64 / claims,
            refused: counts.refused as f64 / claims,
            reconciles: reconciles.map(|(last, first)| (last - first) / claims),
            api_server: millis(last.api_server - first.api_server, idle.api_server),
            controller: millis(last.controller - first.controller, idle.controller),
            kinds: each(counts.kinds),
            agents: counts.agents.into_keys().collect(),
            others: each(counts.others),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Idle, Reading, Writer};
    use std::time::{Duration, Instant};
    use testbed::{Mark, Write, Writes};

    fn write(agent: &str, verb: &str, resource: &str, code: u16) -> Write {
        Write {
            user_agent: agent.to_owned(),
            user: "admin".to_owned(),
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: "default".to_owned(),
            name: "a".to_owned(),
            code,
        }
    }

    fn log() -> Writes {
        Writes(vec![
            write("sandbar/0.1", "patch", "sandboxes", 200),
            write("sandbar/0.1", "patch", "sandboxclaims/status", 200),
            write("sandbar/0.1", "patch", "sandboxclaims/status", 409),
            write("sandbar/0.1", "delete", "sandboxes", 404),
            write("sandbar/0.1", "create", "events", 201),
            write("sandbar/0.1", "update", "leases", 200),
            write("kwok/v0.8.0 (linux)", "patch", "pods/status", 200),
            write(
                "kube-controller-manager/v1.36.3 (linux)",
                "delete",
                "pods",
                200,
            ),
            write("bench/1", "create", "sandboxclaims", 201),
            write("", "create", "pods", 201),
        ])
    }

    #[test]
    fn only_the_controllers_writes_count_and_conflicts_are_apart() {
        let counts = Writer::default().count(&log());
        assert_eq!((counts.done, counts.conflicts, counts.refused), (4, 1, 1));
        assert_eq!(counts.kinds["create events"], 1);
        assert_eq!(counts.agents["sandbar/0.1"], 5);
        assert_eq!(counts.others["kwok patch pods/status"], 1);
    }

    #[test]
    fn a_user_agent_can_be_named() {
        let agent = Some("sandbar".to_owned());
        assert_eq!(Writer { agent }.count(&log()).done, 3);
    }

    #[test]
    fn idling_is_taken_off_what_a_claim_costs() {
        let begin = Instant::now();
        let reading = |seconds: u64, api_server: u64, reconciles: f64| Reading {
            at: begin + Duration::from_secs(seconds),
            mark: Mark::default(),
            api_server: Duration::from_millis(api_server),
            controller: Duration::from_millis(api_server / 10),
            reconciles: Some(reconciles),
        };
        let idle = Idle::between(&reading(0, 0, 0.0), &reading(10, 500, 0.0));
        let counts = Writer::default().count(&log());
        let (first, last) = (reading(10, 500, 10.0), reading(20, 2000, 70.0));
        let cost = Cost::of(10, counts, &first, &last, idle);
        assert!((cost.api_server - 100.0).abs() < 1e-6, "{cost:?}");
        assert!((cost.controller - 10.0).abs() < 1e-6, "{cost:?}");
        assert_eq!(cost.reconciles, Some(6.0));
        assert!((cost.writes - 0.4).abs() < 1e-6);
    }
}

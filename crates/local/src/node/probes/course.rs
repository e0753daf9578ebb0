//! What follows from the answers to probes: which findings, and which questions next. Pure.

use k8s_openapi::api::core::v1::{Container, Probe};

use super::Finding;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Startup,
    Liveness,
    Readiness,
}

impl Kind {
    /// As events begin with it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Liveness => "Liveness",
            Kind::Readiness => "Readiness",
        }
    }

    pub(super) fn probe(self, container: &Container) -> Option<&Probe> {
        match self {
            Kind::Startup => container.startup_probe.as_ref(),
            Kind::Liveness => container.liveness_probe.as_ref(),
            Kind::Readiness => container.readiness_probe.as_ref(),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Good,
    Bad(String),
    /// The question could not even be asked. It does not count, for or against.
    Unknown(String),
}

/// What is to be said, and which probes are to be asked, or asked again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    pub(super) findings: Vec<Finding>,
    pub(super) ask: Vec<Kind>,
}

/// The probes of one run of a container.
pub(super) struct Course {
    startup: Option<Tally>,
    liveness: Option<Tally>,
    readiness: Option<Tally>,
    /// Nothing before the first verdict: what was said of the container by another process is not known here.
    is_ready: Option<bool>,
}

impl Course {
    pub(super) fn of(container: &Container) -> Self {
        let tally = |kind: Kind| kind.probe(container).map(Tally::of);
        Self {
            startup: tally(Kind::Startup),
            liveness: tally(Kind::Liveness),
            readiness: tally(Kind::Readiness),
            is_ready: None,
        }
    }

    pub(super) fn begin(&mut self) -> Heard {
        match self.startup {
            Some(_) => Heard {
                findings: Vec::new(),
                ask: vec![Kind::Startup],
            },
            None => self.started(),
        }
    }

    /// The other probes wait for this.
    fn started(&mut self) -> Heard {
        let mut heard = Heard {
            findings: vec![Finding::Started],
            ask: Vec::new(),
        };
        if self.liveness.is_some() {
            heard.ask.push(Kind::Liveness);
        }
        match self.readiness {
            Some(_) => heard.ask.push(Kind::Readiness),
            None => heard.findings.extend(self.turn(true)),
        }
        heard
    }

    pub(super) fn hear(&mut self, kind: Kind, answer: Answer) -> Heard {
        let tally = match kind {
            Kind::Startup => &mut self.startup,
            Kind::Liveness => &mut self.liveness,
            Kind::Readiness => &mut self.readiness,
        };
        let Some(tally) = tally else {
            return Heard::default();
        };
        let verdict = match &answer {
            Answer::Good => tally.count(true),
            Answer::Bad(_) => tally.count(false),
            Answer::Unknown(_) => None,
        };
        let grace = tally.grace;
        let mut heard = Heard {
            findings: Vec::new(),
            ask: vec![kind],
        };
        let kills = verdict == Some(false) && kind != Kind::Readiness;
        if let Some(message) = complaint(kind, answer) {
            heard.findings.push(Finding::Unhealthy {
                probe: kind.name(),
                message,
                kill: kills,
                grace: grace.filter(|_| kills),
            });
        }
        match (kind, verdict) {
            // whoever is to be killed has been asked enough
            (Kind::Startup | Kind::Liveness, Some(false)) => heard.ask = Vec::new(),
            (Kind::Startup, Some(true)) => return self.started(),
            (Kind::Readiness, Some(is_ready)) => heard.findings.extend(self.turn(is_ready)),
            (Kind::Liveness, Some(true)) | (_, None) => {}
        }
        heard
    }

    /// Only changes are told.
    fn turn(&mut self, is_ready: bool) -> Option<Finding> {
        let was_ready = self.is_ready.replace(is_ready);
        (was_ready != Some(is_ready)).then_some(Finding::Ready(is_ready))
    }
}

fn complaint(kind: Kind, answer: Answer) -> Option<String> {
    let name = kind.name();
    match answer {
        Answer::Good => None,
        Answer::Bad(why) => Some(format!("{name} probe failed: {why}")),
        Answer::Unknown(why) => Some(format!(
            "{name} probe errored and resulted in unknown state: {why}"
        )),
    }
}

/// Counts answers that agree with each other.
struct Tally {
    successes: i32,
    failures: i32,
    grace: Option<i64>,
    last: Option<bool>,
    run: i32,
}

impl Tally {
    fn of(probe: &Probe) -> Self {
        Self {
            successes: probe.success_threshold.unwrap_or(1),
            failures: probe.failure_threshold.unwrap_or(3),
            grace: probe.termination_grace_period_seconds,
            last: None,
            run: 0,
        }
    }

    /// The answer, once it has been the same often enough.
    fn count(&mut self, answer: bool) -> Option<bool> {
        self.run = match self.last == Some(answer) {
            true => self.run.saturating_add(1),
            false => 1,
        };
        self.last = Some(answer);
        let needed = match answer {
            true => self.successes,
            false => self.failures,
        };
        (self.run >= needed).then_some(answer)
    }
}

#[cfg(test)]
mod tests;

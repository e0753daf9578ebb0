//! What is to be done about a pod on this machine. Pure: time and all that is known are arguments.

use std::time::Duration;

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodSpec, ResourceRequirements},
    jiff::{SignedDuration, Timestamp},
};

use super::facts::{End, Facts, Health, Inmate, Run, Setback, Shell};
use crate::{
    clock::after,
    kubelet::{
        container::{Role, back_off, is_forgiven, restarts},
        plan::restart_policy,
        resize::{needs_restart, wanted},
        status::role_of_init,
    },
};

/// The first wait after something that a registry, or the container itself, has to mend.
const FOREIGN: Duration = Duration::from_secs(10);
const LONGEST_FOREIGN: Duration = Duration::from_secs(300);
/// The first wait after something that is missing here, and may be there in a moment.
const OWN: Duration = Duration::from_secs(1);
/// So often a kubelet looks again.
const LONGEST_OWN: Duration = Duration::from_secs(60);
const DEFAULT_GRACE: i64 = 30;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Makes what the containers live in.
    Make,
    Start {
        name: String,
    },
    Stop {
        name: String,
        grace: Duration,
    },
    Resize {
        name: String,
    },
    /// Ends all containers by then, and what they live in.
    End {
        by: Timestamp,
    },
}

#[derive(Debug, Default, PartialEq)]
pub(crate) struct Next {
    pub(crate) steps: Vec<Step>,
    /// When to ask again if nothing happens.
    pub(crate) wake: Option<Timestamp>,
}

/// The container that a new pod begins with.
pub(crate) fn first(spec: &PodSpec) -> Option<String> {
    let inits = spec.init_containers.iter().flatten();
    let mut all = inits.chain(&spec.containers);
    all.next().map(|container| container.name.clone())
}

/// What to do about a pod.
pub(crate) fn next(pod: &Pod, facts: &Facts, now: Timestamp) -> Next {
    let Some(spec) = &pod.spec else {
        return Next::default();
    };
    if let Some(by) = end_by(pod, spec, facts, now) {
        let is_there = matches!(facts.shell, Shell::Whole { .. } | Shell::Ending);
        return Next {
            steps: is_there.then_some(Step::End { by }).into_iter().collect(),
            wake: None,
        };
    }
    let mut next = Next::default();
    match &facts.shell {
        Shell::Absent => next.steps.push(Step::Make),
        Shell::Broken(setback) => next.at(retry(setback), now, Step::Make),
        Shell::Making | Shell::Ending | Shell::Ended => {}
        Shell::Whole { number, .. } => {
            let mut crew = Crew {
                spec,
                facts,
                shell: *number,
                now,
                next,
            };
            crew.advance();
            next = crew.next;
        }
    }
    next.wake = next.wake.into_iter().chain(deadline(pod, spec)).min();
    next
}

impl Next {
    fn at(&mut self, due: Timestamp, now: Timestamp, step: Step) {
        if due <= now {
            self.steps.push(step);
        } else {
            self.wake = self.wake.into_iter().chain([due]).min();
        }
    }
}

/// By when everything in the pod has to end, if it has to.
fn end_by(pod: &Pod, spec: &PodSpec, facts: &Facts, now: Timestamp) -> Option<Timestamp> {
    if let Some(deleted) = &pod.metadata.deletion_timestamp {
        return Some(deleted.0);
    }
    if facts.rejected.is_some() {
        return Some(now);
    }
    // like a kubelet, without grace: whoever fills the disk gets no time to go on
    if facts.evicted.is_some() {
        return Some(now);
    }
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    let is_over = matches!(phase, Some("Succeeded" | "Failed")) || is_finished(spec, facts);
    (is_over || is_late(pod, spec, now)).then(|| after(now, grace(spec)))
}

/// Whether the pod has run for longer than it may.
pub(crate) fn is_late(pod: &Pod, spec: &PodSpec, now: Timestamp) -> bool {
    deadline(pod, spec).is_some_and(|deadline| deadline <= now)
}

fn deadline(pod: &Pod, spec: &PodSpec) -> Option<Timestamp> {
    let seconds = spec.active_deadline_seconds?;
    let start = pod.status.as_ref()?.start_time.as_ref()?;
    start.0.checked_add(SignedDuration::from_secs(seconds)).ok()
}

pub(crate) fn grace(spec: &PodSpec) -> Duration {
    seconds(
        spec.termination_grace_period_seconds
            .unwrap_or(DEFAULT_GRACE),
    )
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
}

/// Whether no container of the pod will ever run again by itself.
pub(crate) fn is_finished(spec: &PodSpec, facts: &Facts) -> bool {
    let policy = restart_policy(spec);
    let is_over = |container: &Container, role| {
        let inmate = facts.containers.get(&container.name);
        let run = inmate.and_then(|inmate| inmate.run.as_ref());
        run.and_then(|run| Some((run, run.end.as_ref()?)))
            .filter(|(run, end)| !is_changed(container, run) && !restarts(role, policy, end.code))
            .map(|(_, end)| end.code)
    };
    let mut inits = spec.init_containers.iter().flatten();
    let has_failed = inits.any(|init| {
        let role = role_of_init(spec, &init.name);
        role == Role::Init && is_over(init, role).is_some_and(|code| code != 0)
    });
    let mut apps = spec.containers.iter();
    has_failed || apps.all(|app| is_over(app, Role::App).is_some())
}

/// All containers, each with those that have to have ended before it is asked to.
pub(crate) fn ends(spec: &PodSpec) -> impl Iterator<Item = (&Container, Vec<&str>)> {
    let inits = spec.init_containers.iter().flatten();
    // what starts first is needed by all that come later
    let all: Vec<&Container> = inits.chain(&spec.containers).collect();
    (0..all.len()).map(move |at| {
        let is_sidecar = role_of_init(spec, &all[at].name) == Role::Sidecar;
        let later = if is_sidecar { &all[at + 1..] } else { &[] };
        (all[at], later.iter().map(|one| one.name.as_str()).collect())
    })
}

/// Whether a container is wanted with another image than it was started with.
fn is_changed(container: &Container, run: &Run) -> bool {
    container.image.as_ref() != Some(&run.made.image)
}

fn retry(setback: &Setback) -> Timestamp {
    let (first, longest) = match setback.trouble.reason {
        "ErrImagePull" | "RunContainerError" | "PostStartHookError" => (FOREIGN, LONGEST_FOREIGN),
        _ => (OWN, LONGEST_OWN),
    };
    let doublings = setback.times.saturating_sub(1).min(10);
    after(
        setback.at,
        first.saturating_mul(1 << doublings).min(longest),
    )
}

/// The containers of a pod, in the order in which they start.
struct Crew<'a> {
    spec: &'a PodSpec,
    facts: &'a Facts,
    /// The number of what they live in.
    shell: u32,
    now: Timestamp,
    next: Next,
}

impl Crew<'_> {
    fn advance(&mut self) {
        let apps_began = self.spec.containers.iter().any(|app| {
            let inmate = self.facts.containers.get(&app.name);
            let run = inmate.and_then(|inmate| inmate.run.as_ref());
            run.is_some_and(|run| run.made.shell == self.shell)
        });
        for init in self.spec.init_containers.iter().flatten() {
            let role = role_of_init(self.spec, &init.name);
            if role == Role::Init && apps_began {
                continue;
            }
            let is_through = self.init(init, role);
            if !is_through && !apps_began {
                return;
            }
        }
        for app in &self.spec.containers {
            self.step(app, Role::App);
        }
    }

    /// Whether the containers after this one may start.
    fn init(&mut self, init: &Container, role: Role) -> bool {
        let inmate = self.facts.containers.get(&init.name);
        if role == Role::Init
            && let Some(run) = inmate.and_then(|inmate| inmate.run.as_ref())
            && run.end.as_ref().is_some_and(|end| end.code == 0)
            && run.made.shell == self.shell
        {
            return true;
        }
        self.step(init, role);
        role == Role::Sidecar
            && inmate.is_some_and(|inmate| inmate.alive().is_some() && inmate.health.started)
    }

    fn step(&mut self, container: &Container, role: Role) {
        let absent = Inmate::default();
        let inmate = self.facts.containers.get(&container.name);
        let inmate = inmate.unwrap_or(&absent);
        if inmate.busy.is_some() {
            return;
        }
        match (inmate.alive(), &inmate.run) {
            (Some(run), _) => self.tend(container, role, inmate, run),
            (None, run) => self.start(container, role, inmate, run.as_ref()),
        }
    }

    fn tend(&mut self, container: &Container, role: Role, inmate: &Inmate, run: &Run) {
        let name = container.name.clone();
        if let Health {
            lost: Some(own), ..
        } = inmate.health
        {
            let grace = own.map_or_else(|| grace(self.spec), seconds);
            return self.next.steps.push(Step::Stop { name, grace });
        }
        if role == Role::Init {
            return;
        }
        let grace = grace(self.spec);
        if is_changed(container, run) {
            return self.next.steps.push(Step::Stop { name, grace });
        }
        let wanted = wanted(container);
        if is_same(&wanted, &run.made.resources) {
            return;
        }
        if needs_restart(container, Some(&run.made.resources), &wanted) {
            return self.next.steps.push(Step::Stop { name, grace });
        }
        let due = inmate.setback.as_ref().map_or(self.now, retry);
        self.next.at(due, self.now, Step::Resize { name });
    }

    fn start(&mut self, container: &Container, role: Role, inmate: &Inmate, run: Option<&Run>) {
        let setback = inmate.setback.as_ref();
        // another image may work at once
        let setback = setback.filter(|_| inmate.tried == container.image);
        let mut due = setback.map_or(self.now, retry);
        if let Some(run) = run
            && let Some(end) = &run.end
        {
            match self.again(container, role, run, end) {
                Some(time) => due = due.max(time),
                None => return,
            }
        }
        let name = container.name.clone();
        self.next.at(due, self.now, Step::Start { name });
    }

    /// When a container that has ended starts again, if it does.
    fn again(&self, container: &Container, role: Role, run: &Run, end: &End) -> Option<Timestamp> {
        if is_changed(container, run) || !is_same(&wanted(container), &run.made.resources) {
            return Some(end.at);
        }
        // what it lived in has ended with it, so an init container has to do its work again
        let is_of_another_shell = run.made.shell != self.shell;
        if is_of_another_shell && role == Role::Init {
            return Some(end.at);
        }
        if !restarts(role, restart_policy(self.spec), end.code) {
            return None;
        }
        Some(match is_of_another_shell {
            true => end.at,
            false => resting_until(run, end),
        })
    }
}

/// Until when a container that ended by itself is kept from starting again.
pub(crate) fn resting_until(run: &Run, end: &End) -> Timestamp {
    let ran = run.terminated("", "").unwrap_or_default();
    let crashes = i32::try_from(run.made.crashes).unwrap_or(i32::MAX);
    after(end.at, back_off(crashes, &ran))
}

/// How often in a row a container has ended by itself before the run that begins now. What is asked for anew, by an image, by sizes
/// or by another shell, begins anew; a long run is forgiven all that was before it.
pub(crate) fn crashes(container: &Container, inmate: &Inmate, shell: u32) -> u32 {
    let ended = inmate.run.as_ref().filter(|run| run.end.is_some());
    let Some(run) = ended else {
        return 0;
    };
    let is_another = is_changed(container, run)
        || !is_same(&wanted(container), &run.made.resources)
        || run.made.shell != shell;
    let ran = run.terminated("", "").unwrap_or_default();
    match (is_another, is_forgiven(&ran)) {
        (true, _) => 0,
        (false, true) => 1,
        (false, false) => run.made.crashes.saturating_add(1),
    }
}

/// Whether two sets of resources ask for the same: an absent part is an empty one.
pub(crate) fn is_same(one: &ResourceRequirements, other: &ResourceRequirements) -> bool {
    let limits = |of: &ResourceRequirements| of.limits.clone().unwrap_or_default();
    let requests = |of: &ResourceRequirements| of.requests.clone().unwrap_or_default();
    limits(one) == limits(other) && requests(one) == requests(other)
}

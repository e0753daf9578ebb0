//! What is to be done next about a sandbox.
//!
//! A decision is one act. After it the world is looked at again, so that what one act brings about is what the next
//! decision sees, whether this process did it or one before it.

use std::{
    collections::BTreeMap,
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::{
    open::known,
    sigs::{
        shared::{Blueprint, SandboxShutdownPolicy},
        v1beta1::SandboxStatus,
    },
};
use engine::{
    expiry::{self, Expiry, SandboxEffect, SandboxPolicy},
    in_place::Platform,
};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    parts::{self, PodMetadata, Standing, standing},
    status::{self, Findings, PodState, ServiceState, Updating},
    update::{Endpoint, Whole},
    view::{Pod, Sandbox, Service, Volume},
};
use crate::{
    clock::after,
    events::News,
    meta::Meta,
    queue::Next,
    sigs::{names, pool::member},
    write::Guard,
};

/// For how long it is no news that a member of a pool is not ready.
const QUIET: Duration = Duration::from_secs(10);

/// What one pass knows.
#[derive(Debug)]
pub struct World<'a> {
    pub sandbox: &'a Sandbox,
    pub blueprint: &'a Blueprint,
    /// The pods that the cache shows under its control.
    pub pods: Vec<Arc<Pod>>,
    /// The pod that the annotation names, if it names one that is not called like the sandbox.
    pub annotated: Look<Pod>,
    /// The pod that is called like the sandbox.
    pub namesake: Look<Pod>,
    /// Its pod with everything, once there was a reason to read that.
    pub whole: Look<Whole>,
    /// Why its pod was not let change.
    pub refusal: Option<String>,
    /// How often this pass has changed its pod.
    pub updates: usize,
    pub platform: Platform,
    pub service: Look<Service>,
    /// One for each template.
    pub volumes: Vec<Look<Volume>>,
    /// What was tried in this pass and failed.
    pub trouble: BTreeMap<Part, String>,
    /// What the sandbox is to say of the trace it belongs to, if it says nothing and there is tracing.
    pub trace: Option<String>,
    pub domain: &'a str,
    pub now: Timestamp,
}

/// What is known of an object of which the cache need not know.
#[derive(Clone, Debug, Default)]
pub enum Look<T> {
    /// The cache does not show it, which says nothing of objects without our label.
    #[default]
    Unknown,
    Missing,
    Found(Arc<T>),
    /// It could not be looked at.
    Failed,
}

impl<T> Look<T> {
    pub fn found(&self) -> Option<&T> {
        match self {
            Self::Found(object) => Some(object),
            Self::Unknown | Self::Missing | Self::Failed => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// By its place among the templates.
    Volume(usize),
    Pod,
    Service,
    Sandbox,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Look at the pod of this name, past the cache.
    ReadPod(String),
    ReadService,
    /// Read all of the pod of this name.
    ReadWhole(String),
    /// A strategic merge patch of the pod exactly as it was read.
    Update(Meta, Endpoint, Value),
    /// The same of the pod's status.
    Gate(Meta, Value),
    Create(Part, Value),
    Patch(Part, Meta, Guard, Value),
    Delete(Part, Meta),
    Status(Value),
    /// A status that is news.
    Announce(Value, News),
}

impl Act {
    /// What it is called in traces, if there is anything to see.
    pub(super) fn span(&self) -> Option<&'static str> {
        let part = match self {
            Self::Create(part, _) | Self::Patch(part, ..) | Self::Delete(part, _) => *part,
            Self::Update(..) | Self::Gate(..) => Part::Pod,
            Self::ReadPod(_) | Self::ReadService | Self::ReadWhole(_) => return None,
            Self::Status(_) | Self::Announce(..) => return None,
        };
        match part {
            Part::Volume(_) => Some("reconcilePVCs"),
            Part::Pod => Some("reconcilePod"),
            Part::Service | Part::Sandbox => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    Act(Act),
    Rest(Next),
}

pub fn decide(world: &World<'_>) -> Step {
    if world.sandbox.meta.is_deleting {
        return Step::Rest(Next::Never);
    }
    if let Break(act) = world.join_trace() {
        return Step::Act(act);
    }
    let expiry = expiry_of(world);
    let end = expiry.next_look();
    let all = match expiry {
        Expiry::Expired(effect) => world.end(effect),
        Expiry::Never | Expiry::In(_) => world.keep(),
    };
    match all {
        Break(act) => Step::Act(act),
        Continue(All::Well(until)) => {
            let next = until.into_iter().chain(end).min();
            Step::Rest(next.map_or(Next::Never, Next::In))
        }
        Continue(All::NotWell) => Step::Rest(Next::Retry),
    }
}

/// How things are when there is nothing left to do.
enum All {
    /// There may be more to do after this time.
    Well(Option<Duration>),
    /// Something did not work, and may work later.
    NotWell,
}

fn expiry_of(world: &World<'_>) -> Expiry<SandboxEffect> {
    let sandbox = world.sandbox;
    let expiry = expiry::Sandbox {
        shutdown_time: sandbox
            .lifetime
            .shutdown_time
            .as_ref()
            .map(|time| SystemTime::from(time.0)),
        policy: match known(&sandbox.lifetime.shutdown_policy) {
            Some(SandboxShutdownPolicy::Delete) => SandboxPolicy::Delete,
            Some(SandboxShutdownPolicy::Retain) | None => SandboxPolicy::Retain,
        },
        is_marked: status::has_reason(sandbox, status::READY, status::EXPIRED),
    };
    expiry.expiry(SystemTime::from(world.now))
}

impl World<'_> {
    /// Before anything else: a member that has a pod may be claimed, and whoever claims it brings a trace.
    fn join_trace(&self) -> ControlFlow<Act> {
        match &self.trace {
            Some(trace) if !self.trouble.contains_key(&Part::Sandbox) => {
                let patch = json!({"metadata": {"annotations": {names::TRACE_CONTEXT: trace}}});
                let (meta, guard) = (self.sandbox.meta.clone(), Guard::Unchanged);
                Break(Act::Patch(Part::Sandbox, meta, guard, patch))
            }
            _ => Continue(()),
        }
    }

    /// Everything that a sandbox has while it lives, in this order: volumes, pod, service, status.
    fn keep(&self) -> ControlFlow<Act, All> {
        let mut errors = Vec::new();
        self.keep_volumes(&mut errors)?;
        let pod = self.keep_pod(&mut errors)?;
        let updating = self.keep_running(pod)?;
        self.keep_track(pod)?;
        errors.extend(self.trouble.get(&Part::Sandbox).cloned());
        let service = match pod {
            PodState::Many(_) => ServiceState::Untouched,
            _ => self.keep_service(&mut errors)?,
        };
        let is_well = errors.is_empty();
        let findings = Findings {
            errors,
            pod,
            updating,
            service,
        };
        let status = status::current(self.sandbox, &findings, self.domain, self.now);
        let quiet = self.quiet_for(&status);
        if quiet.is_none() && !findings.is_the_old_pod_still_good() {
            self.write(&status, findings.updating == Updating::Done)?;
        }
        let deadline = findings.updating.deadline();
        Continue(match is_well {
            true => All::Well(quiet.into_iter().chain(deadline).min()),
            false => All::NotWell,
        })
    }

    /// First the word, then the deed: whoever watches learns why a pod goes before it goes.
    fn end(&self, effect: SandboxEffect) -> ControlFlow<Act, All> {
        if effect == SandboxEffect::Mark {
            self.write(&status::expired(self.sandbox, self.now), false)?;
        }
        let owned = self.owned();
        if owned.is_empty() && self.sandbox.status.selector.is_some() {
            self.look_for_pod()?;
        }
        for pod in owned {
            self.delete(Part::Pod, &pod.meta)?;
        }
        self.end_service()?;
        match effect {
            SandboxEffect::Delete => self.delete(Part::Sandbox, &self.sandbox.meta)?,
            SandboxEffect::Retain if self.trouble.is_empty() => {
                self.write(&status::retained(self.sandbox, self.now), false)?;
            }
            SandboxEffect::Mark | SandboxEffect::Retain => {}
        }
        Continue(match self.trouble.is_empty() {
            true => All::Well(None),
            false => All::NotWell,
        })
    }

    /// How long to say nothing yet about a member of a pool that is on its way: most are ready soon, and nobody asks
    /// for one that is not.
    fn quiet_for(&self, status: &SandboxStatus) -> Option<Duration> {
        let meta = &self.sandbox.meta;
        let is_member = meta.is_controlled_by_a(names::EXTENSIONS, member::KIND);
        let is_coming = [&self.sandbox.status.whole(), status]
            .into_iter()
            .all(status::is_coming);
        if !is_member || !is_coming || meta.annotations.get(names::FENCE).is_some() {
            return None;
        }
        let left = after(meta.created, QUIET).duration_since(self.now);
        let left = Duration::try_from(left).ok();
        // a clock that is far off tells no age
        left.filter(|left| !left.is_zero() && *left <= 2 * QUIET)
    }

    /// `is_update_told` makes it worth a write that the status speaks of this generation: the pool waits for that.
    fn write(&self, status: &SandboxStatus, is_update_told: bool) -> ControlFlow<Act> {
        match status::patch(&self.sandbox.status.whole(), status, is_update_told) {
            Some(patch) => Break(match status::news(self.sandbox, status) {
                Some(news) => Act::Announce(patch, news),
                None => Act::Status(patch),
            }),
            None => Continue(()),
        }
    }

    pub(super) fn delete(&self, part: Part, object: &Meta) -> ControlFlow<Act> {
        if object.is_deleting || self.trouble.contains_key(&part) {
            return Continue(());
        }
        Break(Act::Delete(part, object.clone()))
    }

    fn keep_volumes(&self, errors: &mut Vec<String>) -> ControlFlow<Act> {
        let templates = self.blueprint.volume_claim_templates.iter().flatten();
        for ((index, template), look) in templates.enumerate().zip(&self.volumes) {
            let part = Part::Volume(index);
            if let Some(trouble) = self.trouble.get(&part) {
                errors.push(trouble.clone());
                break;
            }
            let Some(Volume(meta)) = look.found() else {
                return Break(Act::Create(part, parts::volume(self.sandbox, template)));
            };
            let is_adopted = match standing(self.sandbox, meta, "persistent volume claim") {
                Standing::Owned if parts::has_hash(self.sandbox, &meta.labels) => continue,
                Standing::Owned => false,
                Standing::Adoptable => true,
                Standing::Barred(why) => {
                    errors.push(why);
                    break;
                }
            };
            let patch = parts::volume_patch(self.sandbox, is_adopted);
            return Break(Act::Patch(part, meta.clone(), Guard::Unchanged, patch));
        }
        Continue(())
    }

    /// All pods under its control, however they were found.
    fn owned(&self) -> Vec<&Pod> {
        let uid = &self.sandbox.meta.uid;
        let mut owned: Vec<&Pod> = self.pods.iter().map(AsRef::as_ref).collect();
        let looked = [self.annotated.found(), self.namesake.found()];
        for pod in looked.into_iter().flatten() {
            let is_known = owned.iter().any(|known| known.meta.uid == pod.meta.uid);
            if pod.meta.is_controlled_by(uid) && !is_known {
                owned.push(pod);
            }
        }
        owned
    }

    /// The name that the annotation gives, if it is not the one that a pod has anyway.
    fn annotation(&self) -> Option<&str> {
        self.sandbox.meta.annotations.get(names::POD_NAME)
    }

    fn look_for_pod(&self) -> ControlFlow<Act> {
        let (name, look) = match self.annotation() {
            Some(name) if name != self.sandbox.name() => (name, &self.annotated),
            _ => (self.sandbox.name(), &self.namesake),
        };
        match look {
            Look::Unknown => Break(Act::ReadPod(name.to_owned())),
            Look::Missing | Look::Found(_) | Look::Failed => Continue(()),
        }
    }

    fn keep_pod(&self, errors: &mut Vec<String>) -> ControlFlow<Act, PodState<'_>> {
        let owned = self.owned();
        if owned.len() > 1 {
            return Continue(PodState::Many(owned.len()));
        }
        if let Some(trouble) = self.trouble.get(&Part::Pod) {
            errors.push(trouble.clone());
            let has_failed = [&self.annotated, &self.namesake]
                .into_iter()
                .any(|look| matches!(look, Look::Failed));
            return Continue(match owned.first() {
                Some(pod) => PodState::Owned(pod),
                None if has_failed => PodState::Unknown,
                None => PodState::Missing,
            });
        }
        match (owned.first().copied(), self.sandbox.is_suspended) {
            (Some(pod), true) => {
                self.delete(Part::Pod, &pod.meta)?;
                Continue(PodState::Owned(pod))
            }
            (Some(pod), false) => Continue(PodState::Owned(pod)),
            (None, true) => self.stay_suspended(),
            (None, false) => self.start(errors),
        }
    }

    fn keep_running(&self, pod: PodState<'_>) -> ControlFlow<Act, Updating> {
        let PodState::Owned(pod) = pod else {
            return Continue(Updating::No);
        };
        if self.sandbox.is_suspended || self.trouble.contains_key(&Part::Pod) {
            return Continue(Updating::No);
        }
        let updating = self.keep_update(pod)?;
        if let Updating::No | Updating::Done = updating {
            self.keep_gate(pod, true)?;
            self.keep_metadata(pod)?;
        }
        Continue(updating)
    }

    /// One that is on its way out needs no labels.
    fn keep_metadata(&self, pod: &Pod) -> ControlFlow<Act> {
        let metadata = PodMetadata::of(self.sandbox, self.blueprint);
        match metadata.patch(&pod.meta) {
            Some(patch) if !pod.meta.is_deleting => {
                let guard = Guard::SameObject;
                Break(Act::Patch(Part::Pod, pod.meta.clone(), guard, patch))
            }
            _ => Continue(()),
        }
    }

    /// A pod of somebody else in our place is seen only by looking; once suspended, there is no reason to look.
    fn stay_suspended(&self) -> ControlFlow<Act, PodState<'_>> {
        if !status::has_reason(self.sandbox, status::SUSPENDED, status::POD_TERMINATED) {
            self.look_for_pod()?;
        }
        Continue(match self.other_pod() {
            Some(_) => PodState::NotOwned,
            None => PodState::Missing,
        })
    }

    fn other_pod(&self) -> Option<&Pod> {
        self.annotated.found().or(self.namesake.found())
    }

    fn start(&self, errors: &mut Vec<String>) -> ControlFlow<Act, PodState<'_>> {
        if self
            .annotation()
            .is_some_and(|name| name != self.sandbox.name())
        {
            self.look_for_pod()?;
        }
        let Some(pod) = self.other_pod() else {
            let body = parts::pod(self.sandbox, self.blueprint);
            return Break(Act::Create(Part::Pod, body));
        };
        match standing(self.sandbox, &pod.meta, "pod") {
            Standing::Owned | Standing::Adoptable => {
                let patch = parts::adoption(self.sandbox, self.blueprint, pod);
                let guard = Guard::Unchanged;
                Break(Act::Patch(Part::Pod, pod.meta.clone(), guard, patch))
            }
            Standing::Barred(why) => {
                errors.push(why);
                Continue(PodState::NotOwned)
            }
        }
    }

    /// The annotation names our pod, and nobody else's.
    fn keep_track(&self, pod: PodState<'_>) -> ControlFlow<Act> {
        let wanted = match pod {
            PodState::Owned(pod) if !self.sandbox.is_suspended => Some(&*pod.meta.key.name),
            PodState::Missing | PodState::NotOwned => None,
            PodState::Owned(_) | PodState::Many(_) | PodState::Unknown => return Continue(()),
        };
        if self.annotation() == wanted || self.trouble.contains_key(&Part::Sandbox) {
            return Continue(());
        }
        let patch = json!({"metadata": {"annotations": {names::POD_NAME: wanted}}});
        let meta = self.sandbox.meta.clone();
        Break(Act::Patch(Part::Sandbox, meta, Guard::SameObject, patch))
    }
}

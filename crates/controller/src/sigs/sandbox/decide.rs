//! What is to be done next about a sandbox.
//!
//! A decision is one act. After it the world is looked at again, so that what one act brings about is what the next
//! decision sees, whether this process did it or one before it.

use std::{
    collections::BTreeMap,
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::SystemTime,
};

use api::sigs::{
    shared::{Blueprint, SandboxShutdownPolicy},
    v1beta1::SandboxStatus,
};
use engine::expiry::{self, Expiry, SandboxEffect, SandboxPolicy};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    parts::{self, PodMetadata, Standing, standing},
    status::{self, Findings, PodState, ServiceState},
    view::{Pod, Sandbox, Service, Volume},
};
use crate::{events::News, meta::Meta, queue::Next, sigs::names, write::Guard};

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
    pub service: Look<Service>,
    /// One for each template.
    pub volumes: Vec<Look<Volume>>,
    /// What was tried in this pass and failed.
    pub trouble: BTreeMap<Part, String>,
    /// The news of this pass has been told.
    pub is_told: bool,
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
    fn found(&self) -> Option<&T> {
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
    Create(Part, Value),
    Patch(Part, Meta, Guard, Value),
    Delete(Part, Meta),
    Status(Value),
    Tell(News),
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
    let expiry = expiry_of(world);
    let all = match expiry {
        Expiry::Expired(effect) => world.end(effect),
        Expiry::Never | Expiry::In(_) => world.keep(),
    };
    match all {
        Break(act) => Step::Act(act),
        Continue(All::Well) => Step::Rest(expiry.next_look().map_or(Next::Never, Next::In)),
        Continue(All::NotWell) => Step::Rest(Next::Retry),
    }
}

/// How things are when there is nothing left to do.
enum All {
    Well,
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
        policy: match sandbox.lifetime.shutdown_policy {
            Some(SandboxShutdownPolicy::Delete) => SandboxPolicy::Delete,
            Some(SandboxShutdownPolicy::Retain) | None => SandboxPolicy::Retain,
        },
        is_marked: status::has_reason(sandbox, status::READY, status::EXPIRED),
    };
    expiry.expiry(SystemTime::from(world.now))
}

impl World<'_> {
    /// Everything that a sandbox has while it lives, in this order: volumes, pod, service, status.
    fn keep(&self) -> ControlFlow<Act, All> {
        let mut errors = Vec::new();
        self.keep_volumes(&mut errors)?;
        let pod = self.keep_pod(&mut errors)?;
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
            service,
        };
        self.tell(pod)?;
        self.write(&status::current(
            self.sandbox,
            &findings,
            self.domain,
            self.now,
        ))?;
        Continue(match is_well {
            true => All::Well,
            false => All::NotWell,
        })
    }

    /// First the word, then the deed: whoever watches learns why a pod goes before it goes.
    fn end(&self, effect: SandboxEffect) -> ControlFlow<Act, All> {
        if effect == SandboxEffect::Mark {
            self.write(&status::expired(self.sandbox, self.now))?;
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
                self.write(&status::retained(self.sandbox, self.now))?;
            }
            SandboxEffect::Mark | SandboxEffect::Retain => {}
        }
        Continue(match self.trouble.is_empty() {
            true => All::Well,
            false => All::NotWell,
        })
    }

    fn write(&self, status: &SandboxStatus) -> ControlFlow<Act> {
        match status::patch(&self.sandbox.status, status) {
            Some(patch) => Break(Act::Status(patch)),
            None => Continue(()),
        }
    }

    fn delete(&self, part: Part, object: &Meta) -> ControlFlow<Act> {
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
            (Some(pod), false) => {
                self.keep_metadata(pod)?;
                Continue(PodState::Owned(pod))
            }
            (None, true) => self.stay_suspended(),
            (None, false) => self.start(errors),
        }
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

    fn keep_service(&self, errors: &mut Vec<String>) -> ControlFlow<Act, ServiceState> {
        if let Some(trouble) = self.trouble.get(&Part::Service) {
            errors.push(trouble.clone());
            return Continue(match (self.service.found(), self.blueprint.service) {
                (Some(_), _) => ServiceState::Untouched,
                (None, Some(true)) => ServiceState::Missing,
                (None, _) => ServiceState::NotRequired,
            });
        }
        match self.blueprint.service {
            Some(true) => self.want_service(errors),
            Some(false) => {
                self.end_service()?;
                Continue(ServiceState::NotRequired)
            }
            None => {
                self.look_for_service()?;
                match self.own_service() {
                    None => Continue(ServiceState::NotRequired),
                    Some(service) => self.repair(service, false),
                }
            }
        }
    }

    fn want_service(&self, errors: &mut Vec<String>) -> ControlFlow<Act, ServiceState> {
        let Some(service) = self.service.found() else {
            let body = parts::service(self.sandbox, self.blueprint);
            return Break(Act::Create(Part::Service, body));
        };
        let is_headless = matches!(&*service.cluster_ip, "" | "None");
        let why = match standing(self.sandbox, &service.meta, "service") {
            Standing::Owned => return self.repair(service, false),
            Standing::Adoptable if is_headless => return self.repair(service, true),
            Standing::Adoptable => format!("service {:?} is not headless", self.sandbox.name()),
            Standing::Barred(why) => why,
        };
        errors.push(why);
        Continue(ServiceState::Missing)
    }

    fn repair(&self, service: &Service, is_adopted: bool) -> ControlFlow<Act, ServiceState> {
        let guard = match is_adopted {
            true => Guard::Unchanged,
            false => Guard::SameObject,
        };
        match parts::service_patch(self.sandbox, self.blueprint, service, is_adopted) {
            Some(patch) => Break(Act::Patch(
                Part::Service,
                service.meta.clone(),
                guard,
                patch,
            )),
            None => Continue(ServiceState::Exists),
        }
    }

    fn end_service(&self) -> ControlFlow<Act> {
        self.look_for_service()?;
        match self.own_service() {
            Some(service) => self.delete(Part::Service, &service.meta),
            None => Continue(()),
        }
    }

    fn own_service(&self) -> Option<&Service> {
        let uid = &self.sandbox.meta.uid;
        let service = self.service.found();
        service.filter(|service| service.meta.is_controlled_by(uid))
    }

    /// One that has lost its label is not in the cache; the status remembers it.
    fn look_for_service(&self) -> ControlFlow<Act> {
        match self.service {
            Look::Unknown if self.sandbox.status.service.is_some() => Break(Act::ReadService),
            _ => Continue(()),
        }
    }

    /// Once, when it begins.
    fn tell(&self, pod: PodState<'_>) -> ControlFlow<Act> {
        let PodState::Many(count) = pod else {
            return Continue(());
        };
        let ready = status::condition(&self.sandbox.status, status::READY);
        if self.is_told || ready.is_some_and(|ready| ready.reason == status::MULTIPLE_PODS) {
            return Continue(());
        }
        let occasion =
            ready.map(|ready| format!("{}@{}", ready.reason, ready.last_transition_time.0));
        Break(Act::Tell(News {
            is_warning: true,
            reason: status::MULTIPLE_PODS,
            action: "Reconcile",
            message: status::multiple_pods(count),
            occasion: occasion.unwrap_or_default(),
        }))
    }
}

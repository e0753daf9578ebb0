//! Whether a change of a running pod has happened.
//!
//! No single sign is proof. A kubelet reports a generation as observed while the old container still runs and is ready, and
//! a quick restart never shows as not ready at all; so what counts is that the container is another one than the one
//! recorded before the write.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime},
};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Changes, List, resources::Resources};
use crate::{
    image::Reference,
    json::{child, int, items, text},
    time,
};

/// What is remembered of a change from before it is written until it is complete.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// The generation of the pod that the last write returned. Unknown if the writer died before it could note it: then the
    /// generation that the pod has now is waited for, which is no earlier.
    pub generation: Option<i64>,
    pub written_at: SystemTime,
    /// By container.
    pub images: BTreeMap<String, String>,
    /// By container.
    pub sizes: BTreeMap<String, Sizes>,
    pub pod_size: Option<Value>,
    /// The touched containers as they were.
    pub before: BTreeMap<String, Before>,
}

/// The wanted resources of a container.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sizes {
    pub resources: Value,
    /// The container is to be replaced for them.
    pub restarts: bool,
}

/// A container before it was changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Before {
    /// Empty if there was no container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    #[serde(rename = "imageID")]
    pub image_id: String,
    pub restart_count: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    Done,
    Waiting(Waiting),
    /// It does not look good, but may still come right. How long to watch is up to the caller.
    Troubled(Trouble),
    /// It never will.
    Failed(Failure),
}

/// What is still missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The pod does not ask for the change, as far as is seen here.
    NotWritten,
    /// The kubelet has not looked.
    NotObserved,
    /// The container is the one from before, or none.
    Replacement {
        container: String,
    },
    /// The container is new, but not from the wanted image.
    Image {
        container: String,
    },
    /// The container is new, but not yet started or ready.
    Readiness {
        container: String,
    },
    Resize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// None if it is about the whole pod.
    pub container: Option<String>,
    /// As Kubernetes calls it.
    pub reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The pod is over, or is being deleted.
    PodEnded,
    /// The node refuses the new size.
    Infeasible { message: String },
}

impl Intent {
    pub(super) fn record(changes: &Changes, pod: &Value, now: SystemTime) -> Self {
        let mut intent = Self {
            generation: None,
            written_at: now,
            images: BTreeMap::new(),
            sizes: BTreeMap::new(),
            pod_size: None,
            before: BTreeMap::new(),
        };
        for change in &changes.images {
            let image = change.image.clone();
            intent.images.insert(change.container.clone(), image);
        }
        for resize in &changes.resizes {
            let resources = resize.to.resizable().to_json();
            match &resize.container {
                None => intent.pod_size = Some(resources),
                Some((_, name)) => {
                    let restarts = resize.restarts;
                    let sizes = Sizes {
                        resources,
                        restarts,
                    };
                    intent.sizes.insert(name.clone(), sizes);
                }
            }
        }
        let touched = intent.images.keys().chain(intent.sizes.keys());
        intent.before = touched
            .map(|name| (name.clone(), Before::of(status_of(pod, name))))
            .collect();
        intent
    }

    fn resizes(&self) -> bool {
        !self.sizes.is_empty() || self.pod_size.is_some()
    }

    /// The containers that must be other ones than before.
    fn replaced(&self) -> impl Iterator<Item = &str> {
        let resized = self.sizes.iter().filter(|(_, sizes)| sizes.restarts);
        let resized = resized.map(|(name, _)| name);
        let resized = resized.filter(|name| !self.images.contains_key(*name));
        self.images.keys().chain(resized).map(String::as_str)
    }
}

impl Before {
    fn of(status: Option<&Value>) -> Self {
        let status = status.unwrap_or(&Value::Null);
        Self {
            container_id: text(status, "containerID").to_owned(),
            image_id: text(status, "imageID").to_owned(),
            restart_count: int(status, "restartCount").unwrap_or(0),
        }
    }
}

/// How far a pod has come. `skew` is how far the clocks of node and writer may be apart.
pub fn progress(pod: &Value, intent: &Intent, skew: Duration) -> Progress {
    match check(pod, intent, skew) {
        Ok(()) => Progress::Done,
        Err(progress) => progress,
    }
}

type Check = Result<(), Progress>;

fn check(pod: &Value, intent: &Intent, skew: Duration) -> Check {
    let status = &pod["status"];
    let is_over = ["Failed", "Succeeded"].contains(&text(status, "phase"));
    if is_over || child(&pod["metadata"], "deletionTimestamp").is_some() {
        return Err(Progress::Failed(Failure::PodEnded));
    }
    let generation = intent
        .generation
        .or_else(|| int(&pod["metadata"], "generation"));
    check_written(pod, intent)?;
    // kubelets before 1.34 do not say
    let observed = int(status, "observedGeneration");
    if observed.is_some_and(|observed| generation.is_some_and(|wanted| observed < wanted)) {
        return Err(Progress::Waiting(Waiting::NotObserved));
    }
    if intent.resizes() {
        check_refusal(status, generation)?;
    }
    intent
        .replaced()
        .try_for_each(|name| check_trouble(pod, intent, name))?;
    intent
        .replaced()
        .try_for_each(|name| check_replaced(pod, intent, name, skew))?;
    check_resized(pod, intent, generation)
}

/// Whether the spec that was read back asks for the change.
fn check_written(pod: &Value, intent: &Intent) -> Check {
    let spec = &pod["spec"];
    let images = intent.images.iter().all(|(name, image)| {
        container_of(spec, name).is_some_and(|container| text(container, "image") == image)
    });
    let sizes = intent.sizes.iter().all(|(name, sizes)| {
        let container = container_of(spec, name);
        container.is_some_and(|it| is_reported(&sizes.resources, it.get("resources")))
    });
    let pod_size = intent.pod_size.as_ref();
    let pod_size = pod_size.is_none_or(|size| is_reported(size, spec.get("resources")));
    match images && sizes && pod_size {
        true => Ok(()),
        false => Err(Progress::Waiting(Waiting::NotWritten)),
    }
}

const BAD_SIGNS: [&str; 8] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
];

fn check_trouble(pod: &Value, intent: &Intent, name: &str) -> Check {
    let Some(status) = status_of(pod, name) else {
        return Ok(());
    };
    let state = &status["state"];
    let waits = text(&state["waiting"], "reason");
    let is_new = is_replaced(status, intent, name);
    let reason = match child(state, "terminated") {
        Some(terminated) if is_new => match text(terminated, "reason") {
            "" => "Terminated",
            reason => reason,
        },
        _ if BAD_SIGNS.contains(&waits) => waits,
        _ => return Ok(()),
    };
    Err(Progress::Troubled(Trouble {
        container: Some(name.to_owned()),
        reason: reason.to_owned(),
    }))
}

fn check_replaced(pod: &Value, intent: &Intent, name: &str, skew: Duration) -> Check {
    let container = name.to_owned();
    let status = status_of(pod, name).filter(|status| is_replaced(status, intent, name));
    let Some((status, running)) = status.and_then(|it| Some((it, child(&it["state"], "running")?)))
    else {
        return Err(Progress::Waiting(Waiting::Replacement { container }));
    };
    let image = intent.images.get(name);
    if image.is_some_and(|image| !is_from(status, running, image, intent, name, skew)) {
        return Err(Progress::Waiting(Waiting::Image { container }));
    }
    let is_true = |field| status.get(field) == Some(&Value::Bool(true));
    match is_true("started") && is_true("ready") {
        true => Ok(()),
        false => Err(Progress::Waiting(Waiting::Readiness { container })),
    }
}

fn is_replaced(status: &Value, intent: &Intent, name: &str) -> bool {
    let id = text(status, "containerID");
    let before = intent.before.get(name);
    !id.is_empty() && before.is_none_or(|before| before.container_id != id)
}

/// Whether a new container was made from the wanted image: it says so, or its image is another one than before. Two tags of
/// one image show neither; then it must have been started after the write.
fn is_from(
    status: &Value,
    running: &Value,
    image: &str,
    intent: &Intent,
    name: &str,
    skew: Duration,
) -> bool {
    let wanted = Reference::of(image);
    let image_id = text(status, "imageID");
    let says_so = wanted.names_the_same(&Reference::of(text(status, "image")))
        || wanted
            .digest()
            .is_some_and(|digest| image_id.ends_with(digest));
    let before = intent
        .before
        .get(name)
        .map(|before| before.image_id.as_str());
    let is_other = !image_id.is_empty() && before.is_some_and(|before| before != image_id);
    let earliest = intent.written_at.checked_sub(skew);
    let started = time::parse(text(running, "startedAt"));
    let started_after = started.is_some_and(|started| {
        earliest.is_none_or(|earliest| {
            // the API gives whole seconds
            started + Duration::from_secs(1) > earliest
        })
    });
    says_so || is_other || started_after
}

/// Conditions that speak of this resize or a later one.
fn condition<'a>(status: &'a Value, kind: &str, generation: Option<i64>) -> Option<&'a Value> {
    items(status, "conditions").iter().find(|condition| {
        let of = int(condition, "observedGeneration").filter(|of| *of > 0);
        let is_older = of.zip(generation).is_some_and(|(of, wanted)| of < wanted);
        text(condition, "type") == kind && text(condition, "status") == "True" && !is_older
    })
}

fn check_refusal(status: &Value, generation: Option<i64>) -> Check {
    let pending = condition(status, "PodResizePending", generation);
    let ongoing = condition(status, "PodResizeInProgress", generation);
    let reason =
        |condition: Option<&'_ Value>| condition.map_or("", |it| text(it, "reason")).to_owned();
    // before 1.33 there are no conditions
    let (pending_reason, ongoing_reason) = (reason(pending), reason(ongoing));
    let reasons = [pending_reason.as_str(), text(status, "resize")];
    if reasons.contains(&"Infeasible") {
        let message = pending.map_or("", |it| text(it, "message")).to_owned();
        return Err(Progress::Failed(Failure::Infeasible { message }));
    }
    let trouble = match (reasons.contains(&"Deferred"), ongoing_reason.as_str()) {
        (true, _) => "Deferred",
        (_, "Error") => "Error",
        _ => return Ok(()),
    };
    Err(Progress::Troubled(Trouble {
        container: None,
        reason: trouble.to_owned(),
    }))
}

fn check_resized(pod: &Value, intent: &Intent, generation: Option<i64>) -> Check {
    if !intent.resizes() {
        return Ok(());
    }
    let status = &pod["status"];
    let kinds = ["PodResizePending", "PodResizeInProgress"];
    let goes_on = kinds
        .iter()
        .any(|kind| condition(status, kind, generation).is_some());
    let is_old_style = !text(status, "resize").is_empty();
    let sizes = intent.sizes.iter().all(|(name, sizes)| {
        let status = status_of(pod, name);
        status.is_some_and(|it| is_reported(&sizes.resources, it.get("resources")))
    });
    let pod_size = intent.pod_size.as_ref();
    let pod_size = pod_size.is_none_or(|size| is_reported(size, status.get("resources")));
    match !goes_on && !is_old_style && sizes && pod_size {
        true => Ok(()),
        false => Err(Progress::Waiting(Waiting::Resize)),
    }
}

fn is_reported(wanted: &Value, reported: Option<&Value>) -> bool {
    Resources::read(Some(wanted)).is_some_and(|wanted| wanted.are_reported(reported))
}

fn container_of<'a>(spec: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = List::ALL.iter();
    let mut containers = lists.flat_map(|list| items(spec, list.name()));
    containers.find(|container| text(container, "name") == name)
}

fn status_of<'a>(pod: &'a Value, name: &str) -> Option<&'a Value> {
    let lists = ["containerStatuses", "initContainerStatuses"].iter();
    let mut statuses = lists.flat_map(|list| items(&pod["status"], list));
    statuses.find(|status| text(status, "name") == name)
}

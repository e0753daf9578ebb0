//! Changing a running pod into the one that its sandbox asks for now.
//!
//! Only a member that its pool has fenced is changed; any other keeps the pod it has, whatever becomes of its template. What
//! the pod was before is written into the pod together with the change, so that whoever comes later can tell when it
//! is done.

use std::{
    collections::BTreeMap,
    ops::ControlFlow::{self, Break, Continue},
    sync::Arc,
    time::{Duration, SystemTime},
};

use api::patch::merge;
use engine::in_place::{
    Changes, Failure, Intent, Platform, Progress, Step, Trouble, Verdict, Waiting, Why, diff,
    progress,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    decide::{Act, Look, World},
    frame,
    parts::{self, PodMetadata},
    status::{self, Updating},
    view::Pod,
};
use crate::{
    sigs::{
        names,
        pool::member::{self, Fence},
    },
    store::View,
};

/// How far the clocks of nodes may be off.
const SKEW: Duration = Duration::from_secs(30);

const NOT_WRITTEN: Progress = Progress::Waiting(Waiting::NotWritten);
/// A record, a larger size, an image and a smaller size. Who needs more is not heard.
const MOST_WRITES: usize = 4;

/// What a pod remembers of its update.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    /// The generation of the sandbox that asked for it.
    pub(super) generation: i64,
    pub(super) intent: Intent,
    /// What takes a resize back.
    pub(super) undo: Option<Value>,
}

/// How far the last update of a pod has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The generation of the sandbox that asked for it.
    pub generation: i64,
    pub progress: Progress,
    /// The same without new sizes.
    pub images: Progress,
    undo: Option<Box<str>>,
}

impl Update {
    pub(super) fn of(pod: &<Pod as View>::Object) -> Option<Box<Self>> {
        let annotations = pod.metadata.annotations.as_ref()?;
        let record: Record = serde_json::from_str(annotations.get(names::POD_UPDATE)?).ok()?;
        let pod = json!({"metadata": pod.metadata, "spec": pod.spec, "status": pod.status});
        let sizeless = Intent {
            sizes: BTreeMap::new(),
            pod_size: None,
            ..record.intent.clone()
        };
        Some(Box::new(Self {
            generation: record.generation,
            progress: progress(&pod, &record.intent, SKEW),
            images: progress(&pod, &sizeless, SKEW),
            undo: record.undo.map(|undo| undo.to_string().into()),
        }))
    }

    /// The container from before may still be running. Until it is replaced, nothing can be told from what comes next.
    pub(super) fn is_under_way(&self) -> bool {
        use Waiting::{Image, NotObserved, Replacement};
        matches!(
            self.images,
            Progress::Waiting(NotObserved | Replacement { .. } | Image { .. })
        )
    }

    /// What takes back a resize that a node has put off. One that is only waited for may come much later.
    pub(super) fn undo(&self) -> Option<Value> {
        let Progress::Troubled(Trouble {
            container: None, ..
        }) = self.progress
        else {
            return None;
        };
        serde_json::from_str(self.undo.as_deref()?).ok()
    }
}

/// A pod as it is, with everything.
#[derive(Clone, Debug)]
pub struct Whole {
    pub view: Arc<Pod>,
    pub json: Value,
}

/// Where a change is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Pod,
    Resize,
}

impl World<'_> {
    /// Leads the pod of a fenced member to what the sandbox asks for.
    pub(super) fn keep_update(&self, pod: &Pod) -> ControlFlow<Act, Updating> {
        let pod = self.newest(pod);
        let is_over = ["Succeeded", "Failed"].contains(&&*pod.phase);
        let Some(fence) = member::fence(self.sandbox) else {
            return Continue(Updating::No);
        };
        if pod.meta.is_deleting || is_over {
            return Continue(Updating::No);
        }
        if self.is_updated() {
            return Continue(Updating::Done);
        }
        if let Some(why) = &self.refusal {
            return Continue(Updating::Impossible(why.clone()));
        }
        let update = pod.update.as_deref();
        match update.filter(|update| update.generation == self.sandbox.meta.generation) {
            Some(update) => self.go_on(pod, update, &fence),
            None if update.is_some_and(Update::is_under_way) => Continue(self.wait(&fence)),
            None => self.begin(pod, &fence),
        }
    }

    /// What was read may already have what the cache does not show: the answer to a write can be lost.
    fn newest<'a>(&'a self, pod: &'a Pod) -> &'a Pod {
        let read = self.whole.found().map(|whole| &*whole.view);
        let is_newer =
            |read: &&Pod| read.meta.uid == pod.meta.uid && read.meta.version > pod.meta.version;
        read.filter(is_newer).unwrap_or(pod)
    }

    /// It has been told that the pod is as this generation asks.
    fn is_updated(&self) -> bool {
        let ready = self.sandbox.status.find(status::READY);
        ready.is_some_and(|ready| {
            let observed = ready.generation.unwrap_or_default();
            ready.is_true() && observed >= self.sandbox.meta.generation
        })
    }

    fn wait(&self, fence: &Fence) -> Updating {
        match Duration::try_from(fence.deadline.duration_since(self.now)) {
            Ok(left) if !left.is_zero() => Updating::Ongoing(left),
            _ => Updating::Impossible(format!("it was not done by {}", fence.deadline)),
        }
    }

    fn begin(&self, pod: &Pod, fence: &Fence) -> ControlFlow<Act, Updating> {
        let Some((whole, verdict)) = self.compare(pod)? else {
            return Continue(self.wait(fence));
        };
        match verdict {
            // what was asked for earlier is still asked for
            Verdict::None | Verdict::Metadata(_) => match pod.update.as_deref() {
                Some(update) if update.progress != NOT_WRITTEN => self.go_on(pod, update, fence),
                Some(_) | None => Continue(Updating::Done),
            },
            Verdict::Recreate { why } => Continue(Updating::Impossible(reasons(&why))),
            Verdict::Image(changes) | Verdict::Resize(changes) => {
                let generation = self.sandbox.meta.generation;
                let body = first_write(&changes, whole, generation, self.now.into());
                self.update(whole, Endpoint::Pod, body, fence)
            }
        }
    }

    fn go_on(&self, pod: &Pod, update: &Update, fence: &Fence) -> ControlFlow<Act, Updating> {
        match &update.progress {
            Progress::Done => Continue(Updating::Done),
            Progress::Failed(failure) => Continue(Updating::Impossible(failed(failure))),
            &NOT_WRITTEN => {
                let Some((whole, verdict)) = self.compare(pod)? else {
                    return Continue(self.wait(fence));
                };
                if let Verdict::Recreate { why } = &verdict {
                    return Continue(Updating::Impossible(reasons(why)));
                }
                let write = verdict.changes();
                match write.and_then(|changes| next_write(changes, update)) {
                    Some((endpoint, body)) => self.update(whole, endpoint, body, fence),
                    None => Continue(self.wait(fence)),
                }
            }
            Progress::Waiting(_) | Progress::Troubled(_) => {
                let waiting = self.wait(fence);
                match (&waiting, update.undo()) {
                    (Updating::Impossible(_), Some(undo)) if self.updates < MOST_WRITES => {
                        Break(Act::Update(pod.meta.clone(), Endpoint::Resize, undo))
                    }
                    _ => Continue(waiting),
                }
            }
        }
    }

    /// The pod as it is, and how it differs. Nothing if it is another one by now.
    fn compare(&self, pod: &Pod) -> ControlFlow<Act, Option<(&Whole, Verdict)>> {
        let whole = match &self.whole {
            Look::Unknown => return Break(Act::ReadWhole(pod.meta.key.name.to_string())),
            Look::Found(whole) if whole.view.meta.uid == pod.meta.uid => whole,
            Look::Found(_) | Look::Missing | Look::Failed => return Continue(None),
        };
        let wanted = parts::pod(self.sandbox, self.blueprint);
        let metadata = PodMetadata::of(self.sandbox, self.blueprint).patch(&whole.view.meta);
        let verdict = verdict(&whole.json, &wanted, metadata.as_ref(), &self.platform);
        Continue(Some((whole, verdict)))
    }

    fn update(
        &self,
        whole: &Whole,
        endpoint: Endpoint,
        body: Value,
        fence: &Fence,
    ) -> ControlFlow<Act, Updating> {
        if self.updates >= MOST_WRITES {
            let why = "the pod does not keep what is written";
            return Continue(Updating::Impossible(why.to_owned()));
        }
        match self.wait(fence) {
            Updating::Ongoing(_) => {
                self.keep_gate(&whole.view, false)?;
                Break(Act::Update(whole.view.meta.clone(), endpoint, body))
            }
            // the pool gives it up
            late => Continue(late),
        }
    }
}

/// What of a pod differs from the wanted one, and whether that can be changed. `metadata` is the merge patch that its
/// metadata needs.
pub(super) fn verdict(
    pod: &Value,
    wanted: &Value,
    metadata: Option<&Value>,
    platform: &Platform,
) -> Verdict {
    let mut why = frame::differences(pod, wanted);
    let is = json!({
        "metadata": pod["metadata"],
        "spec": frame::with_what_changes_of(pod, &wanted["spec"]),
    });
    let shall = match metadata {
        None => Ok(is.clone()),
        Some(patch) => merge::apply(is.clone(), patch),
    };
    let Ok(mut shall) = shall else {
        return Verdict::Recreate {
            why: vec![Why::Immutable("metadata".to_owned())],
        };
    };
    shall["spec"] = wanted["spec"].clone();
    match diff(&is, &shall, platform) {
        Verdict::Recreate { why: more } => why.extend(more),
        verdict if why.is_empty() => return verdict,
        _ => {}
    }
    Verdict::Recreate { why }
}

/// The first thing to write, with the record of what was before.
pub(super) fn first_write(
    changes: &Changes,
    pod: &Whole,
    generation: i64,
    now: SystemTime,
) -> Value {
    let record = Record {
        generation,
        intent: changes.intent(&pod.json, now),
        undo: changes.undo_resize(),
    };
    let mut body = match changes.steps().into_iter().next() {
        Some(Step::Update(body)) => body,
        // a record cannot ride on a resize
        Some(Step::Resize(_)) | None => match &changes.metadata {
            Some(metadata) => json!({"metadata": metadata}),
            None => Value::Object(Map::new()),
        },
    };
    let record = serde_json::to_string(&record).unwrap_or_default();
    body["metadata"]["annotations"][names::POD_UPDATE] = json!(record);
    body
}

/// The next thing to write, if nothing has to happen before.
pub(super) fn next_write(changes: &Changes, update: &Update) -> Option<(Endpoint, Value)> {
    match changes.steps().into_iter().next()? {
        Step::Update(body) => Some((Endpoint::Pod, body)),
        Step::Resize(body) => {
            let is_last = changes.images.is_empty();
            let may_come = !is_last || update.images == Progress::Done;
            may_come.then_some((Endpoint::Resize, body))
        }
    }
}

pub(super) fn reasons(why: &[Why]) -> String {
    let why: Vec<String> = why.iter().map(ToString::to_string).collect();
    why.join("; ")
}

pub(super) fn failed(failure: &Failure) -> String {
    match failure {
        Failure::PodEnded => "the pod has ended".to_owned(),
        Failure::Infeasible { message } if message.is_empty() => {
            "the node cannot give it these resources".to_owned()
        }
        Failure::Infeasible { message } => message.clone(),
    }
}

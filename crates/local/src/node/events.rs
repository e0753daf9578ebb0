//! Events about pods and their node, for those who ask why. What is wrong is told once, by whichever process of the node was there
//! first; what goes its usual course is told in passing (`course`).

mod course;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{
    api::core::v1::{Event, EventSource, ObjectReference, Pod},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use sha2::{Digest as _, Sha256};

use crate::{
    clock::Clock,
    kubelet::{container::stamp, status::is_init},
};
use course::{Allowance, Occasion, Telling};

/// Of one pod no more is told.
const MOST: usize = 50;

/// Reasons and messages.
type Told = HashSet<(&'static str, String)>;

#[derive(Clone)]
pub(crate) struct Events {
    client: Client,
    clock: Clock,
    node: Arc<str>,
    told: Arc<Mutex<HashMap<String, Told>>>,
    course: Arc<Mutex<Course>>,
    desk: tokio::sync::mpsc::Sender<Occasion>,
}

/// What has been told of the usual course of pods.
#[derive(Default)]
struct Course {
    pods: HashMap<String, Telling>,
    allowance: Allowance,
    /// The number in the last event's name. They are listed by name, and so in the order in which they happened.
    last: i128,
}

/// Who tells.
#[derive(Clone, Copy)]
enum Teller {
    Node,
    Scheduler,
}

impl Events {
    /// Must be called within a Tokio runtime.
    pub(crate) fn new(client: Client, clock: Clock, node: &str) -> Self {
        Self {
            desk: course::desk(client.clone()),
            client,
            clock,
            node: node.into(),
            told: Arc::default(),
            course: Arc::default(),
        }
    }

    /// Warns in the background; what cannot be told is lost.
    pub(crate) fn warn(&self, pod: &Pod, reason: &'static str, message: String) {
        let uid = pod.uid().unwrap_or_default();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let told = told.entry(uid).or_default();
        if told.len() >= MOST || !told.insert((reason, message.clone())) {
            return;
        }
        let name = name(pod, reason, &message);
        self.send(Event {
            type_: Some("Warning".to_owned()),
            ..self.event(name, about(pod), Teller::Node, reason, message)
        });
    }

    /// Says something of the node itself, as kubelets do it: every time anew, and where cluster-wide objects have their events.
    pub(crate) fn say_of_node(&self, kind: &str, reason: &'static str, message: String) {
        let object = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(self.node.to_string()),
            uid: Some(self.node.to_string()),
            ..ObjectReference::default()
        };
        let moment = self.clock.now().as_nanosecond();
        let name = format!("{}.{moment:016x}", self.node);
        self.send(Event {
            type_: Some(kind.to_owned()),
            ..self.event(name, object, Teller::Node, reason, message)
        });
    }

    fn send(&self, event: Event) {
        let namespace = event.metadata.namespace.as_deref().unwrap_or("default");
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        tokio::spawn(async move {
            let _ = events.create(&PostParams::default(), &event).await;
        });
    }

    /// Tells that a pod has been given this node.
    pub(crate) fn scheduled(&self, pod: &Pod) {
        let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
        let message = format!("{namespace}/{name} runs on node {}", self.node);
        self.pass_on(pod, None, Teller::Scheduler, "Scheduled", message, "");
    }

    /// Tells what happens to a container as a matter of course. Costs whoever calls it nothing to speak of.
    pub(crate) fn tell(&self, pod: &Pod, container: &str, reason: &'static str, message: String) {
        self.tell_more(pod, container, reason, message, "");
    }

    /// The same with an end of the message that differs each time, which does not make it another occasion.
    pub(crate) fn tell_more(
        &self,
        pod: &Pod,
        container: &str,
        reason: &'static str,
        message: String,
        this_time: &str,
    ) {
        let container = Some(container);
        self.pass_on(pod, container, Teller::Node, reason, message, this_time);
    }

    fn pass_on(
        &self,
        pod: &Pod,
        container: Option<&str>,
        teller: Teller,
        reason: &'static str,
        message: String,
        this_time: &str,
    ) {
        // one that nobody knows any more has no events either
        let (Some(uid), Some(pod_name)) = (pod.uid(), &pod.metadata.name) else {
            return;
        };
        let now = self.clock.now();
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        if !course.allowance.take(now) {
            return;
        }
        course.last = now.as_nanosecond().max(course.last + 1);
        let fresh = format!("{pod_name:.200}.{:016x}", course.last);
        let telling = course.pods.entry(uid).or_default();
        let whole = format!("{message}{this_time}");
        let key = (reason, message);
        if telling.len() >= MOST && !telling.contains_key(&key) {
            return;
        }
        let (count, name) = telling.entry(key).or_insert((0, fresh));
        *count += 1;
        let event = self.event(name.clone(), about(pod), teller, reason, whole);
        let part = container.map(|container| match is_init(pod, container) {
            true => format!("spec.initContainers{{{container}}}"),
            false => format!("spec.containers{{{container}}}"),
        });
        let occasion = Occasion {
            event: Event {
                type_: Some("Normal".to_owned()),
                count: Some(*count),
                involved_object: ObjectReference {
                    field_path: part,
                    ..event.involved_object
                },
                ..event
            },
            count: *count,
            due: course::due(),
        };
        // where too many wait it is not missed
        let _ = self.desk.try_send(occasion);
    }

    pub(crate) fn forget(&self, uid: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.remove(uid);
        let mut course = self.course.lock().unwrap_or_else(PoisonError::into_inner);
        course.pods.remove(uid);
    }

    fn event(
        &self,
        name: String,
        object: ObjectReference,
        teller: Teller,
        reason: &str,
        message: String,
    ) -> Event {
        let source = match teller {
            Teller::Node => EventSource {
                component: Some("kubelet".to_owned()),
                host: Some(self.node.to_string()),
            },
            Teller::Scheduler => EventSource {
                component: Some("default-scheduler".to_owned()),
                host: None,
            },
        };
        let now = stamp(self.clock.now());
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: object.namespace.clone(),
                ..ObjectMeta::default()
            },
            involved_object: object,
            reason: Some(reason.to_owned()),
            message: Some(message),
            count: Some(1),
            first_timestamp: Some(now.clone()),
            last_timestamp: Some(now),
            source: Some(source),
            ..Event::default()
        }
    }
}

fn about(pod: &Pod) -> ObjectReference {
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: Some(pod.name_any()),
        namespace: pod.namespace(),
        uid: pod.uid(),
        ..ObjectReference::default()
    }
}

/// The same for the same occasion: what an earlier process has told of a pod that it left running is there already.
fn name(pod: &Pod, reason: &str, message: &str) -> String {
    let uid = pod.uid().unwrap_or_default();
    let hash = Sha256::digest(format!("{uid} {reason} {message}"));
    let number = hash.first_chunk().copied().map_or(0, u64::from_be_bytes);
    format!("{:.200}.{number:016x}", pod.name_any())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use k8s_openapi::api::core::v1::{Event, Pod};
    use kube::{Api, api::ListParams};
    use serde_json::{from_value, json};

    use super::{Events, name};
    use crate::{Cluster, Options, clock::Clock};

    #[tokio::test]
    async fn what_goes_its_course_is_told_in_order_and_counted_where_it_repeats() {
        let cluster = Cluster::open(Options::ephemeral()).await.unwrap();
        let events = Events::new(cluster.client(), Clock::system(), "node");
        let pod = from_value(json!({
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "a"}]},
        }));
        let pod: Pod = pod.unwrap();
        events.scheduled(&pod);
        events.tell(&pod, "i", "Started", "Started container i".to_owned());
        for time in [" in 1 ms", " in 2 ms"] {
            let message = "Image i pulled".to_owned();
            events.tell_more(&pod, "a", "Pulled", message, time);
        }
        for _ in 0..3 {
            events.tell(&pod, "a", "Started", "Started container a".to_owned());
        }
        let api: Api<Event> = Api::namespaced(cluster.client(), "default");
        let mut told = Vec::new();
        for _ in 0..500 {
            let listed = api.list(&ListParams::default()).await.unwrap();
            told = listed.items;
            if told.last().is_some_and(|last| last.count == Some(3)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let told: Vec<_> = told
            .into_iter()
            .map(|event| {
                let source = event.source.and_then(|source| source.component);
                let (reason, part) = (event.reason, event.involved_object.field_path);
                assert_eq!(event.type_.as_deref(), Some("Normal"));
                (reason.unwrap(), source.unwrap(), part, event.count)
            })
            .collect();
        let of = |reason: &str, source: &str, part: Option<&str>, count| {
            (
                reason.to_owned(),
                source.to_owned(),
                part.map(str::to_owned),
                Some(count),
            )
        };
        let expected = [
            of("Scheduled", "default-scheduler", None, 1),
            of("Started", "kubelet", Some("spec.initContainers{i}"), 1),
            of("Pulled", "kubelet", Some("spec.containers{a}"), 2),
            of("Started", "kubelet", Some("spec.containers{a}"), 3),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn an_occasion_has_one_name_whoever_tells_it() {
        let pod = |uid: &str| {
            let mut pod = Pod::default();
            pod.metadata.name = Some("p".to_owned());
            pod.metadata.uid = Some(uid.to_owned());
            pod
        };
        let told = name(&pod("u"), "Failed", "why");
        assert_eq!(told, name(&pod("u"), "Failed", "why"));
        let others = [
            name(&pod("v"), "Failed", "why"),
            name(&pod("u"), "FailedMount", "why"),
            name(&pod("u"), "Failed", "why not"),
        ];
        assert!(!others.contains(&told));
        assert_eq!(told.len(), "p.".len() + 16);
    }
}

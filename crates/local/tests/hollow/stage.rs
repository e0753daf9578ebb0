//! A namespace, a clock that is moved by hand, and a hollow node of one's own.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{
    api::core::v1::{ContainerStatus, Namespace, Node, Pod, PodCondition},
    jiff::Timestamp,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use local::{
    clock::{Clock, after},
    hollow::{Hollow, Options},
};
use serde_json::{Value, json};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) clock: Clock,
    pub(crate) options: Options,
    /// Absent while it is being replaced.
    hollow: Option<Hollow>,
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn noon() -> Timestamp {
    "2026-01-31T12:00:00Z".parse().unwrap()
}

/// A pod with one container `main`.
pub(crate) fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "app:1"}]},
    })
}

pub(crate) fn annotated(name: &str, annotations: &[(&str, &str)]) -> Value {
    let annotations: BTreeMap<String, &str> = annotations
        .iter()
        .map(|(key, value)| (format!("hollow.sandbar.dev/{key}"), *value))
        .collect();
    let mut pod = pod(name);
    pod["metadata"]["annotations"] = json!(annotations);
    pod
}

pub(crate) fn resources(cpu: &str, memory: &str) -> Value {
    let both = json!({"cpu": cpu, "memory": memory});
    json!({"requests": both, "limits": both})
}

pub(crate) fn sized_pod(name: &str) -> Value {
    let mut object = pod(name);
    object["spec"]["containers"][0]["resources"] = resources("1", "1Gi");
    object["spec"]["containers"][0]["resizePolicy"] = json!([
        {"resourceName": "cpu", "restartPolicy": "NotRequired"},
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
    ]);
    object
}

impl Stage {
    /// Its nodes have names that no other stage uses.
    pub(crate) async fn new(client: Client, options: Options) -> Self {
        let clock = Clock::manual(noon());
        Self::with_clock(client, options, clock).await
    }

    pub(crate) async fn with_clock(client: Client, mut options: Options, clock: Clock) -> Self {
        let mut object = Namespace::default();
        object.metadata.generate_name = Some("hollow-".to_owned());
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let created = namespaces.create(&PostParams::default(), &object).await;
        let namespace = created.unwrap().name_any();
        for node in &mut options.nodes {
            *node = format!("{node}-{namespace}");
        }
        let hollow = Hollow::start(client.clone(), clock.clone(), options.clone());
        Self {
            client,
            namespace,
            clock,
            options,
            hollow: Some(hollow),
        }
    }

    pub(crate) fn hollow(&self) -> &Hollow {
        self.hollow.as_ref().unwrap()
    }

    /// Ends the node and starts another in its place.
    pub(crate) async fn restart(&mut self) {
        self.restart_with(self.client.clone()).await;
    }

    /// Ends the node and starts another that reaches the API another way.
    pub(crate) async fn restart_with(&mut self, client: Client) {
        self.hollow.take().unwrap().stop().await;
        let (clock, options) = (self.clock.clone(), self.options.clone());
        self.hollow = Some(Hollow::start(client, clock, options));
    }

    pub(crate) async fn end(mut self) {
        self.hollow.take().unwrap().stop().await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            ..DeleteParams::default()
        };
        let everything = ListParams::default();
        pods.delete_collection(&now, &everything).await.unwrap();
        let nodes: Api<Node> = Api::all(self.client.clone());
        for node in &self.options.nodes {
            nodes.delete(node, &DeleteParams::default()).await.unwrap();
        }
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, pod: Value) -> Pod {
        let pod = serde_json::from_value(pod).unwrap();
        let created = self.pods().create(&PostParams::default(), &pod).await;
        created.unwrap()
    }

    pub(crate) async fn get(&self, name: &str) -> Pod {
        self.pods().get(name).await.unwrap()
    }

    pub(crate) async fn patch(&self, name: &str, patch: Value) -> Pod {
        let patch = Patch::Strategic(patch);
        let params = PatchParams::default();
        self.pods().patch(name, &params, &patch).await.unwrap()
    }

    pub(crate) async fn patch_part(&self, part: &str, name: &str, patch: Value) -> Pod {
        let patch = Patch::Strategic(patch);
        let params = PatchParams::default();
        let patched = self
            .pods()
            .patch_subresource(part, name, &params, &patch)
            .await;
        patched.unwrap()
    }

    pub(crate) async fn unannotate(&self, name: &str, key: &str) {
        let annotations = BTreeMap::from([(format!("hollow.sandbar.dev/{key}"), Value::Null)]);
        let patch = json!({"metadata": {"annotations": annotations}});
        self.patch(name, patch).await;
    }

    /// Lets virtual time pass; what it made the node do is done afterwards.
    /// Time passes once the node has seen what was written before: until then it cannot know what it waits for.
    pub(crate) async fn pass(&self, time: Duration) {
        let mut due = self.clock.next_deadline();
        let mut same = 0;
        while same < 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let now = self.clock.next_deadline();
            same = if now == due { same + 1 } else { 0 };
            due = now;
        }
        self.clock.advance(time).await;
    }

    /// Waits in real time for what the node does at once, or for another's doing to reach it.
    pub(crate) async fn until(&self, name: &str, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        let give_up = after(Timestamp::now(), PATIENCE);
        loop {
            let pod = self.get(name).await;
            if is(&pod) {
                return pod;
            }
            assert!(
                Timestamp::now() < give_up,
                "{name} is never {what}; {:?}\n{}",
                self.hollow().last_error(),
                serde_json::to_string_pretty(&pod.status).unwrap()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Pod {
        self.until(name, "ready", |pod| holds(pod, "Ready")).await
    }

    pub(crate) async fn until_starting(&self, name: &str) -> Pod {
        let is_starting = |pod: &Pod| {
            let status = pod.status.as_ref();
            status.is_some_and(|status| status.start_time.is_some())
        };
        self.until(name, "starting", is_starting).await
    }

    /// Waits until the next thing to happen is due in that time.
    pub(crate) async fn until_due(&self, time: Duration) {
        let due = Some(after(self.clock.now(), time));
        let give_up = after(Timestamp::now(), PATIENCE);
        while self.clock.next_deadline() != due {
            assert!(Timestamp::now() < give_up, "nothing is due in {time:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn until_gone(&self, name: &str) {
        let give_up = after(Timestamp::now(), PATIENCE);
        while self.pods().get_opt(name).await.unwrap().is_some() {
            assert!(Timestamp::now() < give_up, "{name} never goes");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    let status = pod.status.as_ref();
    status
        .and_then(|status| status.phase.as_deref())
        .unwrap_or_default()
}

pub(crate) fn ip(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone()
}

pub(crate) fn condition<'a>(pod: &'a Pod, kind: &str) -> Option<&'a PodCondition> {
    let mut all = pod.status.as_ref()?.conditions.iter().flatten();
    all.find(|condition| condition.type_ == kind)
}

pub(crate) fn holds(pod: &Pod, kind: &str) -> bool {
    condition(pod, kind).is_some_and(|condition| condition.status == "True")
}

pub(crate) fn reason<'a>(pod: &'a Pod, kind: &str) -> &'a str {
    condition(pod, kind)
        .and_then(|condition| condition.reason.as_deref())
        .unwrap_or_default()
}

/// The status of the first container.
pub(crate) fn container(pod: &Pod) -> &ContainerStatus {
    let statuses = pod.status.as_ref().unwrap().container_statuses.as_ref();
    &statuses.unwrap()[0]
}

/// Why the first container waits.
pub(crate) fn waits_for(pod: &Pod) -> &str {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|s| s.container_statuses.as_ref());
    statuses
        .and_then(|statuses| statuses.first()?.state.as_ref()?.waiting.as_ref())
        .and_then(|waiting| waiting.reason.as_deref())
        .unwrap_or_default()
}

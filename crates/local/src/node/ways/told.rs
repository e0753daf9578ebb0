//! What the API told about everything that decides on ways and names, and which pods are on the net. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, Namespace, Pod, PodCondition, PodSpec, PodStatus, Service,
    ServiceSpec,
};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::runtime::watcher::Event;

use crate::kubelet::roster::version;
use crate::network::rules::Protocol;
use crate::network::{NamedPort, PolicyPod, Records, Snapshot};
use crate::node::kept::Kept;

type Labels = BTreeMap<String, String>;

pub(super) enum Heard {
    Namespace(Event<Namespace>),
    Policy(Event<NetworkPolicy>),
    Service(Box<Event<Service>>),
    Pod(Box<Event<Pod>>),
}

/// What has to be made anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) rules: bool,
    pub(super) names: bool,
}

pub(super) struct Told {
    namespaces: Kept<Namespace, Labels>,
    policies: Kept<NetworkPolicy, NetworkPolicy>,
    /// The version of the newest of them, also if it is gone, and of the newest in a list that is not complete yet.
    newest_policy: u64,
    listed_policy: u64,
    services: Kept<Service, Service>,
    /// By uid, as all pods here.
    pods: Kept<Pod, PolicyPod>,
    named: Kept<Pod, Pod>,
    attached: BTreeMap<String, PolicyPod>,
}

impl Told {
    pub(super) fn new() -> Self {
        Self {
            namespaces: Kept::new(name, |it| {
                Some(it.metadata.labels.clone().unwrap_or_default())
            }),
            policies: Kept::new(path, |policy| Some(trimmed_policy(policy))),
            newest_policy: 0,
            listed_policy: 0,
            services: Kept::new(path, trimmed_service),
            pods: Kept::new(uid, policy_pod),
            named: Kept::new(uid, named_pod),
            attached: BTreeMap::new(),
        }
    }

    /// Whether nothing is unknown that was there at the start.
    pub(super) fn is_complete(&self) -> bool {
        self.namespaces.is_listed()
            && self.policies.is_listed()
            && self.services.is_listed()
            && self.pods.is_listed()
    }

    pub(super) fn hear(&mut self, heard: &Heard) -> Change {
        let mut change = Change::default();
        match heard {
            Heard::Namespace(event) => change.rules = !self.namespaces.take(event).is_empty(),
            Heard::Policy(event) => {
                change.rules = !self.policies.take(event).is_empty();
                self.count(event);
            }
            Heard::Service(event) => change.names = !self.services.take(event).is_empty(),
            Heard::Pod(event) => {
                change.names = !self.named.take(event).is_empty();
                for uid in self.pods.take(event) {
                    let (now, attached) = (self.pods.get(&uid), self.attached.get_mut(&uid));
                    // one that is gone from the API keeps its rules until it is gone from here
                    if let (Some(now), Some(attached)) = (now, attached)
                        && now != attached
                    {
                        attached.clone_from(now);
                        change.rules = true;
                    }
                }
            }
        }
        change
    }

    /// Policies come in the order of their versions, so that all before the newest are known.
    fn count(&mut self, event: &Event<NetworkPolicy>) {
        match event {
            Event::Init => self.listed_policy = 0,
            Event::InitApply(policy) => {
                self.listed_policy = self.listed_policy.max(version(policy));
            }
            Event::InitDone => self.newest_policy = self.newest_policy.max(self.listed_policy),
            Event::Apply(policy) | Event::Delete(policy) => {
                self.newest_policy = self.newest_policy.max(version(policy));
            }
        }
    }

    pub(super) fn newest_policy(&self) -> u64 {
        self.newest_policy
    }

    /// Counts a pod among those on the net, as the API has it, or else as it is given. Says whether it was not among them.
    pub(super) fn attach(&mut self, pod: &Pod) -> bool {
        let Some(uid) = uid(pod) else { return false };
        let known = self.pods.get(&uid).cloned();
        match known.or_else(|| policy_pod(pod)) {
            Some(known) => self.attached.insert(uid, known).is_none(),
            None => false,
        }
    }

    /// Counts those of them that the API knows among the pods on the net.
    pub(super) fn attach_known<'a>(&mut self, uids: impl Iterator<Item = &'a String>) {
        for uid in uids {
            if let Some(pod) = self.pods.get(uid) {
                self.attached.insert(uid.clone(), pod.clone());
            }
        }
    }

    /// Says whether it was on the net.
    pub(super) fn detach(&mut self, uid: &str) -> bool {
        self.attached.remove(uid).is_some()
    }

    pub(super) fn detach_all_but(&mut self, stays: impl Fn(&str) -> bool) {
        self.attached.retain(|uid, _| stays(uid));
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            namespaces: self.namespaces.all().clone(),
            pods: self.attached.values().cloned().collect(),
            policies: self.policies.all().values().cloned().collect(),
        }
    }

    pub(super) fn records(&self) -> Records {
        let services: Vec<_> = self.services.all().values().cloned().collect();
        let pods: Vec<_> = self.named.all().values().cloned().collect();
        Records::of(&services, &pods)
    }
}

fn uid<K: Resource>(object: &K) -> Option<String> {
    object.meta().uid.clone()
}

fn name<K: Resource>(object: &K) -> Option<String> {
    object.meta().name.clone()
}

fn path<K: Resource>(object: &K) -> Option<String> {
    let meta = object.meta();
    let (namespace, name) = (meta.namespace.as_ref()?, meta.name.as_ref()?);
    Some(format!("{namespace}/{name}"))
}

fn named<K: Resource>(object: &K) -> ObjectMeta {
    ObjectMeta {
        name: object.meta().name.clone(),
        namespace: object.meta().namespace.clone(),
        ..ObjectMeta::default()
    }
}

fn trimmed_policy(policy: &NetworkPolicy) -> NetworkPolicy {
    NetworkPolicy {
        metadata: named(policy),
        spec: policy.spec.clone(),
    }
}

/// Only a headless Service with a selector has names.
fn trimmed_service(service: &Service) -> Option<Service> {
    let spec = service.spec.as_ref()?;
    let is_headless = spec.cluster_ip.as_deref() == Some("None");
    let selects = spec.selector.as_ref().is_some_and(|it| !it.is_empty());
    (is_headless && selects).then(|| Service {
        metadata: named(service),
        spec: Some(ServiceSpec {
            cluster_ip: spec.cluster_ip.clone(),
            selector: spec.selector.clone(),
            ports: spec.ports.clone(),
            publish_not_ready_addresses: spec.publish_not_ready_addresses,
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

fn policy_pod(pod: &Pod) -> Option<PolicyPod> {
    let spec = pod.spec.as_ref()?;
    let sidecar = |one: &&Container| one.restart_policy.as_deref() == Some("Always");
    let sidecars = spec.init_containers.iter().flatten().filter(sidecar);
    let ports = sidecars.chain(&spec.containers).flat_map(ports);
    Some(PolicyPod {
        id: uid(pod)?,
        namespace: pod.metadata.namespace.clone()?,
        labels: pod.metadata.labels.clone().unwrap_or_default(),
        ports: ports.filter_map(named_port).collect(),
    })
}

fn ports(container: &Container) -> impl Iterator<Item = &ContainerPort> {
    container.ports.iter().flatten()
}

fn named_port(port: &ContainerPort) -> Option<NamedPort> {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(_) => return None,
    };
    Some(NamedPort {
        name: port.name.clone()?,
        protocol,
        number: u16::try_from(port.container_port).ok()?,
    })
}

/// What names are made of. One without an address has none.
fn named_pod(pod: &Pod) -> Option<Pod> {
    let (spec, status) = (pod.spec.as_ref()?, pod.status.as_ref()?);
    status.pod_ip.as_ref()?;
    let containers = spec.containers.iter().map(|container| Container {
        name: container.name.clone(),
        ports: container.ports.clone(),
        ..Container::default()
    });
    let ready = status.conditions.iter().flatten();
    let ready = ready.filter(|condition| condition.type_ == "Ready");
    let ready = ready.map(|condition| PodCondition {
        type_: condition.type_.clone(),
        status: condition.status.clone(),
        ..PodCondition::default()
    });
    // to start and to run is the same to who asks for a name
    let ended = |phase: &&String| matches!(phase.as_str(), "Succeeded" | "Failed");
    Some(Pod {
        metadata: ObjectMeta {
            labels: pod.metadata.labels.clone(),
            deletion_timestamp: pod.metadata.deletion_timestamp.clone(),
            ..named(pod)
        },
        spec: Some(PodSpec {
            hostname: spec.hostname.clone(),
            subdomain: spec.subdomain.clone(),
            containers: containers.collect(),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            phase: status.phase.as_ref().filter(ended).cloned(),
            pod_ip: status.pod_ip.clone(),
            conditions: Some(ready.collect()),
            ..PodStatus::default()
        }),
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use kube::runtime::watcher::Event;
    use serde_json::{Value, from_value, json};

    use super::{Change, Heard, Told};

    const NOTHING: Change = Change {
        rules: false,
        names: false,
    };
    const RULES: Change = Change {
        rules: true,
        names: false,
    };
    const NAMES: Change = Change {
        rules: false,
        names: true,
    };

    fn pod(app: &str, status: Value) -> Pod {
        from_value(json!({
            "metadata": {"name": "p", "namespace": "n", "uid": "1", "labels": {"app": app}},
            "spec": {"containers": [{"name": "c", "ports": [{"name": "http", "containerPort": 80}]}]},
            "status": status,
        }))
        .unwrap()
    }

    fn hear(told: &mut Told, pod: &Pod) -> Change {
        told.hear(&Heard::Pod(Box::new(Event::Apply(pod.clone()))))
    }

    #[test]
    fn only_labels_of_pods_on_the_net_change_rules() {
        let mut told = Told::new();
        assert_eq!(hear(&mut told, &pod("a", json!({}))), NOTHING);
        assert!(told.attach(&pod("a", json!({}))));
        assert_eq!(hear(&mut told, &pod("b", json!({}))), RULES);
        assert_eq!(told.snapshot().pods[0].labels["app"], "b");
        assert_eq!(told.snapshot().pods[0].ports[0].name, "http");
        let starting = json!({"phase": "Pending", "containerStatuses": []});
        assert_eq!(hear(&mut told, &pod("b", starting)), NOTHING);
        let running = json!({"phase": "Running", "podIP": "10.0.0.2"});
        assert_eq!(hear(&mut told, &pod("b", running)), NAMES);
        let again = json!({"phase": "Running", "podIP": "10.0.0.2", "message": "new"});
        assert_eq!(hear(&mut told, &pod("b", again)), NOTHING);
    }

    #[test]
    fn what_the_api_said_last_counts_and_not_what_is_given() {
        let mut told = Told::new();
        hear(&mut told, &pod("new", json!({})));
        told.attach(&pod("old", json!({})));
        assert_eq!(told.snapshot().pods[0].labels["app"], "new");
    }

    #[test]
    fn a_pod_that_the_api_has_forgotten_keeps_its_rules_while_it_is_on_the_net() {
        let mut told = Told::new();
        let pod = pod("a", json!({}));
        hear(&mut told, &pod);
        told.attach(&pod);
        assert_eq!(
            told.hear(&Heard::Pod(Box::new(Event::Delete(pod)))),
            NOTHING
        );
        assert_eq!(told.snapshot().pods.len(), 1);
        assert!(told.detach("1"));
        assert!(told.snapshot().pods.is_empty());
    }

    #[test]
    fn a_list_of_policies_counts_once_it_is_complete() {
        let mut told = Told::new();
        let policy = |name: &str, version: &str| {
            let metadata = json!({"name": name, "namespace": "n", "resourceVersion": version});
            from_value(json!({"metadata": metadata, "spec": {"podSelector": {}}})).unwrap()
        };
        let mut newest = |event| {
            told.hear(&Heard::Policy(event));
            told.newest_policy()
        };
        assert_eq!(newest(Event::Init), 0);
        assert_eq!(newest(Event::InitApply(policy("a", "7"))), 0);
        assert_eq!(newest(Event::InitApply(policy("b", "5"))), 0);
        assert_eq!(newest(Event::InitDone), 7);
        assert_eq!(newest(Event::Apply(policy("b", "9"))), 9);
        assert_eq!(newest(Event::Delete(policy("b", "12"))), 12);
        assert_eq!(newest(Event::Init), 12);
        assert_eq!(newest(Event::InitDone), 12, "versions do not go back");
    }

    #[test]
    fn a_service_with_an_address_changes_no_names() {
        let mut told = Told::new();
        let mut service = json!({
            "metadata": {"name": "s", "namespace": "n"},
            "spec": {"clusterIP": "10.96.0.1", "selector": {"app": "a"}},
        });
        let mut apply = |service: &Value| {
            let service = from_value(service.clone()).unwrap();
            told.hear(&Heard::Service(Box::new(Event::Apply(service))))
        };
        assert_eq!(apply(&service), NOTHING);
        service["spec"]["clusterIP"] = json!("None");
        assert_eq!(apply(&service), NAMES);
        service["metadata"]["resourceVersion"] = json!("7");
        assert_eq!(apply(&service), NOTHING);
    }
}

//! The names of the cluster, at one moment.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Pod, PodSpec, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::DOMAIN;
use super::wire::{A, Data, SRV};

/// What there is under each name, the domain left off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Records {
    names: BTreeMap<String, Found>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Found {
    addresses: BTreeSet<Ipv4Addr>,
    /// Target and port.
    services: BTreeSet<(String, u16)>,
}

/// What records say about a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// It is not in the cluster's domain.
    Elsewhere,
    NoSuchName,
    /// Empty if the name has nothing of that kind.
    Data(Vec<Data>),
}

impl Records {
    /// Headless Services and the pods they select, and every pod under its address. A Service with an address of its
    /// own has no name here: nothing on this node would answer at that address.
    pub fn of(services: &[Service], pods: &[Pod]) -> Records {
        let mut records = Records::default();
        let pods: Vec<_> = pods.iter().filter_map(Candidate::of).collect();
        for pod in &pods {
            let name = format!("{}.{}.pod", dashed(pod.address), pod.namespace);
            records.add(&name).addresses.insert(pod.address);
        }
        for service in services {
            records.add_service(service, &pods);
        }
        records
    }

    fn add_service(&mut self, service: &Service, pods: &[Candidate<'_>]) {
        let Some(spec) = &service.spec else { return };
        let (Some(name), Some(namespace)) = (&service.metadata.name, &service.metadata.namespace)
        else {
            return;
        };
        let selector = spec.selector.as_ref().filter(|one| !one.is_empty());
        let is_headless = spec.cluster_ip.as_deref() == Some("None");
        let (Some(selector), true) = (selector, is_headless) else {
            return;
        };
        let own = format!("{name}.{namespace}.svc");
        self.add(&own);
        let unready = spec.publish_not_ready_addresses == Some(true);
        for pod in pods.iter().filter(|pod| pod.namespace == namespace) {
            let selected = selector.iter().all(|label| pod.has(label));
            if !selected || !(pod.ready || unready) {
                continue;
            }
            let target = format!("{}.{own}", pod.host(name));
            self.add(&own).addresses.insert(pod.address);
            self.add(&target).addresses.insert(pod.address);
            for port in spec.ports.iter().flatten() {
                let Some((label, number)) = pod.port(port) else {
                    continue;
                };
                let found = self.add(&format!("{label}.{own}"));
                found.services.insert((target.clone(), number));
            }
        }
    }

    /// Every name that this one ends with is then there, too.
    fn add(&mut self, name: &str) -> &mut Found {
        let name = name.to_ascii_lowercase();
        let dots = name.match_indices('.').map(|(at, _)| at);
        for parent in dots.map(|at| &name[at + 1..]) {
            self.names.entry(parent.to_owned()).or_default();
        }
        self.names.entry(name).or_default()
    }

    pub(super) fn find(&self, name: &[String], kind: u16) -> Answer {
        let domain: Vec<_> = DOMAIN.split('.').collect();
        let Some(inside) = name.len().checked_sub(domain.len()) else {
            return Answer::Elsewhere;
        };
        let (inside, ending) = name.split_at(inside);
        if !ending.iter().eq(domain) {
            return Answer::Elsewhere;
        }
        // a dot within a label would make two labels of it
        if inside.iter().any(|label| label.contains('.')) {
            return Answer::NoSuchName;
        }
        match self.names.get(&inside.join(".")) {
            Some(found) => Answer::Data(found.data(kind)),
            None if inside.is_empty() => Answer::Data(Vec::new()),
            None => Answer::NoSuchName,
        }
    }
}

impl Found {
    fn data(&self, kind: u16) -> Vec<Data> {
        match kind {
            A => self.addresses.iter().copied().map(Data::Address).collect(),
            SRV => {
                let share = 100_usize.checked_div(self.services.len()).unwrap_or(0);
                let weight = u16::try_from(share.max(1)).unwrap_or(1);
                let services = self.services.iter();
                let data = services.map(|(target, port)| Data::Service {
                    weight,
                    port: *port,
                    target: format!("{target}.{DOMAIN}"),
                });
                data.collect()
            }
            _ => Vec::new(),
        }
    }
}

/// A pod that has an address and has not ended.
struct Candidate<'a> {
    namespace: &'a str,
    labels: Option<&'a BTreeMap<String, String>>,
    spec: &'a PodSpec,
    address: Ipv4Addr,
    ready: bool,
}

impl<'a> Candidate<'a> {
    fn of(pod: &'a Pod) -> Option<Candidate<'a>> {
        let status = pod.status.as_ref()?;
        if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
            return None;
        }
        let is_ready = |condition: &&k8s_openapi::api::core::v1::PodCondition| {
            condition.type_ == "Ready" && condition.status == "True"
        };
        let ready = status.conditions.iter().flatten().find(is_ready).is_some();
        Some(Candidate {
            namespace: pod.metadata.namespace.as_deref()?,
            labels: pod.metadata.labels.as_ref(),
            spec: pod.spec.as_ref()?,
            address: status.pod_ip.as_deref()?.parse().ok()?,
            ready: ready && pod.metadata.deletion_timestamp.is_none(),
        })
    }

    fn has(&self, (key, value): (&String, &String)) -> bool {
        self.labels.and_then(|labels| labels.get(key)) == Some(value)
    }

    /// What it is called within a Service.
    fn host(&self, service: &str) -> String {
        let given = self
            .spec
            .hostname
            .as_deref()
            .filter(|name| !name.is_empty());
        match given {
            Some(name) if self.spec.subdomain.as_deref() == Some(service) => name.to_owned(),
            _ => dashed(self.address),
        }
    }

    /// The name under which a port is asked for, and the number that this pod has for it.
    fn port(&self, port: &ServicePort) -> Option<(String, u16)> {
        let name = port.name.as_deref().filter(|name| !name.is_empty())?;
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let number = match &port.target_port {
            None => port.port,
            Some(IntOrString::Int(number)) => *number,
            Some(IntOrString::String(name)) => {
                let ports = self.spec.containers.iter();
                let mut ports = ports.flat_map(|container| container.ports.iter().flatten());
                let found = ports.find(|one| {
                    one.name.as_ref() == Some(name)
                        && one.protocol.as_deref().unwrap_or("TCP") == protocol
                });
                found?.container_port
            }
        };
        let label = format!("_{name}._{}", protocol.to_ascii_lowercase());
        Some((label, u16::try_from(number).ok()?))
    }
}

fn dashed(address: Ipv4Addr) -> String {
    address.to_string().replace('.', "-")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::super::wire::{A, Data, SRV};
    use super::{Answer, Records};

    fn pod(name: &str, address: &str, ready: bool, spec: Value) -> Value {
        let mut pod = json!({
            "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
            "spec": {"containers": [
                {"name": "c", "ports": [{"name": "http", "containerPort": 8080}]},
            ]},
            "status": {
                "podIP": address,
                "phase": "Running",
                "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
            },
        });
        for (key, value) in spec.as_object().unwrap() {
            pod["spec"][key] = value.clone();
        }
        pod
    }

    fn records() -> Records {
        let services = json!([
            {
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {
                    "clusterIP": "None",
                    "selector": {"app": "web"},
                    "ports": [{"name": "http", "port": 80, "targetPort": "http"}],
                },
            },
            {
                "metadata": {"name": "all", "namespace": "default"},
                "spec": {
                    "clusterIP": "None",
                    "selector": {"app": "web"},
                    "publishNotReadyAddresses": true,
                },
            },
            {
                "metadata": {"name": "virtual", "namespace": "default"},
                "spec": {"clusterIP": "10.96.0.9", "selector": {"app": "web"}},
            },
        ]);
        let hostname = json!({"hostname": "first", "subdomain": "web"});
        let pods = json!([
            pod("a", "10.88.0.2", true, hostname),
            pod("b", "10.88.0.3", false, json!({})),
        ]);
        let services: Vec<_> = from_value(services).unwrap();
        let pods: Vec<_> = from_value(pods).unwrap();
        Records::of(&services, &pods)
    }

    fn find(name: &str, kind: u16) -> Answer {
        let labels: Vec<_> = name.split('.').map(str::to_owned).collect();
        records().find(&labels, kind)
    }

    fn addresses(last: &[u8]) -> Answer {
        let data = last
            .iter()
            .map(|last| Data::Address([10, 88, 0, *last].into()));
        Answer::Data(data.collect())
    }

    #[test]
    fn a_headless_service_is_its_ready_pods() {
        for (name, expected) in [
            ("web.default.svc.cluster.local", &[2][..]),
            ("all.default.svc.cluster.local", &[2, 3]),
            ("first.web.default.svc.cluster.local", &[2]),
            ("10-88-0-3.all.default.svc.cluster.local", &[3]),
            ("10-88-0-3.default.pod.cluster.local", &[3]),
            ("default.svc.cluster.local", &[]),
            ("cluster.local", &[]),
        ] {
            assert_eq!(find(name, A), addresses(expected), "{name}");
        }
    }

    #[test]
    fn a_named_port_is_the_number_that_each_pod_has_for_it() {
        let expected = Data::Service {
            weight: 100,
            port: 8080,
            target: "first.web.default.svc.cluster.local".to_owned(),
        };
        let found = find("_http._tcp.web.default.svc.cluster.local", SRV);
        assert_eq!(found, Answer::Data(vec![expected]));
    }

    #[test]
    fn what_the_cluster_does_not_have_is_not_asked_of_others() {
        for name in [
            "virtual.default.svc.cluster.local",
            "web.other.svc.cluster.local",
            "10-88-0-9.default.pod.cluster.local",
            "example.com.default.svc.cluster.local",
        ] {
            assert_eq!(find(name, A), Answer::NoSuchName, "{name}");
        }
        for name in ["example.com", "local", "notcluster.local", ""] {
            assert_eq!(find(name, A), Answer::Elsewhere, "{name}");
        }
    }

    #[test]
    fn a_label_with_a_dot_in_it_is_not_two_labels() {
        let labels = ["web.default", "svc", "cluster", "local"].map(str::to_owned);
        assert_eq!(records().find(&labels, A), Answer::NoSuchName);
    }
}

//! Policies as their objects mean them. What does not make sense allows nothing; the API refuses most of it.

use std::collections::BTreeMap;

use ipnet::Ipv4Net;
use k8s_openapi::api::networking::v1::{
    IPBlock, NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::Labels;
use crate::network::rules::{Ports, Protocol};

#[derive(Debug, Clone)]
pub(super) struct Policy {
    namespace: String,
    pods: Selector,
    /// None if the policy is not about the direction.
    pub(super) ingress: Option<Vec<Allowed>>,
    pub(super) egress: Option<Vec<Allowed>>,
}

/// Every peer on every port.
#[derive(Debug, Clone)]
pub(super) struct Allowed {
    pub(super) peers: Vec<Peer>,
    pub(super) ports: Vec<Port>,
}

#[derive(Debug, Clone)]
pub(super) enum Peer {
    Everybody,
    Block {
        within: Ipv4Net,
        except: Vec<Ipv4Net>,
    },
    Pods {
        namespaces: Namespaces,
        pods: Selector,
    },
}

#[derive(Debug, Clone)]
pub(super) enum Namespaces {
    Named(String),
    Labelled(Selector),
}

#[derive(Debug, Clone)]
pub(super) enum Port {
    Any,
    Numbers(Ports),
    Named(Protocol, String),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Selector {
    equal: Labels,
    expressions: Vec<Expression>,
}

#[derive(Debug, Clone)]
struct Expression {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

#[derive(Debug, Clone, Copy)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
    Unknown,
}

impl Policy {
    pub(super) fn selects(&self, namespace: &str, labels: &Labels) -> bool {
        self.namespace == namespace && self.pods.selects(labels)
    }
}

impl Selector {
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        self.equal.iter().all(equal) && self.expressions.iter().all(|one| one.holds(labels))
    }
}

impl Expression {
    fn holds(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Unknown => false,
        }
    }
}

impl Peer {
    /// Whether it selects a pod by labels.
    pub(super) fn selects(
        &self,
        namespace: &str,
        namespaces: &BTreeMap<String, Labels>,
        labels: &Labels,
    ) -> bool {
        match self {
            Peer::Everybody | Peer::Block { .. } => false,
            Peer::Pods {
                namespaces: Namespaces::Named(name),
                pods,
            } => name == namespace && pods.selects(labels),
            Peer::Pods {
                namespaces: Namespaces::Labelled(selector),
                pods,
            } => {
                let of_namespace = namespaces.get(namespace);
                of_namespace.is_some_and(|labels| selector.selects(labels)) && pods.selects(labels)
            }
        }
    }
}

pub(super) fn policy(object: &NetworkPolicy) -> Option<Policy> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let spec = object.spec.as_ref()?;
    let types = spec.policy_types.iter().flatten();
    let types: Vec<_> = types.map(String::as_str).collect();
    let ingress = spec.ingress.iter().flatten();
    let ingress = ingress.map(|rule| allowed(&namespace, rule.from.as_ref(), rule.ports.as_ref()));
    let ingress: Vec<_> = ingress.collect();
    let egress = spec.egress.iter().flatten();
    let egress = egress.map(|rule| allowed(&namespace, rule.to.as_ref(), rule.ports.as_ref()));
    let egress: Vec<_> = egress.collect();
    let about = |name, otherwise| match types.is_empty() {
        true => otherwise,
        false => types.contains(&name),
    };
    Some(Policy {
        ingress: about("Ingress", true).then_some(ingress),
        egress: about("Egress", !egress.is_empty()).then_some(egress),
        pods: spec.pod_selector.as_ref().map(selector).unwrap_or_default(),
        namespace,
    })
}

/// A list that is empty or absent is of everything; one of which nothing can be used is of nothing.
fn allowed(
    namespace: &str,
    peers: Option<&Vec<NetworkPolicyPeer>>,
    ports: Option<&Vec<NetworkPolicyPort>>,
) -> Allowed {
    let peers = match peers.map(Vec::as_slice) {
        None | Some([]) => vec![Peer::Everybody],
        Some(peers) => peers
            .iter()
            .filter_map(|one| peer(namespace, one))
            .collect(),
    };
    let ports = match ports.map(Vec::as_slice) {
        None | Some([]) => vec![Port::Any],
        Some(ports) => ports.iter().filter_map(port).collect(),
    };
    Allowed { peers, ports }
}

fn peer(namespace: &str, peer: &NetworkPolicyPeer) -> Option<Peer> {
    if let Some(given) = &peer.ip_block {
        return block(given);
    }
    let pods = peer.pod_selector.as_ref().map(selector);
    let namespaces = match &peer.namespace_selector {
        Some(labels) => Namespaces::Labelled(selector(labels)),
        None => Namespaces::Named(namespace.to_owned()),
    };
    if pods.is_none() && peer.namespace_selector.is_none() {
        return None;
    }
    let pods = pods.unwrap_or_default();
    Some(Peer::Pods { namespaces, pods })
}

/// Pods have no addresses of the sixth version, so a block of them is a block of nobody. An exception that cannot be
/// read could be any: then the block is nobody's, too.
fn block(block: &IPBlock) -> Option<Peer> {
    let within = block.cidr.parse::<Ipv4Net>().ok()?.trunc();
    let except = block.except.iter().flatten();
    let except = except.map(|one| one.parse::<Ipv4Net>().map(|one| one.trunc()));
    let except = except.collect::<Result<_, _>>().ok()?;
    Some(Peer::Block { within, except })
}

fn port(port: &NetworkPolicyPort) -> Option<Port> {
    let protocol = match port.protocol.as_deref() {
        None | Some("TCP") => Protocol::Tcp,
        Some("UDP") => Protocol::Udp,
        Some("SCTP") => Protocol::Sctp,
        Some(_) => return None,
    };
    let first = match &port.port {
        None => return Some(Port::Numbers(Ports::all(protocol))),
        Some(IntOrString::String(name)) => return Some(Port::Named(protocol, name.clone())),
        Some(IntOrString::Int(number)) => u16::try_from(*number).ok()?,
    };
    let last = match port.end_port {
        None => first,
        Some(end) => u16::try_from(end).ok()?,
    };
    (first <= last).then_some(Port::Numbers(Ports {
        protocol,
        first,
        last,
    }))
}

fn selector(selector: &LabelSelector) -> Selector {
    let expressions = selector.match_expressions.iter().flatten();
    let expressions = expressions.map(|one| Expression {
        key: one.key.clone(),
        operator: match one.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            _ => Operator::Unknown,
        },
        values: one.values.clone().unwrap_or_default(),
    });
    Selector {
        equal: selector.match_labels.clone().unwrap_or_default(),
        expressions: expressions.collect(),
    }
}

//! Who may reach whom, read off the policies one by one.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use k8s_openapi::api::networking::v1::{NetworkPolicy, NetworkPolicyPeer, NetworkPolicyPort};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::{PolicyPod, Snapshot};
use super::address_of;
use crate::network::rules::{Protocol, is_metadata};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Party {
    Pod(usize),
    Outside(Ipv4Addr),
}

impl Party {
    pub(super) fn address(self) -> Ipv4Addr {
        match self {
            Party::Pod(index) => address_of(index),
            Party::Outside(address) => address,
        }
    }
}

/// How a rule comes to speak of a party.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reason {
    Everybody,
    Selector,
    Block(Ipv4Net),
}

/// The policies of a pod in one direction: why they allow the other side. None if there are no policies.
type Judgement = Option<Vec<Reason>>;

pub(super) fn may_reach(
    snapshot: &Snapshot,
    from: Party,
    to: Party,
    protocol: Protocol,
    port: u16,
) -> bool {
    let question = Question {
        snapshot,
        to,
        protocol,
        port,
    };
    match (from, to) {
        (Party::Pod(sender), Party::Outside(address)) => {
            let Some(reasons) = question.egress(sender) else {
                return !is_metadata(address);
            };
            reasons.iter().any(|reason| match reason {
                Reason::Block(block) if is_metadata(*block) => true,
                _ => !is_metadata(address),
            })
        }
        (_, Party::Pod(receiver)) => {
            let sender = match from {
                Party::Pod(index) => question.egress(index),
                Party::Outside(_) => None,
            };
            match (sender, question.ingress(receiver, from)) {
                (None, None) => false,
                (Some(sender), None) => sender.contains(&Reason::Selector),
                (None, Some(receiver)) => !receiver.is_empty(),
                (Some(sender), Some(receiver)) => !sender.is_empty() && !receiver.is_empty(),
            }
        }
        (Party::Outside(_), Party::Outside(_)) => true,
    }
}

struct Question<'a> {
    snapshot: &'a Snapshot,
    to: Party,
    protocol: Protocol,
    port: u16,
}

impl Question<'_> {
    fn egress(&self, sender: usize) -> Judgement {
        let mut judgement = None;
        for policy in self.policies(sender, "Egress") {
            let reasons = judgement.get_or_insert_with(Vec::new);
            for rule in policy
                .spec
                .iter()
                .flat_map(|spec| spec.egress.iter().flatten())
            {
                if self.has_port(rule.ports.as_ref()) {
                    reasons.extend(self.peers(policy, rule.to.as_ref(), self.to));
                }
            }
        }
        judgement
    }

    fn ingress(&self, receiver: usize, from: Party) -> Judgement {
        let mut judgement = None;
        for policy in self.policies(receiver, "Ingress") {
            let reasons = judgement.get_or_insert_with(Vec::new);
            for rule in policy
                .spec
                .iter()
                .flat_map(|spec| spec.ingress.iter().flatten())
            {
                if self.has_port(rule.ports.as_ref()) {
                    reasons.extend(self.peers(policy, rule.from.as_ref(), from));
                }
            }
        }
        judgement
    }

    fn policies(&self, pod: usize, direction: &str) -> impl Iterator<Item = &NetworkPolicy> {
        let pod = &self.snapshot.pods[pod];
        let policies = self.snapshot.policies.iter();
        policies.filter(move |policy| {
            let spec = policy.spec.as_ref().unwrap();
            let types = spec.policy_types.clone().unwrap_or_default();
            let has_egress = spec.egress.as_ref().is_some_and(|rules| !rules.is_empty());
            let about = match types.is_empty() {
                true => direction == "Ingress" || has_egress,
                false => types.iter().any(|one| one == direction),
            };
            let selector = spec.pod_selector.clone().unwrap_or_default();
            about
                && policy.metadata.namespace.as_ref() == Some(&pod.namespace)
                && selects(&selector, &pod.labels)
        })
    }

    fn has_port(&self, ports: Option<&Vec<NetworkPolicyPort>>) -> bool {
        let ports = ports.filter(|ports| !ports.is_empty());
        ports.is_none_or(|ports| ports.iter().any(|port| self.is_port(port)))
    }

    fn is_port(&self, port: &NetworkPolicyPort) -> bool {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
            Protocol::Sctp => "SCTP",
        };
        if port.protocol.as_deref().unwrap_or("TCP") != protocol {
            return false;
        }
        let number = i32::from(self.port);
        match &port.port {
            None => true,
            Some(IntOrString::Int(first)) => {
                (*first..=port.end_port.unwrap_or(*first)).contains(&number)
            }
            Some(IntOrString::String(name)) => self.receiver().is_some_and(|pod| {
                pod.ports.iter().any(|one| {
                    one.name == *name && one.protocol == self.protocol && one.number == self.port
                })
            }),
        }
    }

    fn receiver(&self) -> Option<&PolicyPod> {
        match self.to {
            Party::Pod(index) => Some(&self.snapshot.pods[index]),
            Party::Outside(_) => None,
        }
    }

    fn peers(
        &self,
        policy: &NetworkPolicy,
        peers: Option<&Vec<NetworkPolicyPeer>>,
        party: Party,
    ) -> Vec<Reason> {
        match peers.filter(|peers| !peers.is_empty()) {
            None => vec![Reason::Everybody],
            Some(peers) => peers
                .iter()
                .filter_map(|peer| self.peer(policy, peer, party))
                .collect(),
        }
    }

    fn peer(
        &self,
        policy: &NetworkPolicy,
        peer: &NetworkPolicyPeer,
        party: Party,
    ) -> Option<Reason> {
        if let Some(block) = &peer.ip_block {
            let address = party.address();
            let within: Ipv4Net = block.cidr.parse().ok()?;
            let mut except = block.except.iter().flatten();
            let excepted = |one: &String| one.parse::<Ipv4Net>().unwrap().contains(&address);
            let holds = within.contains(&address) && !except.any(excepted);
            return holds.then_some(Reason::Block(within));
        }
        let Party::Pod(index) = party else {
            return None;
        };
        let pod = &self.snapshot.pods[index];
        let in_namespace = match &peer.namespace_selector {
            Some(selector) => selects(selector, self.snapshot.namespaces.get(&pod.namespace)?),
            None => policy.metadata.namespace.as_ref() == Some(&pod.namespace),
        };
        let selector = peer.pod_selector.clone().unwrap_or_default();
        (in_namespace && selects(&selector, &pod.labels)).then_some(Reason::Selector)
    }
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let mut equal = selector.match_labels.iter().flatten();
    let mut expressions = selector.match_expressions.iter().flatten();
    equal.all(|(key, value)| labels.get(key) == Some(value))
        && expressions.all(|one| {
            let value = labels.get(&one.key);
            let values = one.values.clone().unwrap_or_default();
            let listed = value.is_some_and(|value| values.contains(value));
            match one.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                _ => value.is_none(),
            }
        })
}

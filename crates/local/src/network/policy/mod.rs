//! NetworkPolicies: from objects to rules.
//!
//! Isolation is as Kubernetes has it: a pod that a policy selects for a direction accepts in that direction what some
//! policy allows, and nothing else. What differs is the default. A pod that no policy selects may go out, but nothing
//! from elsewhere than the host comes in. Another pod is let in
//! - where an ingress policy of the receiver allows it, or
//! - where the receiver has no ingress policies and an egress policy of the sender names it by a selector. An egress
//!   rule for all destinations or for a block of addresses does not name anybody.
//!
//! Addresses of clouds' metadata are within no rule but one for a block that lies among them.

mod parse;
mod translate;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::networking::v1::NetworkPolicy;

use super::rules::Protocol;

pub(super) use translate::translate;

type Labels = BTreeMap<String, String>;

/// All that policies are decided on, at one moment.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    /// The labels of each namespace.
    pub namespaces: BTreeMap<String, Labels>,
    pub pods: Vec<PolicyPod>,
    pub policies: Vec<NetworkPolicy>,
}

/// What policies ask of a pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicyPod {
    /// As it was attached.
    pub id: String,
    pub namespace: String,
    pub labels: Labels,
    /// Ports of its containers that have a name.
    pub ports: Vec<NamedPort>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedPort {
    pub name: String,
    pub protocol: Protocol,
    pub number: u16,
}

/// A pod that has an address.
#[derive(Debug, Clone, Copy)]
pub(super) struct Located<'a> {
    pub(super) pod: &'a PolicyPod,
    pub(super) address: Ipv4Addr,
}

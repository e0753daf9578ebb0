//! Policies are translated, and the rules then decide by an interpreter what somebody who only reads the policies
//! decides, too.

mod generate;
mod interpret;
mod naive;
mod table;

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use proptest::prelude::*;
use serde_json::{Value, from_value, json};

use super::translate::{Translation, translate};
use super::{Located, Snapshot};
use crate::network::rules::{Base, Protocol, change, creation};
use generate::{BLOCKS, OUTSIDE, snapshots};
use interpret::{Packet, passes};
use naive::{Party, may_reach};
use table::Table;

const PREFIX: &str = "sb0badcafe-";

pub(super) fn address_of(index: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 88, 0, 2 + u8::try_from(index).unwrap())
}

fn base() -> Base {
    Base {
        prefix: PREFIX.to_owned(),
        range: Ipv4Net::new(Ipv4Addr::new(10, 88, 0, 0), 20).unwrap(),
        gateway: Ipv4Addr::new(10, 88, 0, 1),
    }
}

fn translated(snapshot: &Snapshot) -> Translation {
    let pods = snapshot.pods.iter().enumerate();
    let pods = pods.map(|(index, pod)| Located {
        pod,
        address: address_of(index),
    });
    translate(base().rules(), snapshot, &pods.collect::<Vec<_>>())
}

fn packet(from: Party, to: Party, protocol: Protocol, port: u16) -> Packet {
    let link = |party| match party {
        Party::Pod(index) => format!("{PREFIX}{index:x}"),
        Party::Outside(_) => "eth0".to_owned(),
    };
    Packet {
        from_link: link(from),
        to_link: link(to),
        from: from.address(),
        to: to.address(),
        protocol,
        port,
    }
}

fn parties(snapshot: &Snapshot) -> Vec<Party> {
    let pods = (0..snapshot.pods.len()).map(Party::Pod);
    pods.chain(OUTSIDE.map(Party::Outside)).collect()
}

const PORTS: [(Protocol, u16); 6] = [
    (Protocol::Tcp, 80),
    (Protocol::Tcp, 8080),
    (Protocol::Tcp, 9000),
    (Protocol::Udp, 53),
    (Protocol::Udp, 80),
    (Protocol::Sctp, 80),
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn rules_let_through_what_policies_allow_and_nothing_else(snapshot in snapshots()) {
        let rules = translated(&snapshot).rules;
        for from in parties(&snapshot) {
            for to in parties(&snapshot) {
                // two machines outside are none of our business, and a pod reaches itself without us
                let outside = matches!((from, to), (Party::Outside(_), Party::Outside(_)));
                if outside || from == to {
                    continue;
                }
                for (protocol, port) in PORTS {
                    let packet = packet(from, to, protocol, port);
                    let expected = may_reach(&snapshot, from, to, protocol, port);
                    let found = passes(&rules, &packet);
                    prop_assert_eq!(found, expected, "{:?}\n{}", packet, rules.describe("t"));
                }
            }
        }
    }

    #[test]
    fn a_change_makes_one_table_the_other(old in snapshots(), new in snapshots()) {
        let (old, new) = (translated(&old).rules, translated(&new).rules);
        let mut table = Table::default();
        table.apply(&creation(&old));
        prop_assert_eq!(&table.rules, &old);
        table.apply(&change(&old, &new));
        prop_assert_eq!(&table.rules, &new);
        prop_assert!(change(&new, &new).is_empty());
    }
}

#[test]
fn a_pod_more_adds_elements_and_touches_no_rule() {
    let policies = json!([policy(
        "a",
        json!({
            "podSelector": {},
            "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "1"}}}]}],
        })
    )]);
    let one = with_pods(&policies, &[("a", "1")]);
    let two = with_pods(&policies, &[("a", "1"), ("a", "1")]);
    let steps = change(&translated(&one).rules, &translated(&two).rules);
    let names: Vec<_> = steps.iter().map(|step| format!("{step:?}")).collect();
    let kinds = names
        .iter()
        .map(|name| name.split('(').next().unwrap_or_default());
    assert_eq!(kinds.collect::<Vec<_>>(), ["AddMembers", "AddEntries"]);
}

fn policy(namespace: &str, spec: Value) -> Value {
    json!({"metadata": {"name": "p", "namespace": namespace}, "spec": spec})
}

/// Pods by namespace and the label `app`.
fn with_pods(policies: &Value, pods: &[(&str, &str)]) -> Snapshot {
    let names = ["a", "b", "agent-sandbox-system"];
    let labels = |key: &str, value: &str| [(key.to_owned(), value.to_owned())].into();
    Snapshot {
        namespaces: names
            .map(|name| (name.to_owned(), labels("kubernetes.io/metadata.name", name)))
            .into(),
        pods: pods
            .iter()
            .enumerate()
            .map(|(index, (namespace, app))| super::PolicyPod {
                id: index.to_string(),
                namespace: (*namespace).to_owned(),
                labels: labels("app", app),
                ports: Vec::new(),
            })
            .collect(),
        policies: from_value(policies.clone()).unwrap(),
    }
}

/// As the template controller makes it for templates without one of their own.
fn default_policy() -> Value {
    policy(
        "a",
        json!({
            "podSelector": {"matchLabels": {"app": "sandbox"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "agent-sandbox-system"},
                },
                "podSelector": {"matchLabels": {"app": "sandbox-router"}},
            }]}],
            "egress": [{"to": [
                {"ipBlock": {"cidr": "0.0.0.0/0", "except": [
                    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "169.254.0.0/16",
                ]}},
                {"ipBlock": {"cidr": "::/0", "except": ["fc00::/7", "fe80::/10"]}},
            ]}],
        }),
    )
}

#[test]
fn under_the_default_policy_of_templates_only_the_router_comes_in_and_only_the_world_is_reached() {
    let pods = [
        ("a", "sandbox"),
        ("a", "sandbox"),
        ("agent-sandbox-system", "sandbox-router"),
        ("a", "sandbox-router"),
    ];
    let snapshot = with_pods(&json!([default_policy()]), &pods);
    let Translation { rules, resolving } = translated(&snapshot);
    let reaches = |from, to| passes(&rules, &packet(from, to, Protocol::Tcp, 80));
    let outside = |text: &str| Party::Outside(text.parse().unwrap());
    let (sandbox, other, router) = (Party::Pod(0), Party::Pod(1), Party::Pod(2));
    assert!(reaches(router, sandbox));
    assert!(reaches(sandbox, outside("1.2.3.4")));
    assert!(!reaches(sandbox, other) && !reaches(sandbox, router));
    assert!(!reaches(Party::Pod(3), sandbox) && !reaches(outside("1.2.3.4"), sandbox));
    for private in ["10.1.2.3", "172.17.0.1", "192.168.1.1", "169.254.169.254"] {
        assert!(!reaches(sandbox, outside(private)), "{private}");
    }
    assert_eq!(resolving.len(), 4);
}

#[test]
fn without_policies_a_pod_reaches_the_world_and_no_pod() {
    let snapshot = with_pods(&json!([]), &[("a", "1"), ("a", "2")]);
    let rules = translated(&snapshot).rules;
    let reaches = |from, to| passes(&rules, &packet(from, to, Protocol::Tcp, 80));
    let outside = |text: &str| Party::Outside(text.parse().unwrap());
    assert!(reaches(Party::Pod(0), outside("192.168.1.1")));
    assert!(!reaches(Party::Pod(0), Party::Pod(1)));
    assert!(!reaches(Party::Pod(0), outside("169.254.169.254")));
    assert!(!reaches(outside("1.2.3.4"), Party::Pod(0)));
}

#[test]
fn names_outside_are_resolved_only_for_pods_that_may_ask_a_resolver() {
    let selector = json!({"matchLabels": {"k8s-app": "kube-dns"}});
    let dns = json!([{"protocol": "UDP", "port": 53}]);
    for (egress, expected) in [
        (json!([]), false),
        (json!([{}]), true),
        (json!([{"ports": dns}]), true),
        (json!([{"ports": [{"port": 443}]}]), false),
        (
            json!([{"to": [{"ipBlock": {"cidr": "1.2.3.4/32"}}]}]),
            false,
        ),
        (json!([{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}]), true),
        (
            json!([{"to": [{"namespaceSelector": {}, "podSelector": selector}], "ports": dns}]),
            true,
        ),
        (
            json!([{"to": [{"podSelector": selector}], "ports": dns}]),
            false,
        ),
    ] {
        let spec = json!({"podSelector": {}, "policyTypes": ["Egress"], "egress": egress});
        let snapshot = with_pods(&json!([policy("a", spec)]), &[("a", "1")]);
        let resolving = translated(&snapshot).resolving;
        assert_eq!(!resolving.is_empty(), expected, "{egress}");
    }
}

#[test]
fn every_block_that_is_tried_has_an_address_that_is_tried() {
    for block in BLOCKS {
        let block: Ipv4Net = block.parse().unwrap();
        let pods = (0..5).map(address_of);
        let mut tried = pods.chain(OUTSIDE);
        assert!(tried.any(|address| block.contains(&address)), "{block}");
    }
}

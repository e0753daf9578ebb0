//! Policies, pods and addresses of which many meet.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, from_value, json};

use super::super::{NamedPort, PolicyPod, Snapshot};
use crate::network::rules::Protocol;

pub(super) const OUTSIDE: [Ipv4Addr; 8] = [
    Ipv4Addr::new(1, 2, 3, 4),
    Ipv4Addr::new(10, 1, 2, 3),
    Ipv4Addr::new(192, 168, 1, 1),
    Ipv4Addr::new(169, 254, 169, 254),
    Ipv4Addr::new(169, 254, 1, 1),
    Ipv4Addr::new(168, 63, 129, 16),
    Ipv4Addr::new(168, 63, 129, 17),
    Ipv4Addr::new(100, 100, 100, 200),
];

pub(super) const BLOCKS: [&str; 10] = [
    "0.0.0.0/0",
    "0.0.0.0/1",
    "10.0.0.0/8",
    "10.88.0.2/31",
    "1.2.3.4/32",
    "169.254.0.0/16",
    "169.254.169.0/24",
    "168.63.129.16/32",
    "168.63.129.0/24",
    "100.64.0.0/10",
];

const EXCEPTIONS: [&str; 6] = [
    "10.0.0.0/8",
    "10.88.0.4/32",
    "1.2.0.0/16",
    "169.254.0.0/16",
    "169.254.169.254/32",
    "192.168.1.1/32",
];

pub(super) fn snapshots() -> impl Strategy<Value = Snapshot> {
    (vec(pod(), 1..5), vec(policy(), 0..5)).prop_map(|(pods, policies)| Snapshot {
        namespaces: ["a", "b"]
            .map(|name| {
                (
                    name.to_owned(),
                    BTreeMap::from([("team".to_owned(), name.to_owned())]),
                )
            })
            .into(),
        pods,
        policies: from_value(Value::Array(policies)).unwrap(),
    })
}

fn pod() -> impl Strategy<Value = PolicyPod> {
    let number = select(&[80_u16, 8080][..]);
    (namespace(), option::of(app()), option::of(number)).prop_map(|(namespace, app, number)| {
        let app = app.map(|app| ("app".to_owned(), app.to_owned()));
        PolicyPod {
            id: "pod".to_owned(),
            namespace: namespace.to_owned(),
            labels: app.into_iter().collect(),
            ports: number
                .map(|number| NamedPort {
                    name: "web".to_owned(),
                    protocol: Protocol::Tcp,
                    number,
                })
                .into_iter()
                .collect(),
        }
    })
}

fn namespace() -> impl Strategy<Value = &'static str> {
    select(&["a", "b"][..])
}

fn app() -> impl Strategy<Value = &'static str> {
    select(&["1", "2"][..])
}

fn policy() -> impl Strategy<Value = Value> {
    let types = [
        Value::Null,
        json!(["Ingress"]),
        json!(["Egress"]),
        json!(["Ingress", "Egress"]),
    ];
    let rules = |peers| option::of(vec(rule(peers), 0..3));
    let parts = (
        namespace(),
        selector(),
        select(types.to_vec()),
        rules("from"),
        rules("to"),
    );
    parts.prop_map(|(namespace, selector, types, ingress, egress)| {
        json!({
            "metadata": {"name": "p", "namespace": namespace},
            "spec": {
                "podSelector": selector,
                "policyTypes": types,
                "ingress": ingress,
                "egress": egress,
            },
        })
    })
}

fn rule(peers: &'static str) -> impl Strategy<Value = Value> {
    (vec(peer(), 0..3), vec(port(), 0..3))
        .prop_map(move |(list, ports)| json!({peers: list, "ports": ports}))
}

fn peer() -> impl Strategy<Value = Value> {
    let many = (0..30).map(|last| format!("10.88.0.{}/32", last * 2));
    let wide = ["1.2.0.0/16", "192.168.0.0/16"].map(str::to_owned);
    let many: Vec<_> = many.chain(wide).collect();
    let except = prop_oneof![
        4 => vec(select(&EXCEPTIONS[..]), 0..3).prop_map(|list| json!(list)),
        1 => Just(json!(many)),
    ];
    let block = (select(&BLOCKS[..]), except);
    let team = namespace().prop_map(|name| json!({"matchLabels": {"team": name}}));
    let namespaces = prop_oneof![Just(json!({})), team];
    prop_oneof![
        selector().prop_map(|pods| json!({"podSelector": pods})),
        namespaces
            .clone()
            .prop_map(|all| json!({"namespaceSelector": all})),
        (namespaces, selector())
            .prop_map(|(all, pods)| json!({"namespaceSelector": all, "podSelector": pods})),
        block.prop_map(|(cidr, except)| json!({"ipBlock": {"cidr": cidr, "except": except}})),
        Just(json!({"ipBlock": {"cidr": "::/0"}})),
    ]
}

fn selector() -> impl Strategy<Value = Value> {
    let operator = select(&["In", "NotIn", "Exists", "DoesNotExist"][..]);
    prop_oneof![
        Just(json!({})),
        app().prop_map(|app| json!({"matchLabels": {"app": app}})),
        (operator, app()).prop_map(|(operator, app)| {
            let values = match operator {
                "In" | "NotIn" => json!([app]),
                _ => Value::Null,
            };
            json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]})
        }),
    ]
}

fn port() -> impl Strategy<Value = Value> {
    let protocol = select(&["TCP", "UDP", "SCTP"][..]);
    let numbers = prop_oneof![
        Just(json!({})),
        Just(json!({"port": 80})),
        Just(json!({"port": 53})),
        Just(json!({"port": 80, "endPort": 8080})),
        Just(json!({"port": "web"})),
    ];
    (option::of(protocol), numbers).prop_map(|(protocol, mut port)| {
        if let Some(protocol) = protocol {
            port["protocol"] = json!(protocol);
        }
        port
    })
}

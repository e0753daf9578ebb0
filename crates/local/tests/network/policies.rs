//! Policies in the kernel. Which they are is decided elsewhere, over thousands of them; here they are put in force.

use std::net::Ipv4Addr;

use serde_json::json;

use crate::support::{OFFICE, WORLD, enforce, on_a_host, pod};

#[test]
fn a_policy_opens_a_way_between_pods_and_closes_it_for_connections_too() {
    on_a_host(
        "policies::a_policy_opens_a_way_between_pods_and_closes_it_for_connections_too",
        async |host| {
            let network = host.network().await;
            let (a, b) = (pod(&network, "a").await, pod(&network, "b").await);
            let pods = [&a, &b];
            let open = json!({
                "podSelector": {"matchLabels": {"app": "b"}},
                "ingress": [{
                    "from": [{"podSelector": {"matchLabels": {"app": "a"}}}],
                    "ports": [{"port": 80}],
                }],
            });
            b.space.listen(Ipv4Addr::UNSPECIFIED, 81);
            enforce(&network, &pods, std::slice::from_ref(&open)).await;
            let mut talk = a.space.connect(b.address, 80).unwrap();
            assert_eq!(talk.seen_as, a.address);
            assert!(talk.goes_on());
            assert!(!a.space.reaches(b.address, 81));
            assert!(!b.space.reaches(a.address, 80));
            enforce(&network, &pods, &[]).await;
            assert!(talk.is_silent());
            assert!(!a.space.reaches(b.address, 80));
            enforce(&network, &pods, &[open]).await;
            // what was said meanwhile comes late, and is the first answer
            assert!(talk.goes_on() && talk.goes_on());
        },
    );
}

#[test]
fn a_policy_closes_the_way_out_and_leaves_the_host_its_way_in() {
    on_a_host(
        "policies::a_policy_closes_the_way_out_and_leaves_the_host_its_way_in",
        async |host| {
            let network = host.network().await;
            let (a, b) = (pod(&network, "a").await, pod(&network, "b").await);
            host.world.listen(Ipv4Addr::UNSPECIFIED, 443);
            let closed = json!({
                "podSelector": {"matchLabels": {"app": "a"}},
                "policyTypes": ["Ingress", "Egress"],
            });
            let public = json!({
                "podSelector": {"matchLabels": {"app": "b"}},
                "policyTypes": ["Egress"],
                "egress": [{"to": [
                    {"ipBlock": {"cidr": "0.0.0.0/0", "except": ["10.0.0.0/8", "192.168.0.0/16"]}},
                ]}],
            });
            enforce(&network, &[&a, &b], &[closed, public]).await;
            assert!(!a.space.reaches(WORLD, 443));
            assert!(b.space.connect(WORLD, 443).is_some());
            assert!(!b.space.reaches(OFFICE, 443));
            assert!(host.connect(a.address, 80).is_some());
            enforce(&network, &[&a, &b], &[]).await;
            assert!(a.space.connect(WORLD, 443).is_some());
            assert!(b.space.connect(OFFICE, 443).is_some());
        },
    );
}

#[test]
fn a_policy_with_every_kind_of_rule_is_taken_by_the_kernel() {
    on_a_host(
        "policies::a_policy_with_every_kind_of_rule_is_taken_by_the_kernel",
        async |host| {
            let network = host.network().await;
            let (a, b) = (pod(&network, "a").await, pod(&network, "b").await);
            let except: Vec<_> = (0..200).map(|n| format!("10.{n}.0.0/16")).collect();
            let everything = json!({
                "podSelector": {},
                "policyTypes": ["Ingress", "Egress"],
                "ingress": [
                    {"from": [{"namespaceSelector": {}}], "ports": [
                        {"port": 80, "endPort": 90},
                        {"protocol": "UDP"},
                        {"protocol": "SCTP", "port": 9},
                    ]},
                    {"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}]},
                ],
                "egress": [
                    {"to": [{"podSelector": {}}]},
                    {"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]},
                    {"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": except[..16]}}]},
                ],
            });
            for specs in [&[everything.clone()][..], &[], &[everything]] {
                enforce(&network, &[&a, &b], specs).await;
                match specs.is_empty() {
                    true => assert!(!a.space.reaches(b.address, 80)),
                    false => assert!(a.space.connect(b.address, 80).is_some()),
                }
                let described = network.describe().await;
                assert_eq!(described.contains("tcp dport 80-90"), !specs.is_empty());
            }
        },
    );
}

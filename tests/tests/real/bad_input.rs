//! What is wrong with an object is said in the server's clear words, and the object is not stored.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::cluster::{V1BETA1, cluster_of, minimal};

const SANDBOX: &str = "agents.x-k8s.io/v1beta1 Sandbox";
const KRUISE_CLAIM: &str = "agents.kruise.io/v1alpha1 SandboxClaim";

/// Kind, where the minimal object is changed (a JSON pointer), to what (null removes the field), and
/// what the error must hold: the name of the field, and the remedy.
const CASES: &str = include_str!("bad_input.tsv");

struct Case {
    api_version: &'static str,
    kind: &'static str,
    changed: &'static str,
    to: Value,
    expected: [&'static str; 2],
}

fn cases() -> impl Iterator<Item = Case> {
    CASES.lines().skip(1).map(|row| {
        let [kind, changed, to, named, said] = row.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{row}");
        };
        let (api_version, kind) = kind.split_once(' ').unwrap();
        let to = serde_json::from_str(to).unwrap();
        Case {
            api_version,
            kind,
            changed,
            to,
            expected: [named, said],
        }
    })
}

fn change(object: &mut Value, pointer: &str, value: &Value) {
    suite::objects::change(object, pointer, value).unwrap();
}

fn all_refused(api_groups: &[&str]) {
    let mut problems = Vec::new();
    let mut namespaces = BTreeMap::new();
    for case in cases().filter(|case| api_groups.contains(&case.api_version)) {
        let cluster = cluster_of(case.api_version);
        let namespace = namespaces
            .entry(case.api_version)
            .or_insert_with(|| cluster.namespace("bad-input"));
        let good = minimal(case.api_version, case.kind, namespace);
        let mut bad = good.clone();
        change(&mut bad, case.changed, &case.to);
        let said = cluster.kubectl(&["create", "-f", "-"], Some(&bad));
        let clear = !said.ok && case.expected.iter().all(|text| said.stderr.contains(text));
        let stored = cluster.stored(&good);
        if !clear || stored.is_some() {
            let Case {
                kind, changed, to, ..
            } = case;
            problems.push(format!(
                "{kind} {changed} = {to}: {said:?}, stored: {stored:?}"
            ));
        }
    }
    assert!(
        !namespaces.is_empty() && problems.is_empty(),
        "{problems:#?}"
    );
}

#[test]
fn of_the_sigs_kinds_is_refused() {
    all_refused(&[
        "agents.x-k8s.io/v1beta1",
        "extensions.agents.x-k8s.io/v1beta1",
    ]);
}

#[test]
fn of_the_kruise_kinds_is_refused() {
    all_refused(&["agents.kruise.io/v1alpha1"]);
}

#[test]
fn of_the_v1alpha1_kinds_is_refused() {
    all_refused(&[
        "agents.x-k8s.io/v1alpha1",
        "extensions.agents.x-k8s.io/v1alpha1",
    ]);
}

#[test]
fn the_table_is_long_enough_and_its_base_objects_are_good() {
    assert!(cases().count() >= 40);
    let kinds: BTreeSet<_> = cases().map(|case| (case.api_version, case.kind)).collect();
    for (api_version, kind) in kinds {
        let cluster = cluster_of(api_version);
        let object = minimal(api_version, kind, &cluster.namespace("good-input"));
        let said = cluster.kubectl(&["create", "-f", "-"], Some(&object));
        assert!(said.ok, "{said:?}");
    }
}

#[test]
fn changing_what_is_immutable_is_refused_and_changes_nothing() {
    let templates = |size: &str| json!([{"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": size}}}}]);
    let cases = [
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            templates("1Gi"),
            templates("2Gi"),
            "volumeClaimTemplates is immutable",
        ),
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            templates("1Gi"),
            json!(null),
            "volumeClaimTemplates is immutable",
        ),
        (
            SANDBOX,
            "/spec/volumeClaimTemplates",
            json!(null),
            templates("1Gi"),
            "volumeClaimTemplates is immutable",
        ),
        (
            KRUISE_CLAIM,
            "/spec/replicas",
            json!(2),
            json!(3),
            "replicas is immutable",
        ),
    ];
    for (kind, pointer, before, after, says) in cases {
        let (api_version, name) = kind.split_once(' ').unwrap();
        let cluster = cluster_of(api_version);
        let namespace = cluster.namespace("immutable");
        let mut object = minimal(api_version, name, &namespace);
        change(&mut object, pointer, &before);
        assert!(cluster.kubectl(&["create", "-f", "-"], Some(&object)).ok);
        let stored = cluster.stored(&object).unwrap();
        change(&mut object, pointer, &after);
        let said = cluster.kubectl(&["replace", "-f", "-"], Some(&object));
        assert!(!said.ok && said.stderr.contains(says), "{kind}: {said:?}");
        assert_eq!(cluster.stored(&object).unwrap(), stored);
    }
}

#[test]
fn volume_claim_templates_of_a_template_may_change() {
    let namespace = V1BETA1.namespace("mutable");
    let mut object = minimal(
        "extensions.agents.x-k8s.io/v1beta1",
        "SandboxTemplate",
        &namespace,
    );
    assert!(V1BETA1.kubectl(&["create", "-f", "-"], Some(&object)).ok);
    object["spec"]["volumeClaimTemplates"] = json!([{"spec": {}}]);
    let said = V1BETA1.kubectl(&["replace", "-f", "-"], Some(&object));
    assert!(said.ok, "{said:?}");
    assert_eq!(
        V1BETA1.stored(&object).unwrap()["spec"]["volumeClaimTemplates"],
        json!([{"spec": {}}])
    );
}

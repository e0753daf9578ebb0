#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::{carry_over, generate_name, keep_owners_once, place_in_namespace};
use super::{validate_create, validate_update};
use crate::kinds::BUILT_IN;
use crate::server::resource::Resource;

fn resource(plural: &str) -> Resource {
    let built_in = BUILT_IN.iter().find(|kind| kind.plural == plural);
    Resource::from(built_in.unwrap())
}

fn with(metadata: Value) -> Value {
    let mut object = json!({"metadata": {"name": "a", "namespace": "n"}});
    let fields = metadata.as_object().unwrap().clone();
    object["metadata"].as_object_mut().unwrap().extend(fields);
    object
}

/// The fields that are wrong in a new object, without `metadata.`.
fn wrong(plural: &str, metadata: Value) -> Vec<String> {
    let errors = validate_create(&with(metadata), &resource(plural));
    let fields = errors.into_iter().map(|error| error.field);
    fields
        .map(|field| field.replacen("metadata.", "", 1))
        .collect()
}

/// What is said of the only fault of a new config map.
fn said(metadata: Value) -> String {
    let errors = validate_create(&with(metadata), &resource("configmaps"));
    assert_eq!(errors.len(), 1, "{errors:?}");
    errors[0].to_string()
}

#[test]
fn names_follow_the_rule_of_their_kind() {
    assert_eq!(wrong("configmaps", json!({"name": "a.b-c.d"})), [""; 0]);
    for name in ["Upper", "under_score", "-dash", "dot.", "a/b", "a%b"] {
        assert_eq!(
            wrong("configmaps", json!({"name": name})),
            ["name"],
            "{name}"
        );
    }
    assert_eq!(
        said(json!({"name": "a".repeat(254)})),
        format!(
            "metadata.name: Invalid value: \"{}\": must be no more than 253 characters",
            "a".repeat(254)
        )
    );
    let budgets = "poddisruptionbudgets";
    assert_eq!(wrong(budgets, json!({"name": "Up_"})), [""; 0]);
    assert_eq!(wrong(budgets, json!({"name": "a/b"})), ["name"]);
    assert_eq!(
        said(json!({"name": ""})),
        "metadata.name: Required value: name or generateName is required"
    );
}

#[test]
fn a_prefix_may_end_with_a_dash() {
    let made = |prefix: &str| wrong("configmaps", json!({"generateName": prefix}));
    assert_eq!(made("made-"), [""; 0]);
    assert_eq!(made("Made-"), ["generateName"]);
    assert_eq!(made("-"), ["generateName"]);
}

#[test]
fn a_name_is_made_from_its_prefix() {
    let mut object = json!({"metadata": {"generateName": "p".repeat(253)}});
    let mut next = 0;
    generate_name(&mut object, || {
        next += 1;
        next
    });
    let name = object["metadata"]["name"].as_str().unwrap();
    assert_eq!(name, format!("{}cdfgh", "p".repeat(58)));
    let mut named = json!({"metadata": {"generateName": "p-", "name": "a"}});
    generate_name(&mut named, || 0);
    assert_eq!(named["metadata"]["name"], "a");
}

#[test]
fn an_object_is_put_into_the_namespace_of_the_request() {
    let mut object = json!({});
    place_in_namespace(&mut object, "n").unwrap();
    assert_eq!(object, json!({"metadata": {"namespace": "n"}}));
    assert!(place_in_namespace(&mut object, "other").is_err());
    place_in_namespace(&mut object, "").unwrap();
    assert_eq!(object, json!({"metadata": {}}));
}

#[test]
fn labels_and_annotations_are_checked() {
    let label_key = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with \
                     an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for \
                     validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    assert_eq!(
        said(json!({"labels": {"-bad": "x"}})),
        format!("metadata.labels: Invalid value: \"-bad\": {label_key}")
    );
    assert_eq!(
        said(json!({"labels": {"a": "v".repeat(64)}})),
        format!(
            "metadata.labels: Invalid value: \"{}\": must be no more than 63 bytes",
            "v".repeat(64)
        )
    );
    assert_eq!(
        wrong(
            "configmaps",
            json!({"annotations": {"UPPER.example.com/x": "any /"}})
        ),
        [""; 0]
    );
    assert_eq!(
        said(json!({"annotations": {"a": "x".repeat(256 * 1024)}})),
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    );
}

#[test]
fn finalizers_are_qualified_or_known() {
    assert_eq!(
        said(json!({"finalizers": ["bad"]})),
        "metadata.finalizers[0]: Invalid value: \"bad\": name is neither a standard finalizer name nor is it fully \
         qualified"
    );
    assert_eq!(wrong("leases", json!({"finalizers": ["bad"]})), [""; 0]);
    assert_eq!(
        said(json!({"finalizers": ["orphan", "foregroundDeletion"]})),
        "metadata.finalizers: Invalid value: [\"orphan\",\"foregroundDeletion\"]: finalizer orphan and \
         foregroundDeletion cannot be both set"
    );
}

#[test]
fn owners_have_all_their_parts_and_one_controller() {
    assert_eq!(
        wrong("configmaps", json!({"ownerReferences": [{}]})),
        ["apiVersion", "kind", "name", "uid"].map(|part| format!("ownerReferences.{part}"))
    );
    let owner = |kind: &str, controller: bool| json!({"apiVersion": "v1", "kind": kind, "name": "o", "uid": "u", "controller": controller});
    assert_eq!(
        said(json!({"ownerReferences": [owner("Event", false)]})),
        "metadata.ownerReferences: Invalid value: \
         {\"apiVersion\":\"v1\",\"kind\":\"Event\",\"name\":\"o\",\"uid\":\"u\",\"controller\":false}: /v1, Kind=Event \
         is disallowed from being an owner"
    );
    let two = json!({"ownerReferences": [owner("Pod", true), owner("Job", true)]});
    assert!(said(two).ends_with(
        "Only one reference can have Controller set to true. Found \"true\" in references for Pod/o and Job/o"
    ));
    let mut twice =
        json!({"metadata": {"ownerReferences": [owner("Pod", true), owner("Pod", true)]}});
    assert!(
        keep_owners_once(&mut twice, false)
            .unwrap()
            .ends_with("observed: u")
    );
    assert_eq!(
        twice["metadata"]["ownerReferences"],
        json!([owner("Pod", true)])
    );
    assert_eq!(keep_owners_once(&mut twice, false), None);
}

#[test]
fn faults_of_a_change_are_told_as_often_as_the_server_finds_them() {
    let old = with(json!({"uid": "u", "generation": 1, "creationTimestamp": "t"}));
    let count = |plural: &str, change: Value| {
        let mut new = with(change);
        carry_over(&mut new, &old);
        validate_update(&new, &old, &resource(plural)).len()
    };
    let label = json!({"labels": {"a": "-"}});
    for (plural, labels, uids) in [
        ("configmaps", 4, 2),
        ("deployments", 3, 2),
        ("leases", 3, 2),
        ("poddisruptionbudgets", 2, 1),
    ] {
        assert_eq!(count(plural, label.clone()), labels, "{plural}");
        assert_eq!(count(plural, json!({"uid": "x"})), uids, "{plural}");
        assert_eq!(
            count(plural, json!({"generation": 7, "creationTimestamp": "x"})),
            0
        );
    }
}

#[test]
fn what_is_being_deleted_gets_no_new_finalizers() {
    let old = with(json!({"deletionTimestamp": "t", "finalizers": ["example.com/x"]}));
    let mut new = with(json!({"finalizers": ["example.com/x", "example.com/y"]}));
    carry_over(&mut new, &old);
    assert_eq!(new["metadata"]["deletionTimestamp"], "t");
    let errors = validate_update(&new, &old, &resource("configmaps"));
    assert_eq!(errors.len(), 2);
    assert_eq!(
        errors[0].to_string(),
        "metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
         finalizers []string{\"example.com/y\"}"
    );
}

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::cmp::Ordering;

use serde_json::{Value, json};

use super::{Cleanup, FINALIZER, RULES, begin_deletion, newest_first, next_status, resources};
use super::{set_cleanup, warnings};
use crate::kinds::{BUILT_IN, Part};
use crate::server::metadata;
use crate::server::resource::{Conversion, Resource};

const API_VERSION: &str = "apiextensions.k8s.io/v1";
const KIND: &str = "CustomResourceDefinition";
const NOW: &str = "2020-01-01T00:00:00Z";

/// A definition of things, whose spec has these fields beside the usual ones.
fn things(spec: Value) -> Value {
    let mut definition = json!({
        "metadata": {"name": "things.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "things", "kind": "Thing"},
            "versions": [version(json!({}))],
        },
    });
    for (name, value) in spec.as_object().unwrap() {
        definition["spec"][name] = value.clone();
    }
    definition
}

/// The only version, with these fields beside the usual ones.
fn version(fields: Value) -> Value {
    let spec =
        json!({"type": "object", "properties": {"a": {"type": "string"}, "o": {"type": "object"}}});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    let mut version = json!({"name": "v1", "served": true, "storage": true, "schema": schema});
    for (name, value) in fields.as_object().unwrap() {
        version[name] = value.clone();
    }
    version
}

/// A definition as it is stored when it has been created, and what is wrong with it.
fn created(mut definition: Value) -> (Value, Vec<(String, String)>) {
    api::decode::decode(&mut definition, API_VERSION, KIND).unwrap();
    (RULES.default)(&mut definition);
    (RULES.prepare_create)(&mut definition);
    let of_kind = BUILT_IN.iter().find(|kind| kind.kind == KIND).unwrap();
    let mut errors = metadata::validate_create(&definition, &Resource::from(of_kind));
    errors.extend((RULES.validate)(&definition));
    let told = errors
        .into_iter()
        .map(|error| (error.field, error.message))
        .collect();
    (definition, told)
}

fn wrong(spec: Value) -> Vec<(String, String)> {
    created(things(spec)).1
}

fn told(field: &str, message: &str) -> (String, String) {
    (field.to_owned(), message.to_owned())
}

/// Bodies and answers of the creations in a case, `r4nd` standing for what is random.
fn recorded() -> Vec<(String, Value, u16, Value)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/conformance");
    let read = |path: &str| std::fs::read_to_string(format!("{folder}/{path}")).unwrap();
    let cases = read("cases/crds.http");
    let golden = read("golden/crds.txt").replace("$rand", "r4nd");
    let lets = cases.lines().filter_map(|line| line.strip_prefix("@let "));
    let mut lets: Vec<_> = lets.filter_map(|line| line.split_once(" = ")).collect();
    lets.push(("rand", "r4nd"));
    let mut out = Vec::new();
    for case in cases.split("\n### ").skip(1) {
        let name = case.lines().next().unwrap();
        let answers = golden
            .split("### ")
            .find(|answers| answers.starts_with(name))
            .unwrap();
        let answers = answers
            .split("\n> ")
            .filter_map(|a| a.strip_prefix("POST $crds\n"));
        let bodies = case.split("\nPOST $crds\n").skip(1);
        for (body, answer) in bodies.zip(answers) {
            let mut body = body.lines().next().unwrap().to_owned();
            for _ in 0..2 {
                for (name, value) in &lets {
                    body = body.replace(&format!("${name}"), value);
                }
            }
            let (status, answer) = answer.split_once('\n').unwrap_or((answer, ""));
            let status = status.split(' ').next().unwrap().parse().unwrap();
            let answer = serde_json::from_str(answer).unwrap_or(Value::Null);
            out.push((
                name.to_owned(),
                serde_json::from_str(&body).unwrap(),
                status,
                answer,
            ));
        }
    }
    out
}

#[test]
fn definitions_are_refused_as_a_server_refuses_them() {
    let mut count = 0;
    for (case, body, status, answer) in recorded() {
        let (_, mut errors) = created(body);
        errors.sort();
        let causes = answer["details"]["causes"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let text = |cause: &Value, name: &str| cause[name].as_str().unwrap().to_owned();
        let mut causes: Vec<_> = causes
            .iter()
            .map(|cause| (text(cause, "field"), text(cause, "message")))
            .collect();
        causes.sort();
        assert_eq!(errors, causes, "{case}");
        assert_eq!(status == 201, errors.is_empty(), "{case}");
        count += 1;
    }
    assert!(count > 25, "{count} creations");
}

#[test]
fn a_new_definition_gets_its_defaults() {
    let (definition, errors) = created(things(json!({})));
    assert_eq!(errors, []);
    assert_eq!(
        definition["spec"]["names"],
        json!({"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"})
    );
    assert_eq!(
        definition["spec"]["conversion"],
        json!({"strategy": "None"})
    );
    assert_eq!(definition["metadata"]["generation"], 1);
    assert_eq!(
        definition["status"],
        json!({"acceptedNames": {"kind": "", "plural": ""}, "storedVersions": ["v1"]})
    );
}

#[test]
fn columns_and_warnings_are_checked() {
    let columns = json!([{"name": "", "type": "", "format": "x", "jsonPath": ""}]);
    let field = |name: &str| format!("spec.additionalPrinterColumns[0].{name}");
    assert_eq!(
        wrong(json!({"versions": [version(json!({"additionalPrinterColumns": columns}))]})),
        [
            told(&field("name"), "Required value"),
            told(
                &field("type"),
                "Required value: must be one of boolean,date,integer,number,string"
            ),
            told(
                &field("format"),
                "Invalid value: \"x\": must be one of byte,date,date-time,double,float,int32,int64,password"
            ),
            told(&field("JSONPath"), "Required value"),
        ]
    );
    assert_eq!(
        wrong(json!({"versions": [version(json!({"deprecationWarning": "x"}))]})),
        [told(
            "spec.versions[0].deprecationWarning",
            "Invalid value: \"x\": can only be set for deprecated versions"
        )]
    );
}

#[test]
fn selectable_fields_must_be_there() {
    let fields = [
        ".spec.a",
        ".spec.a",
        ".spec.o",
        ".spec.z",
        "spec.a",
        ".spec.o[0]",
        "",
        ".",
    ]
    .map(|path| json!({"jsonPath": path}));
    let errors = wrong(json!({"versions": [version(json!({"selectableFields": fields}))]}));
    let errors: Vec<&str> = errors.iter().map(|(_, message)| message.as_str()).collect();
    assert_eq!(
        errors,
        [
            "Duplicate value: \".spec.a\"",
            "Invalid value: \".spec.o\": must point to a field of type string, boolean or integer. Enum string \
             fields and strings with formats are allowed.",
            "Invalid value: \".spec.z\": is an invalid path: does not refer to a valid field",
            "Invalid value: \"spec.a\": is an invalid path: expected [ or . but got: spec",
            "Invalid value: \".spec.o[0]\": is an invalid path: array notation is not allowed",
            "Required value",
            "Invalid value: \".\": is an invalid path: unexpected end of JSON path",
        ]
    );
}

#[test]
fn a_webhook_is_reached_by_https_or_as_a_service() {
    let webhook = |client: Value, reviews: Value| {
        json!({"conversion": {
            "strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": reviews},
        }})
    };
    let service = json!({"service": {"name": "a", "namespace": "b"}});
    assert_eq!(wrong(webhook(service, json!(["v1"]))), []);
    let url = json!({"url": "http://u:p@/x?a=b#c"});
    let values: Vec<_> = wrong(webhook(url, json!(["v1"])))
        .into_iter()
        .map(|(_, message)| message.split(": ").nth(1).unwrap().to_owned())
        .collect();
    assert_eq!(values, ["\"http\"", "\"\"", "\"u:p\"", "\"c\"", "\"a=b\""]);
    let service = json!({"service": {"name": "", "namespace": "", "path": "a//B", "port": 0}});
    assert_eq!(wrong(webhook(service, json!(["v3", "v3"]))).len(), 9);
}

#[test]
fn community_groups_need_an_approval() {
    let mut definition = things(json!({"group": "a.k8s.io"}));
    definition["metadata"] = json!({"name": "things.a.k8s.io"});
    let (_, errors) = created(definition.clone());
    assert_eq!(errors.len(), 1);
    assert_eq!(
        errors[0].0,
        "metadata.annotations[api-approved.kubernetes.io]"
    );
    definition["metadata"]["annotations"] =
        json!({"api-approved.kubernetes.io": "https://example.com/1"});
    let (definition, errors) = created(definition);
    assert_eq!(errors, []);
    let status = next_status(&definition, [&definition], NOW).unwrap();
    assert_eq!(status["conditions"][2]["reason"], "ApprovedAnnotation");
}

#[test]
fn what_decides_where_objects_are_stored_is_fixed() {
    let (mut old, _) = created(things(json!({})));
    old["status"] = next_status(&old, [&old], NOW).unwrap();
    let changed = |change: fn(&mut Value)| {
        let mut new = old.clone();
        change(&mut new["spec"]);
        (RULES.prepare_update)(&mut new, &old, Part::Main);
        let errors = (RULES.validate_update)(&new, &old, Part::Main);
        errors
            .into_iter()
            .map(|error| error.field)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        changed(|spec| spec["scope"] = json!("Cluster")),
        ["spec.scope"]
    );
    assert_eq!(
        changed(|spec| spec["names"]["kind"] = json!("X")),
        ["spec.names.kind"]
    );
    assert_eq!(changed(|spec| spec["group"] = json!("b.c")), ["spec.group"]);
    assert_eq!(
        changed(|spec| spec["names"]["shortNames"] = json!(["t"])),
        [""; 0]
    );
    let dropped = changed(|spec| spec["versions"][0]["name"] = json!("v2"));
    assert_eq!(dropped, ["status.storedVersions[0]"]);
}

#[test]
fn names_are_accepted_once_in_a_group() {
    let (mut first, _) = created(things(json!({})));
    first["status"] = next_status(&first, [&first], NOW).unwrap();
    assert_eq!(first["status"]["acceptedNames"], first["spec"]["names"]);
    let condition = |kind: &str, status: &str, reason: &str, message: &str| json!({"type": kind, "status": status, "lastTransitionTime": NOW, "reason": reason, "message": message});
    assert_eq!(
        first["status"]["conditions"],
        json!([
            condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "True",
                "InitialNamesAccepted",
                "the initial names have been accepted"
            ),
        ])
    );
    assert_eq!(next_status(&first, [&first], "later"), None);
    let (mut second, _) = created(things(
        json!({"names": {"plural": "others", "kind": "Thing"}}),
    ));
    second["status"] = next_status(&second, [&first, &second], NOW).unwrap();
    assert_eq!(
        second["status"]["acceptedNames"],
        json!({"kind": "", "plural": "others"})
    );
    assert_eq!(
        second["status"]["conditions"],
        json!([
            condition(
                "NamesAccepted",
                "False",
                "ListKindConflict",
                "\"ThingList\" is already in use"
            ),
            condition(
                "Established",
                "False",
                "NotAccepted",
                "not all names are accepted"
            ),
        ])
    );
    // the names become free
    let status = next_status(&second, [&second], "later").unwrap();
    assert_eq!(status["acceptedNames"]["kind"], "Thing");
    assert_eq!(status["conditions"][1]["status"], "True");
}

#[test]
fn a_definition_is_held_until_its_objects_are_gone() {
    let (mut definition, _) = created(things(json!({})));
    begin_deletion(&mut definition, NOW);
    assert_eq!(definition["metadata"]["finalizers"], json!([FINALIZER]));
    assert_eq!(definition["metadata"]["deletionTimestamp"], NOW);
    let reason = |definition: &Value| definition["status"]["conditions"][0]["reason"].clone();
    assert_eq!(reason(&definition), "InstanceDeletionPending");
    set_cleanup(&mut definition, Cleanup::InProgress, NOW);
    assert_eq!(reason(&definition), "InstanceDeletionInProgress");
    set_cleanup(&mut definition, Cleanup::Done, "later");
    assert_eq!(reason(&definition), "InstanceDeletionCompleted");
    assert_eq!(
        definition["status"]["conditions"][0]["lastTransitionTime"],
        "later"
    );
    assert_eq!(definition["metadata"].get("finalizers"), None);
}

#[test]
fn every_served_version_becomes_a_resource() {
    let subresources = json!({"status": {}, "scale": {"specReplicasPath": ".spec.r", "statusReplicasPath": ".status.r"}});
    let old = version(json!({
        "storage": false, "deprecated": true, "subresources": subresources,
        "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".spec.a"}],
        "selectableFields": [{"jsonPath": ".spec.a"}],
    }));
    let any = json!({"openAPIV3Schema": {"type": "object"}});
    let new = version(json!({"name": "v2", "schema": any}));
    let off = version(json!({"name": "v3", "served": false, "storage": false}));
    let (definition, errors) = created(things(json!({"versions": [old, new, off]})));
    assert_eq!(errors, []);
    let served = resources(&definition, 0).unwrap();
    assert_eq!(served.len(), 2);
    let first = &served[0];
    assert_eq!(
        (first.api_version.as_str(), first.kind.as_str()),
        ("example.com/v1", "Thing")
    );
    assert_eq!(&*first.stored_as, "things.example.com");
    let names: Vec<&str> = first
        .subresources
        .iter()
        .map(|sub| sub.name.as_str())
        .collect();
    assert_eq!(names, ["status", "scale"]);
    let custom = first.custom().unwrap();
    assert_eq!(
        custom.warning.as_deref(),
        Some("example.com/v1 Thing is deprecated; use example.com/v2 Thing")
    );
    assert_eq!(custom.stored_api_version, "example.com/v2");
    assert_eq!(custom.api_versions.len(), 3);
    assert_eq!((custom.columns.len(), custom.selectable.len()), (1, 1));
    assert_eq!(custom.conversion, Conversion::None);
}

#[test]
fn the_projects_own_definitions_are_accepted_and_served() {
    use api::crds::{Conversion as Rendered, Family, Schemas, Versions, render};
    let families = [Family::Sigs, Family::Kruise];
    let rendered = [Schemas::Full, Schemas::Lean]
        .into_iter()
        .flat_map(|schemas| {
            schemas.of(render(&families, Versions::Both, Rendered::Webhook).unwrap())
        });
    for definition in rendered {
        let definition = serde_json::to_value(definition).unwrap();
        let name = definition["metadata"]["name"].clone();
        let (definition, errors) = created(definition);
        assert_eq!(errors, [], "{name}");
        let served = resources(&definition, 0).unwrap();
        let own = name.as_str().unwrap().ends_with(".x-k8s.io");
        let converts = served[0].custom().unwrap().conversion == Conversion::Own;
        assert_eq!(converts, own, "{name}");
    }
}

#[test]
fn formats_that_are_not_checked_are_warned_of_once() {
    let formatted = |format: &str| {
        let properties = json!({"a": {"type": "string", "format": format}, "b": {"type": "integer", "format": "int32"}});
        let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
        things(json!({"versions": [version(json!({"schema": schema}))]}))
    };
    let new = formatted("odd");
    assert_eq!(warnings(&new, None), ["unrecognized format \"odd\""]);
    assert_eq!(warnings(&new, Some(&new)), [""; 0]);
    assert_eq!(warnings(&formatted("date-time"), None), [""; 0]);
}

#[test]
fn versions_are_ordered_by_what_they_promise() {
    let mut all = [
        "other", "v1alpha2", "v10", "v1beta1", "v2", "v1", "v1alpha1", "foo",
    ];
    all.sort_by(|one, two| newest_first(one, two));
    assert_eq!(
        all,
        [
            "v10", "v2", "v1", "v1beta1", "v1alpha2", "v1alpha1", "foo", "other"
        ]
    );
    assert_eq!(newest_first("v1", "v1"), Ordering::Equal);
}

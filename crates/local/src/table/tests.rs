#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use api::patch::types;
use api::structural;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::json_path::JsonPath;
use super::{Include, MetaVersion, Printer, table};
use crate::kinds::BUILT_IN;
use crate::server::resource::{Column, Conversion, Custom, Origin, Resource};

/// What a real server showed of objects: `now`, `object`, `cells`, `columns` as name, type, format and priority, and
/// for a custom kind the `paths` of its columns.
const RECORDED: &str = include_str!("recorded.json");

fn built_in(group: &str, kind: &str) -> Option<Resource> {
    let found = BUILT_IN
        .iter()
        .find(|built_in| built_in.group == group && built_in.kind == kind);
    found.map(Resource::from)
}

fn column(name: &str, column_type: &str, path: &str) -> Column {
    Column {
        name: name.to_owned(),
        column_type: column_type.to_owned(),
        format: String::new(),
        description: String::new(),
        priority: 0,
        path: JsonPath::parse(path).unwrap(),
    }
}

fn custom(columns: Vec<Column>) -> Resource {
    let schema = json!({"type": "object"});
    let custom = Custom {
        crd: "gadgets.tables.example.com".to_owned(),
        schema: structural::Schema::compile(&schema).unwrap(),
        types: types::Schema::of_crd(&schema),
        open_api: schema.to_string().into(),
        stored_api_version: String::new(),
        api_versions: Vec::new(),
        status: true,
        scale: None,
        columns,
        selectable: Vec::new(),
        warning: None,
        conversion: Conversion::None,
        since: 0,
        id: Custom::new_id(),
    };
    Resource {
        origin: Origin::Custom(Arc::new(custom)),
        ..built_in("", "ConfigMap").unwrap()
    }
}

fn resource(case: &Value) -> Resource {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    built_in(&text(&case["group"]), &text(&case["kind"])).unwrap_or_else(|| {
        let heads = case["columns"].as_array().unwrap().iter().skip(1);
        let paths = case["paths"].as_array().into_iter().flatten();
        custom(
            heads
                .zip(paths)
                .map(|(head, path)| column(&text(&head[0]), &text(&head[1]), &text(path)))
                .collect(),
        )
    })
}

#[test]
fn rows_are_those_of_a_real_server() {
    let cases: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    assert!(cases.len() > 50);
    for case in cases {
        let resource = resource(&case);
        let printer = match case.get("scale") {
            Some(_) => Printer::of_scale(&resource),
            None => Printer::of(&resource),
        };
        let now: Timestamp = case["now"].as_str().unwrap().parse().unwrap();
        let row = printer.row(&case["object"], now, Include::Object, MetaVersion::V1);
        assert_eq!(row["cells"], case["cells"], "{}", case["object"]);
        assert_eq!(row.get("conditions"), case.get("conditions"));
        assert_eq!(row["object"], case["object"]);
        let columns: Value = printer
            .columns()
            .as_array()
            .unwrap()
            .iter()
            .map(|column| {
                json!([
                    column["name"],
                    column["type"],
                    column["format"],
                    column["priority"]
                ])
            })
            .collect();
        assert_eq!(columns, case["columns"]);
    }
}

#[test]
fn every_built_in_kind_has_as_many_cells_as_columns() {
    let now = Timestamp::UNIX_EPOCH;
    for kind in BUILT_IN {
        let resource = Resource::from(kind);
        let printer = Printer::of(&resource);
        // a bookmark is such an object
        let row = printer.row(
            &json!({"metadata": {"resourceVersion": "5"}}),
            now,
            Include::None,
            MetaVersion::V1,
        );
        let columns = printer.columns();
        let columns = columns.as_array().unwrap();
        assert_eq!(row["cells"].as_array().unwrap().len(), columns.len());
        assert!(columns.iter().all(|column| column["description"] != ""));
    }
}

#[test]
fn a_row_has_of_its_object_what_was_asked_for() {
    let resource = built_in("", "ConfigMap").unwrap();
    let printer = Printer::of(&resource);
    let now = Timestamp::UNIX_EPOCH;
    let object = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
    let shown = |object: &Value, include| {
        printer.row(object, now, include, MetaVersion::V1Beta1)["object"].clone()
    };
    assert_eq!(shown(&object, Include::Object), object);
    assert_eq!(shown(&object, Include::None), Value::Null);
    assert_eq!(
        shown(&object, Include::Metadata),
        json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1beta1",
            "metadata": {"name": "a"},
        })
    );
    let end = json!({"metadata": {"annotations": {"k8s.io/initial-events-end": "true"}}});
    assert_eq!(shown(&end, Include::None)["metadata"], end["metadata"]);
}

#[test]
fn what_a_row_includes_is_one_of_three_words() {
    assert_eq!(Include::parse(None), Ok(Include::Metadata));
    assert_eq!(Include::parse(Some("")), Ok(Include::Metadata));
    assert_eq!(Include::parse(Some("None")), Ok(Include::None));
    assert_eq!(
        Include::parse(Some("Other")).unwrap_err().message(),
        "Unable to convert to Table as requested: includeObject: Invalid value: \"Other\": must be 'Metadata', \
         'Object', 'None', or empty"
    );
}

#[test]
fn a_custom_kind_without_columns_shows_its_age() {
    let resource = custom(Vec::new());
    let printer = Printer::of(&resource);
    let object = json!({"metadata": {"name": "t", "creationTimestamp": "2026-01-01T00:00:00Z"}});
    let now = "2026-01-01T00:05:00Z".parse().unwrap();
    let row = printer.row(&object, now, Include::None, MetaVersion::V1);
    assert_eq!(row, json!({"cells": ["t", "5m"], "object": null}));
    assert_eq!(printer.columns()[1]["name"], "Age");
    assert_eq!(printer.columns()[1]["type"], "date");
}

#[test]
fn a_custom_column_without_a_description_says_its_path() {
    let resource = custom(vec![column("Color", "string", ".spec.color")]);
    assert_eq!(
        Printer::of(&resource).columns()[1]["description"],
        "Custom resource definition column (in JSONPath format): .spec.color"
    );
}

#[test]
fn a_table_has_its_columns_once() {
    let shown = table(
        MetaVersion::V1,
        json!({"resourceVersion": "5"}),
        Value::Null,
        vec![json!({"cells": ["a"], "object": null})],
    );
    assert_eq!(
        shown,
        json!({
            "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "5"},
            "columnDefinitions": null, "rows": [{"cells": ["a"], "object": null}],
        })
    );
}

#[test]
fn a_thousand_custom_objects_are_shown_in_no_time() {
    let resource = custom(vec![
        column("Replicas", "integer", ".spec.replicas"),
        column(
            "Ready",
            "string",
            ".status.conditions[?(@.type=='Ready')].status",
        ),
        column("Age", "date", ".metadata.creationTimestamp"),
    ]);
    let printer = Printer::of(&resource);
    let object = json!({
        "metadata": {"name": "t", "namespace": "n", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"replicas": 3},
        "status": {"conditions": [{"type": "Other", "status": "x"}, {"type": "Ready", "status": "True"}]},
    });
    let now = "2026-01-02T00:00:00Z".parse().unwrap();
    let start = Instant::now();
    for _ in 0..1000 {
        let row = printer.row(&object, now, Include::Metadata, MetaVersion::V1);
        assert_eq!(row["cells"], json!(["t", 3, "True", "24h"]));
    }
    // some 20 ms without optimization; the bound only catches what is out of proportion
    let taken = start.elapsed();

    assert!(taken < Duration::from_secs(1), "{taken:?}");
}

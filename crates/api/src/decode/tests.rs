#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::{decode, decode_metadata, write_nulls};

fn decoded(api_version: &str, kind: &str, mut object: Value) -> Value {
    let unknown = decode(&mut object, api_version, kind).unwrap();
    assert_eq!(unknown, Vec::<String>::new());
    object
}

fn problem(api_version: &str, kind: &str, mut object: Value) -> String {
    decode(&mut object, api_version, kind).unwrap_err()
}

#[test]
fn what_is_empty_goes_unless_it_is_a_pointer() {
    let pod = decoded(
        "v1",
        "Pod",
        json!({
            "metadata": {"name": "p", "labels": {}, "generation": 0, "finalizers": [], "uid": null},
            "spec": {
                "hostNetwork": false,
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 0,
                "nodeName": "",
                "securityContext": {},
                "containers": [{"name": "c", "image": "", "env": [{"name": "A", "value": ""}]}],
            },
        }),
    );
    assert_eq!(
        pod,
        json!({
            "metadata": {"name": "p"},
            "spec": {
                "automountServiceAccountToken": false,
                "terminationGracePeriodSeconds": 0,
                "securityContext": {},
                "containers": [{"name": "c", "env": [{"name": "A"}], "resources": {}}],
            },
            "status": {},
        })
    );
}

#[test]
fn nulls_are_written_where_the_server_writes_them() {
    let mut event = decoded("v1", "Event", json!({"eventTime": null}));
    assert_eq!(event.get("eventTime"), None);
    write_nulls(&mut event, "v1", "Event");
    assert_eq!(
        event,
        json!({
            "eventTime": null, "firstTimestamp": null, "lastTimestamp": null, "involvedObject": {}, "metadata": {},
            "reportingComponent": "", "reportingInstance": "", "source": {},
        })
    );
}

#[test]
fn values_take_their_canonical_form() {
    let pod = decoded(
        "v1",
        "Pod",
        json!({"spec": {"containers": [{
            "name": "c",
            "resources": {"limits": {"cpu": 0.5, "memory": "1024Ki", "x": 1}},
            "env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}],
        }]}, "status": {"startTime": "2020-01-01T02:00:00.5+02:00"}}),
    );
    let container = &pod["spec"]["containers"][0];
    assert_eq!(
        container["resources"]["limits"],
        json!({"cpu": "500m", "memory": "1Mi", "x": "1"})
    );
    let source = &container["env"][0]["valueFrom"]["resourceFieldRef"];
    assert_eq!(*source, json!({"resource": "limits.cpu", "divisor": "0"}));
    assert_eq!(pod["status"]["startTime"], "2020-01-01T00:00:00Z");
    let secret = decoded(
        "v1",
        "Secret",
        json!({"data": {"a": "YW\nJj", "b": "YR==", "c": null, "d": [97, 98, 99, 100], "e": []}}),
    );
    assert_eq!(
        secret["data"],
        json!({"a": "YWJj", "b": "YQ==", "c": "", "d": "YWJjZA==", "e": ""})
    );
}

#[test]
fn unknown_fields_are_dropped_and_named() {
    let mut pod = json!({
        "Metadata": {}, "metadata": {"Labels": {}},
        "spec": {"containers": [{"name": "c", "imagePolicy": "x", "env": [{"name": "A", "val": "x"}]}]},
    });
    let unknown = decode(&mut pod, "v1", "Pod").unwrap();
    let all = [
        "Metadata",
        "metadata.Labels",
        "spec.containers[0].env[0].val",
        "spec.containers[0].imagePolicy",
    ];
    assert_eq!(unknown, all);
    assert_eq!(pod["metadata"], json!({}));
    let mut metadata = json!({"name": "a", "colour": "red"});
    assert_eq!(decode_metadata(&mut metadata).unwrap(), ["metadata.colour"]);
    assert_eq!(metadata, json!({"name": "a"}));
}

/// Kind, object, what was found, where, and what was wanted.
const MISMATCHES: &[[&str; 5]] = &[
    [
        "ConfigMap",
        r#"{"data": {"a": 1}}"#,
        "number",
        "ConfigMap.data",
        "string",
    ],
    [
        "ConfigMap",
        r#"{"metadata": {"labels": []}}"#,
        "array",
        "ObjectMeta.metadata.labels",
        "map[string]string",
    ],
    [
        "ConfigMap",
        r#"{"immutable": "yes"}"#,
        "string",
        "ConfigMap.immutable",
        "bool",
    ],
    [
        "Secret",
        r#"{"data": {"a": 1}}"#,
        "number",
        "Secret.data",
        "[]uint8",
    ],
    [
        "Pod",
        r#"{"metadata": "x"}"#,
        "string",
        "Pod.metadata",
        "v1.ObjectMeta",
    ],
    [
        "Pod",
        r#"{"metadata": {"creationTimestamp": 1}}"#,
        "number",
        "ObjectMeta.metadata.creationTimestamp",
        "string",
    ],
    [
        "Pod",
        r#"{"spec": {"containers": "x"}}"#,
        "string",
        "PodSpec.spec.containers",
        "[]v1.Container",
    ],
    [
        "Pod",
        r#"{"spec": {"containers": ["x"]}}"#,
        "string",
        "PodSpec.spec.containers",
        "v1.Container",
    ],
    [
        "Pod",
        r#"{"spec": {"containers": [{"imagePullPolicy": 1}]}}"#,
        "number",
        "Container.spec.containers.imagePullPolicy",
        "v1.PullPolicy",
    ],
    [
        "Pod",
        r#"{"spec": {"priority": 3000000000}}"#,
        "number 3000000000",
        "PodSpec.spec.priority",
        "int32",
    ],
    [
        "Pod",
        r#"{"spec": {"priority": 1.5}}"#,
        "number 1.5",
        "PodSpec.spec.priority",
        "int32",
    ],
    [
        "Pod",
        r#"{"spec": {"volumes": [{"emptyDir": 1}]}}"#,
        "number",
        "Volume.spec.volumes.VolumeSource.emptyDir",
        "v1.EmptyDirVolumeSource",
    ],
    [
        "Pod",
        r#"{"spec": {"containers": [{"livenessProbe": {"httpGet": {"port": true}}}]}}"#,
        "bool",
        "HTTPGetAction.spec.containers.livenessProbe.ProbeHandler.httpGet.port",
        "int32",
    ],
];

#[test]
fn wrong_types_are_told_in_the_words_of_go() {
    for [kind, object, found, field, wanted] in MISMATCHES {
        assert_eq!(
            problem("v1", kind, serde_json::from_str(object).unwrap()),
            format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
        );
    }
}

#[test]
fn malformed_values_are_told() {
    assert_eq!(
        problem("v1", "Secret", json!({"data": {"a": "not base64"}})),
        "illegal base64 data at input byte 3"
    );
    let renewed = |text: &str| {
        let lease = json!({"spec": {"renewTime": text}});
        problem("coordination.k8s.io/v1", "Lease", lease)
    };
    assert_eq!(
        renewed("yesterday"),
        "parsing time \"yesterday\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"yesterday\" as \"2006\""
    );
    assert_eq!(
        renewed("2020-01-01T00:00:00Z"),
        "parsing time \"2020-01-01T00:00:00Z\" as \"2006-01-02T15:04:05.000000Z07:00\": cannot parse \"Z\" as \
         \".000000\""
    );
}

#[test]
fn unknown_fields_are_told_in_the_order_of_the_text() {
    let text = r#"{"spec": {"containers": [{"zeta": 1, "env": [{"val": 1}]}]}, "metadata": {"x": 1}, "date": 1}"#;
    let mut pod = serde_json::from_str(text).unwrap();
    let mut unknown = decode(&mut pod, "v1", "Pod").unwrap();
    crate::structural::in_order_of(text, &mut unknown);
    assert_eq!(
        unknown,
        [
            "spec.containers[0].zeta",
            "spec.containers[0].env[0].val",
            "metadata.x",
            "date",
        ]
    );
}

#[test]
fn schemas_below_schemas_lose_unknown_fields_silently() {
    let of = |schema: Value| json!({"spec": {"versions": [{"name": "v1", "schema": {"openAPIV3Schema": schema}}]}});
    let schema = json!({
        "type": "object",
        "properties": {"a": {"type": "array", "items": {"type": "string", "what": 1, "maxLength": 0}}},
        "additionalProperties": false,
        "default": {"x": null},
    });
    let mut definition = of(schema);
    let unknown = decode(
        &mut definition,
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
    )
    .unwrap();
    assert_eq!(unknown, Vec::<String>::new());
    let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    assert_eq!(
        schema["properties"]["a"]["items"],
        json!({"type": "string", "maxLength": 0})
    );
    assert_eq!(schema["additionalProperties"], false);
    assert_eq!(schema["default"], json!({"x": null}));
    assert_eq!(
        problem(
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
            of(json!({"additionalProperties": "x"}))
        ),
        "boolean or JSON schema expected"
    );
}

#[test]
fn the_go_types_have_the_fields_that_open_api_documents() {
    let packages = [
        "io.k8s.api.",
        "io.k8s.apimachinery.pkg.apis.",
        "io.k8s.apiextensions-apiserver.pkg.apis.",
    ];
    let mut count = 0;
    for (name, schema) in crate::core::table() {
        // the short form is made for pod templates in CRDs
        if name == crate::core::OBJECT_META {
            continue;
        }
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else {
            continue;
        };
        let short = packages.iter().find_map(|prefix| name.strip_prefix(prefix));
        let short = short
            .unwrap_or(name)
            .replace(".v1.", "/v1.")
            .replace("#whole", "");
        let Some(id) = super::Types::all().named(&short) else {
            // what describes the API itself is answered, never read
            let described = [
                "APIGroup",
                "APIResource",
                "APIVersions",
                "GroupVersion",
                "List",
                "Server",
                "Status",
                "WatchEvent",
                "Info",
            ];
            assert!(
                described.iter().any(|part| short.contains(part)),
                "{short} is not known"
            );
            continue;
        };
        let super::Form::Struct(structure) = &super::Types::all().get(id).form else {
            panic!("{short} is no struct");
        };
        assert!(properties.keys().eq(structure.fields.keys()), "{short}");
        count += 1;
    }
    assert!(count > 150, "{count} types");
}

/// Every answer of a real server about one of its own kinds.
fn recorded() -> Vec<Value> {
    let folder = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/conformance/golden"
    );
    let mut out = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        let mut block: Option<String> = None;
        for line in text.lines() {
            match (&mut block, line) {
                (None, "{") => block = Some("{".to_owned()),
                (Some(lines), _) => {
                    lines.push_str(line);
                    if line == "}" {
                        out.extend(serde_json::from_str::<Value>(&block.take().unwrap()));
                    }
                }
                _ => {}
            }
        }
    }
    out
}

/// Recorded answers have names in the place of times.
fn with_times(value: &mut Value) {
    match value {
        Value::String(text) if text == "<time>" => "2020-01-01T00:00:00Z".clone_into(text),
        Value::String(text) if text == "<microtime>" => {
            "2020-01-01T00:00:00.000000Z".clone_into(text)
        }
        Value::Array(items) => items.iter_mut().for_each(with_times),
        Value::Object(fields) => fields.values_mut().for_each(with_times),
        _ => {}
    }
}

#[test]
fn what_a_server_has_written_is_read_unchanged() {
    let mut count = 0;
    for mut object in recorded() {
        with_times(&mut object);
        // recorded in a form of their own
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
        let text = |name: &str| object[name].as_str().unwrap_or_default().to_owned();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let own = super::Types::all().named(&super::type_name(&api_version, &kind));
        if own.is_none() || object.pointer("/metadata/uid").is_none() {
            continue;
        }
        count += 1;
        let mut read = object.clone();
        let unknown = decode(&mut read, &api_version, &kind).unwrap();
        write_nulls(&mut read, &api_version, &kind);
        assert_eq!(unknown, Vec::<String>::new());
        // where a controller writes the status at its own time, recordings leave it out
        if object.get("status").is_none() {
            read.as_object_mut().unwrap().remove("status");
        }
        assert_eq!(read, object);
    }
    assert!(count > 100, "{count} objects of the server's own kinds");
}

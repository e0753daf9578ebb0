#![allow(clippy::unwrap_used, reason = "a test may panic")]

use serde_json::{Value, json};

use super::{Expected, decode_object, decode_options, decode_patch, go_type};
use crate::kinds::BUILT_IN;
use crate::server::media::{BodyEncoding, Encoding, PatchKind};
use crate::status::Failure;

const CONFIG_MAP: Expected = Expected {
    api_version: "v1",
    kind: "ConfigMap",
    custom: false,
};
const GADGET: Expected = Expected {
    api_version: "tables.example.com/v1",
    kind: "Gadget",
    custom: true,
};
const SHAPE: &str = "struct { APIVersion string \"json:\\\"apiVersion,omitempty\\\"\"; \
                     Kind string \"json:\\\"kind,omitempty\\\"\" }";

const JSON: BodyEncoding = BodyEncoding::Text(Encoding::Json);
const YAML: BodyEncoding = BodyEncoding::Text(Encoding::Yaml);

fn refusal(body: &str, expected: Expected) -> String {
    let failure = decode_object(body.as_bytes(), JSON, expected, true).unwrap_err();
    assert_eq!(failure.code(), 400);
    failure.message().to_owned()
}

#[test]
fn bodies_that_are_no_objects_are_refused_as_the_real_server_does() {
    let parse = "couldn't get version/kind; json parse error:";
    for (body, problem) in [
        (
            "",
            format!("{parse} unexpected end of JSON input (<empty>)"),
        ),
        (
            "{\"metadata\": {\"name\":",
            format!("{parse} unexpected end of JSON input ({{\"metadata\": {{\"name\":)"),
        ),
        (
            "hello",
            format!("{parse} invalid character 'h' looking for beginning of value (68656c6c6f)"),
        ),
        (
            "[1]",
            format!("{parse} json: cannot unmarshal array into Go value of type {SHAPE} (5b315d)"),
        ),
        (
            "\"text\"",
            format!(
                "{parse} json: cannot unmarshal string into Go value of type {SHAPE} (227465787422)"
            ),
        ),
        (
            "{\"apiVersion\":5}",
            format!(
                "{parse} json: cannot unmarshal number into Go struct field .apiVersion of type string ({{\"apiVersion\":5}})"
            ),
        ),
        (
            "{\"apiVersion\":\"a/b/c\",\"kind\":\"ConfigMap\"}",
            "unexpected GroupVersion string: a/b/c ({\"apiVersion\":\"a/b/c\",\"kind\":\" ...)"
                .to_owned(),
        ),
    ] {
        for expected in [CONFIG_MAP, GADGET] {
            let kind = expected.kind;
            assert_eq!(
                refusal(body, expected),
                format!("the object provided is unrecognized (must be of type {kind}): {problem}")
            );
        }
    }
}

#[test]
fn a_built_in_kind_need_not_be_named() {
    for body in [
        "null",
        "{}",
        "{\"kind\":\"ConfigMap\"}",
        "{\"apiVersion\":\"v1\"}",
    ] {
        let decoded = decode_object(body.as_bytes(), JSON, CONFIG_MAP, true);
        assert!(decoded.unwrap().value.is_object(), "{body}");
    }
}

#[test]
fn a_body_of_another_kind_is_refused() {
    let scheme = "in scheme \"pkg/runtime/scheme.go:111\"";
    for (body, message) in [
        (
            json!({"apiVersion": "v1", "kind": "Secret"}),
            "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to (core.ConfigMap): unknown conversion".to_owned(),
        ),
        (
            json!({"apiVersion": "apps/v1", "kind": "Deployment"}),
            "Deployment in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Deployment) to (core.ConfigMap): unknown conversion".to_owned(),
        ),
        (
            json!({"apiVersion": "v2", "kind": "ConfigMap"}),
            format!("ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" {scheme}"),
        ),
    ] {
        assert_eq!(refusal(&body.to_string(), CONFIG_MAP), message);
    }
}

#[test]
fn a_custom_kind_must_be_named_in_its_version() {
    assert_eq!(
        refusal("{\"metadata\": {\"name\": \"w\"}, \"spec\": {}}", GADGET),
        "the object provided is unrecognized (must be of type Gadget): Object 'Kind' is missing in \
         '{\"metadata\": {\"name\": \"w\"}, \"spec\": {}}' ({\"metadata\": {\"name\": \"w\"}, \"s ...)"
    );
    assert_eq!(
        refusal("{\"kind\":\"Gadget\"}", GADGET),
        "the API version in the data () does not match the expected API version (tables.example.com/v1)"
    );
}

#[test]
fn fields_that_are_written_twice_are_named_in_the_words_of_their_encoding() {
    let decode = |body: &str, encoding, validate| {
        decode_object(body.as_bytes(), encoding, CONFIG_MAP, validate).unwrap()
    };
    let body = "{\"data\": {\"k\": \"v\", \"k\": \"w\"}}";
    let decoded = decode(body, JSON, true);
    assert_eq!(
        decoded.duplicates.warnings(),
        ["duplicate field \"data.k\""]
    );
    assert_eq!(decoded.value, json!({"data": {"k": "w"}}));
    assert!(decode(body, JSON, false).duplicates.warnings().is_empty());
    let decoded = decode(body, YAML, true);
    assert_eq!(
        decoded.duplicates.warnings(),
        ["line 1: key \"k\" already set in map"]
    );
    assert_eq!(
        decoded.duplicates.problems(),
        ["yaml: unmarshal errors:\n  line 1: key \"k\" already set in map"]
    );
    let decoded = decode("data: {k: v}", YAML, true);
    assert!(decoded.duplicates.problems().is_empty());
}

#[test]
fn bad_yaml_is_refused() {
    let body = b"metadata: {name: a\ndata: [";
    let failure = decode_object(body, YAML, CONFIG_MAP, true).unwrap_err();
    assert_eq!(
        failure.message(),
        "the object provided is unrecognized (must be of type ConfigMap): yaml: line 1: did not find expected \
         ',' or '}' (6d657461646174613a207b6e616d653a20610a646174613a205b)"
    );
}

#[test]
fn options_of_a_delete_are_read_without_ceremony() {
    let read = |body: &str| {
        let options = decode_options(body.as_bytes(), JSON);
        options.map_err(|failure| failure.message().to_owned())
    };
    assert_eq!(read("null"), Ok(json!({})));
    let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 5});
    assert_eq!(read(&options.to_string()), Ok(options));
    for (body, problem) in [
        (
            "{\"a",
            "couldn't get version/kind; json parse error: unexpected end of JSON input",
        ),
        (
            "{\"kind\":\"X\"}",
            "no kind \"X\" is registered for version \"meta.k8s.io/v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
        (
            "{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}",
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ] {
        assert_eq!(read(body), Err(problem.to_owned()));
    }
}

/// A body without a name of its kind around a message.
fn protobuf(message: &[u8]) -> Vec<u8> {
    let length = u8::try_from(message.len()).unwrap();
    [b"k8s\0\x12", &[length][..], message].concat()
}

#[test]
fn a_message_is_the_object_it_stands_for() {
    let body = protobuf(b"\x0a\x03\x0a\x01a\x12\x06\x0a\x01k\x12\x01v");
    let decoded = decode_object(&body, BodyEncoding::Protobuf, CONFIG_MAP, true).unwrap();
    assert!(decoded.duplicates.warnings().is_empty());
    assert_eq!(
        decoded.value,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}})
    );
}

#[test]
fn there_is_a_message_for_every_built_in_kind() {
    for built_in in BUILT_IN {
        let api_version = match built_in.group {
            "" => built_in.version.to_owned(),
            group => format!("{group}/{}", built_in.version),
        };
        let expected = Expected {
            api_version: &api_version,
            kind: built_in.kind,
            custom: false,
        };
        let decoded = decode_object(&protobuf(b""), BodyEncoding::Protobuf, expected, true);
        assert_eq!(decoded.unwrap().value["kind"], built_in.kind);
    }
}

#[test]
fn messages_that_cannot_be_read_are_refused_as_the_real_server_does() {
    let unrecognized = "the object provided is unrecognized (must be of type ConfigMap)";
    for (body, message) in [
        (&b""[..], format!("{unrecognized}: empty data (<empty>)")),
        (b"k8s\0", format!("{unrecognized}: empty body (6b387300)")),
        (b"k8s\0\x0a", format!("{unrecognized}: unexpected EOF (6b3873000a)")),
        (
            b"k8s\0\x12\x02\x08\x05",
            "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: proto: wrong wireType = 0 for field \
             ObjectMeta"
                .to_owned(),
        ),
        (
            b"k8s\0\x0a\x0a\x0a\x02v1\x12\x04Node",
            "Node in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Node) to (core.ConfigMap): \
             unknown conversion"
                .to_owned(),
        ),
    ] {
        let failure = decode_object(body, BodyEncoding::Protobuf, CONFIG_MAP, true).unwrap_err();
        assert_eq!((failure.code(), failure.message()), (400, message.as_str()));
    }
    let failure = decode_object(&protobuf(b""), BodyEncoding::Protobuf, GADGET, true).unwrap_err();
    assert_eq!(failure.code(), 415);
}

#[test]
fn options_of_a_delete_may_be_a_message() {
    let read = |body: &[u8]| {
        let options = decode_options(body, BodyEncoding::Protobuf);
        options.map_err(|failure| failure.message().to_owned())
    };
    let options = read(&protobuf(b"\x08\x05\x22\x0aForeground")).unwrap();
    assert_eq!(options["gracePeriodSeconds"], 5);
    assert_eq!(options["propagationPolicy"], "Foreground");
    for (body, problem) in [
        (
            &b"k8s\0\x12\x02\x0a\x05"[..],
            "proto: wrong wireType = 2 for field GracePeriodSeconds",
        ),
        (
            b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod",
            "no kind \"Pod\" is registered for version \"v1\" in scheme \"pkg/runtime/scheme.go:111\"",
        ),
    ] {
        assert_eq!(read(body), Err(problem.to_owned()));
    }
}

#[test]
fn patches_that_cannot_be_read_are_refused_as_the_real_server_does() {
    use PatchKind::{Apply, Json, Merge, Strategic};
    let map = "Go value of type map[string]interface {}";
    for (kind, body, validate, message) in [
        (Merge, "", true, "error decoding patch: unexpected end of JSON input".to_owned()),
        (Merge, "", false, "Invalid JSON Patch".to_owned()),
        (Merge, "null", true, "Invalid JSON Patch".to_owned()),
        (Merge, "[1]", true, format!("error decoding patch: json: cannot unmarshal array into {map}")),
        (Merge, "\"text\"", true, format!("error decoding patch: json: cannot unmarshal string into {map}")),
        (Json, "{}", true, "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp".to_owned()),
        (Json, "{}", false, "json: cannot unmarshal object into Go value of type jsonpatch.Patch".to_owned()),
        (Json, "[5]", true, "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp".to_owned()),
        (Json, "[5]", false, "json: cannot unmarshal number into Go value of type jsonpatch.Operation".to_owned()),
        (Json, "[{\"op\":5}]", true, "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.op of type string".to_owned()),
        (Strategic, "{\"a", true, "unexpected end of JSON input".to_owned()),
        (Strategic, "5", true, format!("json: cannot unmarshal number into {map}")),
        (Apply, "[1]", true, format!("error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into {map}")),
        (Apply, "a: b: c", true, "error decoding YAML: error converting YAML to JSON: yaml: mapping values are not allowed in this context".to_owned()),
    ] {
        let failure = decode_patch(kind, body.as_bytes(), validate).unwrap_err();
        assert_eq!(failure.message(), message, "{kind:?} {body}");
        assert_eq!(failure.code(), 400);
    }
}

#[test]
fn a_patch_may_ask_for_nothing() {
    for (kind, body, value) in [
        (PatchKind::Merge, "{}", json!({})),
        (PatchKind::Json, "null", json!([])),
        (PatchKind::Strategic, "null", json!({})),
        (PatchKind::Apply, "", json!({})),
    ] {
        assert_eq!(
            decode_patch(kind, body.as_bytes(), true).unwrap().value,
            value
        );
    }
}

#[test]
fn a_json_patch_names_the_fields_it_does_not_know() {
    let body = br#"[{"op": "add", "path": "/what", "value": 1, "extra": true}]"#;
    let decoded = decode_patch(PatchKind::Json, body, true).unwrap();
    assert_eq!(
        decoded.duplicates.warnings(),
        ["json patch unknown field \"[0].extra\""]
    );
}

#[test]
fn a_json_patch_has_a_bounded_number_of_operations() {
    let operations = vec![json!({"op": "remove", "path": "/a"}); 10_001];
    let body = Value::Array(operations).to_string();
    let failure = decode_patch(PatchKind::Json, body.as_bytes(), true).unwrap_err();
    assert_eq!(
        failure,
        Failure::too_large("The allowed maximum operations in a JSON patch is 10000, got 10001")
    );
}

#[test]
fn types_are_called_what_errors_call_them() {
    let event = Expected {
        api_version: "events.k8s.io/v1",
        kind: "Event",
        custom: false,
    };
    assert_eq!(go_type(CONFIG_MAP, false), "*core.ConfigMap");
    assert_eq!(go_type(event, true), "*core.EventList");
    assert_eq!(go_type(GADGET, true), "*unstructured.UnstructuredList");
}

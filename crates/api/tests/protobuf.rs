//! Bodies as clients written in Go send them. `fixtures/protobuf.json` has objects of all kinds that the API server reads,
//! written by Kubernetes' own packages as protobuf (`k8s.io/apimachinery/pkg/runtime/serializer/protobuf`) and as JSON.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use api::protobuf::{Envelope, ProtobufError, decode};
use base64::{Engine, prelude::BASE64_STANDARD};
use proptest::prelude::{any, prop};
use proptest::{prop_assert_eq, proptest};
use serde_json::{Value, json};

struct Sample {
    protobuf: Vec<u8>,
    json: Value,
}

fn samples() -> Vec<Sample> {
    let text = include_str!("fixtures/protobuf.json");
    let samples: Vec<Value> = serde_json::from_str(text).unwrap();
    let sample = |mut sample: Value| Sample {
        protobuf: BASE64_STANDARD
            .decode(sample["protobuf"].as_str().unwrap())
            .unwrap(),
        json: sample["json"].take(),
    };
    samples.into_iter().map(sample).collect()
}

/// The object as the server keeps it.
fn kept(mut object: Value) -> Value {
    let api_version = object["apiVersion"].as_str().unwrap().to_owned();
    let kind = object["kind"].as_str().unwrap().to_owned();
    let unknown = api::decode::decode(&mut object, &api_version, &kind).unwrap();
    assert_eq!(unknown, Vec::<String>::new(), "{api_version} {kind}");
    object
}

#[test]
fn an_object_is_the_same_in_protobuf_and_in_json() {
    let samples = samples();
    assert!(!samples.is_empty());
    for Sample { protobuf, json } in samples {
        assert_eq!(kept(decode(&protobuf).unwrap()), kept(json));
    }
}

#[test]
fn a_body_that_ends_early_is_refused_or_means_less() {
    for Sample { protobuf, .. } in samples() {
        for end in 0..protobuf.len() {
            // the end of the last field of the envelope is the end of the body
            let read = Envelope::open(&protobuf[..end]);
            assert_ne!(read.map(|envelope| envelope.object().is_ok()), Ok(false));
        }
    }
}

proptest! {
    #[test]
    fn a_damaged_body_is_refused_or_read(
        which in any::<prop::sample::Index>(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let samples = samples();
        let mut body = which.get(&samples).protobuf.clone();
        for (at, byte) in damages {
            let at = at.index(body.len());
            body[at] = byte;
        }
        if let Ok(envelope) = Envelope::open(&body) {
            let envelope = envelope.or("v1", "Pod");
            prop_assert_eq!(envelope.object(), envelope.object());
        }
    }

    #[test]
    fn noise_is_refused_or_read(noise in prop::collection::vec(any::<u8>(), 0..200)) {
        for kind in ["Pod", "Secret", "Event", "CustomResourceDefinition"] {
            let api_version = match kind {
                "CustomResourceDefinition" => "apiextensions.k8s.io/v1",
                _ => "v1",
            };
            let body = in_envelope(&noise);
            let envelope = Envelope::open(&body).unwrap().or(api_version, kind);
            if let Ok(object) = envelope.object() {
                prop_assert_eq!(&object["kind"], kind);
            }
        }
    }
}

/// A body with a message that does not say what it is.
fn in_envelope(message: &[u8]) -> Vec<u8> {
    let mut body = b"k8s\0\x12".to_vec();
    body.extend(length(message.len()));
    body.extend(message);
    body
}

fn length(mut length: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out
}

/// A field whose value has a length.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut out = length(usize::from(number) << 3 | 2);
    out.extend(length(content.len()));
    out.extend(content);
    out
}

fn read(message: &[u8], api_version: &str, kind: &str) -> Result<Value, String> {
    let body = in_envelope(message);
    let envelope = Envelope::open(&body).map_err(|error| error.to_string())?;
    let object = envelope.or(api_version, kind).object();
    object.map_err(|error| error.to_string())
}

#[test]
fn what_is_no_envelope_is_refused_as_the_real_server_does() {
    for (body, problem) in [
        (&b""[..], "empty data"),
        (
            b"hello",
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
        ),
        (b"k8s\0", "empty body"),
        (b"k8s\0\0", "proto: Unknown: illegal tag 0 (wire type 0)"),
        (b"k8s\0\x0a", "unexpected EOF"),
        (b"k8s\0\x0a\x05ab", "unexpected EOF"),
        (
            b"k8s\0\x08\x01",
            "proto: wrong wireType = 0 for field TypeMeta",
        ),
        (
            b"k8s\0\x0c",
            "proto: Unknown: wiretype end group for non-group",
        ),
    ] {
        assert_eq!(Envelope::open(body).unwrap_err().to_string(), problem);
    }
}

#[test]
fn what_is_no_message_is_refused_as_the_real_server_does() {
    for (message, problem) in [
        (&b"\x0a\x05"[..], "unexpected EOF"),
        (b"{}", "unexpected EOF"),
        (
            b"\x08\x05",
            "proto: wrong wireType = 0 for field ObjectMeta",
        ),
        (
            b"\x0e\x00",
            "proto: wrong wireType = 6 for field ObjectMeta",
        ),
        (
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "proto: integer overflow",
        ),
        (
            b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            "proto: negative length found during unmarshaling",
        ),
    ] {
        assert_eq!(read(message, "v1", "ConfigMap").unwrap_err(), problem);
    }
}

#[test]
fn an_object_that_says_nothing_about_itself_is_what_is_expected() {
    let expected = json!({"apiVersion": "v1", "kind": "ConfigMap"});
    assert_eq!(read(b"", "v1", "ConfigMap"), Ok(expected.clone()));
    let odd_version = Envelope::open(b"k8s\0\x0a\x07\x0a\x05a/b/c").unwrap();
    assert_eq!(odd_version.or("v1", "ConfigMap").object(), Ok(expected));
}

#[test]
fn a_kind_that_is_not_known_is_refused() {
    assert_eq!(
        decode(b"k8s\0\x0a\x08\x0a\x02v1\x12\x02Xy"),
        Err(ProtobufError::UnknownKind {
            api_version: "v1".to_owned(),
            kind: "Xy".to_owned(),
        })
    );
}

#[test]
fn unknown_fields_are_passed_over() {
    let mut message = field(99, b"new");
    message.extend(b"\x9b\x06\x08\x01\x13\x14\x9c\x06"); // groups in each other
    message.extend(b"\x9d\x06\x01\x02\x03\x04"); // four bytes
    message.extend(field(1, &field(1, b"name")));
    let object = read(&message, "v1", "ConfigMap").unwrap();
    assert_eq!(object["metadata"], json!({"name": "name"}));
}

#[test]
fn a_message_that_is_there_twice_is_one() {
    let mut message = field(1, &field(1, b"name"));
    message.extend(field(1, &field(3, b"space")));
    let object = read(&message, "v1", "ConfigMap").unwrap();
    assert_eq!(
        object["metadata"],
        json!({"name": "name", "namespace": "space"})
    );
}

#[test]
fn an_entry_of_a_map_may_leave_out_what_is_zero() {
    let mut message = field(2, &field(1, b"key"));
    message.extend(field(2, &field(2, b"value")));
    let object = read(&message, "v1", "ConfigMap").unwrap();
    assert_eq!(object["data"], json!({"key": "", "": "value"}));
}

#[test]
fn numbers_of_a_list_may_be_packed() {
    // spec.securityContext.supplementalGroups
    let in_pod = |groups: &[u8]| field(2, &field(14, groups));
    for groups in [&b"\x22\x03\x05\x80\x01"[..], b"\x20\x05\x20\x80\x01"] {
        let object = read(&in_pod(groups), "v1", "Pod").unwrap();
        assert_eq!(
            object["spec"]["securityContext"]["supplementalGroups"],
            json!([5, 128])
        );
    }
}

#[test]
fn messages_in_messages_have_a_bounded_depth() {
    // spec.versions[].schema.openAPIV3Schema.not.not.not…
    let nested = |depth: usize| {
        let schema = (0..depth).fold(Vec::new(), |schema, _| field(28, &schema));
        let version = field(4, &field(1, &schema));
        read(
            &field(2, &field(7, &version)),
            "apiextensions.k8s.io/v1",
            "CustomResourceDefinition",
        )
    };
    assert!(nested(90).is_ok());
    assert_eq!(nested(120).unwrap_err(), "messages are nested too deeply");
}

#[test]
fn a_time_that_no_calendar_has_is_refused() {
    let created = |time: &[u8]| read(&field(1, &field(8, time)), "v1", "Pod");
    let object = created(b"\x08\x00").unwrap();
    assert_eq!(
        object["metadata"]["creationTimestamp"],
        "1970-01-01T00:00:00Z"
    );
    let object = created(b"").unwrap();
    assert_eq!(object["metadata"]["creationTimestamp"], Value::Null);
    let error = created(b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f").unwrap_err();
    assert_eq!(error, "a time is out of range");
}

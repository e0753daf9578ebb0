//! Selectors, column paths, layers, frames and bodies made of fragments at random: nothing panics. `fuzz/` drives the same for longer.

use proptest::prelude::{ProptestConfig, any, prop_oneof, proptest};
use proptest::strategy::Strategy;
use serde_json::{Value, json};

#[path = "../../../fuzz/drive/bodies.rs"]
mod bodies;
#[path = "../../../fuzz/drive/layers.rs"]
mod layers;
#[path = "../../../fuzz/drive/seeds.rs"]
mod seeds;
#[path = "../../../fuzz/drive/selectors.rs"]
mod selectors;
#[path = "../../../fuzz/drive/spdy.rs"]
mod spdy;
#[path = "../../../fuzz/drive/table_paths.rs"]
mod table_paths;

const WORDS: &[&str] = &[
    "a",
    "b",
    " in ",
    " notin ",
    "(",
    ")",
    ",",
    "=",
    "==",
    "!=",
    "!",
    ">",
    "12",
    "\\",
    "\\,",
    "\0",
    "é",
    ".",
    "[",
    "]",
    "[*]",
    "[?(@.",
    "'x'",
    "..",
    ":",
    "-1",
    "@",
    "{",
    "}",
    "metadata.name",
];
const PARTS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"metadata\"",
    "\"name\"",
    "\"a\"",
    "\"data\"",
    "null",
    "1e400",
    "-0",
    "\"\\ud800\"",
    "\n",
    "  ",
    "- ",
    "&x ",
    "*x",
    "<<: ",
    "| ",
    "? ",
    "---\n",
    "metadata: ",
    "{\"metadata\": {\"name\": \"a\"}}",
    "[{\"op\": \"copy\", \"from\": \"/data\", \"path\": \"/data/x\"}]",
    "{\"data\": {\"$patch\": \"delete\"}}",
];

fn of(words: &'static [&'static str]) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        19 => proptest::sample::select(words).prop_map(|word| word.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    proptest::collection::vec(word, 0..16).prop_map(|words| words.concat())
}

/// Frames whose heads are mostly right.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let payload = || proptest::collection::vec(any::<u8>(), 0..24);
    let control = (0..12_u8, any::<u8>(), payload()).prop_map(|(kind, flags, payload)| {
        let length = u8::try_from(payload.len()).unwrap_or(0);
        [&[0x80, 3, 0, kind, flags, 0, 0, length], payload.as_slice()].concat()
    });
    let data = (0..4_u8, any::<u8>(), payload()).prop_map(|(stream, flags, payload)| {
        let length = u8::try_from(payload.len()).unwrap_or(0);
        [&[0, 0, 0, stream, flags, 0, 0, length], payload.as_slice()].concat()
    });
    let frame = prop_oneof![4 => control, 4 => data, 1 => payload()];
    proptest::collection::vec(frame, 0..8).prop_map(|frames| frames.concat())
}

#[test]
fn no_seed_panics() {
    seeds::drive_all("bodies", bodies::drive);
    seeds::drive_all("layers", layers::drive);
    seeds::drive_all("selectors", selectors::drive);
    seeds::drive_all("spdy", spdy::drive);
    seeds::drive_all("table_paths", table_paths::drive);
}

/// Whoever compares each with each other, or shows all for each, sits here for minutes.
#[test]
fn many_owners_and_fields_take_no_longer_than_they_are() {
    let owners: Vec<Value> = (0..10_000)
        .map(|number| {
            let uid = number.to_string();
            json!({"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": uid, "controller": true})
        })
        .collect();
    let mut object = json!({"metadata": {"name": "b", "ownerReferences": owners}});
    for number in 0..50_000 {
        object[format!("unknown{number}")] = json!(number);
    }
    bodies::drive(format!("\0{object}").as_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn no_selector_panics(input in of(WORDS)) {
        selectors::drive(&input);
    }

    #[test]
    fn no_column_panics(input in of(WORDS)) {
        table_paths::drive(&input);
    }

    #[test]
    fn no_layer_changes_anything_outside(entries in proptest::collection::vec(any::<[u8; 6]>(), 0..24)) {
        layers::drive(&[&[1], entries.concat().as_slice()].concat());
    }

    #[test]
    fn no_frame_panics(size in any::<u8>(), frames in frames()) {
        spdy::drive(&[&[size], frames.as_slice()].concat());
    }

    #[test]
    fn no_body_panics(choice in any::<u8>(), body in of(PARTS)) {
        bodies::drive(&[&[choice], body.as_slice()].concat());
    }
}

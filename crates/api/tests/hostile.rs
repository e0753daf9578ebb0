//! Patches and rules made of fragments at random: nothing panics. `fuzz/` drives the same for longer.

use proptest::prelude::{ProptestConfig, any, prop_oneof, proptest};
use proptest::strategy::{Just, Strategy};
use serde_json::{Value, json};

#[path = "../../../fuzz/drive/cel.rs"]
mod cel;
#[path = "../../../fuzz/drive/patches.rs"]
mod patches;
#[path = "../../../fuzz/drive/seeds.rs"]
mod seeds;

const WORDS: &[&str] = &[
    "self",
    "oldSelf",
    ".a",
    ".b",
    ".c",
    ".d",
    "has(",
    ")",
    "(",
    "[",
    "]",
    "0",
    "-1",
    "1e9",
    "'x'",
    "\"y\"",
    " == ",
    " in ",
    " && ",
    " ? ",
    " : ",
    "size(",
    ".all(x, ",
    ".map(x, ",
    ".matches(",
    "duration('1h')",
    "!",
    "+",
    "%",
    "\0",
    "{\"a\": 9223372036854775807}",
    ".split('')",
    "int(",
    "9223372036854775807",
    "optional.of(",
    ".?a",
];
const PATCHES: &[&str] = &[
    r#"[{"op": "copy", "from": "/spec", "path": "/spec/spec"}]"#,
    r#"[{"op": "move", "from": "/spec/containers/0", "path": "/spec/containers/-"}]"#,
    r#"[{"op": "replace", "path": "", "value": 5}, {"op": "remove", "path": "/a"}]"#,
    r#"[{"op": "add", "path": "/spec/containers/-9", "value": null}]"#,
    r#"{"spec": {"containers": [{"name": 7}, {"$patch": "delete"}]}}"#,
    r#"{"spec": {"$patch": "replace", "$retainKeys": [null], "containers": null}}"#,
    r#"{"spec": {"$setElementOrder/containers": [{"name": "d"}, 5], "containers": [{"name": "d"}]}}"#,
    r#"{"metadata": {"$deleteFromPrimitiveList/finalizers": [{}], "finalizers": [1]}}"#,
    r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "managedFields": [{}]}, "spec": 5}"#,
    r#"{"apiVersion": "v1", "kind": "Pod", "metadata": 5}"#,
    r#"{"metadata": {"managedFields": [{"fieldsV1": {"k:{": {}, "f:": 5, "v:1": {}, "i:x": null}}]}, "spec": []}"#,
    "{}",
    "[]",
    "5",
    "[[1]]",
];

/// Mostly sense, some noise.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        9 => proptest::sample::select(WORDS).prop_map(|word| word.as_bytes().to_vec()),
        1 => any::<u8>().prop_map(|byte| vec![byte]),
    ];
    proptest::collection::vec(word, 0..14).prop_map(|words| words.concat())
}

#[test]
fn no_seed_panics() {
    seeds::drive_all("cel", cel::drive);
    seeds::drive_all("patches", patches::drive);
}

/// Whoever compares each element with each other sits here for minutes.
#[test]
fn long_lists_take_no_longer_than_they_are() {
    let containers = |names: &mut dyn Iterator<Item = u32>| -> Value {
        names
            .map(|name| json!({"name": name.to_string()}))
            .collect()
    };
    let numbers = || (0..30_000).map(|number| number.to_string());
    let patch = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"finalizers": numbers().collect::<Vec<_>>()},
        "spec": {
            "$setElementOrder/containers": containers(&mut (0..30_000)),
            "containers": containers(&mut (0..30_000)),
            "$deleteFromPrimitiveList/finalizers": numbers().collect::<Vec<_>>(),
        },
    });
    let live = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"finalizers": numbers().rev().collect::<Vec<_>>()},
        "spec": {"containers": containers(&mut (10_000..40_000).rev())},
    });
    for kind in 2..6 {
        let input = format!("{}{patch}\0{live}", char::from(kind));
        patches::drive(input.as_bytes());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn no_rule_panics(input in text()) {
        cel::drive(&input);
    }

    #[test]
    fn no_patch_panics(
        kind in 0_u8..6,
        patch in prop_oneof![9 => proptest::sample::select(PATCHES), 1 => Just("{\"a\":")],
        object in proptest::sample::select(PATCHES),
        bare in any::<bool>(),
    ) {
        let mut input = vec![kind];
        input.extend_from_slice(patch.as_bytes());
        if !bare {
            input.push(0);
            input.extend_from_slice(object.as_bytes());
        }
        patches::drive(&input);
    }
}

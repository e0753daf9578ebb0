//! Selectors, column paths and bodies made of fragments at random: nothing panics. `fuzz/` drives the same for longer.

use proptest::prelude::{ProptestConfig, any, prop_oneof, proptest};
use proptest::strategy::Strategy;

#[path = "../../../fuzz/drive/bodies.rs"]
mod bodies;
#[path = "../../../fuzz/drive/selectors.rs"]
mod selectors;
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
    fn no_body_panics(choice in any::<u8>(), body in of(PARTS)) {
        bodies::drive(&[&[choice], body.as_slice()].concat());
    }
}

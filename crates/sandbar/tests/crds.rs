//! `sandbar crds` as a user runs it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    collections::BTreeMap,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;

fn sandbar(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sandbar"))
        .args(args)
        .output()
        .unwrap()
}

fn files(directory: &Path) -> BTreeMap<String, String> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read_to_string(path).unwrap())
        })
        .collect()
}

fn documents(text: &str) -> Vec<Value> {
    text.split("---\n")
        .map(|document| serde_saphyr::from_str(document).unwrap())
        .collect()
}

#[test]
fn deploy_crds_holds_the_default_rendering() {
    let fresh = tempfile::tempdir().unwrap();
    let written = sandbar(&["crds", "--out", fresh.path().to_str().unwrap()]);
    assert!(written.status.success(), "{written:?}");
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let (fresh, committed) = (files(fresh.path()), files(&committed));
    let names = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&fresh), names(&committed));
    for (name, text) in &fresh {
        assert!(
            *text == committed[name],
            "deploy/crds/{name} is stale: run `cargo run -p sandbar -- crds --out deploy/crds`"
        );
    }
}

#[test]
fn printed_yaml_means_the_generated_crds() {
    use api::crds::{Conversion, Family, Versions, render};
    let printed = sandbar(&["crds"]);
    let printed = documents(std::str::from_utf8(&printed.stdout).unwrap());
    let generated = render(
        &[Family::Sigs, Family::Kruise],
        Versions::Both,
        Conversion::Webhook,
    )
    .unwrap();
    assert_eq!(printed.len(), generated.len());
    for (printed, generated) in printed.into_iter().zip(generated) {
        let read: k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition =
            serde_json::from_value(printed).unwrap();
        assert_eq!(read, generated);
    }
}

#[test]
fn a_family_and_a_version_can_be_chosen() {
    let printed = sandbar(&[
        "crds",
        "--family",
        "sigs",
        "--versions",
        "v1alpha1",
        "--conversion",
        "none",
    ]);
    let crds = documents(std::str::from_utf8(&printed.stdout).unwrap());
    assert_eq!(crds.len(), 4);
    for crd in crds {
        assert_eq!(crd["spec"]["versions"][0]["name"], "v1alpha1");
        assert_eq!(crd["spec"]["conversion"]["strategy"], "None");
    }
}

#[test]
fn both_versions_without_conversion_are_refused_with_the_reason() {
    let refused = sandbar(&["crds", "--conversion", "none"]);
    assert!(!refused.status.success());
    assert!(refused.stdout.is_empty());
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("lose fields"), "{error}");
}

#[test]
fn an_unknown_version_is_a_usage_error_that_lists_the_known_ones() {
    let refused = sandbar(&["crds", "--versions", "v2"]);
    assert_eq!(refused.status.code(), Some(2));
    let error = String::from_utf8_lossy(&refused.stderr);
    assert!(error.contains("v1alpha1, v1beta1, both"), "{error}");
}

#[test]
fn lean_schemas_end_at_the_pod_template() {
    let [full, lean] = ["full", "lean"].map(|schemas| sandbar(&["crds", "--schemas", schemas]));
    assert_eq!(full.stdout, sandbar(&["crds"]).stdout);
    assert!(lean.stdout.len() * 5 < full.stdout.len());
    let crds = documents(std::str::from_utf8(&lean.stdout).unwrap());
    let templates = crds.iter().filter_map(|crd| {
        let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"].get("podTemplate")
    });
    let specs: Vec<&Value> = templates.map(|it| &it["properties"]["spec"]).collect();
    assert_eq!(specs.len(), 2);
    for spec in specs {
        assert_eq!(spec["x-kubernetes-preserve-unknown-fields"], true);
        assert_eq!(spec["required"][0], "containers");
        assert_eq!(spec["properties"].as_object().unwrap().len(), 2);
    }
}

#[test]
fn help_says_what_lean_schemas_give_and_take() {
    let help = sandbar(&["crds", "--help"]);
    let help = String::from_utf8_lossy(&help.stdout);
    let words: Vec<&str> = help.split_whitespace().collect();
    let help = words.join(" ");
    for promise in [
        "costs the API server less",
        "checked when the pod is made",
        "unknown fields are kept",
        "as one value",
        "`kubectl explain` ends at the pod template",
    ] {
        assert!(help.contains(promise), "{promise}: {help}");
    }
}

#[test]
fn completion_knows_the_subcommands() {
    let script = sandbar(&["completion", "bash"]);
    assert!(String::from_utf8_lossy(&script.stdout).contains("--family"));
}

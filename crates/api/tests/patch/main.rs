//! Patches do what a real kube-apiserver did with them.
//!
//! The cases are recorded (`cargo run -p suite --example record-patch-cases`); each step starts from
//! what the real server had stored, so one difference does not hide the next.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod properties;
mod replay;

use replay::{Report, replay_file};

const FILES: &[(&str, &str)] = &[
    (
        "configmap",
        include_str!("../fixtures/patch/configmap.json"),
    ),
    (
        "deployment",
        include_str!("../fixtures/patch/deployment.json"),
    ),
    ("kinds", include_str!("../fixtures/patch/kinds.json")),
    ("node", include_str!("../fixtures/patch/node.json")),
    ("pod", include_str!("../fixtures/patch/pod.json")),
    ("revision", include_str!("../fixtures/patch/revision.json")),
    ("sandbox", include_str!("../fixtures/patch/sandbox.json")),
    ("service", include_str!("../fixtures/patch/service.json")),
    ("widget", include_str!("../fixtures/patch/widget.json")),
];

#[test]
fn every_recorded_step_comes_out_as_it_did_on_a_real_server() {
    let mut report = Report::default();
    for (name, text) in FILES {
        replay_file(name, text, &mut report);
    }
    println!("{report}");
    assert!(report.problems.is_empty(), "{}", report.problems.join("\n"));
    assert!(report.count("strategic") >= 80 && report.count("apply") >= 80);
}

/// Further recordings, in the directory that `PATCH_CASES` names.
#[test]
fn further_recorded_steps_come_out_the_same() {
    let Ok(directory) = std::env::var("PATCH_CASES") else {
        return;
    };
    let mut report = Report::default();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        replay_file(&path.to_string_lossy(), &text, &mut report);
    }
    println!("{report}");
    assert!(report.problems.is_empty(), "{}", report.problems.join("\n"));
}

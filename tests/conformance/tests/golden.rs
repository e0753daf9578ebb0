//! The committed transcripts are what a real kube-apiserver answers, and what it answers every time.

use conformance::{Options, Transcripts};
use testbed::{OwnOptions, Testbed};

#[tokio::test(flavor = "multi_thread")]
async fn a_real_server_answers_as_recorded_twice() {
    let bed = Testbed::own(OwnOptions {
        controller_manager: true,
        ..OwnOptions::default()
    })
    .await
    .unwrap();
    // not the testbed's own client, which repeats requests that were refused with 429 or 503
    let client = conformance::connect(&bed.kubeconfig()).await.unwrap();
    let topics = conformance::load(&conformance::cases_dir()).unwrap();
    let golden = Transcripts::read(&conformance::golden_dir()).unwrap();
    for round in ["first", "second"] {
        let said = conformance::run(&client, &topics, &Options::default())
            .await
            .unwrap();
        let comparison = said.compare(&golden);
        assert!(
            comparison.is_same(),
            "in the {round} round:\n{}{}",
            comparison.diffs(),
            comparison.table()
        );
    }
    bed.stop().await.unwrap();
}

#[test]
fn every_transcript_belongs_to_a_case() {
    let topics = conformance::load(&conformance::cases_dir()).unwrap();
    let golden = Transcripts::read(&conformance::golden_dir()).unwrap();
    let written: Vec<String> = topics
        .iter()
        .flat_map(|topic| {
            let cases = topic.cases.iter();
            cases.map(|case| format!("{}: {}", topic.name, case.name))
        })
        .collect();
    let recorded: Vec<String> = golden
        .0
        .iter()
        .flat_map(|(topic, cases)| {
            cases
                .iter()
                .map(move |(case, _)| format!("{topic}: {case}"))
        })
        .collect();
    assert_eq!(
        recorded, written,
        "record again: some cases were added, removed or moved"
    );
}

//! The embedded cluster answers as a real kube-apiserver does.

use conformance::{Options, Transcripts};
use local::Cluster;

/// Cases in which the two differ, and why.
const DIFFERENT: &[(&str, &str)] = &[
    (
        "subresources: a token is made for a service account",
        "tokens of accounts come with the node, whose pods use them",
    ),
    (
        "hostile: nesting of 200 levels is kept",
        "what clients in Rust cannot read, our own controllers among them, is refused",
    ),
    (
        "hostile: nesting of 1000 levels in an unknown field is dropped",
        "the same",
    ),
    (
        "hostile: a namespace that climbs",
        "the real one fails over a key of its storage; there is simply nothing",
    ),
    (
        "hostile: numbers that no float holds",
        "they are refused without their field",
    ),
    (
        "hostile: numbers between 63 and 64 bits",
        "they are kept to the last digit, the real one rounds them",
    ),
    (
        "hostile: quantities beyond all bounds",
        "refused, the real one takes them for the largest that it knows",
    ),
    (
        "hostile: a map that is written twice",
        "the last one holds, as everywhere else; the real one merges maps of its own kinds",
    ),
    (
        "hostile: a kind in capitals",
        "field names have one spelling",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_server_answers_as_a_real_one() {
    let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
    let mut topics = conformance::load(&conformance::cases_dir()).unwrap();
    let only = std::env::var("ONLY").ok();
    if let Some(only) = &only {
        conformance::only(&mut topics, &regex::Regex::new(only).unwrap());
    }
    let golden = Transcripts::read(&conformance::golden_dir()).unwrap();
    let said = conformance::run(&cluster.client(), &topics, &Options::default())
        .await
        .unwrap();
    let comparison = said.compare(&golden);
    let known = |case: &str| DIFFERENT.iter().any(|(known, _)| *known == case);
    let unknown: Vec<String> = comparison.different().filter(|case| !known(case)).collect();
    assert!(
        unknown.is_empty(),
        "{}{}{unknown:#?}",
        comparison.diffs(),
        comparison.table()
    );
    let healed = DIFFERENT
        .iter()
        .filter(|(case, _)| comparison.different().all(|different| different != *case));
    let healed: Vec<_> = healed.collect();
    assert!(
        only.is_some() || healed.is_empty(),
        "no longer different: {healed:?}"
    );
    println!("{}", comparison.table());
}

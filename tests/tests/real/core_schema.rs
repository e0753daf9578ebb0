//! The committed table of Kubernetes' own types is what the server of the same release says.

use serde_json::Value;
use suite::distill;

use crate::cluster::V1BETA1;

fn published_documents() -> Vec<Value> {
    distill::DOCUMENTS
        .iter()
        .map(|document| {
            let said = V1BETA1.kubectl(&["get", "--raw", &format!("/openapi/v3/{document}")], None);
            assert!(said.ok, "{said:?}");
            serde_json::from_str(&said.stdout).unwrap()
        })
        .collect()
}

#[test]
fn the_committed_table_is_what_the_server_publishes() {
    let committed = include_str!("../../../crates/api/src/core_schema.json");
    let published = distill::table(&published_documents()).unwrap();
    let differing: Vec<_> = published
        .lines()
        .filter(|line| !committed.contains(line))
        .collect();
    assert!(published == committed, "differs: {differing:#?}");
}

#[test]
fn the_committed_values_of_fields_are_what_the_server_publishes() {
    let committed = include_str!("../../../crates/local/src/server/openapi/values.json");
    let published = distill::values(&published_documents()).unwrap();
    assert!(published == committed, "the server says: {published}");
}

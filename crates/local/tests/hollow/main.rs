//! The hollow node, on a real API server and on the embedded one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod scenarios;
mod stage;

use std::time::Instant;

use kube::Client;
use local::Cluster;
use testbed::{OwnOptions, Testbed};

#[tokio::test(flavor = "multi_thread")]
async fn the_node_behaves_on_a_real_server() {
    let bed = Testbed::own(OwnOptions::default()).await.unwrap();
    run_all(bed.client()).await;
    bed.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_behaves_on_the_embedded_server() {
    let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
    run_all(cluster.client()).await;
}

async fn run_all(client: Client) {
    for (name, scenario) in scenarios::ALL {
        let start = Instant::now();
        println!("{name}");
        scenario(client.clone()).await;
        println!("  took {:.1?}", start.elapsed());
    }
}

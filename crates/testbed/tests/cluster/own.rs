//! Clusters that one test has for itself.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::{OwnOptions, Testbed};

use crate::support::output;

#[tokio::test]
async fn an_own_api_server_answers_and_vanishes_with_its_handle() {
    let bed = Testbed::own(OwnOptions::default()).await.unwrap();
    let version = bed.client().apiserver_version().await.unwrap();
    assert_eq!(
        (version.major.as_str(), version.minor.as_str()),
        ("1", "36")
    );
    let kubectl = output(bed.kubectl().args(["get", "namespaces", "-o", "name"]));
    assert!(kubectl.contains("namespace/default"), "{kubectl}");

    let directory = bed.logs().parent().unwrap().to_owned();
    assert!(processes_of(&directory) > 0);
    bed.stop().await.unwrap();
    assert!(!directory.exists());
    assert_eq!(processes_of(&directory), 0);
}

fn processes_of(directory: &std::path::Path) -> usize {
    let directory = directory.to_str().unwrap();
    let all = output(std::process::Command::new("ps").args(["-eww", "-o", "args="]));
    all.lines().filter(|l| l.contains(directory)).count()
}

#[tokio::test]
async fn two_own_clusters_live_side_by_side_and_do_not_see_each_other() {
    let start = || Testbed::own(OwnOptions::default());
    let (one, two) = tokio::join!(start(), start());
    let (one, two) = (one.unwrap(), two.unwrap());
    assert_ne!(one.node_address(), two.node_address());

    let maps = |bed: &Testbed| Api::<ConfigMap>::default_namespaced(bed.client());
    let mut map = ConfigMap::default();
    map.metadata.name = Some("only-in-one".to_owned());
    maps(&one)
        .create(&PostParams::default(), &map)
        .await
        .unwrap();
    assert!(maps(&one).get_opt("only-in-one").await.unwrap().is_some());
    assert!(maps(&two).get_opt("only-in-one").await.unwrap().is_none());

    one.stop().await.unwrap();
    assert!(
        maps(&two).get_opt("only-in-one").await.unwrap().is_none(),
        "two still answers"
    );
}

#[tokio::test]
async fn writes_are_counted_by_user_agent_and_reads_are_not() {
    let bed = Testbed::own(OwnOptions {
        audit: true,
        ..OwnOptions::default()
    })
    .await
    .unwrap();
    let namespace = bed.namespace("audit").await.unwrap();
    let maps = namespace.api::<ConfigMap>();
    let mut map = ConfigMap::default();
    map.metadata.name = Some("counted".to_owned());
    maps.create(&PostParams::default(), &map).await.unwrap();
    for value in ["a", "b"] {
        let patch = Patch::Merge(json!({"data": {"key": value}}));
        maps.patch("counted", &PatchParams::default(), &patch)
            .await
            .unwrap();
    }
    maps.get("counted").await.unwrap();
    let mark = bed.mark().unwrap();
    output(bed.kubectl().args([
        "label",
        "configmap",
        "counted",
        "x=y",
        "-n",
        namespace.name(),
    ]));

    let writes = bed.writes().unwrap();
    let of = |agent: &'static str, verb: &'static str| {
        writes.count(|w| w.user_agent.starts_with(agent) && w.verb == verb && w.name == "counted")
    };
    // the name of a created object is in the request's body, which level Metadata does not record
    let created = writes.count(|w| w.verb == "create" && w.namespace == namespace.name());
    assert_eq!(created, 1, "{writes:?}");
    assert_eq!(of("kubectl", "patch"), 1, "{writes:?}");
    let patches = writes.count(|w| w.verb == "patch" && w.name == "counted");
    assert_eq!(patches, 3, "{writes:?}");
    let since = bed.writes_since(mark).unwrap();
    let patches = since.count(|w| w.verb == "patch" && w.name == "counted");
    assert_eq!(patches, 1, "{since:?}");
    assert!(
        writes.by_user_agent().contains_key("kube-apiserver"),
        "{writes:?}"
    );
    assert_eq!(
        writes.count(|w| ["get", "list", "watch"].contains(&w.verb.as_str())),
        0
    );
}

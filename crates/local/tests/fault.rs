//! The fault layer, tried on a small controller: every ConfigMap labelled `mirror` gets a copy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::StreamExt as _;
use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::{Controller, controller::Action, watcher},
};
use local::Cluster;
use local::fault::{Fault, Faults, Refusal, every_point};
use serde_json::json;
use testbed::{OwnOptions, Testbed};

const SOURCES: &str = "mirror=true";

/// One pass over one source: observe, decide, act.
async fn reconcile(source: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let namespace = source.namespace().unwrap_or_default();
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &namespace);
    let name = format!("{}-copy", source.name_any());
    match maps.get_opt(&name).await? {
        None => {
            let copy = ConfigMap {
                metadata: ObjectMeta {
                    name: Some(name),
                    ..Default::default()
                },
                data: source.data.clone(),
                ..Default::default()
            };
            maps.create(&PostParams::default(), &copy).await?;
        }
        Some(copy) if copy.data != source.data => {
            let patch = json!({
                "metadata": {"resourceVersion": copy.resource_version()},
                "data": source.data,
            });
            maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        Some(_) => {}
    }
    Ok(Action::await_change())
}

fn start(client: Client, namespace: &str) -> tokio::task::JoinHandle<()> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let controller = Controller::new(maps, watcher::Config::default().labels(SOURCES));
    let retry = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>| {
        Action::requeue(Duration::from_millis(20))
    };
    tokio::spawn(
        controller
            .run(reconcile, retry, Arc::new(client))
            .for_each(|_| async {}),
    )
}

async fn wait_until(what: &str, faults: &Faults, check: impl AsyncFn() -> bool) {
    for _ in 0..3000 {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("never: {what}\n{:#?}", faults.points());
}

struct Scenario {
    direct: Client,
    namespace: String,
}

impl Scenario {
    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.direct.clone(), &self.namespace)
    }

    async fn set(&self, value: &str) {
        let source = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "source", "labels": {"mirror": "true"}},
            "data": {"value": value},
        });
        let params = PatchParams::apply("test").force();
        self.maps()
            .patch("source", &params, &Patch::Apply(source))
            .await
            .unwrap();
    }

    async fn mirrored(&self, value: &str) -> bool {
        let copy = self.maps().get_opt("source-copy").await.unwrap();
        let data = copy.and_then(|copy| copy.data);
        data == Some(BTreeMap::from([("value".to_owned(), value.to_owned())]))
    }

    /// A source appears and changes twice; the controller, struck by `faults`, keeps its copy. If it
    /// dies or hangs, another takes over, and what a hanging one had on the wire arrives then.
    async fn run(&self, faults: Faults) {
        self.maps()
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await
            .unwrap();
        let first = start(faults.client(self.direct.clone()), &self.namespace);
        let work = async {
            for value in ["one", "two", "three"] {
                self.set(value).await;
                wait_until(value, &faults, async || self.mirrored(value).await).await;
            }
        };
        let survivor = Faults::none();
        let successor = tokio::select! {
            () = faults.stopped() => Some(start(survivor.client(self.direct.clone()), &self.namespace)),
            () = work => None,
        };
        self.set("three").await;
        wait_until("the last value", &faults, async || {
            self.mirrored("three").await
        })
        .await;
        faults.release();
        self.goes_quiet(&faults, &survivor).await;
        first.abort();
        successor.inspect(tokio::task::JoinHandle::abort);
    }

    /// Once faults have stopped nothing is written any more, and the copy stays right.
    async fn goes_quiet(&self, first: &Faults, second: &Faults) {
        let writes = |faults: &Faults| {
            faults
                .points()
                .iter()
                .filter(|point| point.method != http::Method::GET)
                .count()
        };
        wait_until("no more writes", first, async || {
            let before = (writes(first), writes(second));
            tokio::time::sleep(Duration::from_millis(60)).await;
            before == (writes(first), writes(second))
        })
        .await;
        assert!(self.mirrored("three").await, "{:#?}", first.points());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_survives_every_fault_at_every_request_on_a_real_server() {
    let bed = Testbed::own(OwnOptions::default()).await.unwrap();
    let namespace = bed.namespace("faults").await.unwrap();
    survives_everything(bed.client(), namespace.name()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_survives_every_fault_at_every_request_on_the_embedded_one() {
    let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
    survives_everything(cluster.client(), "default").await;
}

async fn survives_everything(direct: Client, namespace: &str) {
    let scenario = Scenario {
        direct,
        namespace: namespace.to_owned(),
    };
    let mut faults = Fault::SUDDEN.to_vec();
    faults.push(Fault::Hold);
    faults.push(Fault::StallWatches(Duration::from_millis(100)));
    let report = every_point(&faults, async |faults| scenario.run(faults).await).await;
    println!("{report:#?}");
    for fault in faults {
        for method in ["GET", "POST", "PATCH"] {
            assert!(
                report.struck.contains_key(&(fault, method.to_owned())),
                "{fault:?} never struck a {method}: {report:#?}"
            );
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_an_error_of_a_request_that_was_committed() {
    let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
    let faults = Faults::at(0, Fault::LoseAnswer);
    let maps: Api<ConfigMap> = Api::namespaced(faults.client(cluster.client()), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let lost = maps.create(&PostParams::default(), &map).await.unwrap_err();
    assert!(format!("{lost:?}").contains("AnswerLost"), "{lost:?}");
    assert!(maps.get_opt("a").await.unwrap().is_some());
    assert_eq!(faults.points().len(), 2);
    assert_eq!(faults.points()[0].struck, Some(Fault::LoseAnswer));
}

#[tokio::test]
async fn a_refused_request_never_reaches_the_server() {
    let cluster = Cluster::open(local::Options::ephemeral()).await.unwrap();
    let faults = Faults::at(0, Fault::Refuse(Refusal::Conflict));
    let maps: Api<ConfigMap> = Api::namespaced(faults.client(cluster.client()), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
    let refused = maps.create(&PostParams::default(), &map).await.unwrap_err();
    assert!(
        matches!(&refused, kube::Error::Api(status) if status.code == 409),
        "{refused:?}"
    );
    assert!(maps.get_opt("a").await.unwrap().is_none());
}

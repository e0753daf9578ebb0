//! Objects as a watch over TLS shows them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bench::client::Access;
use bench::watch::{Change, follow};
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Whoever waits longer waits for nothing.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) struct Watched {
    changes: UnboundedReceiver<(Change<Value>, Instant)>,
    watch: JoinHandle<Result<()>>,
}

impl Watched {
    pub(crate) async fn begin(access: &Access, path: &str) -> Result<Self> {
        let (tell, changes) = unbounded_channel();
        let watch = follow(access, path, move |change, at| {
            // nobody listens once the figure has been taken
            let _ = tell.send((change, at));
        });
        Ok(Self {
            changes,
            watch: watch.await?,
        })
    }

    /// The change that makes it so, and when it arrived.
    pub(crate) async fn until(
        &mut self,
        what: &str,
        mut holds: impl FnMut(&Change<Value>) -> bool,
    ) -> Result<Instant> {
        let search = async {
            loop {
                let (change, at) = self.changes.recv().await.context("the watch has ended")?;
                if holds(&change) {
                    return anyhow::Ok(at);
                }
            }
        };
        let found = timeout(PATIENCE, search).await;
        found
            .with_context(|| format!("waited in vain: {what}"))?
            .with_context(|| format!("waiting: {what}"))
    }

    pub(crate) async fn until_gone(&mut self, name: &str) -> Result<Instant> {
        let is_gone = |change: &Change<Value>| matches!(change, Change::Gone(object) if name_of(object) == name);
        self.until(&format!("{name} is gone"), is_gone).await
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

pub(crate) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

/// Pods, Sandboxes and claims say it in the same way.
pub(crate) fn is_ready(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Whether the containers of a pod run.
pub(crate) fn runs(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array();
    containers.is_some_and(|all| {
        !all.is_empty() && all.iter().all(|one| one["state"]["running"].is_object())
    })
}

/// The run of a pod's only container.
pub(crate) fn run_of(pod: &Value) -> Option<&str> {
    pod["status"]["containerStatuses"][0]["containerID"].as_str()
}

#[cfg(test)]
mod tests {
    use super::{is_ready, runs};
    use serde_json::json;

    #[test]
    fn a_pod_runs_when_all_its_containers_do() {
        let pod = |states: &[&str]| {
            let all: Vec<_> = states
                .iter()
                .map(|state| json!({"state": {*state: {}}}))
                .collect();
            json!({"status": {"containerStatuses": all}})
        };
        assert!(!runs(&json!({})));
        assert!(!runs(&pod(&[])));
        assert!(!runs(&pod(&["running", "waiting"])));
        assert!(runs(&pod(&["running", "running"])));
    }

    #[test]
    fn ready_is_what_the_condition_says() {
        let with =
            |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        assert!(is_ready(&with("True")));
        assert!(!is_ready(&with("False")));
        assert!(!is_ready(&json!({})));
    }
}

//! What is written and read.

use std::time::{Duration, Instant};

use anyhow::Result;
use api::crds::{Conversion, Family, Versions};
use serde_json::{Value, json};

use crate::rival::Side;
use bench::client::Ask;
use bench::definitions::{define, definitions};

pub(crate) const SANDBOXES: &str = "/apis/agents.x-k8s.io/v1beta1/namespaces/default/sandboxes";
pub(crate) const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Stands for the name in a body that is written once and sent often.
const NAME: &str = "@name@";
const CONFIG_MAP_SIZE: usize = 2048;

/// A body that only lacks a name.
pub(crate) struct Template(String);

impl Template {
    fn of(mut object: Value) -> Self {
        object["metadata"]["name"] = json!(NAME);
        Self(object.to_string())
    }

    pub(crate) fn sandbox() -> Self {
        Self::of(bench::sandbox())
    }

    pub(crate) fn config_map() -> Self {
        let object = |fill: usize| {
            json!({
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": NAME, "labels": {"app": "bench"}},
                "data": {"fill": "x".repeat(fill)},
            })
        };
        let bare = object(0).to_string().len();
        Self::of(object(CONFIG_MAP_SIZE - bare))
    }

    pub(crate) fn named(&self, name: &str) -> String {
        self.0.replacen(NAME, name, 1)
    }

    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }
}

/// A change as controllers and users make it: a field of the spec, which counts a generation, and an annotation.
pub(crate) fn change(path: &str, round: u64) -> Ask {
    let mode = if round.is_multiple_of(2) {
        "Running"
    } else {
        "Suspended"
    };
    let patch = json!({
        "metadata": {"annotations": {"example.com/round": round.to_string()}},
        "spec": {"operatingMode": mode},
    });
    Ask::merge(path.to_owned(), patch.to_string())
}

/// The definition of Sandbox alone, as every server can have it.
pub(crate) fn definition() -> Result<Vec<Ask>> {
    definitions(&[Family::Sigs], Versions::V1beta1, Conversion::None)
}

/// All definitions in all versions, as an installation has them.
pub(crate) fn all_definitions() -> Result<Vec<Ask>> {
    let families = [Family::Sigs, Family::Kruise];
    definitions(&families, Versions::Both, Conversion::Webhook)
}

/// Defines Sandboxes on every side and waits until they are served.
pub(crate) async fn install(sides: &[&Side]) -> Result<()> {
    for side in sides {
        define(&side.access, definition()?).await?;
        let connection = side.access.connect().await?;
        let begun = Instant::now();
        while let Err(error) = connection.whole(Ask::get(SANDBOXES)).await {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err(error.context("Sandboxes are not served"));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

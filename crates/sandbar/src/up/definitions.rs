//! The kinds that `sandbar up` serves.

use std::time::Duration;

use anyhow::{Context, Result};
use api::crds::{Conversion, Family, Versions, render};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::json;
use tokio::time::sleep;

const LOOKS: u32 = 2000;
const PAUSE: Duration = Duration::from_millis(5);

/// Makes the definitions those of this program, and waits until their kinds are served.
pub(super) async fn install(client: &Client) -> Result<()> {
    let wanted = render(&[Family::Sigs], Versions::V1beta1, Conversion::None)?;
    let all: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in &wanted {
        let name = definition.name_any();
        put(&all, definition)
            .await
            .with_context(|| format!("defining {name}"))?;
    }
    for definition in &wanted {
        wait_for(&all, &definition.name_any()).await?;
    }
    Ok(())
}

async fn put(
    all: &Api<CustomResourceDefinition>,
    wanted: &CustomResourceDefinition,
) -> Result<(), kube::Error> {
    let name = wanted.name_any();
    match all.get_opt(&name).await? {
        None => all.create(&PostParams::default(), wanted).await.map(drop),
        Some(found) if found.spec == wanted.spec => Ok(()),
        Some(_) => {
            let patch = Patch::Merge(json!({"spec": wanted.spec}));
            all.patch(&name, &PatchParams::default(), &patch)
                .await
                .map(drop)
        }
    }
}

async fn wait_for(all: &Api<CustomResourceDefinition>, name: &str) -> Result<()> {
    for _ in 0..LOOKS {
        let found = all.get(name).await?;
        let status = found.status.unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        if conditions.any(|one| one.type_ == "Established" && one.status == "True") {
            return Ok(());
        }
        sleep(PAUSE).await;
    }
    anyhow::bail!("{name} is defined, but not served")
}

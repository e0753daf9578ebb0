//! Custom resource definitions on a server.

use anyhow::Result;
use api::crds::{Conversion, Family, Versions, render};
use serde::Serialize;

use crate::client::{Access, Ask};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

pub fn definitions(families: &[Family], versions: Versions, how: Conversion) -> Result<Vec<Ask>> {
    asks(&render(families, versions, how)?)
}

pub fn asks(definitions: &[impl Serialize]) -> Result<Vec<Ask>> {
    let asks = definitions.iter().map(|definition| {
        let body = serde_json::to_string(definition)?;
        Ok(Ask::post(DEFINITIONS, body))
    });
    asks.collect()
}

pub async fn define(access: &Access, definitions: Vec<Ask>) -> Result<()> {
    let connection = access.connect().await?;
    for ask in definitions {
        connection.whole(ask).await?;
    }
    Ok(())
}

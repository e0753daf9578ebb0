//! The custom kinds that cases use: the project's own and a few made for the purpose, installed before a run.

use std::time::{Duration, Instant};

use api::crds::{Conversion, Family, Versions};
use http::Request;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::Error;

const OWN: [&str; 1] = [include_str!("../fixtures/widgets.yaml")];
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Installs the CRDs and waits until they are served.
pub(crate) async fn install(client: &Client) -> Result<(), Error> {
    let failed = |what: &dyn std::fmt::Display| Error::Setup {
        what: "the custom kinds".to_owned(),
        answer: what.to_string(),
    };
    let families = [Family::Sigs, Family::Kruise];
    let rendered = api::crds::render(&families, Versions::V1beta1, Conversion::None)
        .map_err(|e| failed(&e))?;
    let mut crds = Vec::new();
    for crd in rendered {
        crds.push(serde_json::to_value(crd).map_err(|e| failed(&e))?);
    }
    for text in OWN {
        let crd: Value = serde_saphyr::from_str(text).map_err(|e| failed(&e))?;
        crds.push(crd);
    }
    for crd in &mut crds {
        crd["apiVersion"] = json!("apiextensions.k8s.io/v1");
        crd["kind"] = json!("CustomResourceDefinition");
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        let target = format!("{CRDS}/{name}?fieldManager=conformance&force=true");
        let (status, answer) = send(client, "PATCH", &target, crd.to_string()).await?;
        if status >= 300 {
            return Err(failed(&answer));
        }
    }
    for crd in &crds {
        await_served(client, crd).await?;
    }
    Ok(())
}

/// A kind is usable when a list of it succeeds and discovery names it; the condition `Established` comes earlier.
async fn await_served(client: &Client, crd: &Value) -> Result<(), Error> {
    let text = |pointer: &str| crd.pointer(pointer).and_then(Value::as_str).unwrap_or("");
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let version = format!("/apis/{group}/{}", text("/spec/versions/0/name"));
    for (target, named) in [
        (format!("{version}/{plural}"), ""),
        (version, plural),
        ("/apis".to_owned(), group),
    ] {
        let give_up = Instant::now() + Duration::from_secs(60);
        loop {
            let (status, answer) = send(client, "GET", &target, String::new()).await?;
            if status == 200 && answer.contains(named) {
                break;
            }
            if Instant::now() > give_up {
                return Err(Error::Setup {
                    what: target,
                    answer,
                });
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    Ok(())
}

async fn send(
    client: &Client,
    method: &str,
    target: &str,
    body: String,
) -> Result<(u16, String), Error> {
    let failed = |what: String| Error::Request {
        request: format!("{method} {target}"),
        what,
    };
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header("Content-Type", "application/apply-patch+yaml")
        .body(Body::from(body.into_bytes()))
        .map_err(|e| failed(e.to_string()))?;
    let response = client
        .send(request)
        .await
        .map_err(|e| failed(e.to_string()))?;
    let status = response.status().as_u16();
    let body = response.into_body().collect_bytes().await;
    let body = body.map_err(|e| failed(e.to_string()))?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

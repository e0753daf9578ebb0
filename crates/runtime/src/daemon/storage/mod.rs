//! Volumes that are mounted into a sandbox that runs. Controllers ask over HTTP (`POST /v1/storage/mounts`), or have a program
//! executed in it (`command`); what they send is a request of CSI, and the name of the driver that should serve it.

mod command;
mod plan;

use http::{Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;

pub use self::command::{NAME, main};
use super::body::Body;
use super::error::Error;
use super::{route, rpc};
use crate::messages::csi::NodePublishVolumeRequest;

/// More than attributes and secrets of any volume.
const LARGEST: usize = 1 << 20;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct MountRequest {
    driver: String,
    publish_request: NodePublishVolumeRequest,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MountAnswer {
    success: bool,
    mount_path: String,
    message: String,
}

pub(super) async fn answer(body: Incoming) -> Response<Body> {
    let request = match read(body).await {
        Ok(request) => request,
        Err(refusal) => return respond(String::new(), Err(refusal)),
    };
    let mount_path = request.publish_request.target_path.clone();
    let mounted = spawn_blocking(move || mount(&request.driver, &request.publish_request)).await;
    respond(
        mount_path,
        mounted.unwrap_or_else(|broken| Err(Error::broken(broken))),
    )
}

async fn read(body: Incoming) -> Result<MountRequest, Error> {
    let body = Limited::new(body, LARGEST).collect().await;
    let body = body.map_err(|e| Error::invalid(format!("the body cannot be read: {e}")))?;
    rpc::from_json(&body.to_bytes())
}

fn respond(mount_path: String, mounted: Result<(), Error>) -> Response<Body> {
    let (status, success, message) = match mounted {
        Ok(()) => (StatusCode::OK, true, "mounted".to_owned()),
        Err(Error { code, message }) => (code.http(), false, message),
    };
    let answer = MountAnswer {
        success,
        mount_path,
        message,
    };
    route::json(status, &answer)
}

fn mount(driver: &str, request: &NodePublishVolumeRequest) -> Result<(), Error> {
    plan::of(driver, request)?.ensure()
}

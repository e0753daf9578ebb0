//! `POST /init`: a sandbox learns who it belongs to and how its commands are to run.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, Utc};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::body::Body;
use super::mounts::{self, VolumeMount};
use super::settings::Change;
use super::{Daemon, PROTOCOL_VERSION, ca};

/// More than any bundle of certificates.
const LARGEST: usize = 8 << 20;

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Init {
    env_vars: Option<BTreeMap<String, String>>,
    access_token: Option<String>,
    timestamp: Option<String>,
    default_user: Option<String>,
    default_workdir: Option<String>,
    volume_mounts: Option<Vec<VolumeMount>>,
    ca_bundle: Option<String>,
}

type Refusal = (StatusCode, String);

pub(super) async fn answer(daemon: &Arc<Daemon>, body: Incoming) -> Response<Body> {
    let outcome = match Limited::new(body, LARGEST).collect().await {
        // a task of its own: a client that leaves must not leave it half done
        Ok(body) => tokio::spawn(init(Arc::clone(daemon), body.to_bytes()))
            .await
            .unwrap_or_else(|e| Err((StatusCode::INTERNAL_SERVER_ERROR, e.to_string()))),
        Err(error) => Err((
            StatusCode::BAD_REQUEST,
            format!("the body cannot be read: {error}"),
        )),
    };
    let (status, text) = match outcome {
        Ok(()) => (StatusCode::NO_CONTENT, String::new()),
        Err(refusal) => refusal,
    };
    let mut response = Response::new(Body::Full(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert("x-envd-version", HeaderValue::from_static(PROTOCOL_VERSION));
    headers.insert(
        http::header::CACHE_CONTROL,
        HeaderValue::from_static("no-store"),
    );
    if !status.is_success() {
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        headers.insert(CONTENT_TYPE, text);
    }
    response
}

async fn init(daemon: Arc<Daemon>, body: Bytes) -> Result<(), Refusal> {
    let init = read(&body)?;
    let timestamp = init.timestamp()?;
    let token = init.access_token.filter(|token| !token.is_empty());
    let _one_at_a_time = daemon.initializing.try_lock().map_err(|_| {
        let text = "another init is under way, try again";
        (StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
    })?;
    if !daemon.settings.may_init(token.as_deref()) {
        let text = "the access token is set already and is not the one that was sent";
        return Err((StatusCode::UNAUTHORIZED, text.to_owned()));
    }
    if !daemon.settings.is_news(timestamp) {
        return Ok(());
    }
    let machine = tokio::task::spawn_blocking(move || {
        if let Some(bundle) = init.ca_bundle.filter(|bundle| !bundle.is_empty()) {
            ca::install(&bundle)?;
        }
        mounts::mount_all(&init.volume_mounts.unwrap_or_default()).map_err(|e| e.message)
    });
    machine
        .await
        .unwrap_or_else(|broken| Err(broken.to_string()))
        .map_err(|text| (StatusCode::BAD_REQUEST, text))?;
    daemon.settings.apply(Change {
        variables: init.env_vars,
        token,
        default_user: init.default_user.filter(|user| !user.is_empty()),
        default_workdir: init
            .default_workdir
            .filter(|dir| !dir.is_empty())
            .map(Into::into),
        timestamp,
    });
    Ok(())
}

fn read(body: &[u8]) -> Result<Init, Refusal> {
    if body.is_empty() {
        return Ok(Init::default());
    }
    // an array would be taken for the fields in their order
    let object: Result<Map<String, Value>, _> = serde_json::from_slice(body);
    let init = object.and_then(|object| Init::deserialize(Value::Object(object)));
    init.map_err(|e| {
        let text = format!("the body is not understood: {e}");
        (StatusCode::BAD_REQUEST, text)
    })
}

impl Init {
    fn timestamp(&self) -> Result<Option<DateTime<Utc>>, Refusal> {
        let Some(text) = &self.timestamp else {
            return Ok(None);
        };
        match DateTime::parse_from_rfc3339(text) {
            Ok(time) => Ok(Some(time.to_utc())),
            Err(_) => {
                let text = format!("timestamp '{text}' is not a time as in RFC 3339");
                Err((StatusCode::BAD_REQUEST, text))
            }
        }
    }
}

//! A list and the watch that follows it.

use std::time::Instant;

use crate::client::{Access, Ask, Lines};
use anyhow::{Context as _, Result, bail};
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::task::JoinHandle;

/// Longer than any run.
const FOLLOW_FOR: &str = "timeoutSeconds=86400";

pub enum Change<T> {
    Is(T),
    Gone(T),
}

#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMeta {
    resource_version: String,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: ListMeta,
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

/// Tells of everything there is and then of every change, each with the time at which it arrived.
pub async fn follow<T: DeserializeOwned>(
    access: &Access,
    path: &str,
    mut tell: impl FnMut(Change<T>, Instant) + Send + 'static,
) -> Result<JoinHandle<Result<()>>> {
    // a connection of its own: nothing else must wait in its queue
    let (connection, path) = (access.connect().await?, path.to_owned());
    let answer = connection.whole(Ask::get(&path)).await?;
    let list: List<'_> = serde_json::from_slice(&answer).context("reading a list")?;
    for item in list.items {
        let object = serde_json::from_str(item.get()).context("reading an object of a list")?;
        tell(Change::Is(object), Instant::now());
    }
    let mut from = list.metadata.resource_version;
    let mut body = connection.send(watch(&path, &from)).await?.into_body();
    Ok(tokio::spawn(async move {
        let mut lines = Lines::default();
        loop {
            let Some(frame) = body.frame().await else {
                // a server that is short of time ends watches that fall behind
                lines = Lines::default();
                body = connection.send(watch(&path, &from)).await?.into_body();
                continue;
            };
            let at = Instant::now();
            let Ok(data) = frame?.into_data() else {
                continue;
            };
            for line in lines.cut(&data) {
                let (version, change) = read(&line)?;
                from = version;
                tell(change, at);
            }
        }
    }))
}

fn watch(path: &str, from: &str) -> Ask {
    Ask::get(&format!(
        "{path}?watch=1&{FOLLOW_FOR}&resourceVersion={from}"
    ))
}

/// The version that an event brings, and what has changed.
fn read<T: DeserializeOwned>(line: &[u8]) -> Result<(String, Change<T>)> {
    let event: Event<'_> = serde_json::from_slice(line).context("reading an event")?;
    let text = event.object.get();
    let object = || serde_json::from_str(text).context("reading an event's object");
    let change = match event.r#type {
        "ADDED" | "MODIFIED" => Change::Is(object()?),
        "DELETED" => Change::Gone(object()?),
        _ => bail!("a watch was ended: {text}"),
    };
    let versioned: Versioned = serde_json::from_str(text).context("reading an event's version")?;
    Ok((versioned.metadata.resource_version, change))
}

#[cfg(test)]
mod tests {
    use super::{Change, read};
    use serde_json::Value;

    #[test]
    fn events_are_told_apart() {
        let line = |kind: &str| {
            format!(r#"{{"type":"{kind}","object":{{"metadata":{{"resourceVersion":"7"}}}}}}"#)
        };
        let of = |kind: &str| read::<Value>(line(kind).as_bytes());
        assert!(matches!(of("ADDED"), Ok((version, Change::Is(_))) if version == "7"));
        assert!(matches!(of("DELETED"), Ok((_, Change::Gone(_)))));
        assert!(of("ERROR").is_err());
    }
}

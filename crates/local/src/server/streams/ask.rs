//! What is asked of a pod, and whether it can be: pure functions over the query and the pod.

use api::structural::FieldError;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::node::{LogOptions, LogStream, Streams};
use crate::server::options::Query;
use crate::status::Failure;

/// Where a pod's containers stand, in the order in which messages name them.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The container that is meant, if the pod has it.
pub(super) fn container(pod: &Value, asked: Option<&str>) -> Result<String, Failure> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    if let Some(asked) = asked {
        return match names(pod).any(|container| container == asked) {
            true => Ok(asked.to_owned()),
            false => Err(Failure::bad_request(format!(
                "container {asked} is not valid for pod {name}"
            ))),
        };
    }
    let containers = pod["spec"]["containers"].as_array();
    match containers.map(Vec::as_slice).unwrap_or_default() {
        [only] => Ok(only["name"].as_str().unwrap_or_default().to_owned()),
        [] => Err(Failure::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        _ => {
            let names: Vec<&str> = names(pod).collect();
            Err(Failure::bad_request(format!(
                "a container name must be specified for pod {name}, choose one of: [{}]",
                names.join(" ")
            )))
        }
    }
}

fn names(pod: &Value) -> impl Iterator<Item = &str> {
    specs(pod).filter_map(|container| container["name"].as_str())
}

fn specs(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = LISTS
        .iter()
        .filter_map(|list| pod["spec"][*list].as_array());
    lists.flatten()
}

/// Whether the container was started on a terminal, which cannot be changed later.
pub(super) fn has_terminal(pod: &Value, container: &str) -> bool {
    let mut found = specs(pod).filter(|spec| spec["name"] == container);
    found.next().is_some_and(|spec| spec["tty"] == true)
}

/// The run of a container whose log can be read.
pub(super) fn logged_run(pod: &Value, container: &str, previous: bool) -> Result<String, Failure> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    let refuse = |what: &str, why: &str| {
        let message = format!("{what}container {container:?} in pod {name:?} {why}");
        Err(Failure::bad_request(message))
    };
    let Some(status) = status(pod, container) else {
        return refuse("", "is not available");
    };
    let id = |value: &Value| {
        let id = value["containerID"].as_str();
        id.filter(|id| !id.is_empty()).map(str::to_owned)
    };
    let (state, last) = (&status["state"], &status["lastState"]["terminated"]);
    if previous {
        return match id(last) {
            Some(id) => Ok(id),
            None => refuse("previous terminated ", "not found"),
        };
    }
    if state["running"].is_object() {
        return Ok(id(status).unwrap_or_default());
    }
    if state["terminated"].is_object() || last.is_object() {
        // the next one may have ended before it had an id
        return match id(&state["terminated"]).or_else(|| id(last)) {
            Some(id) => Ok(id),
            None => refuse("", "is terminated"),
        };
    }
    match state["waiting"]["reason"].as_str() {
        Some("ErrImagePull") => refuse("", "is waiting to start: image can't be pulled"),
        Some("ImagePullBackOff") => {
            refuse("", "is waiting to start: trying and failing to pull image")
        }
        Some(reason) => refuse("", &format!("is waiting to start: {reason}")),
        None if state["waiting"].is_object() => refuse("", "is waiting to start: "),
        None => refuse("", "is waiting to start - no logs yet"),
    }
}

fn status<'a>(pod: &'a Value, container: &str) -> Option<&'a Value> {
    let lists = [
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    ];
    let statuses = lists
        .iter()
        .filter_map(|list| pod["status"][*list].as_array());
    statuses
        .flatten()
        .find(|status| status["name"] == container)
}

/// Whether the pod's containers have all ended for good.
pub(super) fn is_over(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed")
    )
}

/// The streams of a query. There is no stderr beside a terminal.
pub(super) fn streams(query: &Query) -> Result<Streams, Failure> {
    let tty = query.flag("tty");
    let streams = Streams {
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr") && !tty,
        tty,
    };
    match streams.stdin || streams.stdout || streams.stderr {
        true => Ok(streams),
        false => Err(Failure::bad_request(
            "you must specify at least 1 of stdin, stdout, stderr",
        )),
    }
}

/// The ports of a query, of which `portforward` by channels needs at least one.
pub(super) fn ports(query: &Query) -> Result<Vec<u16>, Failure> {
    let asked: Vec<&str> = query.all("ports");
    if asked.is_empty() {
        return Err(Failure::bad_request("query parameter \"port\" is required"));
    }
    let mut ports = Vec::new();
    for port in asked.iter().flat_map(|ports| ports.split(',')) {
        match port.parse::<u16>() {
            Ok(0) => {
                let message = format!("port {port:?} must be > 0");
                return Err(Failure::bad_request(message));
            }
            Ok(port) => ports.push(port),
            Err(_) => {
                let message = format!("unable to parse {port:?} as a port");
                return Err(Failure::bad_request(message));
            }
        }
    }
    // each port has two channels, and the number of a channel is a byte
    match ports.len() > 127 {
        true => Err(Failure::bad_request(
            "no more than 127 ports can be forwarded at once",
        )),
        false => Ok(ports),
    }
}

/// The options of `log`, but for the container.
pub(super) fn log_options(query: &Query, pod: &str, now: Timestamp) -> Result<LogOptions, Failure> {
    let tail = query.integer("tailLines")?;
    let limit = query.integer("limitBytes")?;
    let seconds = query.integer("sinceSeconds")?;
    let time = query.text("sinceTime").map(since_time).transpose()?;
    let stream = query.text("stream").unwrap_or("All");
    let mut errors = Vec::new();
    if let Some(tail) = tail.filter(|tail| *tail < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("tailLines", &json!(tail), detail));
    }
    if let Some(limit) = limit.filter(|limit| *limit < 1) {
        let detail = "must be greater than 0";
        errors.push(FieldError::invalid("limitBytes", &json!(limit), detail));
    }
    match (seconds, time) {
        (Some(_), Some(_)) => {
            let detail = "at most one of `sinceTime` or `sinceSeconds` may be specified";
            errors.push(FieldError::forbidden("", detail));
        }
        (Some(seconds), None) if seconds < 1 => {
            let detail = "must be greater than 0";
            errors.push(FieldError::invalid("sinceSeconds", &json!(seconds), detail));
        }
        _ => {}
    }
    let stream = match stream {
        "All" => LogStream::All,
        "Stdout" => LogStream::Stdout,
        "Stderr" => LogStream::Stderr,
        other => {
            let known = ["All", "Stderr", "Stdout"].map(str::to_owned);
            errors.push(FieldError::not_supported("stream", &json!(other), &known));
            LogStream::All
        }
    };
    if stream != LogStream::All && tail.is_some() {
        let detail = "`tailLines` and specific `stream` are mutually exclusive for now";
        errors.push(FieldError::forbidden("", detail));
    }
    if !errors.is_empty() {
        return Err(Failure::invalid("", "PodLogOptions", pod, &errors));
    }
    let ago = |seconds: i64| {
        let earlier = now.checked_sub(SignedDuration::from_secs(seconds));
        earlier.unwrap_or(Timestamp::MIN)
    };
    Ok(LogOptions {
        container: String::new(),
        container_id: String::new(),
        previous: query.flag("previous"),
        follow: query.flag("follow"),
        since: time.or(seconds.map(ago)),
        tail: tail.and_then(|tail| tail.try_into().ok()),
        limit: limit.and_then(|limit| limit.try_into().ok()),
        timestamps: query.flag("timestamps"),
        stream,
    })
}

/// Whole seconds: more of it never reaches a node.
fn since_time(text: &str) -> Result<Timestamp, Failure> {
    let time = text
        .parse()
        .and_then(|time: Timestamp| Timestamp::from_second(time.as_second()));
    time.map_err(|_| {
        Failure::bad_request(format!(
            "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?} as \"2006\""
        ))
    })
}

#[cfg(test)]
mod tests;

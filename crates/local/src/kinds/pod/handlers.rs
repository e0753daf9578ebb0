//! What is called in a container: probes, and hooks of its life.

use serde_json::Value;

use super::containers::Pod;
use crate::kinds::access::{child, int, items, text};
use crate::kinds::check::{Errors, Path};

/// In the order in which the server names the one that is too many.
const OF_PROBES: &[&str] = &["exec", "httpGet", "tcpSocket", "grpc"];
const OF_HOOKS: &[&str] = &["exec", "httpGet", "tcpSocket", "sleep"];

/// All probes and hooks of a container.
pub(super) fn check(pod: &Pod, container: &Value, path: &Path, errors: &mut Errors) {
    if let Some(lifecycle) = child(container, "lifecycle") {
        let path = path.field("lifecycle");
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = child(lifecycle, hook) {
                check_handler(pod, handler, OF_HOOKS, &path.field(hook), errors);
            }
        }
        if lifecycle.get("stopSignal").is_some() && child(pod.spec, "os").is_none() {
            let detail = "may not be set for containers with empty `spec.os.name`";
            errors.forbidden(&path.field("stopSignal"), detail);
        }
    }
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child(container, name) {
            check_probe(pod, name, probe, &path.field(name), errors);
        }
    }
}

fn check_probe(pod: &Pod, name: &str, probe: &Value, path: &Path, errors: &mut Errors) {
    check_handler(pod, probe, OF_PROBES, path, errors);
    for field in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.not_negative(&path.field(field), int(probe, field));
    }
    let grace = int(probe, "terminationGracePeriodSeconds");
    let at = path.field("terminationGracePeriodSeconds");
    if let Some(grace) = grace.filter(|grace| *grace <= 0) {
        errors.invalid(&at, grace, "must be greater than 0");
    }
    let successes = int(probe, "successThreshold").unwrap_or(0);
    match (name, grace) {
        ("readinessProbe", Some(grace)) => {
            errors.invalid(&at, grace, "must not be set for readinessProbes");
        }
        ("readinessProbe", None) => {}
        _ if successes != 1 => {
            errors.invalid(&path.field("successThreshold"), successes, "must be 1");
        }
        _ => {}
    }
}

fn check_handler(pod: &Pod, handler: &Value, kinds: &[&str], path: &Path, errors: &mut Errors) {
    let mut found = false;
    for kind in kinds {
        let Some(action) = child(handler, kind) else {
            continue;
        };
        let path = path.field(kind);
        if found {
            errors.forbidden(&path, "may not specify more than 1 handler type");
            continue;
        }
        found = true;
        match *kind {
            "exec" if items(action, "command").is_empty() => {
                errors.required(&path.field("command"), "");
            }
            "httpGet" => check_http(action, &path, errors),
            "tcpSocket" | "grpc" => {
                errors.port_or_name(&path.field("port"), action.get("port"));
            }
            "sleep" => check_sleep(pod, action, &path, errors),
            _ => {}
        }
    }
    if !found {
        errors.required(path, "must specify a handler type");
    }
}

fn check_http(get: &Value, path: &Path, errors: &mut Errors) {
    if text(get, "path").is_empty() {
        errors.required(&path.field("path"), "");
    }
    errors.port_or_name(&path.field("port"), get.get("port"));
    let scheme = text(get, "scheme");
    if !["HTTP", "HTTPS"].contains(&scheme) {
        errors.not_supported(&path.field("scheme"), scheme, &["HTTP", "HTTPS"]);
    }
    for header in items(get, "httpHeaders") {
        let name = text(header, "name");
        let letter = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        if name.is_empty() || !name.bytes().all(letter) {
            let detail = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                          regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid(&path.field("httpHeaders"), name, detail);
        }
    }
}

fn check_sleep(pod: &Pod, sleep: &Value, path: &Path, errors: &mut Errors) {
    let seconds = int(sleep, "seconds").unwrap_or(0);
    if let Some(grace) = pod.grace().filter(|grace| seconds < 0 || seconds > *grace) {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, seconds, &detail);
    }
}

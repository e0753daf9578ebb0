//! What containers must be like.

use std::collections::BTreeSet;

use serde_json::Value;

use super::handlers;
use super::resources;
use super::security;
use super::volumes::{self, Volumes};
use crate::kinds::access::{child, entries, flag, int, items, text};
use crate::kinds::check::{Errors, Path, data_key_problems, port_name_problems};

pub(in crate::kinds) const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];
const PULL_POLICIES: &[&str] = &["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: &[&str] = &["File", "FallbackToLogsOnError"];
const RESTART_POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
const RESIZE_POLICIES: &[&str] = &["NotRequired", "RestartContainer"];
const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// What a container that is added to a running pod cannot have.
const NOT_EPHEMERAL: &[&str] = &[
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
];

/// What checks of containers look up.
#[derive(Debug)]
pub(super) struct Pod<'a> {
    pub(super) spec: &'a Value,
    pub(super) volumes: Volumes<'a>,
    /// Stricter for pods than for templates of them.
    pub(super) is_pod: bool,
}

impl Pod<'_> {
    pub(super) fn grace(&self) -> Option<i64> {
        int(self.spec, "terminationGracePeriodSeconds")
    }
}

/// All containers of a pod.
pub(super) fn check(pod: &Pod, path: &Path, errors: &mut Errors) {
    let regular = items(pod.spec, "containers");
    let names: BTreeSet<&str> = regular.iter().map(|it| text(it, "name")).collect();
    check_regular(pod, regular, &path.field("containers"), errors);
    let initial = items(pod.spec, "initContainers");
    check_initial(
        pod,
        initial,
        names.clone(),
        &path.field("initContainers"),
        errors,
    );
    let others = initial.iter().map(|it| text(it, "name")).chain(names);
    let others: BTreeSet<&str> = others.collect();
    check_ephemeral(pod, &others, &path.field("ephemeralContainers"), errors);
}

fn check_regular(pod: &Pod, containers: &[Value], path: &Path, errors: &mut Errors) {
    if containers.is_empty() {
        return errors.required(path, "");
    }
    let mut names = BTreeSet::new();
    let mut ports = BTreeSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        check_common(pod, container, &path, errors);
        if !names.insert(text(container, "name")) {
            errors.duplicate(&path.field("name"), text(container, "name"));
        }
        handlers::check(pod, container, &path, errors);
        check_restarts(container, &path, errors);
        check_host_ports(container, &mut ports, &path, errors);
    }
}

fn check_initial<'a>(
    pod: &Pod,
    containers: &'a [Value],
    mut names: BTreeSet<&'a str>,
    path: &Path,
    errors: &mut Errors,
) {
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        check_common(pod, container, &path, errors);
        check_restarts(container, &path, errors);
        let name = text(container, "name");
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        check_host_ports(container, &mut BTreeSet::new(), &path, errors);
        let stays = text(container, "restartPolicy") == "Always";
        if stays {
            handlers::check(pod, container, &path, errors);
            continue;
        }
        for field in [
            "lifecycle",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
        ] {
            if child(container, field).is_some() {
                let detail = "may not be set for init containers without restartPolicy=Always";
                errors.forbidden(&path.field(field), detail);
            }
        }
        for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
            if text(policy, "restartPolicy") == "RestartContainer" {
                let path = path.field("resizePolicy");
                let detail = "must not be set to 'RestartContainer' for non-sidecar initContainers";
                let path = path.index(index);
                errors.invalid(&path.field("restartPolicy"), "RestartContainer", detail);
            }
        }
    }
}

fn check_ephemeral(pod: &Pod, others: &BTreeSet<&str>, path: &Path, errors: &mut Errors) {
    let mut names = others.clone();
    for (index, container) in items(pod.spec, "ephemeralContainers").iter().enumerate() {
        let path = path.index(index);
        check_common(pod, container, &path, errors);
        check_image_frame(container, &path, errors);
        let name = text(container, "name");
        if !names.insert(name) {
            errors.duplicate(&path.field("name"), name);
        }
        let target = text(container, "targetContainerName");
        if !target.is_empty() && !others.contains(target) {
            errors.not_found(&path.field("targetContainerName"), target);
        }
        let detail = "cannot be set for an Ephemeral Container";
        for field in NOT_EPHEMERAL {
            let set = match container.get(*field) {
                Some(Value::Object(map)) => !map.is_empty(),
                Some(Value::Array(items)) => !items.is_empty(),
                value => value.is_some(),
            };
            if set {
                errors.forbidden(&path.field(field), detail);
            }
        }
        for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
            let mounts = path.field("volumeMounts");
            for field in ["subPath", "subPathExpr"] {
                if !text(mount, field).is_empty() {
                    errors.forbidden(&mounts.index(index).field(field), detail);
                }
            }
        }
    }
}

/// An image that is written with spaces around it cannot be pulled.
pub(super) fn check_image_frame(container: &Value, path: &Path, errors: &mut Errors) {
    let image = text(container, "image");
    if image.trim() != image {
        let detail = "must not have leading or trailing whitespace";
        errors.invalid(&path.field("image"), image, detail);
    }
}

fn check_common(pod: &Pod, container: &Value, path: &Path, errors: &mut Errors) {
    match text(container, "name") {
        "" => errors.required(&path.field("name"), ""),
        name => errors.label(&path.field("name"), name),
    }
    if text(container, "image").is_empty() {
        errors.required(&path.field("image"), "");
    }
    let policy = text(container, "terminationMessagePolicy");
    errors.one_of(
        &path.field("terminationMessagePolicy"),
        policy,
        MESSAGE_POLICIES,
    );
    check_ports(container, &path.field("ports"), errors);
    check_env(container, &path.field("env"), errors);
    check_env_from(container, &path.field("envFrom"), errors);
    volumes::check_mounts(&pod.volumes, container, path, errors);
    let policy = text(container, "imagePullPolicy");
    errors.one_of(&path.field("imagePullPolicy"), policy, PULL_POLICIES);
    resources::check(container.get("resources"), &path.field("resources"), errors);
    check_resize_policy(pod, container, &path.field("resizePolicy"), errors);
    if let Some(context) = child(container, "securityContext") {
        security::check_container(context, &path.field("securityContext"), errors);
    }
}

fn check_ports(container: &Value, path: &Path, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, port) in items(container, "ports").iter().enumerate() {
        let path = path.index(index);
        let name = text(port, "name");
        if !name.is_empty() {
            let problems = port_name_problems(name);
            if !problems.is_empty() {
                errors.problems(&path.field("name"), name, problems);
            } else if !names.insert(name) {
                errors.duplicate(&path.field("name"), name);
            }
        }
        match int(port, "containerPort").unwrap_or(0) {
            0 => errors.required(&path.field("containerPort"), ""),
            number => errors.port(&path.field("containerPort"), number),
        }
        if let Some(number) = int(port, "hostPort").filter(|number| *number != 0) {
            errors.port(&path.field("hostPort"), number);
        }
        errors.one_of(&path.field("protocol"), text(port, "protocol"), PROTOCOLS);
    }
}

fn check_host_ports(
    container: &Value,
    taken: &mut BTreeSet<String>,
    path: &Path,
    errors: &mut Errors,
) {
    let path = path.field("ports");
    for (index, port) in items(container, "ports").iter().enumerate() {
        let number = int(port, "hostPort").unwrap_or(0);
        let place = format!(
            "{}/{}/{number}",
            text(port, "protocol"),
            text(port, "hostIP")
        );
        if number != 0 && !taken.insert(place.clone()) {
            errors.duplicate(&path.index(index).field("hostPort"), place);
        }
    }
}

fn env_name_problems(name: &str) -> Vec<String> {
    let fine = |c: char| matches!(c, ' '..='~') && c != '=';
    match name.chars().all(fine) {
        true => Vec::new(),
        false => vec![
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .to_owned(),
        ],
    }
}

fn check_env(container: &Value, path: &Path, errors: &mut Errors) {
    for (index, variable) in items(container, "env").iter().enumerate() {
        let path = path.index(index);
        match text(variable, "name") {
            "" => errors.required(&path.field("name"), ""),
            name => errors.problems(&path.field("name"), name, env_name_problems(name)),
        }
        if let Some(source) = child(variable, "valueFrom") {
            check_value_from(variable, source, &path.field("valueFrom"), errors);
        }
    }
}

fn check_value_from(variable: &Value, source: &Value, path: &Path, errors: &mut Errors) {
    if let Some(field) = child(source, "fieldRef") {
        check_field_ref(field, ENV_FIELDS, &path.field("fieldRef"), errors);
    }
    if let Some(resource) = child(source, "resourceFieldRef") {
        let path = path.field("resourceFieldRef");
        resources::check_field_ref(resource, false, &path, errors);
    }
    for field in ["configMapKeyRef", "secretKeyRef"] {
        let Some(reference) = child(source, field) else {
            continue;
        };
        let path = path.field(field);
        errors.subdomain(&path.field("name"), text(reference, "name"));
        match text(reference, "key") {
            "" => errors.required(&path.field("key"), ""),
            key => errors.problems(&path.field("key"), key, data_key_problems(key)),
        }
    }
    if let Some(file) = child(source, "fileKeyRef") {
        let path = path.field("fileKeyRef");
        for field in ["key", "volumeName", "path"] {
            if text(file, field).is_empty() {
                errors.required(&path.field(field), "");
            }
        }
    }
    let sources = source.as_object().map_or(0, serde_json::Map::len);
    let detail = match (sources, text(variable, "value")) {
        (0, _) => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        (1, "") => return,
        (_, "") => "may not have more than one field specified at a time",
        _ => "may not be specified when `value` is not empty",
    };
    errors.invalid(path, "", detail);
}

/// A field of the pod, by its path.
pub(super) fn check_field_ref(field: &Value, known: &[&str], path: &Path, errors: &mut Errors) {
    if text(field, "apiVersion").is_empty() {
        return errors.required(&path.field("apiVersion"), "");
    }
    let name = text(field, "fieldPath");
    if name.is_empty() {
        return errors.required(&path.field("fieldPath"), "");
    }
    let subscript = name
        .split_once("['")
        .and_then(|(field, rest)| Some((field, rest.strip_suffix("']")?)));
    match subscript {
        Some(("metadata.annotations", key)) => errors.qualified_name(path, &key.to_lowercase()),
        Some(("metadata.labels", key)) => errors.qualified_name(path, key),
        Some((field, _)) => errors.invalid(path, field, "does not support subscript"),
        None if known.contains(&name) => {}
        None if DOWNWARD.contains(&name) => {
            errors.not_supported(&path.field("fieldPath"), name, known);
        }
        None => {
            let detail = format!("error converting fieldPath: field label not supported: {name}");
            errors.invalid(&path.field("fieldPath"), name, &detail);
        }
    }
}

/// What a pod may know of itself, be it in a variable or in a file.
const DOWNWARD: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];

fn check_env_from(container: &Value, path: &Path, errors: &mut Errors) {
    for (index, source) in items(container, "envFrom").iter().enumerate() {
        let at = path.index(index);
        let prefix = text(source, "prefix");
        errors.problems(&at.field("prefix"), prefix, env_name_problems(prefix));
        let mut sources = 0;
        for field in ["configMapRef", "secretRef"] {
            if let Some(reference) = child(source, field) {
                sources += 1;
                let path = at.field(field);
                errors.reference(&path.field("name"), text(reference, "name"));
            }
        }
        match sources {
            0 => errors.invalid(
                path,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            ),
            1 => {}
            _ => errors.invalid(
                path,
                "",
                "may not have more than one field specified at a time",
            ),
        }
    }
}

fn check_restarts(container: &Value, path: &Path, errors: &mut Errors) {
    let policy = container.get("restartPolicy").and_then(Value::as_str);
    let rules = items(container, "restartPolicyRules");
    match policy {
        Some(policy) if !RESTART_POLICIES.contains(&policy) => {
            errors.not_supported(&path.field("restartPolicy"), policy, RESTART_POLICIES);
        }
        None if !rules.is_empty() => {
            let detail = "must specify restartPolicy when restart rules are used";
            errors.required(&path.field("restartPolicy"), detail);
        }
        _ => {}
    }
    let path = path.field("restartPolicyRules");
    for (index, rule) in rules.iter().enumerate() {
        let path = path.index(index);
        let action = text(rule, "action");
        let known = ["Restart", "RestartAllContainers"];
        if !known.contains(&action) {
            errors.not_supported(&path.field("action"), action, &known);
        }
        let path = path.field("exitCodes");
        match child(rule, "exitCodes") {
            None => errors.required(&path, "must be specified"),
            Some(codes) => {
                let operator = text(codes, "operator");
                if !["In", "NotIn"].contains(&operator) {
                    errors.not_supported(&path.field("operator"), operator, &["In", "NotIn"]);
                }
            }
        }
    }
}

fn check_resize_policy(pod: &Pod, container: &Value, path: &Path, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    for (index, policy) in items(container, "resizePolicy").iter().enumerate() {
        let name = text(policy, "resourceName");
        if !names.insert(name) {
            errors.duplicate(&path.index(index), name);
        }
        errors.one_of(path, name, &["cpu", "memory"]);
        let restart = text(policy, "restartPolicy");
        errors.one_of(path, restart, RESIZE_POLICIES);
        if text(pod.spec, "restartPolicy") == "Never" && restart != "NotRequired" {
            let detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.invalid(path, restart, detail);
        }
    }
}

/// On the network of the node, a port is the same outside as inside.
pub(super) fn check_host_network(pod: &Pod, path: &Path, errors: &mut Errors) {
    if !flag(pod.spec, "hostNetwork") {
        return;
    }
    let path = path.field("containers");
    for (index, container) in items(pod.spec, "containers").iter().enumerate() {
        let path = path.index(index);
        let path = path.field("ports");
        for (index, port) in items(container, "ports").iter().enumerate() {
            let outside = int(port, "hostPort").unwrap_or(0);
            let inside = int(port, "containerPort").unwrap_or(0);
            if (pod.is_pod || outside != 0) && outside != inside {
                let detail = "must match `containerPort` when `hostNetwork` is true";
                errors.invalid(&path.index(index).field("hostPort"), outside, detail);
            }
        }
    }
}

/// Whether any map of labels is among these fields of the pod.
pub(super) fn check_node_selector(spec: &Value, path: &Path, errors: &mut Errors) {
    errors.labels(&path.field("nodeSelector"), entries(spec, "nodeSelector"));
}

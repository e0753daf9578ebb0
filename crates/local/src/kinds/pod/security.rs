//! As whom containers run.

use serde_json::Value;

use super::volumes::check_descending;
use crate::kinds::access::{child, flag, int, items, text};
use crate::kinds::check::{Errors, Path};

const MOST_ID: i64 = 2_147_483_647;
const PROFILES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// The security context of a pod.
pub(super) fn check_pod(spec: &Value, context: &Value, path: &Path, errors: &mut Errors) {
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        check_id(context, field, path, errors);
    }
    let groups = path.field("supplementalGroups");
    for (index, group) in items(context, "supplementalGroups").iter().enumerate() {
        errors.range(
            &groups.index(index),
            group.as_i64().unwrap_or(0),
            0,
            MOST_ID,
        );
    }
    if flag(spec, "shareProcessNamespace") && flag(spec, "hostPID") {
        let detail = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.invalid(&path.field("shareProcessNamespace"), true, detail);
    }
    for (field, known) in [
        ("fsGroupChangePolicy", ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", ["Merge", "Strict"]),
        ("seLinuxChangePolicy", ["MountOption", "Recursive"]),
    ] {
        if let Some(value) = context.get(field).and_then(Value::as_str)
            && !known.contains(&value)
        {
            errors.not_supported(&path.field(field), value, &known);
        }
    }
    check_profiles(context, path, errors);
}

/// The security context of a container.
pub(super) fn check_container(context: &Value, path: &Path, errors: &mut Errors) {
    check_id(context, "runAsUser", path, errors);
    check_id(context, "runAsGroup", path, errors);
    if let Some(mount) = context.get("procMount").and_then(Value::as_str)
        && !["Default", "Unmasked"].contains(&mount)
    {
        errors.not_supported(&path.field("procMount"), mount, &["Default", "Unmasked"]);
    }
    check_profiles(context, path, errors);
    if context.get("allowPrivilegeEscalation") != Some(&Value::Bool(false)) {
        return;
    }
    if flag(context, "privileged") {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid_internal(path, "SecurityContext", context, detail);
    }
    let added = context.get("capabilities");
    for capability in added.map_or(&[][..], |it| items(it, "add")) {
        if capability == "CAP_SYS_ADMIN" {
            let detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
            errors.invalid_internal(path, "SecurityContext", context, detail);
        }
    }
}

fn check_id(context: &Value, field: &str, path: &Path, errors: &mut Errors) {
    if let Some(id) = int(context, field) {
        errors.range(&path.field(field), id, 0, MOST_ID);
    }
}

fn check_profiles(context: &Value, path: &Path, errors: &mut Errors) {
    for (field, name) in [
        ("seccompProfile", "seccomp"),
        ("appArmorProfile", "AppArmor"),
    ] {
        let Some(profile) = child(context, field) else {
            continue;
        };
        let path = path.field(field);
        let kind = text(profile, "type");
        errors.one_of(&path.field("type"), kind, PROFILES);
        let place = path.field("localhostProfile");
        match (
            kind,
            profile.get("localhostProfile").and_then(Value::as_str),
        ) {
            ("Localhost", None) => {
                let detail = format!("must be set when {name} type is Localhost");
                errors.required(&place, &detail);
            }
            ("Localhost", Some(local)) => check_descending(&place, local, errors),
            (_, Some(local)) => {
                let detail = format!("can only be set when {name} type is Localhost");
                match field {
                    "seccompProfile" => {
                        errors.invalid_internal(&place, "SeccompProfile", profile, &detail);
                    }
                    _ => errors.invalid(&place, local, &detail),
                }
            }
            (_, None) => {}
        }
    }
}

//! What volumes must be like, and their mounts.

use std::collections::{BTreeMap, BTreeSet};

use quantity::Quantity;
use serde_json::Value;

use super::containers::check_field_ref;
use super::resources;
use crate::kinds::access::{child, flag, int, items, text};
use crate::kinds::check::{Errors, Path};

/// The volumes that are well formed, by name.
pub(super) type Volumes<'a> = BTreeMap<&'a str, &'a Value>;

/// In the order in which the server names the one that is too many, with the name it gives it then.
const SOURCES: &[(&str, &str)] = &[
    ("emptyDir", "emptyDir"),
    ("hostPath", "hostPath"),
    ("gitRepo", "gitRepo"),
    ("gcePersistentDisk", "gcePersistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("secret", "secret"),
    ("nfs", "nfs"),
    ("iscsi", "iscsi"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("persistentVolumeClaim", "persistentVolumeClaim"),
    ("rbd", "rbd"),
    ("cinder", "cinder"),
    ("cephfs", "cephFS"),
    ("quobyte", "quobyte"),
    ("downwardAPI", "downwarAPI"),
    ("fc", "fc"),
    ("flexVolume", "flexVolume"),
    ("configMap", "configMap"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("storageos", "storageos"),
    ("projected", "projected"),
    ("scaleIO", "scaleIO"),
    ("csi", "csi"),
    ("ephemeral", "ephemeral"),
    ("image", "image"),
];

/// Texts that a source cannot be without.
const REQUIRED: &[(&str, &[&str])] = &[
    ("gitRepo", &["repository"]),
    ("gcePersistentDisk", &["pdName"]),
    ("awsElasticBlockStore", &["volumeID"]),
    ("secret", &["secretName"]),
    ("nfs", &["server", "path"]),
    ("iscsi", &["targetPortal"]),
    ("glusterfs", &["endpoints", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("cinder", &["volumeID"]),
    ("configMap", &["name"]),
    ("azureFile", &["secretName", "shareName"]),
    ("vsphereVolume", &["volumePath"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("csi", &["driver"]),
];

const FILE_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

const HOST_PATHS: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

/// The volumes of a pod; returns those that mounts may name.
pub(super) fn check<'a>(spec: &'a Value, path: &Path, errors: &mut Errors) -> Volumes<'a> {
    let mut known = Volumes::new();
    for (index, volume) in items(spec, "volumes").iter().enumerate() {
        let path = path.index(index);
        let before = errors.len();
        check_source(volume, &path, errors);
        let name = text(volume, "name");
        match name {
            "" => errors.required(&path.field("name"), ""),
            name => errors.label(&path.field("name"), name),
        }
        if known.contains_key(name) {
            errors.duplicate(&path.field("name"), name);
        }
        if errors.len() == before {
            known.insert(name, volume);
        }
    }
    known
}

fn check_source(volume: &Value, path: &Path, errors: &mut Errors) {
    let mut found = false;
    for (kind, alias) in SOURCES {
        let Some(source) = child(volume, kind) else {
            continue;
        };
        if found {
            let detail = "may not specify more than 1 volume type";
            errors.forbidden(&path.field(alias), detail);
            continue;
        }
        found = true;
        check_fields(kind, source, &path.field(kind), errors);
    }
    if !found {
        errors.required(path, "must specify a volume type");
    }
}

fn check_fields(kind: &str, source: &Value, path: &Path, errors: &mut Errors) {
    if let Some((_, fields)) = REQUIRED.iter().find(|(name, _)| *name == kind) {
        for field in *fields {
            if text(source, field).is_empty() {
                errors.required(&path.field(field), "");
            }
        }
    }
    match kind {
        "emptyDir" => {
            let limit = Quantity::parse(text(source, "sizeLimit"));
            if limit.is_ok_and(|limit| limit.is_negative()) {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(&path.field("sizeLimit"), detail);
            }
        }
        "hostPath" => check_host_path(source, path, errors),
        "gitRepo" => {
            check_descending(&path.field("directory"), text(source, "directory"), errors);
        }
        "secret" | "configMap" => {
            check_mode(source, "defaultMode", path, errors);
            check_keys(source, path, errors);
        }
        "downwardAPI" => {
            check_mode(source, "defaultMode", path, errors);
            for file in items(source, "items") {
                check_file(file, path, errors);
            }
        }
        "projected" => check_projected(source, path, errors),
        "ephemeral" if child(source, "volumeClaimTemplate").is_none() => {
            errors.required(&path.field("volumeClaimTemplate"), "");
        }
        "image" if text(source, "reference").is_empty() => {
            errors.required(&path.field("reference"), "");
        }
        _ => {}
    }
}

fn check_host_path(source: &Value, path: &Path, errors: &mut Errors) {
    match text(source, "path") {
        "" => return errors.required(&path.field("path"), ""),
        place => check_steps(&path.field("path"), place, errors),
    }
    let kind = text(source, "type");
    if !HOST_PATHS.contains(&kind) {
        errors.not_supported(&path.field("type"), kind, HOST_PATHS);
    }
}

fn check_mode(source: &Value, field: &str, path: &Path, errors: &mut Errors) {
    if let Some(mode) = int(source, field).filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.field(field), mode, detail);
    }
}

fn check_keys(source: &Value, path: &Path, errors: &mut Errors) {
    let path = path.field("items");
    for (index, item) in items(source, "items").iter().enumerate() {
        let path = path.index(index);
        for field in ["key", "path"] {
            if text(item, field).is_empty() {
                errors.required(&path.field(field), "");
            }
        }
        check_file_path(&path.field("path"), text(item, "path"), errors);
        check_mode(item, "mode", &path, errors);
    }
}

fn check_file(file: &Value, path: &Path, errors: &mut Errors) {
    let place = text(file, "path");
    if place.is_empty() {
        errors.required(&path.field("path"), "");
    }
    check_file_path(&path.field("path"), place, errors);
    match (child(file, "fieldRef"), child(file, "resourceFieldRef")) {
        (Some(field), resource) => {
            check_field_ref(field, FILE_FIELDS, &path.field("fieldRef"), errors);
            if resource.is_some() {
                let detail = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid(path, "resource", detail);
            }
        }
        (None, Some(resource)) => {
            let path = path.field("resourceFieldRef");
            resources::check_field_ref(resource, true, &path, errors);
        }
        (None, None) => {
            errors.required(path, "one of fieldRef and resourceFieldRef is required");
        }
    }
    check_mode(file, "mode", path, errors);
}

fn check_projected(projected: &Value, path: &Path, errors: &mut Errors) {
    check_mode(projected, "defaultMode", path, errors);
    let sources = path.field("sources");
    let mut places = BTreeSet::new();
    for (index, source) in items(projected, "sources").iter().enumerate() {
        let at = sources.index(index);
        for kind in ["secret", "configMap"] {
            let Some(projection) = child(source, kind) else {
                continue;
            };
            let path_of_kind = at.field(kind);
            let name = text(projection, "name");
            if name.is_empty() {
                errors.required(&path_of_kind.field("name"), "");
            }
            check_keys(projection, &path_of_kind, errors);
            for item in items(projection, "items") {
                check_place(&mut places, text(item, "path"), name, path, errors);
            }
        }
        if let Some(projection) = child(source, "downwardAPI") {
            for file in items(projection, "items") {
                check_file(file, &at.field("downwardAPI"), errors);
                let place = text(file, "path");
                check_place(&mut places, place, place, path, errors);
            }
        }
        if let Some(token) = child(source, "serviceAccountToken") {
            check_token(token, path, &at.field("serviceAccountToken"), errors);
        }
        if source.as_object().is_some_and(|source| source.len() > 1) {
            errors.forbidden(&at, "may not specify more than 1 volume type per source");
        }
    }
}

fn check_place<'a>(
    places: &mut BTreeSet<&'a str>,
    place: &'a str,
    shown: &str,
    path: &Path,
    errors: &mut Errors,
) {
    if !place.is_empty() && !places.insert(place) {
        errors.invalid(path, shown, "conflicting duplicate paths");
    }
}

fn check_token(token: &Value, volume: &Path, path: &Path, errors: &mut Errors) {
    let seconds = int(token, "expirationSeconds").unwrap_or(0);
    if seconds < 600 {
        let detail = "may not specify a duration less than 10 minutes";
        errors.invalid(&path.field("expirationSeconds"), seconds, detail);
    }
    if seconds > 1 << 32 {
        let detail = "may not specify a duration larger than 2^32 seconds";
        errors.invalid(&path.field("expirationSeconds"), seconds, detail);
    }
    match text(token, "path") {
        "" => errors.required(&volume.field("path"), ""),
        place => check_file_path(&volume.field("path"), place, errors),
    }
}

fn check_steps(path: &Path, place: &str, errors: &mut Errors) {
    if place.split('/').any(|step| step == "..") {
        errors.invalid(path, place, "must not contain '..'");
    }
}

/// A path that stays below the place it starts from.
pub(super) fn check_descending(path: &Path, place: &str, errors: &mut Errors) {
    if place.starts_with('/') {
        errors.invalid(path, place, "must be a relative path");
    }
    check_steps(path, place, errors);
}

fn check_file_path(path: &Path, place: &str, errors: &mut Errors) {
    check_descending(path, place, errors);
    if place.starts_with("..") && !place.starts_with("../") && place != ".." {
        errors.invalid(path, place, "must not start with '..'");
    }
}

/// What a container mounts.
pub(super) fn check_mounts(known: &Volumes, container: &Value, path: &Path, errors: &mut Errors) {
    let mounts = path.field("volumeMounts");
    let mut points = BTreeSet::new();
    for (index, mount) in items(container, "volumeMounts").iter().enumerate() {
        let path = mounts.index(index);
        let name = text(mount, "name");
        if name.is_empty() {
            errors.required(&path.field("name"), "");
        }
        if !known.contains_key(name) {
            errors.not_found(&path.field("name"), name);
        }
        let point = text(mount, "mountPath");
        if point.is_empty() {
            errors.required(&path.field("mountPath"), "");
        }
        if !points.insert(point) {
            errors.invalid(&path.field("mountPath"), point, "must be unique");
        }
        check_parts(mount, [&path, &mounts], errors);
        check_propagation(container, mount, &mounts, errors);
    }
    check_devices(known, container, &path.field("volumeDevices"), errors);
}

fn check_parts(mount: &Value, [path, mounts]: [&Path; 2], errors: &mut Errors) {
    let (part, expression) = (text(mount, "subPath"), text(mount, "subPathExpr"));
    check_descending(&mounts.field("subPath"), part, errors);
    if !expression.is_empty() && !part.is_empty() {
        let detail = "subPathExpr and subPath are mutually exclusive";
        errors.invalid(&path.field("subPathExpr"), expression, detail);
    }
    check_descending(&mounts.field("subPathExpr"), expression, errors);
}

fn check_propagation(container: &Value, mount: &Value, path: &Path, errors: &mut Errors) {
    let propagation = mount.get("mountPropagation").and_then(Value::as_str);
    if let Some(mode) = propagation {
        let path = path.field("mountPropagation");
        let known = ["Bidirectional", "HostToContainer", "None"];
        if !known.contains(&mode) {
            errors.not_supported(&path, mode, &known);
        }
        let context = child(container, "securityContext");
        if mode == "Bidirectional" && !context.is_some_and(|it| flag(it, "privileged")) {
            let detail =
                "Bidirectional mount propagation is available only to privileged containers";
            errors.forbidden(&path, detail);
        }
    }
    let path = path.field("recursiveReadOnly");
    match mount.get("recursiveReadOnly").and_then(Value::as_str) {
        None | Some("Disabled") => {}
        Some("Enabled" | "IfPossible") => {
            if !flag(mount, "readOnly") {
                errors.forbidden(&path, "may only be specified when readOnly is true");
            }
            if propagation.is_some_and(|mode| mode != "None") {
                let detail = "may only be specified when mountPropagation is None or not specified";
                errors.forbidden(&path, detail);
            }
        }
        Some(other) => {
            errors.not_supported(&path, other, &["Disabled", "Enabled", "IfPossible"]);
        }
    }
}

fn check_devices(known: &Volumes, container: &Value, path: &Path, errors: &mut Errors) {
    let mut names = BTreeSet::new();
    let mut places = BTreeSet::new();
    for (index, device) in items(container, "volumeDevices").iter().enumerate() {
        let path = path.index(index);
        let (name, place) = (text(device, "name"), text(device, "devicePath"));
        match (name, known.get(name)) {
            ("", _) => errors.required(&path.field("name"), ""),
            (name, None) => errors.not_found(&path.field("name"), name),
            (name, Some(volume)) => {
                let kinds = ["persistentVolumeClaim", "ephemeral"];
                if !kinds.iter().any(|kind| child(volume, kind).is_some()) {
                    let detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                    errors.invalid(&path.field("name"), name, detail);
                }
            }
        }
        if !names.insert(name) {
            errors.invalid(&path.field("name"), name, "must be unique");
        }
        if place.is_empty() {
            errors.required(&path.field("devicePath"), "");
        }
        if !places.insert(place) {
            errors.invalid(&path.field("devicePath"), place, "must be unique");
        }
    }
}

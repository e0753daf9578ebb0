//! What the files of a volume are that is made of documents and of the pod itself. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{DownwardAPIVolumeFile, KeyToPath, Volume, VolumeProjection};

use super::Sources;
use crate::node::documents::Entries;

const DEFAULT_MODE: i32 = 0o644;
/// What Linux takes for one name, and for a path.
const LONGEST_NAME: usize = 255;
const LONGEST_PATH: usize = 4096;

/// Files by their path, which is relative and never leaves the volume.
pub(super) type Payload = BTreeMap<String, File>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) content: Vec<u8>,
    pub(super) mode: u32,
}

/// Which keys of a document become which files.
struct Selection<'a> {
    name: &'a str,
    items: Option<&'a Vec<KeyToPath>>,
    is_optional: bool,
    mode: Option<i32>,
}

/// Whether the node writes the files of this volume.
pub(super) fn is_written(volume: &Volume) -> bool {
    volume.secret.is_some()
        || volume.config_map.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// A source of a projected volume that cannot be had here.
pub(super) fn unsupported(volume: &Volume) -> Option<&'static str> {
    let projected = volume.projected.as_ref()?;
    projected.sources.iter().flatten().find_map(|source| {
        let VolumeProjection {
            cluster_trust_bundle,
            pod_certificate,
            config_map: _,
            downward_api: _,
            secret: _,
            service_account_token: _,
        } = source;
        let bundle = cluster_trust_bundle.as_ref().map(|_| "clusterTrustBundle");
        bundle.or(pod_certificate.as_ref().map(|_| "podCertificate"))
    })
}

/// All files of a volume, or why they cannot be, in the words of a kubelet.
pub(super) fn of(sources: &Sources<'_>, volume: &Volume) -> Result<Payload, String> {
    let mut payload = Payload::new();
    if let Some(secret) = &volume.secret {
        let selection = Selection {
            name: secret.secret_name.as_deref().unwrap_or_default(),
            items: secret.items.as_ref(),
            is_optional: secret.optional == Some(true),
            mode: secret.default_mode,
        };
        add_secret(&mut payload, sources, &selection)?;
    }
    if let Some(map) = &volume.config_map {
        let selection = Selection {
            name: &map.name,
            items: map.items.as_ref(),
            is_optional: map.optional == Some(true),
            mode: map.default_mode,
        };
        add_config_map(&mut payload, sources, &selection)?;
    }
    if let Some(downward) = &volume.downward_api {
        let items = downward.items.iter().flatten();
        add_fields(&mut payload, sources, items, downward.default_mode)?;
    }
    if let Some(projected) = &volume.projected {
        let all = projected.sources.iter().flatten();
        let failures: Vec<String> = all
            .filter_map(|source| project(&mut payload, sources, source, projected.default_mode))
            .collect();
        match failures.as_slice() {
            [] => {}
            [one] => return Err(one.clone()),
            several => return Err(format!("[{}]", several.join(", "))),
        }
    }
    Ok(payload)
}

/// Adds one source of several; tells why it cannot.
fn project(
    payload: &mut Payload,
    sources: &Sources<'_>,
    source: &VolumeProjection,
    mode: Option<i32>,
) -> Option<String> {
    let secret = source.secret.as_ref().map(|secret| {
        let selection = Selection {
            name: &secret.name,
            items: secret.items.as_ref(),
            is_optional: secret.optional == Some(true),
            mode,
        };
        add_secret(payload, sources, &selection)
    });
    let map = source.config_map.as_ref().map(|map| {
        let selection = Selection {
            name: &map.name,
            items: map.items.as_ref(),
            is_optional: map.optional == Some(true),
            mode,
        };
        add_config_map(payload, sources, &selection)
    });
    let downward = source.downward_api.as_ref().map(|downward| {
        let items = downward.items.iter().flatten();
        add_fields(payload, sources, items, mode)
    });
    let results = [secret, map, downward];
    results.into_iter().flatten().find_map(Result::err)
}

fn add_secret(
    payload: &mut Payload,
    sources: &Sources<'_>,
    selection: &Selection<'_>,
) -> Result<(), String> {
    let entries = sources.documents.secrets.get(selection.name);
    let absent = || format!("secret {:?} not found", selection.name);
    add_entries(payload, selection, entries, absent, |key| {
        format!("references non-existent secret key: {key}")
    })
}

fn add_config_map(
    payload: &mut Payload,
    sources: &Sources<'_>,
    selection: &Selection<'_>,
) -> Result<(), String> {
    let entries = sources.documents.config_maps.get(selection.name);
    let absent = || format!("configmap {:?} not found", selection.name);
    add_entries(payload, selection, entries, absent, |key| {
        format!("configmap references non-existent config key: {key}")
    })
}

fn add_entries(
    payload: &mut Payload,
    selection: &Selection<'_>,
    entries: Option<&Entries>,
    absent: impl Fn() -> String,
    no_key: impl Fn(&str) -> String,
) -> Result<(), String> {
    let entries = match entries {
        Some(entries) => entries,
        None if selection.is_optional => return Ok(()),
        None => return Err(absent()),
    };
    let Some(items) = selection.items else {
        for (key, content) in entries {
            add(payload, key, content.clone(), selection.mode)?;
        }
        return Ok(());
    };
    for item in items {
        match entries.get(&item.key) {
            Some(content) => {
                let mode = item.mode.or(selection.mode);
                add(payload, &item.path, content.clone(), mode)?;
            }
            None if selection.is_optional => {}
            None => return Err(no_key(&item.key)),
        }
    }
    Ok(())
}

fn add_fields<'a>(
    payload: &mut Payload,
    sources: &Sources<'_>,
    items: impl Iterator<Item = &'a DownwardAPIVolumeFile>,
    mode: Option<i32>,
) -> Result<(), String> {
    for item in items {
        let content = match (&item.field_ref, &item.resource_field_ref) {
            (Some(field), _) => sources.facts().field(&field.field_path)?,
            (None, Some(selector)) => sources.facts().resource(selector, None)?,
            (None, None) => String::new(),
        };
        let mode = item.mode.or(mode);
        add(payload, &item.path, content.into_bytes(), mode)?;
    }
    Ok(())
}

fn add(
    payload: &mut Payload,
    path: &str,
    content: Vec<u8>,
    mode: Option<i32>,
) -> Result<(), String> {
    check_path(path)?;
    let mode = u32::try_from(mode.unwrap_or(DEFAULT_MODE)).unwrap_or_default() & 0o777;
    payload.insert(path.to_owned(), File { content, mode });
    Ok(())
}

/// One that stays in the volume and is not taken for what keeps the volume whole, whose names begin with two dots.
fn check_path(path: &str) -> Result<(), String> {
    let part_is_wrong = |part: &str| matches!(part, "" | "." | "..") || part.len() > LONGEST_NAME;
    let is_wrong = path.starts_with("..")
        || path.contains('\0')
        || path.len() > LONGEST_PATH
        || path.split('/').any(part_is_wrong);
    match is_wrong {
        true => Err(format!(
            "invalid path: {path:?} must be relative and must not contain '..'"
        )),
        false => Ok(()),
    }
}

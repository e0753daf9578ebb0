//! Distils the Go types that pod templates and volume claims are made of into `crates/engine/src/revision/types.txt`.
//!
//! Unlike `go_types.json` this table keeps the order of the sources: it is the order in which Go writes the fields, and
//! other controllers record hashes of what Go wrote.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Context, Result, bail, ensure};

use crate::go_types::{Declared, Field, OWN_JSON, declared};

const ROOTS: &[&str] = &["core/v1.PersistentVolumeClaim", "core/v1.PodTemplateSpec"];

/// Renders the table: one type a line, each field as `name:type`, with `?` if it vanishes when empty and `~` if it vanishes
/// when zero.
pub fn table(kubernetes: &Path) -> Result<String> {
    let declared = declared(kubernetes)?;
    let mut lines = BTreeMap::new();
    for root in ROOTS {
        collect(root, &declared, &mut lines)?;
    }
    let lines = lines
        .into_iter()
        .map(|(name, (_, fields))| format!("{name}{fields}\n"));
    Ok(lines.collect())
}

type Sources = BTreeMap<String, Declared>;
/// By the short name of a type: the whole name and the fields.
type Lines = BTreeMap<String, (String, String)>;

fn collect(name: &str, declared: &Sources, lines: &mut Lines) -> Result<()> {
    let short = short(name);
    if let Some((whole, _)) = lines.get(short) {
        ensure!(whole == name, "{whole} and {name} have one short name");
        return Ok(());
    }
    let Some(Declared::Struct(fields)) = declared.get(name) else {
        bail!("{name} is no struct");
    };
    let fields = flat(fields, declared)?;
    lines.insert(short.to_owned(), (name.to_owned(), String::new()));
    let mut rendered = String::new();
    for field in fields {
        let json = field.name.as_deref().unwrap_or_default();
        let go_type = resolved(&field.go_type, declared, lines)?;
        let mark = match field.flags.as_str() {
            "" => "",
            flags if flags.contains("omitzero") => "~",
            _ => "?",
        };
        rendered.push_str(&format!(" {json}:{go_type}{mark}"));
    }
    lines.insert(short.to_owned(), (name.to_owned(), rendered));
    Ok(())
}

/// Fields with those of embedded types in their place.
fn flat<'a>(fields: &'a [Field], declared: &'a Sources) -> Result<Vec<&'a Field>> {
    let mut out = Vec::new();
    for field in fields {
        match (&field.name, declared.get(&field.go_type)) {
            (Some(_), _) => out.push(field),
            (None, Some(Declared::Struct(inner))) => out.extend(flat(inner, declared)?),
            (None, _) => bail!("{} is embedded but no struct", field.go_type),
        }
    }
    Ok(out)
}

/// The type with other names resolved; `*`, `[]` and `map[]` are kept.
fn resolved(go_type: &str, declared: &Sources, lines: &mut Lines) -> Result<String> {
    for prefix in ["*", "[]"] {
        if let Some(rest) = go_type.strip_prefix(prefix) {
            return Ok(format!("{prefix}{}", resolved(rest, declared, lines)?));
        }
    }
    if let Some(rest) = go_type.strip_prefix("map[") {
        let (_, value) = rest.split_once(']').context("a map without values")?;
        return Ok(format!("map[]{}", resolved(value, declared, lines)?));
    }
    if go_type.starts_with("int") && !go_type.contains('.') {
        return Ok("int".to_owned());
    }
    if !go_type.contains('.') || OWN_JSON.contains(&go_type) {
        return Ok(short(go_type).to_owned());
    }
    match declared.get(go_type) {
        Some(Declared::As(other)) => resolved(other, declared, lines),
        Some(Declared::Struct(_)) => {
            collect(go_type, declared, lines)?;
            Ok(short(go_type).to_owned())
        }
        None => bail!("no source declares {go_type}"),
    }
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

//! Distils the Go types behind Kubernetes' kinds into the table `crates/api/src/go_types.json`.
//!
//! OpenAPI does not say which fields are pointers, which vanish when they are empty and what their types are called in
//! Go. The first two decide what becomes of `replicas: 0`; the last stands in error messages.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use serde_json::{Map, Value};

/// Types the table starts from; everything they refer to follows.
pub(crate) const ROOTS: &[&str] = &[
    "apiextensions/v1.CustomResourceDefinition",
    "apps/v1.ControllerRevision",
    "apps/v1.Deployment",
    "authentication/v1.SelfSubjectReview",
    "authentication/v1.TokenRequest",
    "authorization/v1.SelfSubjectAccessReview",
    "autoscaling/v1.Scale",
    "coordination/v1.Lease",
    "core/v1.Binding",
    "core/v1.ConfigMap",
    "core/v1.Event",
    "core/v1.Namespace",
    "core/v1.Node",
    "core/v1.PersistentVolume",
    "core/v1.PersistentVolumeClaim",
    "core/v1.Pod",
    "core/v1.Secret",
    "core/v1.Service",
    "core/v1.ServiceAccount",
    "events/v1.Event",
    "meta/v1.DeleteOptions",
    "networking/v1.NetworkPolicy",
    "policy/v1.Eviction",
    "policy/v1.PodDisruptionBudget",
    "storage/v1.StorageClass",
];

/// Where packages are: the module beside `kubernetes`, the folder in it, and how the table calls them.
pub(crate) const PACKAGES: &[(&str, &str, &str)] = &[
    ("api", "apps/v1", "apps/v1"),
    ("api", "authentication/v1", "authentication/v1"),
    ("api", "authorization/v1", "authorization/v1"),
    ("api", "autoscaling/v1", "autoscaling/v1"),
    ("api", "coordination/v1", "coordination/v1"),
    ("api", "core/v1", "core/v1"),
    ("api", "events/v1", "events/v1"),
    ("api", "networking/v1", "networking/v1"),
    ("api", "policy/v1", "policy/v1"),
    ("api", "storage/v1", "storage/v1"),
    (
        "apiextensions-apiserver",
        "pkg/apis/apiextensions/v1",
        "apiextensions/v1",
    ),
    ("apimachinery", "pkg/apis/meta/v1", "meta/v1"),
    ("apimachinery", "pkg/types", "types"),
    ("apimachinery", "pkg/api/resource", "resource"),
    ("apimachinery", "pkg/runtime", "runtime"),
    ("apimachinery", "pkg/util/intstr", "intstr"),
];

/// Types that read and write their JSON themselves; whoever reads the table knows them.
pub(crate) const OWN_JSON: &[&str] = &[
    "apiextensions/v1.JSON",
    "apiextensions/v1.JSONSchemaPropsOrArray",
    "apiextensions/v1.JSONSchemaPropsOrBool",
    "apiextensions/v1.JSONSchemaPropsOrStringArray",
    "intstr.IntOrString",
    "meta/v1.FieldsV1",
    "meta/v1.MicroTime",
    "meta/v1.Time",
    "resource.Quantity",
    "runtime.RawExtension",
];

/// A type as its source has it.
pub(crate) enum Declared {
    Struct(Vec<Field>),
    /// Another name for a type, written out.
    As(String),
}

pub(crate) struct Field {
    /// The name in JSON; none if the fields of the type stand in its place.
    pub(crate) name: Option<String>,
    pub(crate) go_name: String,
    pub(crate) go_type: String,
    /// `,omitempty`, `,omitzero`
    pub(crate) flags: String,
    /// In protobuf, unless the field has no place there.
    pub(crate) number: Option<u32>,
}

/// Renders the table from the sources of the modules beside `kubernetes`: one type a line, sorted.
pub fn table(kubernetes: &Path) -> Result<String> {
    let declared = declared(kubernetes)?;
    let mut types = BTreeMap::new();
    for root in ROOTS {
        collect(root, &declared, &mut types)?;
    }
    let lines: Vec<String> = types
        .iter()
        .map(|(name, rendered)| format!("{}:{rendered}", Value::from(name.as_str())))
        .collect();
    Ok(format!("{{\n{}\n}}\n", lines.join(",\n")))
}

/// All types of the packages.
pub(crate) fn declared(kubernetes: &Path) -> Result<BTreeMap<String, Declared>> {
    let mut declared = BTreeMap::new();
    for (module, folder, package) in PACKAGES {
        let folder = beside(kubernetes, module)?.join(folder);
        read_package(&folder, package, &mut declared)
            .with_context(|| format!("reading {}", folder.display()))?;
    }
    Ok(declared)
}

/// Kubernetes 1.x is made of modules 0.x.
pub(crate) fn beside(kubernetes: &Path, module: &str) -> Result<PathBuf> {
    let name = kubernetes.file_name().and_then(|name| name.to_str());
    let version = name
        .and_then(|name| name.strip_prefix("kubernetes@v1."))
        .context("the module's folder is not called kubernetes@v1.…")?;
    Ok(kubernetes.with_file_name(format!("{module}@v0.{version}")))
}

fn read_package(
    folder: &Path,
    package: &str,
    declared: &mut BTreeMap<String, Declared>,
) -> Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if name.ends_with(".go") && !name.ends_with("_test.go") && !name.contains("generated") {
            read_file(&std::fs::read_to_string(&path)?, package, declared);
        }
    }
    Ok(())
}

fn read_file(text: &str, package: &str, declared: &mut BTreeMap<String, Declared>) {
    let scope = Scope {
        package,
        imports: imports(text),
    };
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let Some(rest) = line.strip_prefix("type ") else {
            continue;
        };
        let Some((name, rest)) = rest.split_once(' ') else {
            continue;
        };
        let rest = rest.split("//").next().unwrap_or(rest).trim();
        let meaning = match rest {
            "struct {" => {
                let body = lines.by_ref().take_while(|line| !line.starts_with('}'));
                Declared::Struct(body.filter_map(|line| scope.field(line)).collect())
            }
            "struct{}" => Declared::Struct(Vec::new()),
            other => Declared::As(scope.qualified(other.trim_start_matches("= "))),
        };
        declared.insert(format!("{package}.{name}"), meaning);
    }
}

/// The packages of the table that a file imports, by the names it gives them.
fn imports(text: &str) -> BTreeMap<String, &'static str> {
    let mut out = BTreeMap::new();
    for line in text.lines().take_while(|line| !line.starts_with("type ")) {
        let Some((before, rest)) = line.split_once("\"k8s.io/") else {
            continue;
        };
        let Some(path) = rest.strip_suffix('"') else {
            continue;
        };
        let of_table = PACKAGES
            .iter()
            .find(|(module, folder, _)| path == format!("{module}/{folder}"));
        if let Some((_, _, package)) = of_table {
            let own = path.rsplit('/').next().unwrap_or(path);
            let alias = before.trim().trim_start_matches("import ").trim();
            let name = if alias.is_empty() { own } else { alias };
            out.insert(name.to_owned(), *package);
        }
    }
    out
}

/// Where a type is written down, which decides what names mean.
struct Scope<'a> {
    package: &'a str,
    imports: BTreeMap<String, &'static str>,
}

impl Scope<'_> {
    fn field(&self, line: &str) -> Option<Field> {
        let (code, tag) = line.trim().split_once('`')?;
        let json = tag.split_once("json:\"")?.1.split('"').next()?;
        let (name, flags) = json.split_once(',').unwrap_or((json, ""));
        if code.starts_with("//") || name == "-" {
            return None;
        }
        let (go_name, go_type) = match code.trim().split_once(char::is_whitespace) {
            Some((go_name, go_type)) => (go_name, go_type.trim()),
            // an embedded type is a field of its own name
            None => (code.trim().rsplit('.').next()?, code.trim()),
        };
        let number = tag
            .split_once("protobuf:\"")
            .and_then(|(_, protobuf)| protobuf.split(',').nth(1)?.parse().ok());
        let known = ["omitempty", "omitzero"];
        let flags = flags.split(',').filter(|flag| known.contains(flag));
        Some(Field {
            name: (!name.is_empty()).then(|| name.to_owned()),
            go_name: go_name.to_owned(),
            go_type: self.qualified(go_type),
            flags: flags.map(|flag| format!(",{flag}")).collect(),
            number,
        })
    }

    /// The type with its package; `*`, `[]` and `map[…]` are kept.
    fn qualified(&self, go_type: &str) -> String {
        for prefix in ["*", "[]"] {
            if let Some(rest) = go_type.strip_prefix(prefix) {
                return format!("{prefix}{}", self.qualified(rest));
            }
        }
        if let Some((key, value)) = go_type.strip_prefix("map[").and_then(|t| t.split_once(']')) {
            return format!("map[{}]{}", self.qualified(key), self.qualified(value));
        }
        match go_type.split_once('.') {
            Some((alias, name)) => match self.imports.get(alias) {
                Some(package) => format!("{package}.{name}"),
                None => go_type.to_owned(),
            },
            None if go_type.starts_with(|c: char| c.is_ascii_uppercase()) => {
                format!("{}.{go_type}", self.package)
            }
            None => go_type.to_owned(),
        }
    }
}

fn collect(
    name: &str,
    declared: &BTreeMap<String, Declared>,
    types: &mut BTreeMap<String, Value>,
) -> Result<()> {
    if types.contains_key(name) || OWN_JSON.contains(&name) {
        return Ok(());
    }
    let mut named = Vec::new();
    let rendered = match declared.get(name) {
        None => anyhow::bail!("no source declares {name}"),
        Some(Declared::As(other)) => {
            named.extend(names_in(other));
            Value::from(other.as_str())
        }
        Some(Declared::Struct(fields)) => {
            let mut out = Map::new();
            render(fields, "", declared, &mut out)?;
            let of_fields = out.values().filter_map(Value::as_str);
            named.extend(of_fields.flat_map(names_in));
            Value::Object(out)
        }
    };
    types.insert(name.to_owned(), rendered);
    // the values of schemas refer to schemas
    if name == "apiextensions/v1.CustomResourceValidation" {
        named.push("apiextensions/v1.JSONSchemaProps".to_owned());
    }
    named
        .iter()
        .try_for_each(|name| collect(name, declared, types))
}

/// Fields as `type[,omitempty][,omitzero][@Embedded]`; the last names the embedded type they come from.
fn render(
    fields: &[Field],
    embedded: &str,
    declared: &BTreeMap<String, Declared>,
    out: &mut Map<String, Value>,
) -> Result<()> {
    for field in fields {
        match (&field.name, declared.get(&field.go_type)) {
            (Some(name), _) => {
                let rendered = format!("{}{}{embedded}", field.go_type, field.flags);
                out.entry(name.clone()).or_insert_with(|| rendered.into());
            }
            (None, Some(Declared::Struct(inner))) => {
                render(inner, &format!("@{}", field.go_name), declared, out)?;
            }
            (None, _) => anyhow::bail!("{} is embedded but no struct", field.go_type),
        }
    }
    Ok(())
}

/// The names with a package that a type or field is made of.
fn names_in(go_type: &str) -> Vec<String> {
    let go_type = go_type.split([',', '@']).next().unwrap_or(go_type);
    let parts = go_type.split(['*', '[', ']']);
    parts
        .filter(|part| part.contains('.'))
        .map(str::to_owned)
        .collect()
}

//! Writes into `crates/api/tests/fixtures/structural` what a real kube-apiserver says to every case there:
//! `cargo run -p suite --example record-schema-cases` (as root: it starts an API server of its own).
//!
//! A file of cases has a `schema` and `cases`; the recorder fills in each case's `said` and leaves the rest alone.
//! `own.json` is made whole: our own CRDs, and the bad inputs of the real suite.

mod schema_cases;

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use api::crds::{Conversion, Family, Versions, render};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use serde_json::{Map, Value, json};
use suite::objects::change;
use testbed::{OwnOptions, Testbed};

const GROUP: &str = "cases.sandbar.dev";
const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// Files that are not a schema with objects.
const SPECIAL: &[&str] = &["crds", "own"];

#[tokio::main]
async fn main() -> Result<()> {
    let directory =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/api/tests/fixtures/structural");
    let bed = Testbed::own(OwnOptions::default()).await?;
    let server = Server(bed.client());
    let mut files: Vec<PathBuf> = std::fs::read_dir(&directory)?
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<_>>()?;
    files.sort();
    for file in files {
        let stem = file
            .file_stem()
            .and_then(|stem| stem.to_str())
            .context("a file without a name")?
            .to_owned();
        if SPECIAL.contains(&stem.as_str()) {
            continue;
        }
        let mut content: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        if content.get("functions").is_some() {
            expand(&server, &mut content).await?;
        }
        record(&server, &stem, &mut content)
            .await
            .with_context(|| stem.clone())?;
        write(&file, &content)?;
    }
    let file = directory.join("crds.json");
    let mut content: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
    record_crds(&server, &mut content).await?;
    write(&file, &content)?;
    write(&directory.join("own.json"), &own(&server).await?)?;
    bed.stop().await
}

fn write(file: &Path, content: &Value) -> Result<()> {
    std::fs::write(
        file,
        format!("{}\n", serde_json::to_string_pretty(content)?),
    )?;
    println!("{}: written", file.display());
    Ok(())
}

struct Server(Client);

/// An answer: the body, and the texts of the warnings beside it.
struct Answer {
    body: Value,
    warnings: Vec<String>,
}

impl Answer {
    fn failed(&self) -> bool {
        self.body["kind"] == "Status" && self.body["status"] == "Failure"
    }
}

impl Server {
    async fn send(&self, method: &str, path: &str, body: String) -> Result<Answer> {
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", "application/json")
            .body(kube::client::Body::from(body.into_bytes()))?;
        let response = self.0.send(request).await?;
        let warnings = response
            .headers()
            .get_all("warning")
            .iter()
            .map(|header| Ok(warning(header.to_str()?)))
            .collect::<Result<_>>()?;
        let bytes = response.into_body().collect_bytes().await?;
        let mut body = serde_json::from_slice(&bytes)
            .with_context(|| String::from_utf8_lossy(&bytes).into_owned())?;
        mask(&mut body);
        Ok(Answer { body, warnings })
    }

    async fn install(&self, crd: &Value) -> Result<()> {
        let answer = self.send("POST", CRDS, crd.to_string()).await?;
        if answer.failed() {
            bail!("{}", answer.body);
        }
        let name = crd["metadata"]["name"].as_str().unwrap_or_default();
        for _ in 0..100 {
            let stored = self
                .send("GET", &format!("{CRDS}/{name}"), String::new())
                .await?;
            let conditions = stored.body["status"]["conditions"].as_array();
            if conditions.is_some_and(|conditions| {
                conditions
                    .iter()
                    .any(|one| one["type"] == "Established" && one["status"] == "True")
            }) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("{name} was not established");
    }

    async fn uninstall(&self, name: &str) -> Result<()> {
        let one = format!("{CRDS}/{name}");
        self.send("DELETE", &one, String::new()).await?;
        while !self.send("GET", &one, String::new()).await?.failed() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Gives the first version of a CRD another schema, and waits until `probe` is refused.
    async fn tighten(&self, name: &str, schema: &Value, path: &str, probe: &Value) -> Result<()> {
        let one = format!("{CRDS}/{name}");
        let mut crd = self.send("GET", &one, String::new()).await?.body;
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = schema.clone();
        let answer = self.send("PUT", &one, crd.to_string()).await?;
        if answer.failed() {
            bail!("{}", answer.body);
        }
        for _ in 0..100 {
            let answer = self
                .send("POST", &format!("{path}?dryRun=All"), probe.to_string())
                .await?;
            if answer.failed() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the new schema of {name} took no effect");
    }
}

/// The text of a warning header: `299 - "text"`.
fn warning(header: &str) -> String {
    let quoted = header.split_once(" - ").map_or(header, |(_, text)| text);
    let inner = quoted
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    inner.unwrap_or(quoted).replace("\\\"", "\"")
}

/// Removes what differs from run to run.
fn mask(body: &mut Value) {
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        for name in ["uid", "creationTimestamp", "managedFields"] {
            metadata.remove(name);
        }
    }
    if let Some(Value::Object(details)) = body.get_mut("details") {
        details.remove("uid");
    }
}

fn capital(stem: &str) -> String {
    let mut letters = stem.chars();
    letters
        .next()
        .map(|first| first.to_ascii_uppercase().to_string() + letters.as_str())
        .unwrap_or_default()
}

fn definition(stem: &str, versions: Vec<Value>) -> Value {
    let kind = capital(stem);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{stem}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": stem, "singular": stem, "kind": kind, "listKind": format!("{kind}List")},
            "versions": versions,
        },
    })
}

fn version(name: &str, storage: bool, schema: &Value) -> Value {
    json!({
        "name": name, "served": true, "storage": storage,
        "schema": {"openAPIV3Schema": schema},
    })
}

/// The whole object of a case: its name is its place in the file unless it has one.
fn whole(stem: &str, index: usize, fields: &Value) -> Value {
    let mut object = json!({
        "apiVersion": format!("{GROUP}/v1"),
        "kind": capital(stem),
        "metadata": {"name": format!("case-{index}")},
    });
    if let (Some(object), Some(fields)) = (object.as_object_mut(), fields.as_object()) {
        for (name, value) in fields {
            match (object.get_mut(name), value) {
                (Some(Value::Object(there)), Value::Object(more)) => there.extend(more.clone()),
                _ => _ = object.insert(name.clone(), value.clone()),
            }
        }
    }
    object
}

async fn record(server: &Server, stem: &str, content: &mut Value) -> Result<()> {
    let schema = content["schema"].clone();
    let subresources = content.get("subresources").cloned();
    let before = content.get("before").unwrap_or(&schema).clone();
    let path = format!("/apis/{GROUP}/v1/namespaces/default/{stem}");
    let mut only = version("v1", true, &before);
    if let Some(subresources) = subresources {
        only["subresources"] = subresources;
    }
    server.install(&definition(stem, vec![only])).await?;
    let cases = content["cases"].as_array().cloned().unwrap_or_default();
    let mut stored = Vec::new();
    for (index, case) in cases.iter().enumerate() {
        stored.push(match case.get("old") {
            Some(old) => {
                let answer = server
                    .send("POST", &path, whole(stem, index, old).to_string())
                    .await?;
                if answer.failed() {
                    bail!("{}: {}", case["does"], answer.body);
                }
                Some(answer.body)
            }
            None => None,
        });
    }
    if let Some(probe) = content.get("probe") {
        let name = format!("{stem}.{GROUP}");
        server
            .tighten(&name, &schema, &path, &whole(stem, 9999, probe))
            .await?;
    }
    for (index, case) in cases.iter().enumerate() {
        let said = match (&stored[index], case.get("text")) {
            (None, Some(text)) => {
                let text = text.as_str().unwrap_or_default();
                said(server, "POST", &path, text).await?
            }
            (None, None) => {
                let object = whole(stem, index, &case["object"]).to_string();
                said(server, "POST", &path, &object).await?
            }
            (Some(old), _) => {
                let mut object = whole(stem, index, &case["object"]);
                object["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                let part = case["of"]
                    .as_str()
                    .map_or(String::new(), |part| format!("/{part}"));
                let path = format!("{path}/case-{index}{part}");
                said(server, "PUT", &path, &object.to_string()).await?
            }
        };
        content["cases"][index]["said"] = said;
    }
    Ok(())
}

/// Makes a schema of expressions, each the rule of a field of its own, and a case for each. Those that do not
/// compile are noted and left out.
async fn expand(server: &Server, content: &mut Value) -> Result<()> {
    let (mut properties, mut cases, mut refused) = (Map::new(), Vec::new(), Map::new());
    let expressions = content["functions"].as_array().cloned().unwrap_or_default();
    for (index, rule) in expressions.iter().enumerate() {
        let field = json!({"type": "boolean", "x-kubernetes-validations": [{"rule": rule}]});
        let schema = json!({"type": "object", "properties": {"x": field}});
        let crd = definition("probe", vec![version("v1", true, &schema)]);
        let answer = server
            .send("POST", &format!("{CRDS}?dryRun=All"), crd.to_string())
            .await?;
        let text = rule.as_str().unwrap_or_default().to_owned();
        if answer.failed() {
            refused.insert(text, answer.body["details"]["causes"].clone());
            continue;
        }
        properties.insert(format!("f{index}"), field);
        cases.push(json!({"does": text, "object": {"spec": {(format!("f{index}")): true}}}));
    }
    content["refused"] = Value::Object(refused);
    content["cases"] = Value::Array(cases);
    content["schema"] = json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties}},
    });
    Ok(())
}

/// What the server says under `fieldValidation=Warn`, and, if it warns, what it says under `Strict`.
async fn said(server: &Server, method: &str, path: &str, text: &str) -> Result<Value> {
    let strict = server
        .send(
            method,
            &format!("{path}?fieldValidation=Strict&dryRun=All"),
            text.to_owned(),
        )
        .await?;
    let answer = server
        .send(
            method,
            &format!("{path}?fieldValidation=Warn"),
            text.to_owned(),
        )
        .await?;
    let mut said = Map::new();
    let key = if answer.failed() { "status" } else { "stored" };
    let mut body = answer.body;
    if let Some(Value::Object(metadata)) = body.get_mut("metadata") {
        metadata.remove("resourceVersion");
        metadata.remove("generation");
    }
    said.insert(key.to_owned(), body);
    if !answer.warnings.is_empty() {
        said.insert("warnings".to_owned(), json!(answer.warnings));
        if strict.failed() {
            said.insert("strict".to_owned(), strict.body["message"].clone());
        }
    }
    Ok(Value::Object(said))
}

async fn record_crds(server: &Server, content: &mut Value) -> Result<()> {
    let cases = content["cases"].as_array().cloned().unwrap_or_default();
    for (index, case) in cases.iter().enumerate() {
        let mut versions = vec![version("v1", true, &case["schema"])];
        if let Some(second) = case.get("second") {
            versions.push(version("v2", false, second));
        }
        if case.get("status").is_some() {
            versions[0]["subresources"] = json!({"status": {}});
        }
        let crd = definition(&format!("crd{index}"), versions);
        let answer = server
            .send("POST", &format!("{CRDS}?dryRun=All"), crd.to_string())
            .await?;
        content["cases"][index]["said"] = match answer.failed() {
            true => json!({"status": answer.body}),
            false => json!({"accepted": true}),
        };
    }
    Ok(())
}

/// Our own kinds: the smallest good object of each, every bad input, and the changes that are refused.
async fn own(server: &Server) -> Result<Value> {
    let mut cases = Vec::new();
    for (family, versions) in [
        (Family::Sigs, Versions::V1beta1),
        (Family::Sigs, Versions::V1alpha1),
        (Family::Kruise, Versions::V1beta1),
    ] {
        let crds = render(&[family], versions, Conversion::None)?;
        for crd in &crds {
            server.install(&serde_json::to_value(crd)?).await?;
        }
        for crd in &crds {
            own_kind(server, crd, &mut cases).await?;
        }
        for crd in &crds {
            let name = crd.metadata.name.as_deref().unwrap_or_default();
            server.uninstall(name).await?;
        }
    }
    Ok(json!({"cases": cases}))
}

async fn own_kind(
    server: &Server,
    crd: &CustomResourceDefinition,
    cases: &mut Vec<Value>,
) -> Result<()> {
    let api_version = format!("{}/{}", crd.spec.group, crd.spec.versions[0].name);
    let kind = &crd.spec.names.kind;
    let plural = &crd.spec.names.plural;
    let path = format!("/apis/{api_version}/namespaces/default/{plural}");
    let objects = schema_cases::objects(&api_version, kind)?;
    let good = objects[0].1.clone();
    for (does, object) in objects {
        let said = said(server, "POST", &path, &object.to_string()).await?;
        cases.push(json!({
            "does": format!("{api_version} {kind}: {does}"), "object": object, "said": said,
        }));
    }
    for (pointer, before, after) in schema_cases::immutable(&api_version, kind) {
        let mut old = good.clone();
        old["metadata"]["name"] = json!("two");
        change(&mut old, pointer, &before)?;
        let stored = server.send("POST", &path, old.to_string()).await?;
        if stored.failed() {
            bail!("{}", stored.body);
        }
        let mut object = stored.body;
        change(&mut object, pointer, &after)?;
        let one = format!("{path}/two");
        let said = said(server, "PUT", &one, &object.to_string()).await?;
        server.send("DELETE", &one, String::new()).await?;
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.retain(|name, _| name == "name" || name == "namespace");
        }
        cases.push(json!({
            "does": format!("{api_version} {kind}: {pointer}, {before} becomes {after}"),
            "old": old, "object": object, "said": said,
        }));
    }
    Ok(())
}

//! Records how a real API server answers patches, for `crates/api/tests/patch.rs` to replay.
//!
//! A file of cases names a kind and lists cases; a case is an object to begin with (or none) and steps,
//! each one request. All cases advance together, one step a second, because the server orders the
//! owners of fields by the second in which they wrote.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use http::{Method, Request};
use kube::client::Body;
use serde_json::{Map, Value, json};

const NAMESPACE: &str = "default";

/// What says where objects are; a case may have its own.
const PLACE: &[&str] = &["path", "apiVersion", "kind"];

/// One file of cases.
pub(crate) struct Cases {
    pub(crate) name: String,
    file: Value,
    cases: Vec<Case>,
}

struct Case {
    name: String,
    /// The case's own `path`, `apiVersion` and `kind`, where they are not the file's.
    place: Value,
    object: String,
    steps: Vec<Value>,
    recorded: Vec<Value>,
    live: Option<Value>,
}

/// When a round of steps began and ended, in seconds.
struct Round(u64, u64);

impl Cases {
    /// Reads a file of cases.
    pub(crate) fn read(name: &str, text: &str) -> Result<Self> {
        let file: Value =
            serde_saphyr::from_str(text).with_context(|| format!("reading the cases {name}"))?;
        let list = file["cases"].as_array().context("no cases")?;
        let cases = list.iter().enumerate().map(|(index, case)| {
            let place = case.as_object().into_iter().flatten();
            let place = place.filter(|(key, _)| PLACE.contains(&key.as_str()));
            let create = case.get("object").map(|object| json!({ "create": object }));
            let steps = case["steps"].as_array().into_iter().flatten().cloned();
            Case {
                name: case["name"].as_str().unwrap_or_default().to_owned(),
                place: place
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect(),
                object: match case["called"].as_str() {
                    Some(own) => own.to_owned(),
                    None => format!("{name}-{index}"),
                },
                steps: create.into_iter().chain(steps).collect(),
                recorded: Vec::new(),
                live: None,
            }
        });
        Ok(Self {
            name: name.to_owned(),
            cases: cases.collect(),
            file,
        })
    }

    /// The CRD that the file brings along.
    pub(crate) fn crd(&self) -> Option<&Value> {
        self.file.get("crd")
    }

    fn steps(&self) -> usize {
        let lengths = self.cases.iter().map(|case| case.steps.len());
        lengths.max().unwrap_or_default()
    }

    async fn run_step(&mut self, client: &kube::Client, step: usize) -> Result<()> {
        for case in &mut self.cases {
            let Some(request) = case.steps.get(step).cloned() else {
                continue;
            };
            let resource = Resource::of(&self.file, &case.place, &request);
            // the server may have written too, a definition's status for example
            let before = match case.live {
                Some(_) => resource.get(client, &case.object).await?,
                None => Value::Null,
            };
            let (code, body) = resource
                .send(client, case, &request)
                .await
                .with_context(|| format!("{}: {}, step {step}", self.name, case.name))?;
            let mut entry = json!({ "request": request, "before": before });
            let key = if code < 300 { "after" } else { "error" };
            entry[key] = body.clone();
            if code < 300 {
                case.live = Some(body);
            }
            case.recorded.push(entry);
        }
        Ok(())
    }

    /// The recorded answers, one step a line: objects as what has changed in them, the first of a case
    /// as what differs from the first of the file.
    fn render(&self, rounds: &[Round]) -> String {
        let mut first = None;
        let mut cases = Vec::new();
        for case in &self.cases {
            let mut live = first.clone();
            let mut steps = Vec::new();
            for step in &case.recorded {
                let mut step = masked(step.clone(), rounds);
                if let (Some(before), Some(live)) = (step["before"].as_object(), &mut live) {
                    let before = Value::Object(before.clone());
                    let drift = json_patch::diff(live, &before);
                    if !drift.0.is_empty() {
                        step["drift"] = json!(drift);
                    }
                    *live = before;
                }
                _ = step.as_object_mut().map(|step| step.remove("before"));
                if let Some(after) = step.as_object_mut().and_then(|step| step.remove("after")) {
                    let before = live.as_ref().unwrap_or(first.get_or_insert(after.clone()));
                    step["change"] = json!(json_patch::diff(before, &after));
                    live = Some(after);
                }
                steps.push(format!("  {step}"));
            }
            let (name, object) = (quoted(&case.name), quoted(&case.object));
            let (place, steps) = (&case.place, steps.join(",\n"));
            cases.push(format!(
                " {{\"name\":{name},\"object\":{object},\"place\":{place},\"steps\":[\n{steps}\n ]}}"
            ));
        }
        let mut header = self.file.as_object().cloned().unwrap_or_default();
        header.remove("cases");
        header.insert("first".to_owned(), first.unwrap_or_default());
        let header: Vec<String> = header
            .iter()
            .map(|(key, value)| format!("{}:{value},\n", quoted(key)))
            .collect();
        format!(
            "{{\n{}\"cases\":[\n{}\n]}}\n",
            header.concat(),
            cases.join(",\n")
        )
    }
}

fn quoted(text: &str) -> Value {
    Value::from(text)
}

/// Runs all cases and renders what the server answered, file by file.
pub(crate) async fn record(client: &kube::Client, files: &mut [Cases]) -> Result<Vec<String>> {
    let steps = files.iter().map(Cases::steps).max().unwrap_or_default();
    let mut rounds = Vec::new();
    for step in 0..steps {
        let began = next_second().await?;
        for file in files.iter_mut() {
            file.run_step(client, step).await?;
        }
        rounds.push(Round(began, now()?.as_secs()));
    }
    Ok(files.iter().map(|file| file.render(&rounds)).collect())
}

async fn next_second() -> Result<u64> {
    let now = now()?;
    let next = now.as_secs() + 1;
    tokio::time::sleep(Duration::from_secs(next) - now + Duration::from_millis(20)).await;
    Ok(next)
}

fn now() -> Result<Duration> {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("reading the clock")
}

struct Resource {
    /// For example `/api/v1/namespaces/default/pods`.
    path: String,
    api_version: String,
    kind: String,
    /// What a case means by the word `base`.
    base: Value,
}

impl Resource {
    fn of(file: &Value, place: &Value, request: &Value) -> Self {
        let text = |key: &str| {
            let own = place[key].as_str().or(file[key].as_str());
            own.unwrap_or_default().to_owned()
        };
        let mut resource = Self {
            path: text("path"),
            api_version: text("apiVersion"),
            kind: text("kind"),
            base: file["base"].clone(),
        };
        if let Some(other) = request["at"].as_str() {
            resource.path = resource.path.replace(&resource.api_version, other);
            resource.api_version = other.to_owned();
        }
        resource
    }

    async fn get(&self, client: &kube::Client, name: &str) -> Result<Value> {
        let request = Request::get(format!("{}/{name}", self.path)).body(Vec::new())?;
        Ok(client.request(request).await?)
    }

    async fn send(&self, client: &kube::Client, case: &Case, step: &Value) -> Result<(u16, Value)> {
        let (verb, body) = ["create", "put", "strategic", "merge", "json", "apply"]
            .iter()
            .find_map(|verb| Some((*verb, step.get(*verb)?)))
            .with_context(|| format!("no request in {step}"))?;
        let (method, content_type) = match verb {
            "create" => (Method::POST, "application/json"),
            "put" => (Method::PUT, "application/json"),
            "strategic" => (Method::PATCH, "application/strategic-merge-patch+json"),
            "merge" => (Method::PATCH, "application/merge-patch+json"),
            "json" => (Method::PATCH, "application/json-patch+json"),
            _ => (Method::PATCH, "application/apply-patch+yaml"),
        };
        let name = &case.object;
        let mut body = match body.as_str() {
            Some("base") => self.base.clone(),
            _ => body.clone(),
        };
        if matches!(verb, "create" | "put" | "apply") {
            self.complete(&mut body, name);
        }
        if let (true, Some(live)) = (verb == "put", &case.live) {
            body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
        }
        let mut uri = self.path.clone();
        if verb != "create" {
            uri = format!("{uri}/{name}");
        }
        if let Some(subresource) = step["on"].as_str() {
            uri = format!("{uri}/{subresource}");
        }
        uri.push('?');
        if step.get("agent").is_none() {
            let manager = step["as"].as_str().unwrap_or("creator");
            uri.push_str(&format!("fieldManager={manager}&"));
        }
        if step["force"] == true {
            uri.push_str("force=true&");
        }
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("content-type", content_type)
            .header("user-agent", step["agent"].as_str().unwrap_or("recorder"))
            .body(Body::from(serde_json::to_vec(&body)?))?;
        let response = client.send(request).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect_bytes().await?;
        Ok((code, serde_json::from_slice(&bytes)?))
    }

    /// Cases leave out what is the same in all of them.
    fn complete(&self, body: &mut Value, name: &str) {
        let Value::Object(fields) = body else {
            return;
        };
        let mut set = |key: &str, value: &str| {
            fields.entry(key).or_insert_with(|| value.into());
        };
        set("apiVersion", &self.api_version);
        set("kind", &self.kind);
        let metadata = fields
            .entry("metadata")
            .or_insert_with(|| Value::Object(Map::new()));
        if let Value::Object(metadata) = metadata {
            metadata.entry("name").or_insert_with(|| name.into());
        }
    }
}

/// What differs from run to run, made the same.
fn masked(mut step: Value, rounds: &[Round]) -> Value {
    // the server lists the conflicts of several managers in the order of a hash table
    if let Some(Value::Array(causes)) = step.pointer_mut("/error/details/causes") {
        causes.sort_by_key(Value::to_string);
    }
    for key in ["before", "after", "error"] {
        if let Some(answer) = step.get_mut(key) {
            mask(answer, rounds);
        }
        if let Some(Value::Object(metadata)) = step.pointer_mut(&format!("/{key}/metadata")) {
            metadata.remove("resourceVersion");
            if key != "error" {
                metadata.insert("uid".to_owned(), "uid".into());
            }
        }
    }
    step
}

fn mask(value: &mut Value, rounds: &[Round]) {
    match value {
        Value::String(text) => {
            if let Some(second) = seconds(text) {
                let round = rounds
                    .iter()
                    .position(|Round(began, ended)| (*began..=*ended).contains(&second));
                if let Some(round) = round {
                    *text = format!("2026-01-01T00:00:{round:02}Z");
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| mask(item, rounds)),
        Value::Object(fields) => fields.values_mut().for_each(|item| mask(item, rounds)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The seconds since 1970 of `2026-01-31T12:00:00Z`.
fn seconds(text: &str) -> Option<u64> {
    let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    if text.len() != 20 || !text.ends_with('Z') {
        return None;
    }
    let (year, month, day) = (part(0, 4)?, part(5, 7)?, part(8, 10)?);
    // days since 1970, with March as the first month so that the leap day comes last
    let (shifted, month) = match month {
        1 | 2 => (year - 1, month + 9),
        _ => (year, month - 3),
    };
    let days =
        365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + (153 * month + 2) / 5 + day
            - 1;
    let days = days.checked_sub(719_468)?;
    Some(days * 86_400 + part(11, 13)? * 3_600 + part(14, 16)? * 60 + part(17, 19)?)
}

/// Creates the CRDs and waits until their kinds are served.
pub(crate) async fn install(client: &kube::Client, crds: &[Value]) -> Result<()> {
    for crd in crds {
        let request = Request::post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")
            .header("content-type", "application/json")
            .body(serde_json::to_vec(crd)?)?;
        let _: Value = client.request(request).await?;
    }
    for crd in crds {
        let (group, plural) = (&crd["spec"]["group"], &crd["spec"]["names"]["plural"]);
        let version = &crd["spec"]["versions"][0]["name"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uri = format!(
            "/apis/{}/{}/namespaces/{NAMESPACE}/{}",
            text(group),
            text(version),
            text(plural)
        );
        for attempt in 0.. {
            let request = Request::get(&uri).body(Vec::new())?;
            match client.request::<Value>(request).await {
                Ok(_) => break,
                Err(_) if attempt < 100 => tokio::time::sleep(Duration::from_millis(100)).await,
                Err(error) => bail!("{uri} is not served: {error}"),
            }
        }
    }
    Ok(())
}

//! What the server answers, as text: tables, YAML, JSON and names, all as kubectl prints them.

use anyhow::{Context as _, Result};
use k8s_openapi::{jiff::Timestamp, serde::Serialize as _};
use serde_json::{Value, json, ser::PrettyFormatter};

use super::discover::Kind;
use crate::table;

/// Asks for tables, and for the objects themselves of servers that have none.
pub(super) const ACCEPT_TABLE: &str =
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

/// A table of a server.
#[derive(Debug)]
pub(super) struct Table {
    columns: Vec<Column>,
    rows: Vec<Row>,
}

#[derive(Clone, Debug)]
struct Column {
    heading: String,
    is_wide_only: bool,
    is_name: bool,
}

#[derive(Debug)]
struct Row {
    cells: Vec<String>,
    namespace: String,
}

/// What is shown beside that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Extras {
    pub(super) wide: bool,
    pub(super) namespaces: bool,
    pub(super) kinds: bool,
}

impl Table {
    pub(super) fn of(answer: &Value) -> Self {
        match answer["kind"].as_str() {
            Some("Table") => Self {
                columns: list(&answer["columnDefinitions"]).map(column).collect(),
                rows: list(&answer["rows"]).map(row).collect(),
            },
            _ => Self::of_objects(answer),
        }
    }

    /// What is known of any object.
    fn of_objects(answer: &Value) -> Self {
        let column = |heading: &str, is_name: bool| Column {
            heading: heading.to_owned(),
            is_wide_only: false,
            is_name,
        };
        let row = |object: &Value| Row {
            cells: vec![text(&object["metadata"]["name"]), age(object)],
            namespace: text(&object["metadata"]["namespace"]),
        };
        let rows = match answer["items"].as_array() {
            Some(items) => items.iter().map(row).collect(),
            None => vec![row(answer)],
        };
        Self {
            columns: vec![column("NAME", true), column("AGE", false)],
            rows,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows of another table of the same kind behind the own.
    pub(super) fn append(&mut self, other: Table) {
        self.rows.extend(other.rows);
    }

    /// Later events of a watch do not repeat the columns.
    pub(super) fn with_columns_of(mut self, first: &Table) -> Self {
        if self.columns.is_empty() {
            self.columns.clone_from(&first.columns);
        }
        self
    }

    pub(super) fn header(&self, extras: Extras) -> Vec<String> {
        let namespace = extras.namespaces.then(|| "NAMESPACE".to_owned());
        let shown = self.columns.iter().filter(|column| column.is_shown(extras));
        let headings = shown.map(|column| column.heading.clone());
        namespace.into_iter().chain(headings).collect()
    }

    pub(super) fn lines(&self, kind: &Kind, extras: Extras) -> Vec<Vec<String>> {
        let cell = |column: &Column, cell: &String| match extras.kinds && column.is_name {
            true => format!("{}/{cell}", kind.word()),
            false => cell.clone(),
        };
        let line = |row: &Row| {
            let namespace = extras.namespaces.then(|| row.namespace.clone());
            let cells = self.columns.iter().zip(&row.cells);
            let shown = cells.filter(|(column, _)| column.is_shown(extras));
            let shown = shown.map(|(column, text)| cell(column, text));
            namespace.into_iter().chain(shown).collect()
        };
        self.rows.iter().map(line).collect()
    }
}

impl Column {
    fn is_shown(&self, extras: Extras) -> bool {
        extras.wide || !self.is_wide_only
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn column(definition: &Value) -> Column {
    Column {
        heading: text(&definition["name"]).to_uppercase(),
        is_wide_only: definition["priority"].as_i64().unwrap_or(0) != 0,
        is_name: definition["format"] == "name" && definition["type"] == "string",
    }
}

fn row(row: &Value) -> Row {
    Row {
        cells: list(&row["cells"]).map(cell).collect(),
        namespace: text(&row["object"]["metadata"]["namespace"]),
    }
}

/// One line that leaves the terminal as it is.
fn cell(value: &Value) -> String {
    let text = text(value);
    let line = match text.find(['\n', '\r', '\x0c']) {
        Some(end) => format!("{}...", &text[..end]),
        None => text,
    };
    line.replace('\x1b', "^[")
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn age(object: &Value) -> String {
    let created = object["metadata"]["creationTimestamp"].as_str();
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    let age = |created| table::age(Timestamp::now().duration_since(created).as_secs());
    created.map_or_else(|| "<unknown>".to_owned(), age)
}

pub(super) fn name(kind: &Kind, object: &Value) -> String {
    format!("{}/{}\n", kind.word(), text(&object["metadata"]["name"]))
}

/// The objects in an answer, each with its kind: a list says it once for all.
pub(super) fn objects(kind: &Kind, mut answer: Value) -> Vec<Value> {
    let mut objects = match answer.get_mut("items").map(Value::take) {
        Some(Value::Array(items)) => items,
        _ => vec![answer],
    };
    for object in &mut objects {
        object["apiVersion"] = json!(kind.resource.api_version);
        object["kind"] = json!(kind.resource.kind);
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("managedFields");
        }
    }
    objects
}

pub(super) fn as_list(objects: Vec<Value>) -> Value {
    json!({
        "apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": objects,
    })
}

pub(super) fn yaml(value: &Value) -> Result<String> {
    // long texts stay on one line, as others write them
    let options = serde_saphyr::ser_options! { folded_wrap_chars: usize::MAX };
    serde_saphyr::to_string_with_options(value, options).context("rendering YAML")
}

pub(super) fn json(value: &Value) -> Result<String> {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    value.serialize(&mut serializer).context("rendering JSON")?;
    text.push(b'\n');
    String::from_utf8(text).context("rendering JSON")
}

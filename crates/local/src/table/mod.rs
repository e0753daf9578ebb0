//! Tables, as `kubectl get` asks for them, and objects reduced to their metadata.

mod built_in;
mod cells;
mod custom;
mod event;
pub mod json_path;
mod node;
mod partial;
mod pod;
mod service;
mod storage;

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

pub use partial::{MetaVersion, partial, partial_list};

use crate::server::resource::{Column, Origin, Resource};
use crate::status::Failure;
use built_in::Layout;

/// The columns and rows of a kind.
#[derive(Clone, Copy)]
pub struct Printer<'a>(Source<'a>);

#[derive(Clone, Copy)]
enum Source<'a> {
    BuiltIn(&'static Layout),
    /// A kind without columns of its own shows its age.
    Custom(&'a [Column]),
}

/// What a row has of its object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Include {
    None,
    #[default]
    Metadata,
    Object,
}

impl Include {
    /// From the `includeObject` of a query.
    pub fn parse(text: Option<&str>) -> Result<Self, Failure> {
        match text {
            None | Some("" | "Metadata") => Ok(Self::Metadata),
            Some("Object") => Ok(Self::Object),
            Some("None") => Ok(Self::None),
            Some(other) => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: \
                 {other:?}: must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The head of a column.
#[derive(Debug)]
struct Definition {
    name: &'static str,
    column_type: &'static str,
    format: &'static str,
    priority: i64,
    description: &'static str,
}

impl Definition {
    const fn new(name: &'static str, description: &'static str) -> Self {
        Self {
            name,
            column_type: "string",
            format: "",
            priority: 0,
            description,
        }
    }

    /// Shown by `-o wide` alone.
    const fn wide(self) -> Self {
        Self {
            priority: 1,
            ..self
        }
    }

    const fn of_type(self, column_type: &'static str) -> Self {
        Self {
            column_type,
            ..self
        }
    }

    const NAME: Self = Self {
        format: "name",
        ..Self::new("Name", "What the object is called.")
    };
    const AGE: Self = Self::new("Age", "How long ago the object was created.");

    fn json(&self) -> Value {
        json!({
            "name": self.name,
            "type": self.column_type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        })
    }
}

impl<'a> Printer<'a> {
    pub fn of(resource: &'a Resource) -> Self {
        Self(match &resource.origin {
            Origin::Custom(custom) => Source::Custom(&custom.columns),
            Origin::BuiltIn(built_in) => {
                Source::BuiltIn(built_in::layout(built_in.group, built_in.kind))
            }
        })
    }

    /// Of the `scale` of a resource.
    pub fn of_scale(resource: &Resource) -> Self {
        Self(Source::BuiltIn(match resource.origin {
            Origin::BuiltIn(_) => &built_in::SCALE,
            Origin::Custom(_) => &built_in::CUSTOM_SCALE,
        }))
    }

    /// The `columnDefinitions` of a Table. Of the tables in a watch only the first one has them.
    pub fn columns(&self) -> Value {
        match self.0 {
            Source::BuiltIn(layout) => layout.columns.iter().map(Definition::json).collect(),
            Source::Custom([]) => vec![Definition::NAME.json(), custom::AGE.json()].into(),
            Source::Custom(columns) => std::iter::once(Definition::NAME.json())
                .chain(columns.iter().map(custom::definition))
                .collect(),
        }
    }

    /// The row of an object, which is what the API would answer with. A bookmark is a row, too.
    pub fn row(
        &self,
        object: &Value,
        now: Timestamp,
        include: Include,
        version: MetaVersion,
    ) -> Value {
        let (cells, conditions) = match self.0 {
            Source::BuiltIn(layout) => ((layout.cells)(object, now), (layout.conditions)(object)),
            Source::Custom(columns) => (custom::cells(columns, object, now), None),
        };
        let object = match include {
            Include::Object => object.clone(),
            Include::Metadata => partial(object, version),
            Include::None if ends_initial_events(object) => partial(object, version),
            Include::None => Value::Null,
        };
        let mut row = json!({"cells": cells});
        row["object"] = object;
        if let Some(conditions) = conditions {
            row["conditions"] = conditions;
        }
        row
    }
}

/// Whether a watch says with this bookmark that all objects there were have been sent. A client needs to see that.
fn ends_initial_events(object: &Value) -> bool {
    object.pointer("/metadata/annotations/k8s.io~1initial-events-end") == Some(&json!("true"))
}

/// A Table. `metadata` is that of the list; of an object that is shown alone, its `resourceVersion` only. `columns` is
/// null where they have been sent before.
pub fn table(version: MetaVersion, metadata: Value, columns: Value, rows: Vec<Value>) -> Value {
    let mut table = json!({"kind": "Table", "apiVersion": version.api_version()});
    table["metadata"] = metadata;
    table["columnDefinitions"] = columns;
    table["rows"] = Value::Array(rows);
    table
}

#[cfg(test)]
mod tests;

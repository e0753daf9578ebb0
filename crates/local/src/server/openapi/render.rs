//! Operations as the documents write them.

use serde_json::{Map, Value, json};

use super::Dialect;
use super::operations::{ANY_FORM, Body, Gives, Operation, Path};
use super::schemas::KINDS;

impl Path {
    /// The types that its operations refer to.
    pub(super) fn types(&self) -> impl Iterator<Item = &str> {
        self.operations.iter().flat_map(|operation| {
            let body = operation.body.as_ref().map(|body| body.type_name.as_str());
            let gives = match &operation.gives {
                Gives::Object(name) | Gives::List(name) => Some(name.as_str()),
                Gives::Text => None,
            };
            body.into_iter().chain(gives)
        })
    }

    pub(super) fn render(&self, dialect: Dialect) -> Value {
        let mut out: Map<String, Value> = self
            .operations
            .iter()
            .map(|operation| (operation.method.to_owned(), operation.render(dialect)))
            .collect();
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter();
            out.insert(
                "parameters".to_owned(),
                parameters.map(|one| one.render(dialect)).collect(),
            );
        }
        Value::Object(out)
    }
}

impl Operation {
    fn render(&self, dialect: Dialect) -> Value {
        let parameters = self.parameters.iter();
        let mut parameters: Vec<Value> = parameters.map(|one| one.render(dialect)).collect();
        let mut out = json!({
            "operationId": self.id,
            "tags": [self.tag],
            "responses": self.responses(dialect),
        });
        if let Some(body) = &self.body {
            let schema = json!({"$ref": dialect.reference(&body.type_name)});
            match dialect {
                Dialect::V3 => out["requestBody"] = body.render(&schema),
                Dialect::V2 => {
                    out["consumes"] = json!(body.forms);
                    let required = body.required;
                    let body = json!({"name": "body", "in": "body", "required": required, "schema": schema});
                    parameters.insert(0, body);
                }
            }
        }
        if dialect == Dialect::V2 {
            out["produces"] = json!(self.gives.forms());
            out["schemes"] = json!(["https"]);
        }
        if !parameters.is_empty() {
            out["parameters"] = json!(parameters);
        }
        if !self.action.is_empty() {
            out["x-kubernetes-action"] = json!(self.action);
        }
        if let Some((group, version, kind)) = &self.of {
            out[KINDS] = json!({"group": group, "version": version, "kind": kind});
        }
        out
    }

    fn responses(&self, dialect: Dialect) -> Value {
        let schema = match &self.gives {
            Gives::Object(name) | Gives::List(name) => json!({"$ref": dialect.reference(name)}),
            Gives::Text => json!({"type": "string"}),
        };
        let mut responses = json!({"401": {"description": "Unauthorized"}});
        for code in self.codes {
            let description = match code {
                201 => "Created",
                202 => "Accepted",
                _ => "OK",
            };
            let mut response = json!({"description": description});
            match dialect {
                Dialect::V3 => response["content"] = content(self.gives.forms(), &schema),
                Dialect::V2 => response["schema"] = schema.clone(),
            }
            responses[code.to_string()] = response;
        }
        responses
    }
}

impl Body {
    fn render(&self, schema: &Value) -> Value {
        let mut out = json!({"content": content(self.forms, schema)});
        if self.required {
            out["required"] = json!(true);
        }
        out
    }
}

fn content(forms: &[&str], schema: &Value) -> Value {
    forms
        .iter()
        .map(|form| ((*form).to_owned(), json!({"schema": schema})))
        .collect()
}

impl Gives {
    fn forms(&self) -> &'static [&'static str] {
        match self {
            Gives::Object(_) => &["application/json", "application/yaml"],
            Gives::List(_) => &[
                "application/json",
                "application/json;stream=watch",
                "application/yaml",
            ],
            Gives::Text => ANY_FORM,
        }
    }
}

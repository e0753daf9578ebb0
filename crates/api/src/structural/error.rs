//! What is wrong with a field, in the words and the form of the API server.

use serde_json::{Value, json};

use super::golang;

/// Why a field is refused; the name is that of a cause in a Status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    NotFound,
}

impl Reason {
    /// The reason of a cause in a Status.
    pub fn name(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::NotFound => "Not found",
        }
    }
}

/// One field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The path of the field; `<nil>` where the server names none.
    pub field: String,
    pub reason: Reason,
    /// What is wrong, without the name of the field.
    pub message: String,
}

impl std::fmt::Display for FieldError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for FieldError {}

impl FieldError {
    /// An error with the value that is wrong.
    pub fn with_value(
        reason: Reason,
        field: impl Into<String>,
        value: &Value,
        detail: &str,
    ) -> Self {
        Self::new(reason, field, Some(golang::shown(value)), detail)
    }

    /// An error that shows no value.
    pub fn bare(reason: Reason, field: impl Into<String>, detail: &str) -> Self {
        Self::new(reason, field, None, detail)
    }

    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::with_value(Reason::Invalid, field, value, detail)
    }

    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::bare(Reason::Required, field, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::bare(Reason::Forbidden, field, detail)
    }

    pub fn not_supported(field: impl Into<String>, value: &Value, supported: &[String]) -> Self {
        let quoted: Vec<_> = supported.iter().map(|text| golang::quote(text)).collect();
        let detail = match quoted.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", quoted.join(", ")),
        };
        Self::with_value(Reason::NotSupported, field, value, &detail)
    }

    pub fn too_long(field: impl Into<String>, most: i64) -> Self {
        let unit = if most == 1 { "byte" } else { "bytes" };
        let detail = format!("may not be more than {most} {unit}");
        Self::bare(Reason::TooLong, field, &detail)
    }

    pub fn too_many(field: impl Into<String>, actual: i64, most: i64) -> Self {
        let unit = if most == 1 { "item" } else { "items" };
        let detail = format!("must have at most {most} {unit}");
        Self::with_value(Reason::TooMany, field, &json!(actual), &detail)
    }

    /// An error with a value that is shown in a way of its own.
    pub fn with_shown(field: impl Into<String>, shown: String, detail: &str) -> Self {
        Self::new(Reason::Invalid, field, Some(shown), detail)
    }

    fn new(reason: Reason, field: impl Into<String>, shown: Option<String>, detail: &str) -> Self {
        let mut message = reason.title().to_owned();
        if let Some(shown) = shown {
            message.push_str(": ");
            message.push_str(&shown);
        }
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        Self {
            field: field.into(),
            reason,
            message,
        }
    }

    /// The cause in a Status.
    pub fn cause(&self) -> Value {
        json!({"reason": self.reason.name(), "message": self.message, "field": self.field})
    }
}

/// The message of a Status for an object that is invalid: `<Kind>.<group> "<name>" is invalid: …`, in which
/// an error that was already said is not said again.
pub fn invalid_message(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> String {
    let qualified = match group {
        "" => kind.to_owned(),
        group => format!("{kind}.{group}"),
    };
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(FieldError::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    let subject = format!("{qualified} {} is invalid", golang::quote(name));
    match texts.as_slice() {
        [] => subject,
        [one] => format!("{subject}: {one}"),
        several => format!("{subject}: [{}]", several.join(", ")),
    }
}

/// The whole Status for an object that is invalid.
pub fn invalid_status(kind: &str, group: &str, name: &str, errors: &[FieldError]) -> Value {
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": invalid_message(kind, group, name, errors),
        "reason": "Invalid",
        "details": {
            "name": name,
            "group": group,
            "kind": kind,
            "causes": errors.iter().map(FieldError::cause).collect::<Vec<_>>(),
        },
        "code": 422,
    })
}

/// The warning, or the part of a strict decoding error, for a field that the schema does not have.
pub fn unknown_field(path: &str) -> String {
    format!("unknown field \"{path}\"")
}

/// The warning, or the part of a strict decoding error, for a field that is written twice.
pub fn duplicate_field(path: &str) -> String {
    format!("duplicate field \"{path}\"")
}

/// The message of the 400 that `fieldValidation=Strict` answers with; `problems` are the texts of
/// [`duplicate_field`] and [`unknown_field`].
pub fn strict_message(kind: &str, version: &str, problems: &[String]) -> String {
    let problems = format!("strict decoding error: {}", problems.join(", "));
    undecodable_message(kind, version, &problems)
}

/// The message of the 400 for an object that cannot be read as its kind.
pub fn undecodable_message(kind: &str, version: &str, problem: &str) -> String {
    format!("{kind} in version {version:?} cannot be handled as a {kind}: {problem}")
}

//! What the API says when it cannot do what was asked: `Status` objects in the words clients know.

use serde_json::{Map, Value, json};

/// A failed request. The constructors are the failures the API has; nothing else makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
}

/// A kind of object as errors name it: its plural and, unless it is the core one, its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qualified<'a> {
    pub group: &'a str,
    pub plural: &'a str,
}

impl std::fmt::Display for Qualified<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group {
            "" => f.write_str(self.plural),
            group => write!(f, "{}.{group}", self.plural),
        }
    }
}

impl Failure {
    pub fn code(&self) -> u16 {
        self.code
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    /// The body of the answer.
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        });
        if self.reason.is_empty() {
            body.as_object_mut().map(|body| body.remove("reason"));
        }
        if !self.details.is_empty() {
            body["details"] = Value::Object(self.details.clone());
        }
        body
    }

    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            details: Map::new(),
        }
    }

    fn about(mut self, kind: Qualified, name: &str) -> Self {
        for (key, value) in [("name", name), ("group", kind.group), ("kind", kind.plural)] {
            if !value.is_empty() {
                self.details.insert(key.to_owned(), value.into());
            }
        }
        self
    }

    pub fn not_found(kind: Qualified, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{kind} \"{name}\" not found")).about(kind, name)
    }

    /// No such resource, or no such subresource of it.
    pub fn unknown_path() -> Self {
        let mut failure = Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        );
        failure.details = Map::new();
        failure
    }

    pub fn already_exists(kind: Qualified, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{kind} \"{name}\" already exists"),
        )
        .about(kind, name)
    }

    pub fn conflict(kind: Qualified, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {kind} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(kind, name)
    }

    /// Somebody else wrote first.
    pub fn modified(kind: Qualified, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(kind, name, why)
    }

    pub fn forbidden(kind: Qualified, name: &str, why: &str) -> Self {
        let message = format!("{kind} \"{name}\" is forbidden: {why}");
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    pub fn bad_request(why: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", why)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            accepted.join(", ")
        );
        Self::new(406, "NotAcceptable", message)
    }

    /// A watch or a list from a version that history no longer reaches.
    pub fn expired(why: impl Into<String>) -> Self {
        Self::new(410, "Expired", why)
    }

    pub fn internal(why: impl Into<String>) -> Self {
        Self::new(
            500,
            "InternalError",
            format!("Internal error occurred: {}", why.into()),
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{Failure, Qualified};

    #[test]
    fn a_missing_object_is_named_with_its_group() {
        let kind = Qualified {
            group: "agents.x-k8s.io",
            plural: "sandboxes",
        };
        let failure = Failure::not_found(kind, "box");
        assert_eq!(failure.code(), 404);
        assert_eq!(
            failure.body(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "sandboxes.agents.x-k8s.io \"box\" not found",
                "reason": "NotFound",
                "details": {"name": "box", "group": "agents.x-k8s.io", "kind": "sandboxes"},
                "code": 404,
            })
        );
    }

    #[test]
    fn a_core_kind_has_no_group_in_its_error() {
        let kind = Qualified {
            group: "",
            plural: "configmaps",
        };
        let body = Failure::already_exists(kind, "a").body();
        assert_eq!(body["message"], "configmaps \"a\" already exists");
        assert_eq!(body["details"], json!({"name": "a", "kind": "configmaps"}));
    }
}

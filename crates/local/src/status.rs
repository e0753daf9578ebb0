//! What the API says when it cannot do what was asked: `Status` objects in the words clients know.

use std::borrow::Cow;

use api::structural::{FieldError, invalid_status, quote};
use serde_json::{Map, Value, json};

/// A failed request. The constructors are the failures the API has; nothing else makes one.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    code: u16,
    reason: Cow<'static, str>,
    message: String,
    /// Some failures of the real server have empty details, others none.
    details: Option<Map<String, Value>>,
}

/// A kind of object as errors name it: its plural and, unless it is the core one, its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Qualified<'a> {
    pub group: &'a str,
    pub plural: &'a str,
}

impl Qualified<'_> {
    /// What a request is about that is about no object.
    pub const NOTHING: Self = Qualified {
        group: "",
        plural: "",
    };
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
        if self.reason.is_empty()
            && let Some(body) = body.as_object_mut()
        {
            body.remove("reason");
        }
        if let Some(details) = &self.details {
            body["details"] = Value::Object(details.clone());
        }
        body
    }

    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
        }
    }

    /// What the router says, before any kind is involved.
    fn routed(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            details: Some(Map::new()),
            ..Self::new(code, reason, message)
        }
    }

    fn detail(&mut self, key: &str, value: Value) {
        let details = self.details.get_or_insert_default();
        details.insert(key.to_owned(), value);
    }

    /// A failure that was built as a `Status` object elsewhere.
    pub fn of_status(status: Value) -> Self {
        let text = |key: &str| status[key].as_str().unwrap_or_default().to_owned();
        let code = status["code"]
            .as_u64()
            .and_then(|code| code.try_into().ok());
        Self {
            code: code.unwrap_or(500),
            reason: text("reason").into(),
            message: text("message"),
            details: match &status["details"] {
                Value::Object(details) => {
                    let filled = |value: &Value| value.as_str() != Some("");
                    let details = details.iter().filter(|(_, value)| filled(value));
                    Some(
                        details
                            .map(|(key, value)| (key.clone(), value.clone()))
                            .collect(),
                    )
                }
                _ => None,
            },
        }
    }

    /// An object that breaks the rules of its kind.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        Self::of_status(invalid_status(kind, group, name, errors))
    }

    /// After so many seconds it is worth to ask again.
    pub fn retry_after(&self) -> Option<u64> {
        self.details.as_ref()?.get("retryAfterSeconds")?.as_u64()
    }

    #[must_use]
    pub fn caused_by(mut self, causes: Value) -> Self {
        self.detail("causes", causes);
        self
    }

    fn about(mut self, kind: Qualified, name: &str) -> Self {
        self.details.get_or_insert_default();
        for (key, value) in [("name", name), ("group", kind.group), ("kind", kind.plural)] {
            if !value.is_empty() {
                self.detail(key, value.into());
            }
        }
        self
    }

    pub fn not_found(kind: Qualified, name: &str) -> Self {
        let message = format!("{kind} {} not found", quote(name));
        Self::new(404, "NotFound", message).about(kind, name)
    }

    /// No such resource, or no such subresource of it.
    pub fn unknown_path() -> Self {
        let message = "the server could not find the requested resource";
        Self::routed(404, "NotFound", message)
    }

    /// Whether the resource itself is unknown, and not only an object of it.
    pub fn is_unknown_path(&self) -> bool {
        self.code == 404 && self.details.as_ref().is_some_and(Map::is_empty)
    }

    pub fn already_exists(kind: Qualified, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{kind} \"{name}\" already exists"),
        )
        .about(kind, name)
    }

    /// The name is taken by an object that is not gone yet.
    pub fn still_exists(kind: Qualified, name: &str) -> Self {
        let mut failure = Self::already_exists(kind, name);
        failure.message = format!("object is being deleted: {}", failure.message);
        failure
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
        let message = match (kind.plural, name) {
            ("", _) => format!("forbidden: {why}"),
            (_, "") => format!("{kind} is forbidden: {why}"),
            _ => format!("{kind} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).about(kind, name)
    }

    /// Nobody knows who is asking.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub fn bad_request(why: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", why)
    }

    pub fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::routed(405, "MethodNotAllowed", message)
    }

    pub fn not_supported(kind: Qualified, verb: &str) -> Self {
        let message = format!("{verb} is not supported on resources of kind \"{kind}\"");
        Self::new(405, "MethodNotAllowed", message).about(kind, "")
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

    /// No type that the router of built-in kinds knows.
    pub fn no_representation(available: &[&str]) -> Self {
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            available.join(", ")
        );
        Self::routed(406, "NotAcceptable", message)
    }

    /// No type of patch that the router of built-in kinds knows.
    pub fn unsupported_patch() -> Self {
        Self::routed(415, "UnsupportedMediaType", "415: Unsupported Media Type")
    }

    /// Metadata alone was asked for, of a list.
    pub fn is_a_list(go_type: &str) -> Self {
        let message = format!(
            "you requested PartialObjectMetadata, but the requested object is a list ({go_type})"
        );
        Self::new(406, "NotAcceptable", message)
    }

    /// A list of metadata was asked for, of one object.
    pub fn is_no_list(go_type: &str) -> Self {
        let message = format!(
            "you requested PartialObjectMetadataList, but the requested object is not a list \
             ({go_type})"
        );
        Self::new(406, "NotAcceptable", message)
    }

    pub fn too_large(why: &str) -> Self {
        let message = format!("Request entity too large: {why}");
        Self::new(413, "RequestEntityTooLarge", message)
    }

    /// A watch or a list from a version that history no longer reaches.
    pub fn expired(why: impl Into<String>) -> Self {
        Self::new(410, "Expired", why)
    }

    /// The client has seen a version that this server has not reached.
    pub fn version_ahead(asked: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut failure = Self::new(504, "Timeout", message).caused_by(json!([
            {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
        ]));
        failure.detail("retryAfterSeconds", 1.into());
        failure
    }

    /// What the real server answers with code 500 although the client is at fault.
    pub fn unexpected(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// The disk did not take a write. Whoever repeats it needs no new server, only space.
    pub fn not_stored(problem: &str) -> Self {
        Self::internal(format!(
            "{problem}. Nothing of this request was stored. Free space where the data directory is, or repair what is \
             said above, and repeat the request: the server goes on without a restart"
        ))
    }

    /// Names the object if nothing does.
    #[must_use]
    pub fn of(self, kind: Qualified, name: &str) -> Self {
        match self.details {
            Some(_) => self,
            None => self.about(kind, name),
        }
    }

    #[must_use]
    pub fn retrying_after(mut self, seconds: u64) -> Self {
        self.detail("retryAfterSeconds", seconds.into());
        self
    }

    pub fn unavailable(why: &str) -> Self {
        Self::new(503, "ServiceUnavailable", why)
    }

    pub fn too_many_requests(message: impl Into<String>) -> Self {
        Self::new(429, "TooManyRequests", message)
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

//! Reviews: questions about the caller that are answered at once and never stored.

use api::structural::FieldError;
use serde_json::{Map, Value, json};

/// The answer to a SelfSubjectAccessReview, or what is wrong with it.
pub(super) fn access(body: &Value, allowed: bool) -> Result<Value, Vec<FieldError>> {
    let errors = access_errors(body);
    if !errors.is_empty() {
        return Err(errors);
    }
    Ok(json!({
        "kind": "SelfSubjectAccessReview",
        "apiVersion": "authorization.k8s.io/v1",
        "metadata": {},
        "spec": body["spec"],
        "status": {"allowed": allowed},
    }))
}

fn access_errors(body: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let resource = &body["spec"]["resourceAttributes"];
    let path = &body["spec"]["nonResourceAttributes"];
    if !resource.is_null() && !path.is_null() {
        errors.push(FieldError::with_shown(
            "spec.nonResourceAttributes",
            json!({"Path": text(&path["path"]), "Verb": text(&path["verb"])}).to_string(),
            "cannot be specified in combination with resourceAttributes",
        ));
    }
    if resource.is_null() && path.is_null() {
        errors.push(FieldError::invalid(
            "spec.resourceAttributes",
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        ));
    }
    let metadata = body["metadata"].as_object().into_iter().flatten();
    let named: Map<String, Value> = metadata
        .filter(|(key, value)| *key != "managedFields" && !value.is_null())
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !named.is_empty() {
        let shown = Value::Object(named);
        errors.push(FieldError::invalid("metadata", &shown, "must be empty"));
    }
    errors
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The answer to a SelfSubjectReview at a time in the API's form.
pub(super) fn identity(user: &str, groups: &[String], now: &str) -> Value {
    json!({
        "kind": "SelfSubjectReview",
        "apiVersion": "authentication.k8s.io/v1",
        "metadata": {"creationTimestamp": now},
        "status": {"userInfo": {"username": user, "groups": groups}},
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn a_review_says_what_was_asked_and_the_answer() {
        let spec = json!({"resourceAttributes": {"verb": "create", "resource": "pods"}});
        let answer = access(&json!({"spec": spec}), true).unwrap();
        assert_eq!(answer["kind"], "SelfSubjectAccessReview");
        assert_eq!(answer["spec"], spec);
        assert_eq!(answer["status"], json!({"allowed": true}));
    }

    #[test]
    fn a_review_asks_about_one_thing() {
        let message = |body: Value| access(&body, true).unwrap_err()[0].to_string();
        assert_eq!(
            message(json!({})),
            "spec.resourceAttributes: Invalid value: null: \
             exactly one of nonResourceAttributes or resourceAttributes must be specified"
        );
        let both = json!({"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x"}});
        assert_eq!(
            message(json!({"spec": both})),
            "spec.nonResourceAttributes: Invalid value: {\"Path\":\"/x\",\"Verb\":\"\"}: \
             cannot be specified in combination with resourceAttributes"
        );
        let named = json!({"metadata": {"name": "u"}, "spec": {"resourceAttributes": {}}});
        assert!(message(named).ends_with(": must be empty"));
    }

    #[test]
    fn a_user_is_told_who_they_are() {
        let groups = ["system:masters".to_owned()];
        let answer = identity("admin", &groups, "2026-01-01T00:00:00Z");
        let expected = json!({"username": "admin", "groups": ["system:masters"]});
        assert_eq!(answer["status"]["userInfo"], expected);
    }
}

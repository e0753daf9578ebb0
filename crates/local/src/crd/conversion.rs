//! Checks of how a CRD converts between its versions.

use api::structural::{FieldError, names};
use serde_json::{Value, json};

use super::{items, text};

const URL_FORM: &str = "; desired format: https://host[/path]";
const REVIEW_VERSIONS: &[&str] = &["v1", "v1beta1"];

pub(super) fn check(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(conversion) = spec.get("conversion") else {
        return;
    };
    let strategy = text(Some(conversion), "strategy");
    if strategy != "None" && spec["preserveUnknownFields"] == true {
        let detail = "must be None if spec.preserveUnknownFields is true";
        let field = "spec.conversion.strategy";
        errors.push(FieldError::invalid(field, &conversion["strategy"], detail));
    }
    match strategy {
        "" => errors.push(FieldError::required("spec.conversion.strategy", "")),
        "None" | "Webhook" => {}
        other => {
            let known = ["None", "Webhook"].map(str::to_owned);
            let field = "spec.conversion.strategy";
            errors.push(FieldError::not_supported(field, &json!(other), &known));
        }
    }
    let client = conversion.pointer("/webhook/clientConfig");
    let reviews = conversion.pointer("/webhook/conversionReviewVersions");
    if strategy == "Webhook" {
        webhook(client, errors);
        let known_before = old
            .and_then(|old| old.pointer("/conversion/webhook/conversionReviewVersions"))
            .is_none_or(|versions| items(Some(versions)).is_empty() || knows_one(versions));
        review_versions(reviews.unwrap_or(&Value::Null), known_before, errors);
        return;
    }
    let detail = "should not be set when strategy is not set to Webhook";
    if client.is_some() {
        errors.push(FieldError::forbidden(
            "spec.conversion.webhookClientConfig",
            detail,
        ));
    }
    if !items(reviews).is_empty() {
        errors.push(FieldError::forbidden(
            "spec.conversion.conversionReviewVersions",
            detail,
        ));
    }
}

fn webhook(client: Option<&Value>, errors: &mut Vec<FieldError>) {
    let field = "spec.conversion.webhookClientConfig";
    let Some(client) = client else {
        let detail = "required when strategy is set to Webhook";
        errors.push(FieldError::required(field, detail));
        return;
    };
    match (client.get("url"), client.get("service")) {
        (Some(url), None) => check_url(url.as_str().unwrap_or_default(), errors),
        (None, Some(service)) => check_service(service, errors),
        _ => {
            let detail = "exactly one of url or service is required";
            errors.push(FieldError::required(field, detail));
        }
    }
}

fn check_url(url: &str, errors: &mut Vec<FieldError>) {
    let mut wrong = |value: &str, detail: &str| {
        let field = "spec.conversion.webhookClientConfig.url";
        errors.push(FieldError::invalid(field, &json!(value), detail));
    };
    let (url, fragment) = url.split_once('#').unwrap_or((url, ""));
    let (url, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, rest) = url.split_once(':').unwrap_or(("", url));
    let authority = rest.strip_prefix("//").unwrap_or_default();
    let authority = authority.split('/').next().unwrap_or_default();
    let (user, host) = match authority.rsplit_once('@') {
        Some((user, host)) => (Some(user), host),
        None => (None, authority),
    };
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{URL_FORM}");
        wrong(scheme, &detail);
    }
    if host.is_empty() {
        wrong("", &format!("host must be specified{URL_FORM}"));
    }
    if let Some(user) = user {
        wrong(user, "user information is not permitted in the URL");
    }
    if !fragment.is_empty() {
        wrong(fragment, "fragments are not permitted in the URL");
    }
    if !query.is_empty() {
        wrong(query, "query parameters are not permitted in the URL");
    }
}

fn check_service(service: &Value, errors: &mut Vec<FieldError>) {
    let field = |name: &str| format!("spec.conversion.webhookClientConfig.service.{name}");
    // the server takes one for the other
    for (name, blamed) in [("namespace", "name"), ("name", "namespace")] {
        if text(Some(service), name).is_empty() {
            errors.push(FieldError::required(field(blamed), ""));
        }
    }
    let port = service["port"].as_i64().unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(field("port"), &json!(port), detail));
    }
    let path = text(Some(service), "path");
    let mut wrong = |detail: &str| {
        errors.push(FieldError::invalid(field("path"), &json!(path), detail));
    };
    match path {
        "" | "/" => return,
        "//" => return wrong("segment[0] may not be empty"),
        _ if !path.starts_with('/') => wrong("must start with a '/'"),
        _ => {}
    }
    let mut letters = path.chars();
    letters.next();
    let checked = letters.as_str();
    let checked = checked.strip_suffix('/').unwrap_or(checked);
    for (index, step) in checked.split('/').enumerate() {
        if step.is_empty() {
            wrong(&format!("segment[{index}] may not be empty"));
            continue;
        }
        for problem in names::subdomain_problems(step) {
            wrong(&format!("segment[{index}]: {problem}"));
        }
    }
}

fn knows_one(versions: &Value) -> bool {
    let known = |version: &Value| REVIEW_VERSIONS.iter().any(|known| version == known);
    items(Some(versions)).iter().any(known)
}

fn review_versions(versions: &Value, must_know_one: bool, errors: &mut Vec<FieldError>) {
    let field = "spec.conversion.conversionReviewVersions";
    let all = items(Some(versions));
    if all.is_empty() {
        errors.push(FieldError::required(field, ""));
        return;
    }
    for (index, version) in all.iter().enumerate() {
        let mut wrong = |detail: &str| {
            let field = format!("{field}[{index}]");
            errors.push(FieldError::invalid(field, version, detail));
        };
        if all[..index].contains(version) {
            wrong("duplicate version");
            continue;
        }
        let name = version.as_str().unwrap_or_default();
        for problem in names::letter_label_problems(name) {
            wrong(&problem);
        }
    }
    if must_know_one && !knows_one(versions) {
        let detail = format!(
            "must include at least one of {}",
            REVIEW_VERSIONS.join(", ")
        );
        errors.push(FieldError::invalid(field, versions, &detail));
    }
}

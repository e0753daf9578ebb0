//! The options of a request: what stands in its query, and for deletes in its body.

use api::structural::FieldError;
use serde_json::{Value, json};

use crate::selector::{Fields, Labels};
use crate::status::Failure;

const META: &str = "meta.k8s.io";

/// The parameters of a query, in order.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn parse(query: Option<&str>) -> Self {
        let pairs = form_urlencoded::parse(query.unwrap_or_default().as_bytes());
        Self(pairs.into_owned().collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(key, _)| key == name);
        found.next().map(|(_, value)| value.as_str())
    }

    /// The value, unless it is empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        let found = self.0.iter().filter(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str()).collect()
    }

    /// As the API reads truth: anything but `false` and `0` is true.
    pub(crate) fn flag(&self, name: &str) -> bool {
        self.get(name)
            .is_some_and(|value| !matches!(value.to_ascii_lowercase().as_str(), "false" | "0"))
    }

    pub(super) fn integer(&self, name: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let problem = no_number("ParseInt", text);
            Failure::bad_request(problem)
        })
    }
}

/// How a list or a watch treats `resourceVersion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Unset,
    Exact,
    NotOlderThan,
}

#[derive(Debug)]
pub(super) struct ListOptions {
    pub labels: Labels,
    pub fields: Fields,
    pub limit: Option<usize>,
    pub resume: Option<String>,
    /// As sent; `0` means any.
    pub version: Option<u64>,
    pub version_match: Match,
    pub watch: bool,
    pub bookmarks: bool,
    pub initial_events: Option<bool>,
    pub timeout: Option<u64>,
}

impl ListOptions {
    pub(super) fn read(query: &Query, watch: bool) -> Result<Self, Failure> {
        let limit = query.integer("limit")?;
        let timeout = query.integer("timeoutSeconds")?;
        let bad = |error: crate::selector::SelectorError| Failure::bad_request(error.to_string());
        let labels = Labels::parse(query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
        let fields = Fields::parse(query.get("fieldSelector").unwrap_or_default()).map_err(bad)?;
        let initial_events = query
            .text("sendInitialEvents")
            .map(|_| query.flag("sendInitialEvents"));
        let watch = watch || query.flag("watch");
        check_match(query, watch, initial_events)?;
        Ok(Self {
            labels,
            fields,
            limit: limit
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| *limit > 0),
            resume: query.text("continue").map(str::to_owned),
            version: match version(query) {
                // lists say it differently from gets and watches
                Err(failure) if !watch => {
                    let message = format!("invalid resource version: {}", failure.message());
                    return Err(Failure::bad_request(message));
                }
                version => version?,
            },
            version_match: match query.get("resourceVersionMatch") {
                Some("Exact") => Match::Exact,
                Some("NotOlderThan") => Match::NotOlderThan,
                _ => Match::Unset,
            },
            watch,
            bookmarks: query.flag("allowWatchBookmarks"),
            initial_events,
            // a watch without end is as good as one for a year
            timeout: timeout
                .and_then(|seconds| seconds.try_into().ok())
                .filter(|seconds| *seconds > 0)
                .map(|seconds: u64| seconds.min(31_536_000)),
        })
    }
}

/// What Go says about a text that is no number, or too large a one.
pub(super) fn no_number(function: &str, text: &str) -> String {
    let digits = match function {
        "ParseInt" => text.strip_prefix(['-', '+']).unwrap_or(text),
        _ => text,
    };
    let why = match !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => "value out of range",
        false => "invalid syntax",
    };
    format!("strconv.{function}: parsing {text:?}: {why}")
}

/// `resourceVersion`, with the real server's words for what is no number.
pub(super) fn version(query: &Query) -> Result<Option<u64>, Failure> {
    let Some(text) = query.text("resourceVersion") else {
        return Ok(None);
    };
    text.parse().map(Some).map_err(|_| {
        let problem = no_number("ParseUint", text);
        let error = FieldError::invalid("resourceVersion", &json!(text), &problem);
        Failure::unexpected(error.to_string())
    })
}

fn check_match(query: &Query, watch: bool, initial_events: Option<bool>) -> Result<(), Failure> {
    const FIELD: &str = "resourceVersionMatch";
    let asked = query.text(FIELD);
    let version = query.text("resourceVersion");
    let mut errors = Vec::new();
    match (watch, initial_events, asked) {
        (false, Some(_), _) => {
            let detail = "sendInitialEvents is forbidden for list";
            errors.push(FieldError::forbidden("sendInitialEvents", detail));
        }
        (true, None, Some(_)) => {
            let detail =
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        (true, Some(_), asked) if asked != Some("NotOlderThan") => {
            let detail = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            errors.push(FieldError::forbidden(FIELD, detail));
            if let Some(asked) = asked {
                let supported = ["NotOlderThan".to_owned()];
                errors.push(FieldError::not_supported(FIELD, &json!(asked), &supported));
            }
        }
        _ => {}
    }
    if let (false, Some(asked)) = (watch, asked) {
        if version.is_none() {
            let detail = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        if query.text("continue").is_some() {
            let detail = "resourceVersionMatch is forbidden when continue is provided";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
        if !matches!(asked, "Exact" | "NotOlderThan") {
            let supported = ["Exact".to_owned(), "NotOlderThan".to_owned(), String::new()];
            errors.push(FieldError::not_supported(FIELD, &json!(asked), &supported));
        }
        if asked == "Exact" && version == Some("0") {
            let detail = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(FIELD, detail));
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(Failure::invalid(META, "ListOptions", "", &errors)),
    }
}

/// What to do with fields that are unknown or written twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Of creates, updates and patches.
#[derive(Debug)]
pub(super) struct WriteOptions {
    pub dry_run: bool,
    pub validation: FieldValidation,
    pub force: bool,
}

impl WriteOptions {
    /// Whether anybody wants to know of unknown and duplicate fields.
    pub(super) fn validates(&self) -> bool {
        self.validation != FieldValidation::Ignore
    }

    /// `kind` is `CreateOptions`, `UpdateOptions` or `PatchOptions`.
    pub(super) fn read(query: &Query, kind: &str, applies: bool) -> Result<Self, Failure> {
        let mut errors = Vec::new();
        let manager = query.text("fieldManager");
        if kind == "PatchOptions" {
            if applies && manager.is_none() {
                let detail = "is required for apply patch";
                errors.push(FieldError::required("fieldManager", detail));
            }
            if !applies && query.get("force").is_some() {
                let detail = "may not be specified for non-apply patch";
                errors.push(FieldError::forbidden("force", detail));
            }
        }
        errors.extend(manager.and_then(bad_manager));
        errors.extend(bad_dry_run(&query.all("dryRun")));
        let validation = match query.get("fieldValidation").unwrap_or_default() {
            "" | "Warn" => FieldValidation::Warn,
            "Ignore" => FieldValidation::Ignore,
            "Strict" => FieldValidation::Strict,
            other => {
                let supported = ["", "Ignore", "Strict", "Warn"].map(str::to_owned);
                let field = "fieldValidation";
                errors.push(FieldError::not_supported(field, &json!(other), &supported));
                FieldValidation::Warn
            }
        };
        if !errors.is_empty() {
            return Err(Failure::invalid(META, kind, "", &errors));
        }
        Ok(Self {
            dry_run: query.get("dryRun").is_some(),
            validation,
            force: query.flag("force"),
        })
    }
}

fn bad_manager(manager: &str) -> Option<FieldError> {
    if manager.len() > 128 {
        return Some(FieldError::too_long("fieldManager", 128));
    }
    let position = manager.chars().position(char::is_control)?;
    let character = manager.chars().nth(position).map_or(0, u32::from);
    let detail = format!("invalid character U+{character:04X} (at position {position})");
    Some(FieldError::invalid(
        "fieldManager",
        &json!(manager),
        &detail,
    ))
}

fn bad_dry_run(values: &[&str]) -> Option<FieldError> {
    let supported = ["All".to_owned()];
    values
        .iter()
        .any(|value| *value != "All")
        .then(|| FieldError::not_supported("dryRun", &json!(values), &supported))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub dry_run: bool,
    pub grace: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub version: Option<String>,
}

impl DeleteOptions {
    /// The body counts, if there is one; the query stands in for it.
    pub(crate) fn read(query: &Query, body: Option<&Value>) -> Result<Self, Failure> {
        let of_query;
        let options = match body {
            Some(body) => body,
            None => {
                of_query = options_of_query(query)?;
                &of_query
            }
        };
        let mut errors = Vec::new();
        let dry_run: Vec<&str> = match &options["dryRun"] {
            Value::Array(values) => values.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        errors.extend(bad_dry_run(&dry_run));
        let policy = options["propagationPolicy"].as_str();
        let orphan = options["orphanDependents"].as_bool();
        if let (Some(policy), Some(_)) = (policy, orphan) {
            let detail = "orphanDependents and deletionPropagation cannot be both set";
            errors.push(FieldError::invalid(
                "propagationPolicy",
                &json!(policy),
                detail,
            ));
        }
        let propagation = match (policy, orphan) {
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some("Background"), _) | (None, Some(false)) => Some(Propagation::Background),
            (Some("Orphan"), _) | (None, Some(true)) => Some(Propagation::Orphan),
            (None, None) => None,
            (Some(other), _) => {
                let supported = ["Foreground", "Background", "Orphan", "nil"].map(str::to_owned);
                let field = "propagationPolicy";
                errors.push(FieldError::not_supported(field, &json!(other), &supported));
                None
            }
        };
        if !errors.is_empty() {
            return Err(Failure::invalid(META, "DeleteOptions", "", &errors));
        }
        let precondition = |key: &str| options["preconditions"][key].as_str().map(str::to_owned);
        Ok(Self {
            dry_run: !dry_run.is_empty(),
            grace: options["gracePeriodSeconds"].as_i64(),
            propagation,
            uid: precondition("uid"),
            version: precondition("resourceVersion"),
        })
    }
}

fn options_of_query(query: &Query) -> Result<Value, Failure> {
    let mut options = json!({});
    let dry_run = query.all("dryRun");
    if !dry_run.is_empty() {
        options["dryRun"] = json!(dry_run);
    }
    if let Some(grace) = query.integer("gracePeriodSeconds")? {
        options["gracePeriodSeconds"] = json!(grace);
    }
    if let Some(policy) = query.text("propagationPolicy") {
        options["propagationPolicy"] = json!(policy);
    }
    if query.get("orphanDependents").is_some() {
        options["orphanDependents"] = json!(query.flag("orphanDependents"));
    }
    Ok(options)
}

//! Owner references: each is whole, one at most is the controller, none stands twice.

use std::collections::HashSet;

use api::structural::FieldError;
use serde_json::{Value, json};

use super::Metadata;

impl Metadata<'_> {
    pub(super) fn check_owners(self, errors: &mut Vec<FieldError>) {
        const FIELD: &str = "metadata.ownerReferences";
        // each of these errors shows all owners
        const MOST_SHOWN: usize = 10;
        let owners = self.items("ownerReferences");
        let mut controller: Option<String> = None;
        let mut others = 0;
        for value in owners {
            let owner = Metadata(value);
            owner.check_as_owner(errors);
            if value.get("controller") != Some(&Value::Bool(true)) {
                continue;
            }
            let name = format!("{}/{}", owner.text("kind"), owner.text("name"));
            match &controller {
                None => controller = Some(name),
                Some(first) if others < MOST_SHOWN => {
                    others += 1;
                    let shown: Vec<_> = owners.iter().map(shown_owner).collect();
                    let detail = format!(
                        "Only one reference can have Controller set to true. Found \"true\" in references for \
                         {first} and {name}"
                    );
                    let shown = format!("[{}]", shown.join(","));
                    errors.push(FieldError::with_shown(FIELD, shown, &detail));
                }
                Some(_) => {}
            }
        }
    }

    fn check_as_owner(self, errors: &mut Vec<FieldError>) {
        let api_version = self.text("apiVersion");
        let version = match api_version.matches('/').count() {
            0 | 1 => api_version.rsplit('/').next().unwrap_or_default(),
            _ => "",
        };
        let mut empty = |name: &str, value: &str, detail: &str| {
            let field = format!("metadata.ownerReferences.{name}");
            errors.push(FieldError::invalid(field, &json!(value), detail));
        };
        if version.is_empty() {
            empty("apiVersion", api_version, "version must not be empty");
        }
        for name in ["kind", "name", "uid"] {
            if self.text(name).is_empty() {
                empty(name, "", "must not be empty");
            }
        }
        if (api_version, self.text("kind")) == ("v1", "Event") {
            let detail = "/v1, Kind=Event is disallowed from being an owner";
            let shown = shown_owner(self.0);
            errors.push(FieldError::with_shown(
                "metadata.ownerReferences",
                shown,
                detail,
            ));
        }
    }
}

/// An owner in the order in which the server writes its fields.
fn shown_owner(owner: &Value) -> String {
    let parts = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    let shown = parts.iter().filter_map(|name| {
        let value = owner.get(*name)?;
        Some(format!("\"{name}\":{value}"))
    });
    format!("{{{}}}", shown.collect::<Vec<_>>().join(","))
}

/// Keeps owners that are named more than once only once, and says so. A patch is looked at later than other writes,
/// which the server mentions.
pub(crate) fn keep_owners_once(object: &mut Value, patched: bool) -> Option<String> {
    let owners = object.pointer_mut("/metadata/ownerReferences")?;
    let owners = owners.as_array_mut()?;
    let mut seen: HashSet<Value> = HashSet::with_capacity(owners.len());
    let mut twice = Vec::new();
    owners.retain(|owner| {
        let first = seen.insert(owner.clone());
        if !first {
            twice.push(owner["uid"].as_str().unwrap_or_default().to_owned());
        }
        first
    });
    let moment = match patched {
        true => " after mutating admission happens",
        false => "",
    };
    (!twice.is_empty()).then(|| {
        format!(
            ".metadata.ownerReferences contains duplicate entries{moment}; API server dedups owner references in \
             1.20+, and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) \
             observed: {}",
            twice.join(", ")
        )
    })
}

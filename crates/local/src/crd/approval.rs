//! Groups of the Kubernetes community need a note that their API has been looked at.

use api::structural::FieldError;
use serde_json::Value;

use super::text;

const ANNOTATION: &str = "api-approved.kubernetes.io";

/// What the annotation says of a definition in such a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Approval {
    Missing,
    Bypassed,
    Approved,
    Malformed,
}

impl Approval {
    /// None for groups that need no approval.
    pub(super) fn of(definition: &Value) -> Option<Self> {
        let group = text(definition.get("spec"), "group");
        let protected = ["k8s.io", "kubernetes.io"].iter().any(|domain| {
            let outer = group.strip_suffix(domain);
            outer.is_some_and(|outer| outer.is_empty() || outer.ends_with('.'))
        });
        protected.then(|| match annotation(definition) {
            "" => Self::Missing,
            said if said.starts_with("unapproved") => Self::Bypassed,
            said => match said.split_once("://") {
                Some((scheme, host))
                    if !scheme.is_empty() && !host.starts_with('/') && !host.is_empty() =>
                {
                    Self::Approved
                }
                _ => Self::Malformed,
            },
        })
    }

    fn explained(self, said: &str) -> String {
        let see = "see https://github.com/kubernetes/enhancements/pull/1111";
        let needed = format!("protected groups must have approval annotation {ANNOTATION:?}");
        match self {
            Self::Missing => format!("{needed}, {see}"),
            Self::Bypassed => format!("not approved: {said:?}"),
            Self::Approved => format!("approved in {said}"),
            Self::Malformed => {
                format!(
                    "{needed} with either a URL or a reason starting with \"unapproved\", {see}"
                )
            }
        }
    }

    /// Status, reason and message of the condition that tells about it.
    pub(super) fn condition(self, definition: &Value) -> (&'static str, &'static str, String) {
        let (status, reason) = match self {
            Self::Missing => ("False", "MissingAnnotation"),
            Self::Bypassed => ("False", "UnapprovedAnnotation"),
            Self::Approved => ("True", "ApprovedAnnotation"),
            Self::Malformed => ("False", "InvalidAnnotation"),
        };
        (status, reason, self.explained(annotation(definition)))
    }
}

fn annotation(definition: &Value) -> &str {
    text(definition.pointer("/metadata/annotations"), ANNOTATION)
}

/// A new definition must have the approval; a changed one may lack it if it did before.
pub(super) fn check(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let Some(approval) = Approval::of(new) else {
        return;
    };
    if old.and_then(Approval::of) == Some(approval) {
        return;
    }
    let field = format!("metadata.annotations[{ANNOTATION}]");
    let said = annotation(new);
    let explained = approval.explained(said);
    match approval {
        Approval::Missing => errors.push(FieldError::required(field, &explained)),
        Approval::Malformed => errors.push(FieldError::invalid(field, &said.into(), &explained)),
        Approval::Approved | Approval::Bypassed => {}
    }
}

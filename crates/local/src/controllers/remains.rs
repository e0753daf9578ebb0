//! What a namespace that ends says about what is left in it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// What is left in a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Remains {
    /// By plural and group.
    pub(super) objects: BTreeMap<(String, String), usize>,
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Why something cannot be deleted.
    pub(super) failures: Vec<String>,
}

impl Remains {
    /// Counts an object that is still there.
    pub(super) fn add<'a>(
        &mut self,
        plural: &str,
        group: &str,
        finalizers: impl Iterator<Item = &'a str>,
    ) {
        let kind = (plural.to_owned(), group.to_owned());
        *self.objects.entry(kind).or_default() += 1;
        for finalizer in finalizers {
            *self.finalizers.entry(finalizer.to_owned()).or_default() += 1;
        }
    }
}

/// A condition: its type, and what it says when all is well.
struct Said {
    condition: &'static str,
    reason: &'static str,
    message: &'static str,
}

const SAID: [Said; 5] = [
    Said {
        condition: "NamespaceDeletionDiscoveryFailure",
        reason: "ResourcesDiscovered",
        message: "All resources successfully discovered",
    },
    Said {
        condition: "NamespaceDeletionGroupVersionParsingFailure",
        reason: "ParsedGroupVersions",
        message: "All legacy kube types successfully parsed",
    },
    Said {
        condition: FAILURE,
        reason: "ContentDeleted",
        message: "All content successfully deleted, may be waiting on finalization",
    },
    Said {
        condition: CONTENT,
        reason: "ContentRemoved",
        message: "All content successfully removed",
    },
    Said {
        condition: FINALIZERS,
        reason: "ContentHasNoFinalizers",
        message: "All content-preserving finalizers finished",
    },
];
const FAILURE: &str = "NamespaceDeletionContentFailure";
const CONTENT: &str = "NamespaceContentRemaining";
const FINALIZERS: &str = "NamespaceFinalizersRemaining";

/// Brings `status.conditions` up to date.
pub(super) fn tell(namespace: &mut Value, remains: &Remains, now: &str) {
    let conditions = &mut namespace["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Some(conditions) = conditions.as_array_mut() else {
        return;
    };
    for said in &SAID {
        let problem = problem(said.condition, remains);
        let status = match problem {
            Some(_) => "True",
            None => "False",
        };
        let (reason, message) = problem.unwrap_or_else(|| (said.reason, said.message.to_owned()));
        let known = conditions
            .iter_mut()
            .find(|condition| condition["type"] == said.condition);
        match known {
            Some(condition) => {
                if condition["status"] != status {
                    condition["lastTransitionTime"] = json!(now);
                }
                condition["status"] = json!(status);
                condition["reason"] = json!(reason);
                condition["message"] = json!(message);
            }
            None => conditions.push(json!({
                "type": said.condition, "status": status, "lastTransitionTime": now,
                "reason": reason, "message": message,
            })),
        }
    }
}

fn problem(condition: &str, remains: &Remains) -> Option<(&'static str, String)> {
    match condition {
        FAILURE if !remains.failures.is_empty() => {
            let mut failures = remains.failures.clone();
            failures.sort();
            let count = failures.len();
            let failures = failures.join(", ");
            let message =
                format!("Failed to delete all resource types, {count} remaining: {failures}");
            Some(("ContentDeletionFailed", message))
        }
        CONTENT if !remains.objects.is_empty() => {
            let kinds = remains.objects.iter();
            let mut kinds: Vec<String> = kinds
                .map(|((plural, group), count)| {
                    format!("{plural}.{group} has {count} resource instances")
                })
                .collect();
            kinds.sort();
            let message = format!("Some resources are remaining: {}", kinds.join(", "));
            Some(("SomeResourcesRemain", message))
        }
        FINALIZERS if !remains.finalizers.is_empty() => {
            let finalizers = remains.finalizers.iter();
            let mut finalizers: Vec<String> = finalizers
                .map(|(name, count)| format!("{name} in {count} resource instances"))
                .collect();
            finalizers.sort();
            let message = format!(
                "Some content in the namespace has finalizers remaining: {}",
                finalizers.join(", ")
            );
            Some(("SomeFinalizersRemain", message))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{Remains, tell};

    fn said(namespace: &Value, condition: &str) -> (String, String, String) {
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|one| one["type"] == condition);
        let text = |key: &str| found.unwrap()[key].as_str().unwrap().to_owned();
        (text("status"), text("reason"), text("message"))
    }

    #[test]
    fn what_is_left_is_counted_by_kind_and_finalizer() {
        let mut remains = Remains::default();
        remains.add("widgets", "example.com", ["b", "a"].into_iter());
        remains.add("configmaps", "", ["a"].into_iter());
        let mut namespace = json!({});
        tell(&mut namespace, &remains, "noon");
        let (status, reason, message) = said(&namespace, "NamespaceContentRemaining");
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("True", "SomeResourcesRemain")
        );
        assert_eq!(
            message,
            "Some resources are remaining: configmaps. has 1 resource instances, \
             widgets.example.com has 1 resource instances"
        );
        let (_, _, message) = said(&namespace, "NamespaceFinalizersRemaining");
        assert_eq!(
            message,
            "Some content in the namespace has finalizers remaining: a in 2 resource instances, \
             b in 1 resource instances"
        );
    }

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let mut namespace = json!({});
        let mut remains = Remains::default();
        remains.add("pods", "", std::iter::empty());
        tell(&mut namespace, &remains, "noon");
        remains.add("pods", "", std::iter::empty());
        tell(&mut namespace, &remains, "one");
        let conditions = namespace["status"]["conditions"].as_array().unwrap();
        assert_eq!(conditions.len(), 5);
        assert!(
            conditions
                .iter()
                .all(|one| one["lastTransitionTime"] == "noon")
        );
        let before = namespace.clone();
        tell(&mut namespace, &remains, "two");
        assert_eq!(namespace, before);
        tell(&mut namespace, &Remains::default(), "three");
        assert_eq!(
            namespace["status"]["conditions"][3]["lastTransitionTime"],
            "three"
        );
        assert_eq!(
            said(&namespace, "NamespaceContentRemaining").1,
            "ContentRemoved"
        );
    }

    #[test]
    fn what_cannot_be_deleted_is_said() {
        let mut namespace = json!({});
        let remains = Remains {
            failures: vec!["b".to_owned(), "a".to_owned()],
            ..Remains::default()
        };
        tell(&mut namespace, &remains, "noon");
        let (status, reason, message) = said(&namespace, "NamespaceDeletionContentFailure");
        assert_eq!(
            (status.as_str(), reason.as_str()),
            ("True", "ContentDeletionFailed")
        );
        assert_eq!(
            message,
            "Failed to delete all resource types, 2 remaining: a, b"
        );
    }
}

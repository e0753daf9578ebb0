//! Revisions of templates: when two mean the same, and whether a member is still at the wanted one.
//!
//! A revision is a hash of the canonical form, with the number of the algorithm in it. A record that says something else,
//! because it is older, foreign or missing, proves nothing: the templates are compared by meaning before a member is called
//! stale. So neither an upgrade of Sandbar nor taking over another controller's members starts a rollout.

mod canonical;
mod go_json;
pub mod history;
pub mod reference;
#[cfg(test)]
pub(crate) mod tests;
mod types;

use std::{fmt, str::FromStr};

use serde_json::Value;
use sha2::{Digest, Sha256};

use canonical::canonical;
pub use reference::name_hash;

/// What a template describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `podTemplate`, `volumeClaimTemplates` and `service`, which a Sandbox and a SandboxTemplate of the `agents.x-k8s.io`
    /// family have in common. Metadata of pods and claims does not make a member stale.
    Blueprint,
    /// `metadata` and `spec`: the template of one pod.
    PodTemplate,
    /// `template`, `volumeClaimTemplates`, `persistentContents`, `runtimes` and `pauseStrategy` of a SandboxSet.
    Set,
}

impl Form {
    fn type_name(self) -> &'static str {
        match self {
            Self::Blueprint => "Blueprint",
            Self::PodTemplate => "PodTemplateSpec",
            Self::Set => "SandboxSetRevision",
        }
    }

    /// What decides whether members made from two templates differ, in canonical form.
    fn meaning(self, mut canonical: Value) -> Value {
        if self != Self::Blueprint {
            return canonical;
        }
        if let Some(Value::Object(template)) = canonical.get_mut("podTemplate") {
            template.remove("metadata");
        }
        let claims = canonical
            .get_mut("volumeClaimTemplates")
            .and_then(Value::as_array_mut);
        for claim in claims.into_iter().flatten() {
            let metadata = claim.get_mut("metadata").and_then(Value::as_object_mut);
            if let Some(metadata) = metadata {
                metadata.retain(|key, _| key == "name");
            }
        }
        canonical
    }

    /// The hashes that other controllers record for the same template.
    fn aliases(self, template: &Value) -> Vec<String> {
        match self {
            Self::Blueprint => reference::blueprint_hash(template).into_iter().collect(),
            Self::PodTemplate => reference::kruise_sandbox_revision(template)
                .into_iter()
                .collect(),
            Self::Set => reference::kruise_set_revisions(template),
        }
    }
}

/// The canonical form of a template.
pub(crate) fn canonical_form(form: Form, template: &Value) -> Value {
    canonical(template, form.type_name())
}

/// The canonical form of a template as text: defaults dropped, quantities in one spelling, maps sorted.
pub fn canonical_text(form: Form, template: &Value) -> String {
    go_json::encode_untyped(&canonical_form(form, template))
}

/// Whether members made from two templates would be the same.
pub fn means_the_same(form: Form, one: &Value, two: &Value) -> bool {
    let meaning = |template| form.meaning(canonical_form(form, template));
    meaning(one) == meaning(two)
}

/// A hash of a template, fit for labels and names. Hashes of different algorithms say nothing about each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision {
    algorithm: char,
    digest: String,
}

/// Counts up, in one letter or digit, whenever a canonical form comes out differently.
const ALGORITHM: char = '1';
const DIGITS: usize = 16;

impl Revision {
    pub fn of(form: Form, template: &Value) -> Self {
        let digest = Sha256::digest(canonical_text(form, template).as_bytes());
        let hex = digest.iter().map(|byte| format!("{byte:02x}"));
        Self {
            algorithm: ALGORITHM,
            digest: hex.take(DIGITS / 2).collect(),
        }
    }

    fn is_of_this_algorithm(&self) -> bool {
        self.algorithm == ALGORITHM
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "r{}{}", self.algorithm, self.digest)
    }
}

/// A text that no Sandbar wrote as a revision.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a revision of ours")]
pub struct Foreign(String);

impl FromStr for Revision {
    type Err = Foreign;

    fn from_str(text: &str) -> Result<Self, Foreign> {
        let read = || {
            let mut rest = text.strip_prefix('r')?.chars();
            let algorithm = rest.next().filter(char::is_ascii_alphanumeric)?;
            let digest = rest.as_str();
            let is_hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
            (digest.len() == DIGITS && digest.bytes().all(is_hex)).then(|| Self {
                algorithm,
                digest: digest.to_owned(),
            })
        };
        read().ok_or_else(|| Foreign(text.to_owned()))
    }
}

/// How a member stands to the wanted template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The record names the wanted revision.
    Current,
    /// The member is what is wanted, but its record does not say so in our words. It may be rewritten when there is a write
    /// anyway.
    Equivalent,
    Stale,
}

/// The template that members should be made from, with its hashes computed once.
#[derive(Clone, Debug)]
pub struct Wanted {
    form: Form,
    revision: Revision,
    aliases: Vec<String>,
    meaning: Value,
}

impl Wanted {
    pub fn new(form: Form, template: &Value) -> Self {
        Self::completed(form, template, template)
    }

    /// For a template that is completed before members are made from it (secure defaults): `written` is what other
    /// controllers hash, `effective` what members are.
    pub fn completed(form: Form, written: &Value, effective: &Value) -> Self {
        Self {
            form,
            revision: Revision::of(form, effective),
            aliases: form.aliases(written),
            meaning: form.meaning(canonical_form(form, effective)),
        }
    }

    pub fn revision(&self) -> &Revision {
        &self.revision
    }

    /// Judges a member by the revision recorded on it and, if that does not settle it, by the template it was made from.
    ///
    /// Without that template a record is believed only if it is of this algorithm; any other is accepted on first sight,
    /// since nothing shows that the member is stale.
    pub fn standing(&self, recorded: Option<&str>, made_from: Option<&Value>) -> Standing {
        let ours = recorded.and_then(|recorded| recorded.parse::<Revision>().ok());
        if ours.as_ref() == Some(&self.revision) {
            return Standing::Current;
        }
        if recorded.is_some_and(|recorded| self.aliases.iter().any(|alias| alias == recorded)) {
            return Standing::Equivalent;
        }
        let same = match made_from {
            Some(template) => {
                self.form.meaning(canonical_form(self.form, template)) == self.meaning
            }
            None => !ours.is_some_and(|ours| ours.is_of_this_algorithm()),
        };
        match same {
            true => Standing::Equivalent,
            false => Standing::Stale,
        }
    }
}

/// Whether a hash that we cannot compute still names the wanted template: whoever recorded it on the member also recorded it
/// as wanted, and the object has not been edited since.
pub fn foreign_record_holds(
    on_member: &str,
    as_wanted: Option<&str>,
    observed_generation: Option<i64>,
    generation: i64,
) -> bool {
    as_wanted == Some(on_member) && observed_generation == Some(generation)
}

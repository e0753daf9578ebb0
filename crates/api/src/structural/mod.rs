//! The schema of a custom resource, compiled once, and what the API server does with it: it fills in defaults, drops
//! what it does not know, and says what is wrong, word for word as kube-apiserver does.
//!
//! The embedded API server calls [`Schema::compile`] when a CRD is written, [`Schema::admit`] on every object that
//! comes in or is read from the store, and then [`Schema::validate`] or [`Schema::validate_update`].

mod cel;
mod cel_bounds;
mod cel_depth;
mod cel_values;
mod check;
mod correlate;
mod default;
mod define;
mod duplicates;
mod embedded;
mod error;
mod formats;
pub(crate) mod golang;
pub use golang::quote;
mod kept;
mod limits;
mod lists;
mod metadata;
pub mod names;
mod node;
mod path;
mod pattern;
mod prune;
mod rule_path;
mod rules;
mod scale;

use serde_json::Value;

use check::Outcome;
use correlate::Pair;
use node::Node;
use path::Path;
use rules::{Ratchet, Walk};

pub use define::Place;
pub use duplicates::{duplicate_fields, in_order_of};
pub use error::{
    FieldError, Reason, duplicate_field, invalid_message, invalid_status, strict_message,
    undecodable_message, unknown_field,
};
pub use formats::unrecognized_formats;
pub use kept::Kept;
pub use scale::Scale;

use crate::shared::Shared;

/// A compiled schema of one version of a custom resource.
#[derive(Debug)]
pub struct Schema {
    root: Shared<Node>,
    scale: Option<Scale>,
}

/// What is said of a change.
#[derive(Debug, Default)]
pub struct Verdict {
    pub errors: Vec<FieldError>,
    /// Rules that are broken by values that did not change; the API server sends them as warnings.
    pub warnings: Vec<FieldError>,
}

impl Schema {
    /// Compiles the `openAPIV3Schema` of the only version of a CRD.
    pub fn compile(schema: &Value) -> Result<Self, Vec<FieldError>> {
        Self::compile_at(schema, &Place::default())
    }

    /// Compiles an `openAPIV3Schema`; errors name fields of the CRD at its place.
    pub fn compile_at(schema: &Value, place: &Place) -> Result<Self, Vec<FieldError>> {
        let root = define::check(schema, place)?;
        Ok(Self { root, scale: None })
    }

    /// Adds the checks that the scale subresource asks for.
    pub fn with_scale(self, scale: Scale) -> Self {
        Self {
            scale: Some(scale),
            ..self
        }
    }

    /// All that happens to an object before it is validated, in the server's order: defaults, pruning, metadata of
    /// embedded resources. Returns the paths of unknown fields in the order the server names them; fails if the
    /// metadata of an embedded resource cannot be read.
    pub fn admit(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        self.admit_change(object, None)
    }

    /// The same for an object whose parts may be the same in one that was admitted before: these stay as they are.
    pub fn admit_change(
        &self,
        object: &mut Value,
        admitted: Option<&Value>,
    ) -> Result<Vec<String>, FieldError> {
        let kept = match (&mut *object, admitted) {
            (Value::Object(new), Some(Value::Object(old))) => Kept::take(new, old),
            _ => Kept::default(),
        };
        let unknown = self.admit_whole(object);
        kept.put_back(object);
        unknown
    }

    /// Takes out of an object what a merge patch leaves alone, as far as the verdict on the change is the same without it.
    /// If there are errors, their words may not be: these come from the whole object.
    pub fn set_aside(&self, object: &mut Value, patch: &Value) -> Kept {
        match (object, patch) {
            (Value::Object(object), Value::Object(patch)) => {
                let read: Vec<&str> = self.scale.iter().flat_map(Scale::names).collect();
                Kept::beside(patch, &self.root, object, &read)
            }
            _ => Kept::default(),
        }
    }

    fn admit_whole(&self, object: &mut Value) -> Result<Vec<String>, FieldError> {
        self.default(object);
        let mut unknown = Vec::new();
        if let Some(metadata) = object.get_mut("metadata")
            && let Ok(names) = metadata::drop_unknown(metadata)
        {
            unknown.extend(names.into_iter().map(|name| format!("metadata.{name}")));
        }
        unknown.extend(self.prune(object));
        unknown.extend(embedded::coerce(&self.root, object)?);
        Ok(unknown)
    }

    /// Drops fields that the schema does not have, and nulls where null is neither allowed nor replaced by a
    /// default. Returns the paths of the unknown fields, sorted. `apiVersion`, `kind` and `metadata` are kept.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        let dropped = prune::prune(&self.root, object);
        prune::drop_nulls(&self.root, object);
        dropped
    }

    /// Sets fields that are absent, or null where null is not allowed, to their defaults.
    pub fn default(&self, object: &mut Value) {
        default::fill(&self.root, object);
    }

    /// What is wrong with a new object.
    pub fn validate(&self, object: &Value) -> Vec<FieldError> {
        self.verdict(object, None).errors
    }

    /// What is wrong with a change. What did not change may stay wrong.
    pub fn validate_update(&self, new: &Value, old: &Value) -> Verdict {
        self.verdict(new, Some(old))
    }

    /// What is wrong with a change of the status alone.
    pub fn validate_status(&self, new: &Value, old: &Value) -> Verdict {
        let mut errors = Vec::new();
        let pair = self.pair(new, Some(old));
        if let (Some(node), Some(status)) = (self.root.properties.get("status"), new.get("status"))
        {
            let pair = pair.and_then(|pair| pair.member("status"));
            errors = check::check(node, status, &Path::ROOT, pair).into_errors("status");
        }
        if let Some(scale) = &self.scale {
            scale.check_status(new, &mut errors);
        }
        self.lists(new, Some(old), &mut errors);
        self.rules(new, Some(old), errors)
    }

    fn verdict(&self, new: &Value, old: Option<&Value>) -> Verdict {
        let outcome: Outcome = check::check(&self.root, new, &Path::ROOT, self.pair(new, old));
        let mut errors = outcome.into_errors("");
        if let Some(scale) = &self.scale {
            scale.check_spec(new, &mut errors);
            scale.check_status(new, &mut errors);
        }
        embedded::check(&self.root, new, &Path::ROOT, &mut errors);
        self.lists(new, old, &mut errors);
        self.rules(new, old, errors)
    }

    fn pair<'a>(&'a self, new: &'a Value, old: Option<&'a Value>) -> Option<Pair<'a>> {
        Some(Pair {
            node: &self.root,
            new,
            old: old?,
            counts: false,
        })
    }

    /// Duplicates in lists, unless the old object had any.
    fn lists(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let mut found = Vec::new();
        lists::check(&self.root, new, old, &Path::ROOT, &mut found);
        if found.is_empty() {
            return;
        }
        let mut before = Vec::new();
        if let Some(old) = old {
            lists::check(&self.root, old, None, &Path::ROOT, &mut before);
        }
        if before.is_empty() {
            errors.extend(found);
        }
    }

    /// Rules are only evaluated on objects of the right shape.
    fn rules(&self, new: &Value, old: Option<&Value>, mut errors: Vec<FieldError>) -> Verdict {
        if !self.root.below.rules {
            return Verdict {
                errors,
                warnings: Vec::new(),
            };
        }
        let misshapen = |error: &FieldError| {
            use Reason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(
                error.reason,
                NotSupported | Required | TooLong | TooMany | TypeInvalid
            )
        };
        if errors.iter().any(misshapen) {
            let detail = "some validation rules were not checked because the object was invalid; \
                 correct the existing errors to complete validation";
            errors.push(FieldError::invalid("<nil>", &Value::Null, detail));
            return Verdict {
                errors,
                warnings: Vec::new(),
            };
        }
        let mut walk = Walk::new("");
        let ratchet = Ratchet::at(self.pair(new, old));
        walk.value(&self.root, new, old, &Path::ROOT, ratchet, true);
        errors.extend(walk.broken.errors);
        Verdict {
            errors,
            warnings: walk.broken.warnings,
        }
    }
}

//! Fields that an applier wants and others own.

use std::{collections::BTreeMap, fmt};

use serde_json::{Value, json};

use super::{
    managed::ManagerId,
    set::{FieldSet, Path},
};

/// Why an apply was refused: the fields it would change, by owner.
#[derive(Clone, Debug, PartialEq)]
pub struct Conflicts {
    by_manager: BTreeMap<ManagerId, FieldSet>,
}

impl Conflicts {
    pub(super) fn new(by_manager: BTreeMap<ManagerId, FieldSet>) -> Self {
        Self { by_manager }
    }

    fn each(&self) -> impl Iterator<Item = (&ManagerId, Path)> {
        let of_one =
            |(id, fields): (_, &FieldSet)| fields.paths().into_iter().map(move |p| (id, p));
        self.by_manager.iter().flat_map(of_one)
    }

    pub(super) fn fields(&self) -> FieldSet {
        let all = self.by_manager.values();
        all.fold(FieldSet::default(), FieldSet::union)
    }

    /// The conflicts that are not about the given fields.
    pub(super) fn without(&self, allowed: &FieldSet) -> Self {
        let left = self.by_manager.iter().filter_map(|(id, fields)| {
            let left = fields.difference(allowed);
            (!left.is_empty()).then(|| (id.clone(), left))
        });
        Self::new(left.collect())
    }

    /// The causes in the details of the answer.
    pub fn causes(&self) -> Vec<Value> {
        let cause = |(id, path): (&ManagerId, Path)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {id}"),
                "field": path.to_string(),
            })
        };
        self.each().map(cause).collect()
    }
}

impl fmt::Display for Conflicts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = self.each().collect();
        if let [(id, path)] = all.as_slice() {
            return write!(
                f,
                "Apply failed with 1 conflict: conflict with {id}: {path}"
            );
        }
        let mut lines = Vec::new();
        for (id, fields) in &self.by_manager {
            lines.push(format!("conflicts with {id}:"));
            lines.extend(fields.paths().iter().map(|path| format!("- {path}")));
        }
        write!(
            f,
            "Apply failed with {} conflicts: {}",
            all.len(),
            lines.join("\n")
        )
    }
}

impl std::error::Error for Conflicts {}

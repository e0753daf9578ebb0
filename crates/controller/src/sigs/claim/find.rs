//! Which sandbox is a claim's.

use std::{collections::BTreeMap, sync::Arc};

use engine::revision::name_hash;

use super::{metadata::reference, view::Claim};
use crate::sigs::{
    names,
    pool::member::{fence, is_adoptable},
    sandbox::{decide::Look, view::Sandbox},
};

/// The sandboxes that one pass knows of.
#[derive(Clone, Debug, Default)]
pub struct Sandboxes {
    /// Those under the claim's control.
    pub owned: Vec<Arc<Sandbox>>,
    /// The one that is called like the claim, as the cache shows it.
    pub namesake: Option<Arc<Sandbox>>,
    /// Those that were looked at past the cache.
    pub looked: BTreeMap<String, Look<Sandbox>>,
}

#[derive(Debug)]
pub enum Standing<'a> {
    Bound(&'a Sandbox),
    /// Another controller has named it on the claim and went no further.
    Promised(&'a Sandbox),
    /// The claim names it and the cache does not show it as the claim's.
    Unseen(&'a str),
    Unbound,
    /// Why the claim cannot have any.
    Barred(String),
}

impl Sandboxes {
    /// The owner reference is the lock: a sandbox under the claim's control is the claim's, whoever put it there. What the
    /// claim itself names comes first, and is looked at before anything else is taken for it.
    pub fn standing<'a>(&'a self, claim: &'a Claim) -> Standing<'a> {
        if let Some(name) = claim.sandbox()
            && !self.owned.iter().any(|sandbox| sandbox.name() == name)
            && let Look::Unknown = self.look(name)
        {
            return Standing::Unseen(name);
        }
        if let Some(sandbox) = self.first(claim) {
            return Standing::Bound(sandbox);
        }
        if let Some(name) = reference(claim) {
            match self.look(name) {
                Look::Unknown => return Standing::Unseen(name),
                Look::Found(sandbox) if is_promised(claim, sandbox) => {
                    return Standing::Promised(sandbox);
                }
                Look::Found(_) | Look::Missing | Look::Failed => {}
            }
        }
        let name = &*claim.meta.key.name;
        let namesake = match self.look(name) {
            Look::Unknown => self.namesake.as_deref(),
            look => look.found(),
        };
        match namesake {
            None => Standing::Unbound,
            Some(_) => Standing::Barred(format!(
                "Sandbox {name:?} exists and is not controlled by this claim; give the claim another name"
            )),
        }
    }

    pub fn look(&self, name: &str) -> &Look<Sandbox> {
        self.looked.get(name).unwrap_or(&Look::Unknown)
    }

    fn first(&self, claim: &Claim) -> Option<&Sandbox> {
        let rank = |sandbox: &Sandbox| {
            let name = Some(sandbox.name());
            let is_named = claim.sandbox() == name;
            let is_referenced = reference(claim) == name;
            (!is_named, !is_referenced, sandbox.meta.created)
        };
        let owned = self.owned.iter().map(AsRef::as_ref);
        owned
            .filter(|sandbox: &&Sandbox| {
                let (is_not_named, is_not_referenced, _) = rank(sandbox);
                !(sandbox.meta.is_deleting && is_not_named && is_not_referenced)
            })
            .min_by(|one, other| {
                let order = rank(one).cmp(&rank(other));
                order.then_with(|| one.name().cmp(other.name()))
            })
    }

    /// What a race has left besides the one that the claim has.
    pub fn surplus<'a>(&'a self, kept: &'a Sandbox) -> impl Iterator<Item = &'a Sandbox> {
        let owned = self.owned.iter().map(AsRef::as_ref);
        owned.filter(|sandbox: &&Sandbox| {
            sandbox.meta.uid != kept.meta.uid && !sandbox.meta.is_deleting
        })
    }
}

/// Whether a sandbox of a pool may become the claim's because the claim names it.
fn is_promised(claim: &Claim, sandbox: &Sandbox) -> bool {
    let pool = name_hash(&claim.spec.warm_pool_ref.name);
    let is_of_pool = sandbox.meta.labels.get(names::WARM_POOL) == Some(pool.as_str());
    is_adoptable(sandbox) && is_of_pool && fence(sandbox).is_none()
}

//! What is kept of pools.

use api::{
    open::known,
    sigs::{
        rolling_update::UpdateStrategyType,
        v1beta1::{SandboxWarmPool, SandboxWarmPoolSpec, SandboxWarmPoolStatus},
    },
};

use crate::{
    meta::{Key, Meta},
    sigs::names,
    store::{Texts, View},
};

#[derive(Clone, Debug)]
pub struct Pool {
    pub meta: Meta,
    pub spec: SandboxWarmPoolSpec,
    pub status: SandboxWarmPoolStatus,
}

impl Pool {
    pub fn template(&self) -> Key {
        self.meta.key.beside(&self.spec.sandbox_template_ref.name)
    }

    /// Whether nobody may have a member that is not at the target.
    pub fn recreates(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        let kind = strategy.and_then(|strategy| known(&strategy.type_));
        kind == Some(UpdateStrategyType::Recreate)
    }

    /// The revisions that were rolled back as bad.
    pub fn retired(&self) -> impl Iterator<Item = &str> {
        let listed = self.meta.annotations.get(names::RETIRED);
        let listed = listed.into_iter().flat_map(|text| text.split(','));
        listed
            .map(str::trim)
            .filter(|revision| !revision.is_empty())
    }

    /// Whether claims may narrow its policy.
    pub fn lets_claims_choose(&self) -> bool {
        self.meta.annotations.get(names::CLAIM_OVERRIDES) != Some("false")
    }
}

impl View for Pool {
    type Object = SandboxWarmPool;

    fn of(object: SandboxWarmPool, _: &mut Texts) -> Self {
        Self {
            meta: object.metadata.into(),
            spec: object.spec,
            status: object.status.unwrap_or_default(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

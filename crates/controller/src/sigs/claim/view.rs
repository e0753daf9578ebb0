//! What is kept of claims.

use api::sigs::{
    shared::SandboxClaimStatus,
    v1beta1::{SandboxClaim, SandboxClaimSpec},
};

use crate::{
    brief::Brief,
    meta::{Key, Meta},
    sigs::names,
    store::{Texts, View},
};

#[derive(Clone, Debug)]
pub struct Claim {
    pub meta: Meta,
    pub spec: SandboxClaimSpec,
    pub status: SandboxClaimStatus,
}

impl Claim {
    pub fn pool(&self) -> Key {
        self.meta.key.beside(&self.spec.warm_pool_ref.name)
    }

    /// The sandbox that its status names.
    pub fn sandbox(&self) -> Option<&str> {
        let sandbox = self.status.sandbox.as_ref()?;
        sandbox.name.as_deref().filter(|name| !name.is_empty())
    }
}

impl View for Claim {
    type Object = Brief<SandboxClaim, SandboxClaimSpec, SandboxClaimStatus>;

    fn of(object: Self::Object, texts: &mut Texts) -> Self {
        let mut meta = Meta::from(object.metadata);
        // others can be as large as the object itself, and no controller reads them
        meta.annotations = meta.annotations.without(|key| !names::is_ours(key));
        meta.share(texts);
        Self {
            meta,
            spec: object.spec,
            status: object.status.unwrap_or_default(),
        }
    }

    fn meta(&self) -> &Meta {
        &self.meta
    }
}

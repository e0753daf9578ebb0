//! What is kept of pools.

use api::sigs::v1beta1::{SandboxWarmPool, SandboxWarmPoolSpec, SandboxWarmPoolStatus};

use crate::{
    meta::{Key, Meta},
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

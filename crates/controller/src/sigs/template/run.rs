//! Keeping the network policy of a template.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::{
    decide::{Act, Step, decide, reserved},
    policy,
    view::{Policy, Template},
};
use crate::{
    clock::Clock,
    events::{News, Teller},
    meta::Key,
    queue::{Next, Pass},
    sigs::{
        names,
        run::{Common, Controller},
        stores::Stores,
    },
    store::Store,
    write::{Failure, Guard, Writer},
};

/// The name under which the controller writes and tells.
pub(crate) const CONTROLLER: &str = "sandboxtemplate-controller";
const TELLER: Teller = Teller {
    controller: CONTROLLER,
    api_version: names::EXTENSIONS_API_VERSION,
    kind: "SandboxTemplate",
};
/// A label and a policy, and a look at what is in the way. Whatever is still to be done then is not to be done in haste.
const MOST_ACTS: usize = 4;

/// Why something is told of a template.
const NOT_OWNED: &str = "NetworkPolicyNotOwned";
const REFUSED: &str = "NetworkPolicyRefused";
const RESERVED: &str = "ReservedMetadata";

#[derive(Clone, Debug)]
pub struct Options {
    /// How many templates are worked on at a time.
    pub at_a_time: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { at_a_time: 1 }
    }
}

#[derive(Clone)]
pub(crate) struct Templates {
    stores: Stores,
    writer: Writer,
    clock: Clock,
    /// What was last told of each template for each reason. Whoever starts anew tells it again, and the server knows it already.
    told: Arc<Mutex<HashMap<Key, BTreeMap<&'static str, String>>>>,
}

impl Templates {
    pub(crate) fn new(common: &Common) -> Self {
        Self {
            stores: common.stores.clone(),
            writer: common.writer(CONTROLLER),
            clock: common.clock.clone(),
            told: Arc::default(),
        }
    }
}

impl Controller for Templates {
    type View = Template;
    const SPAN: &'static str = "ReconcileSandboxTemplate";

    fn store(&self) -> &Store<Template> {
        &self.stores.templates
    }

    async fn pass(&self, pass: Pass<Key>) -> Next {
        let policy_key = pass.key.beside(&policy::name(&pass.key.name));
        let mut in_the_way = None;
        for _ in 0..MOST_ACTS {
            if in_the_way.is_none() {
                pass.look();
            }
            let Some(template) = self.stores.templates.get(&pass.key) else {
                self.told().remove(&pass.key);
                return Next::Never;
            };
            self.tell_of_reserved(&template).await;
            let found = self.stores.policies.get(&policy_key).or(in_the_way.take());
            let act = match decide(&template, found.as_deref()) {
                Step::Act(act) => act,
                Step::Rest => {
                    self.forget(&template, &[NOT_OWNED, REFUSED]);
                    return Next::Never;
                }
                Step::Barred { policy, why } => {
                    self.tell(&template, NOT_OWNED, why, &policy).await;
                    return Next::Never;
                }
            };
            match self.act(&template, act).await {
                Ok(()) => {}
                Err(Failure::Exists(_)) => match self.look(&policy_key).await {
                    Ok(found) => in_the_way = found,
                    Err(_) => return Next::Retry,
                },
                Err(Failure::Refused(why)) => {
                    let occasion = template.meta.generation.to_string();
                    self.tell(&template, REFUSED, why, &occasion).await;
                    return Next::Retry;
                }
                Err(_) => return Next::Retry,
            }
        }
        Next::Retry
    }
}

impl Templates {
    async fn act(&self, template: &Template, act: Act) -> Result<(), Failure> {
        let (writer, policies) = (&self.writer, &self.stores.policies);
        match act {
            Act::Label(patch) => {
                let (store, meta) = (&self.stores.templates, &template.meta);
                let patched = writer.patch(store, meta, Guard::SameObject, patch);
                patched.await.map(drop)
            }
            Act::Create(body) => {
                let namespace = &template.meta.key.namespace;
                writer.create(policies, namespace, body).await.map(drop)
            }
            Act::Patch(meta, patch) => {
                let patched = writer.patch(policies, &meta, Guard::Unchanged, patch);
                patched.await.map(drop)
            }
            Act::Delete(meta) => writer.delete(policies, &meta).await,
        }
    }

    async fn look(&self, key: &Key) -> Result<Option<Arc<Policy>>, Failure> {
        self.writer.read(&self.stores.policies, key).await
    }

    /// A template has no status in which to say it.
    async fn tell_of_reserved(&self, template: &Template) {
        match reserved(template) {
            Some(why) => {
                let generation = template.meta.generation.to_string();
                self.tell(template, RESERVED, why, &generation).await;
            }
            None => self.forget(template, &[RESERVED]),
        }
    }

    /// Once for each occasion.
    async fn tell(&self, template: &Template, reason: &'static str, why: String, occasion: &str) {
        let occasion = format!("{occasion} {why}");
        let known = {
            let mut told = self.told();
            let told = told.entry(template.meta.key.clone()).or_default();
            told.insert(reason, occasion.clone())
        };
        if known.as_ref() == Some(&occasion) {
            return;
        }
        let news = News {
            is_warning: true,
            reason,
            action: "Reconcile",
            message: why,
            occasion,
        };
        let now = self.clock.now();
        TELLER.tell(&self.writer, &template.meta, &news, now).await;
    }

    /// What is over may begin again.
    fn forget(&self, template: &Template, reasons: &[&'static str]) {
        if let Some(told) = self.told().get_mut(&template.meta.key) {
            told.retain(|reason, _| !reasons.contains(reason));
        }
    }

    fn told(&self) -> MutexGuard<'_, HashMap<Key, BTreeMap<&'static str, String>>> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! All controllers of the family on one set of watches.

use std::sync::Arc;

use engine::in_place::Platform;
use futures::future::join4;
use kube::Client;
use tokio::{sync::watch, task::JoinSet};

use super::{
    census,
    claim::{self, Claims, ledger::Ledger},
    pool::{self, Pools},
    sandbox::{self, Sandboxes},
    stock::Stock,
    stores::{Queues, Stores},
    template::{self, Templates},
};
use crate::{
    clock::Clock,
    meta::Key,
    metrics::Metrics,
    queue::{Next, Pass, Queue},
    rush::Rush,
    watch::Scope,
};

#[derive(Clone, Debug)]
pub struct Options {
    /// The one namespace to look at; all of them if there is none.
    pub namespace: Option<String>,
    /// Whether templates, pools and claims are controlled too.
    pub extensions: bool,
    pub platform: Platform,
    pub sandbox: sandbox::Options,
    pub template: template::Options,
    pub pool: pool::Options,
    pub claim: claim::Options,
    pub metrics: Metrics,
    /// Told when everything has been listed, which is when work begins.
    pub listed: Arc<watch::Sender<bool>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            namespace: None,
            extensions: true,
            platform: Platform::of(36, true),
            sandbox: sandbox::Options::default(),
            template: template::Options::default(),
            pool: pool::Options::default(),
            claim: claim::Options::default(),
            metrics: Metrics::default(),
            listed: Arc::default(),
        }
    }
}

/// Controls the family's objects until it is dropped.
pub async fn run(client: Client, clock: Clock, options: Options) {
    let metrics = &options.metrics;
    let (stores, queues) = (Stores::default(), Queues::new(&clock, metrics));
    let _counted = census::tell(metrics, &stores);
    let (stock, ledger) = (Stock::new(options.platform), Ledger::default());
    let rush = Rush::default();
    let scope = Scope {
        client: client.clone(),
        namespace: options.namespace.map(Into::into),
        clock: clock.clone(),
    };
    let mut watches = JoinSet::new();
    stores.watch_sandboxes(&scope, &queues, (&stock, &ledger), &mut watches);
    if options.extensions {
        stores.watch_extensions(&scope, &queues, (&stock, &ledger), &mut watches);
    }
    // a claim that looks before the stock is known would start a sandbox that nobody needs
    stores.listed(options.extensions).await;
    options.listed.send_replace(true);
    let workers = (
        options.sandbox.at_a_time,
        options.template.at_a_time,
        options.pool.at_a_time,
        options.claim.at_a_time,
    );
    let claim_options = (metrics.clone(), options.claim, options.pool.clone());
    let sandbox_options = (rush.clone(), options.sandbox);
    let sandboxes = Sandboxes::new(&client, &clock, &stores, options.platform, sandbox_options);
    let templates = Templates::new(&client, &clock, &stores);
    let pools = Pools::new(
        &client,
        &clock,
        &stores,
        &stock,
        (rush.clone(), options.pool),
    );
    let books = (&ledger, rush);
    let claims = Claims::new(&client, &clock, &stores, &stock, books, claim_options);
    join4(
        drive(&queues.sandboxes, workers.0, sandboxes),
        drive(&queues.templates, workers.1, templates),
        drive(&queues.pools, workers.2, pools),
        drive(&queues.claims, workers.3, claims),
    )
    .await;
}

/// Looks at one kind of object.
pub(crate) trait Controller: Clone + Send + 'static {
    fn pass(&self, pass: Pass<Key>) -> impl Future<Output = Next> + Send;
}

async fn drive<C: Controller>(queue: &Queue<Key>, at_a_time: usize, controller: C) {
    let pass = |pass: Pass<Key>| {
        let controller = controller.clone();
        async move { controller.pass(pass).await }
    };
    queue.drive(at_a_time, pass).await;
}

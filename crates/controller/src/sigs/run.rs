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
    meta::{Key, Meta},
    metrics::Metrics,
    queue::{Next, Pass, Queue},
    rush::Rush,
    store::{Store, View},
    trace::{self, Traces},
    watch::Scope,
    write::Writer,
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
    pub traces: Traces,
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
            traces: Traces::default(),
            listed: Arc::default(),
        }
    }
}

/// What the controllers have in common.
pub(crate) struct Common {
    client: Client,
    pub(super) clock: Clock,
    pub(super) stores: Stores,
    pub(super) stock: Stock,
    pub(super) ledger: Ledger,
    pub(super) rush: Rush,
    pub(super) metrics: Metrics,
    pub(super) traces: Traces,
}

impl Common {
    /// Who writes under this name.
    pub(super) fn writer(&self, manager: &'static str) -> Writer {
        Writer::new(self.client.clone(), manager)
    }
}

/// Controls the family's objects until it is dropped.
pub async fn run(client: Client, clock: Clock, options: Options) {
    let queues = Queues::new(&clock, &options.metrics);
    let scope = Scope {
        client: client.clone(),
        namespace: options.namespace.map(Into::into),
        clock: clock.clone(),
    };
    let common = Common {
        client,
        clock,
        stores: Stores::default(),
        stock: Stock::new(options.platform),
        ledger: Ledger::default(),
        rush: Rush::default(),
        metrics: options.metrics,
        traces: options.traces,
    };
    let stores = &common.stores;
    let _counted = census::tell(&common.metrics, stores);
    let books = (&common.stock, &common.ledger);
    let mut watches = JoinSet::new();
    stores.watch_sandboxes(&scope, &queues, books, &mut watches);
    if options.extensions {
        stores.watch_extensions(&scope, &queues, books, &mut watches);
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
    let sandboxes = Sandboxes::new(&common, options.platform, options.sandbox);
    let templates = Templates::new(&common);
    let pools = Pools::new(&common, options.pool.clone());
    let claims = Claims::new(&common, options.claim, options.pool);
    let traces = &common.traces;
    join4(
        drive(&queues.sandboxes, workers.0, sandboxes, traces),
        drive(&queues.templates, workers.1, templates, traces),
        drive(&queues.pools, workers.2, pools, traces),
        drive(&queues.claims, workers.3, claims, traces),
    )
    .await;
}

/// Looks at one kind of object.
pub(crate) trait Controller: Clone + Send + 'static {
    type View: View;
    /// What a pass is called in traces.
    const SPAN: &'static str;

    fn pass(&self, pass: Pass<Key>) -> impl Future<Output = Next> + Send;

    /// Where its objects are.
    fn store(&self) -> &Store<Self::View>;

    /// The trace that its passes belong to.
    fn trace(&self, meta: &Meta) -> Option<String> {
        trace::of(&meta.annotations).map(ToOwned::to_owned)
    }
}

async fn drive<C: Controller>(
    queue: &Queue<Key>,
    at_a_time: usize,
    controller: C,
    traces: &Traces,
) {
    let pass = |pass: Pass<Key>| {
        let (controller, traces) = (controller.clone(), traces.clone());
        async move {
            let view = match traces.are_on() {
                true => controller.store().get(&pass.key),
                false => None,
            };
            match view {
                None => controller.pass(pass).await,
                Some(view) => {
                    let trace = controller.trace(view.meta());
                    let work = controller.pass(pass);
                    traces.pass(C::SPAN, &view.meta().key, trace, work).await
                }
            }
        }
    };
    queue.drive(at_a_time, pass).await;
}

//! The controllers that a Kubernetes API is not without. Each hears of every write, notes which objects to look at, and
//! then does what is to be done about them, judging by what is stored at that moment.
//!
//! They keep nothing: at the start each is shown every object as if it had just been written.

mod accounts;
mod budget;
mod claims;
mod definitions;
mod disruption;
mod expiry;
mod garbage;
mod graph;
mod namespaces;
mod queue;
mod remains;
mod seen;

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::server::Server;
use crate::server::act::DEFINITIONS;
use crate::status::Failure;
use crate::store::{Follow, Key, Snapshot};
use queue::{Outcome, Queue};
use seen::Seen;

/// How many objects are shown at the start before others get to run.
const SHOWN_AT_ONCE: usize = 256;

/// Settings of the controllers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    /// What pods may verify the API with, in PEM; empty if there is nothing.
    pub(crate) root_certificate: String,
}

trait Controller: Send + Sync + 'static {
    /// Notes what a write gives this controller to do. Called for every write, so it is quick.
    fn notice(&self, seen: &Seen<'_>, queue: &Queue);

    /// Does it, as far as it can be done now.
    fn work(&self, key: &Key) -> impl Future<Output = Outcome> + Send;
}

/// The running controllers; they end when this is dropped.
pub(crate) struct Controllers {
    tasks: JoinSet<()>,
}

/// The last write that all controllers have heard of; `None` until every object was shown.
type Heard = Option<u64>;

type Listener = Box<dyn Fn(&Seen<'_>) + Send + Sync>;

impl Controllers {
    pub(crate) fn start(server: &Server, settings: Settings) -> Self {
        let (snapshot, follow) = server.store().follow();
        let mut tasks = JoinSet::new();
        let (told, heard) = watch::channel(None);
        let mut add = Add {
            server,
            tasks: &mut tasks,
            heard: heard.clone(),
        };
        let listeners = vec![
            add.controller(garbage::Garbage::new(server, heard)),
            add.controller(namespaces::Namespaces::new(server)),
            add.controller(accounts::Accounts::new(server, settings.root_certificate)),
            add.controller(disruption::Disruption::new(server)),
            add.controller(claims::Claims::new(server)),
            add.controller(definitions::Definitions::new(server)),
            add.controller(expiry::Expiry::new(server)),
        ];
        tasks.spawn(listen(snapshot, follow, listeners, told));
        Self { tasks }
    }

    /// Returns when none of them will do anything any more.
    pub(crate) async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

struct Add<'a> {
    server: &'a Server,
    tasks: &'a mut JoinSet<()>,
    /// Whoever acts before all was shown knows only half: an owner whose dependents come later seems to have none.
    heard: watch::Receiver<Heard>,
}

impl Add<'_> {
    fn controller<C: Controller>(&mut self, controller: C) -> Listener {
        let controller = Arc::new(controller);
        let queue = Arc::new(Queue::default());
        let clock = self.server.clock().clone();
        let work = queue::run(Arc::clone(&controller), Arc::clone(&queue), clock);
        let mut heard = self.heard.clone();
        self.tasks.spawn(async move {
            if heard.wait_for(Option::is_some).await.is_ok() {
                work.await;
            }
        });
        Box::new(move |seen| {
            if seen.after.is_none() {
                queue.forget(seen.key);
            }
            if seen.key.resource() == DEFINITIONS {
                queue.unblock();
            }
            controller.notice(seen, &queue);
        })
    }
}

async fn listen(
    snapshot: Snapshot,
    mut follow: Follow,
    listeners: Vec<Listener>,
    told: watch::Sender<Heard>,
) {
    let tell = |seen: &Seen<'_>| {
        for listener in &listeners {
            listener(seen);
        }
    };
    for (index, entry) in snapshot.iter().enumerate() {
        tell(&Seen::found(entry));
        if index % SHOWN_AT_ONCE == SHOWN_AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
    }
    told.send_replace(Some(snapshot.revision()));
    drop(snapshot);
    while let Some(event) = follow.next().await {
        tell(&Seen::of(&event));
        told.send_replace(Some(event.entry.revision));
    }
}

/// What is gone needs nothing; anything else that fails is tried again.
fn settled(result: Result<(), Failure>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(failure) if failure.is_unknown_path() => Outcome::Blocked,
        Err(failure) if failure.code() == 404 => Outcome::Done,
        Err(_) => Outcome::Again,
    }
}

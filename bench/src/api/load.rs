//! Many clients at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::task::JoinSet;

use bench::client::{Access, Ask};

/// As many as a handful of controllers have.
pub(crate) const CONNECTIONS: usize = 4;

/// Ends with whichever comes first.
pub(crate) struct Load {
    pub(crate) clients: usize,
    pub(crate) most: u64,
    pub(crate) longest: Duration,
}

pub(crate) struct Done {
    pub(crate) requests: u64,
    pub(crate) took: Duration,
}

/// Each client sends the next request when its last one is answered; requests are numbered from 0.
pub(crate) async fn run(
    access: &Access,
    load: Load,
    ask: impl Fn(u64) -> Ask + Send + Sync + 'static,
) -> Result<Done> {
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(access.connect().await?);
    }
    let (next, answered) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let ask = Arc::new(ask);
    let mut clients = JoinSet::new();
    let begun = Instant::now();
    for client in 0..load.clients {
        let connection = connections[client % CONNECTIONS].clone();
        let (next, answered, ask) = (Arc::clone(&next), Arc::clone(&answered), Arc::clone(&ask));
        clients.spawn(async move {
            while begun.elapsed() < load.longest {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= load.most {
                    break;
                }
                connection.whole(ask(number)).await?;
                answered.fetch_add(1, Ordering::Relaxed);
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done??;
    }
    Ok(Done {
        requests: answered.load(Ordering::Relaxed),
        took: begun.elapsed(),
    })
}

//! Keeping pools in stock.

use std::time::Duration;

use kube::Client;

use crate::{
    clock::Clock,
    meta::Key,
    queue::{Next, Pass},
    sigs::{run::Controller, stock::Stock, stores::Stores},
    write::Writer,
};

/// The name under which the controller writes and tells.
pub(crate) const CONTROLLER: &str = "sandboxwarmpool-controller";

#[derive(Clone, Debug)]
pub struct Options {
    /// How many pools are worked on at a time.
    pub at_a_time: usize,
    /// Creations, and deletions of members beyond the wanted number, at most in one pass.
    pub batch: u32,
    /// A member that is not Ready at this age is replaced, unless no node has room for it.
    pub ready_grace: Duration,
    /// How often members without room are looked at again.
    pub recheck: Duration,
    /// How long a pool that was drawn from waits before it makes up for it.
    pub replenish_delay: Duration,
    /// Creations a second for each pool; no limit at 0.
    pub refill_rate: f64,
    /// Whether an autoscaler may evict idle members.
    pub evictable: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            at_a_time: 1,
            batch: 300,
            ready_grace: Duration::from_secs(300),
            recheck: Duration::from_secs(60),
            replenish_delay: Duration::ZERO,
            refill_rate: 0.0,
            evictable: true,
        }
    }
}

#[derive(Clone)]
pub(crate) struct Pools {
    stores: Stores,
    stock: Stock,
    writer: Writer,
    clock: Clock,
    options: Options,
}

impl Pools {
    pub(crate) fn new(
        client: &Client,
        clock: &Clock,
        stores: &Stores,
        stock: &Stock,
        options: Options,
    ) -> Self {
        Self {
            stores: stores.clone(),
            stock: stock.clone(),
            writer: Writer::new(client.clone(), CONTROLLER),
            clock: clock.clone(),
            options,
        }
    }
}

impl Controller for Pools {
    async fn pass(&self, pass: Pass<Key>) -> Next {
        let _ = (
            &self.stores,
            &self.stock,
            &self.writer,
            &self.clock,
            &self.options,
            pass,
        );
        Next::Never
    }
}

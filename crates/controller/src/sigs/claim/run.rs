//! Answering claims.

use kube::Client;

use crate::{
    clock::Clock,
    meta::Key,
    queue::{Next, Pass},
    sigs::{run::Controller, sandbox::view::Sandbox, stock::Stock, stores::Stores},
    store::Change,
    write::Writer,
};

/// The name under which the controller writes and tells.
pub(crate) const CONTROLLER: &str = "sandboxclaim-controller";

#[derive(Clone, Debug)]
pub struct Options {
    /// How many claims are worked on at a time.
    pub at_a_time: usize,
    /// No events about claims.
    pub without_events: bool,
    /// No annotations that say when a claim was seen and answered.
    pub without_stamps: bool,
    /// Domains in which claims may give labels to pods.
    pub label_domains: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            at_a_time: 50,
            without_events: false,
            without_stamps: false,
            label_domains: vec!["sandbox.users.io".to_owned()],
        }
    }
}

/// Whether a change of a sandbox is one that its claim tells.
pub(crate) fn concerns(_: &Change<'_, Sandbox>) -> bool {
    true
}

#[derive(Clone)]
pub(crate) struct Claims {
    stores: Stores,
    stock: Stock,
    writer: Writer,
    clock: Clock,
    options: Options,
}

impl Claims {
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

impl Controller for Claims {
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

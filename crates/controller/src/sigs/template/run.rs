//! Keeping the network policy of a template.

use kube::Client;

use crate::{
    clock::Clock,
    meta::Key,
    queue::{Next, Pass},
    sigs::{run::Controller, stores::Stores},
    write::Writer,
};

/// The name under which the controller writes and tells.
pub(crate) const CONTROLLER: &str = "sandboxtemplate-controller";

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
}

impl Templates {
    pub(crate) fn new(client: &Client, clock: &Clock, stores: &Stores) -> Self {
        Self {
            stores: stores.clone(),
            writer: Writer::new(client.clone(), CONTROLLER),
            clock: clock.clone(),
        }
    }
}

impl Controller for Templates {
    async fn pass(&self, pass: Pass<Key>) -> Next {
        let _ = (&self.stores, &self.writer, &self.clock, pass);
        Next::Never
    }
}

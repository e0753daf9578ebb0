//! Definitions of custom kinds: their status and what is served follow every write of one, even one whose request
//! was given up before it was answered.

use super::queue::{Outcome, Queue};
use super::seen::Seen;
use super::{Controller, DEFINITIONS};
use crate::server::Server;
use crate::store::Key;

pub(super) struct Definitions {
    server: Server,
}

impl Definitions {
    pub(super) fn new(server: &Server) -> Self {
        Self {
            server: server.clone(),
        }
    }
}

impl Controller for Definitions {
    fn notice(&self, seen: &Seen<'_>, queue: &Queue) {
        let resource = seen.key.resource();
        if resource == DEFINITIONS {
            queue.add(seen.key);
        } else if seen.after.is_none() && self.server.is_ending(resource) {
            queue.add(&Key::new(DEFINITIONS, "", resource));
        }
    }

    async fn work(&self, key: &Key) -> Outcome {
        match self.server.follow_definition(key.name()).await {
            true => Outcome::Done,
            false => Outcome::Again,
        }
    }
}

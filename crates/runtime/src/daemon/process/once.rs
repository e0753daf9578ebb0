//! Service `sandbar.Once`: a command is started under a tag, and runs once. Who started it may die, and whoever comes
//! after it learns of the outcome instead of running it again.

use std::sync::Arc;

use http::Response;

use super::forward;
use crate::code::Code;
use crate::daemon::body::Body;
use crate::daemon::error::Error;
use crate::daemon::route::Asked;
use crate::daemon::rpc;
use crate::daemon::{Daemon, handover};
use crate::messages::Empty;
use crate::messages::once::{AcknowledgeRequest, Outcome, OutcomeRequest};
use crate::messages::process::StartRequest;

impl Daemon {
    /// `None` when there is no such method.
    pub(in crate::daemon) async fn answer_once(
        self: Arc<Self>,
        asked: Asked<'_>,
    ) -> Option<Response<Body>> {
        let (call, body) = (asked.call, asked.body);
        let keepalive = call.keepalive();
        Some(match asked.method {
            "Start" => {
                let deadline = call.deadline();
                rpc::server_stream(call, body, |request: StartRequest, sink| {
                    // nothing waits between the look at the tag and the entry of the process under it
                    let started = self
                        .has_free_tag(&request)
                        .and_then(|()| self.start(&asked.user?, request, deadline));
                    forward(started, sink, keepalive, Arc::clone(&self.handover))
                })
                .await
            }
            "Outcome" => rpc::unary(call, body, async |request| self.outcome(&request).await).await,
            "Acknowledge" => {
                rpc::unary(call, body, async |request: AcknowledgeRequest| {
                    self.processes.acknowledge(&request.tag)?;
                    Ok(Empty {})
                })
                .await
            }
            _ => return None,
        })
    }

    fn has_free_tag(&self, request: &StartRequest) -> Result<(), Error> {
        let tag = request.tag.as_deref().unwrap_or_default();
        if tag.is_empty() {
            return Err(Error::invalid("a process that is to run once needs a tag"));
        }
        if self.processes.outcome(tag).is_err() {
            return Ok(());
        }
        let message = format!("a process with tag {tag} was started already: ask for its outcome");
        Err(Error::new(Code::AlreadyExists, message))
    }

    async fn outcome(&self, request: &OutcomeRequest) -> Result<Outcome, Error> {
        loop {
            let changed = self.processes.changed();
            let outcome = self.processes.outcome(&request.tag)?;
            if outcome.end.is_some() || !request.wait {
                return Ok(outcome);
            }
            tokio::select! {
                () = changed => {}
                () = self.handover.closing() => return Err(handover::come_again()),
            }
        }
    }
}

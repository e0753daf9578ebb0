//! The embedded cluster as a whole: the store, the API over it, and what a cluster has from the start.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::controllers::{Controllers, Settings};
use crate::server::Server;
use crate::server::streams::PodStreams;
use crate::store::{self, Location, OpenError, Store};

/// Namespaces that every cluster has.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// How a cluster is opened.
#[derive(Clone, Debug)]
pub struct Options {
    pub location: Location,
    pub clock: Clock,
    /// What pods may verify the API with, in PEM; empty if there is nothing.
    pub root_certificate: String,
}

impl Options {
    /// Nothing outlives the process.
    pub fn ephemeral() -> Self {
        Self::at(Location::Ephemeral)
    }

    pub fn at(location: Location) -> Self {
        Self {
            location,
            clock: Clock::system(),
            root_certificate: String::new(),
        }
    }
}

/// An open cluster. Its directory is free for another when it is closed, or when the last of its services and clients
/// is gone.
pub struct Cluster {
    server: Server,
    controllers: Controllers,
}

impl Cluster {
    /// Reads everything into memory; blocks while it does.
    pub async fn open(options: Options) -> Result<Cluster, OpenError> {
        let store = Store::open(store::Options {
            location: options.location,
            read: Server::READ,
            ..store::Options::ephemeral()
        })?;
        let server = Server::open(store, options.clock).await;
        for name in NAMESPACES {
            server.ensure_namespace(name).await;
        }
        let server = server.starting_now();
        let settings = Settings {
            root_certificate: options.root_certificate,
        };
        let controllers = Controllers::start(&server, settings);
        Ok(Cluster {
            server,
            controllers,
        })
    }

    /// Returns when the directory is free for another. Clients that are left can read, and nothing more: a
    /// `kube::Client` lets go of the API some time after it is dropped, so waiting for the last one is no answer.
    pub async fn close(self) {
        self.controllers.stop().await;
        self.server.forget_streams();
        self.server.store().close();
    }

    /// The API, without authentication: whoever can call it may do everything.
    pub fn service(&self) -> Server {
        self.server.clone()
    }

    /// Lets clients reach the containers of a node's pods: `log`, `exec`, `attach` and `portforward`.
    pub fn set_streams(&self, node: &str, streams: Arc<dyn PodStreams>) {
        self.server.set_streams(node, streams);
    }

    /// A client in the same process: no socket, no TLS.
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.service(), "default")
    }
}

impl Server {
    /// Creates a namespace unless it is there.
    async fn ensure_namespace(&self, name: &str) {
        let namespace: Value =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        let body = Full::new(Bytes::from(namespace.to_string()));
        let mut request = Request::new(body);
        *request.method_mut() = http::Method::POST;
        *request.uri_mut() = http::Uri::from_static("/api/v1/namespaces");
        self.handle(request).await;
    }
}

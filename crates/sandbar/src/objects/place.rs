//! The cluster and the namespace that a command works in.

use std::{
    collections::BTreeSet,
    error::Error as _,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Error, Result, anyhow};
use http::{HeaderMap, Response, header::WARNING};
use kube::client::{Client, ClientBuilder, DynBody};
use tower::util::MapResponseLayer;

use super::patiently;
use crate::{
    cluster::{self, kubeconfig_in},
    refusal::said,
};

#[derive(clap::Args)]
pub(super) struct Where {
    /// Namespace; that of the kubeconfig's context if left out
    #[arg(short, long)]
    pub(super) namespace: Option<String>,
    /// Path of the kubeconfig; if left out KUBECONFIG, then the one in the data directory, then ~/.kube/config
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// The data directory of the `sandbar up` or `sandbar api` to speak to [default: ~/.sandbar]
    #[arg(long, value_name = "DIR", conflicts_with = "kubeconfig")]
    data_dir: Option<PathBuf>,
}

/// A server, and a namespace of it.
pub(super) struct Place {
    pub(super) client: Client,
    pub(super) namespace: String,
    url: String,
}

impl Where {
    pub(super) async fn open(&self) -> Result<Place> {
        let is_set = std::env::var_os("KUBECONFIG").is_some_and(|paths| !paths.is_empty());
        let named = self.data_dir.as_deref().map(kubeconfig_in).transpose()?;
        let path = self.choose(is_set, named, cluster::own());
        let config = cluster::config(path.as_deref(), self.context.as_deref()).await?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        let url = config.cluster_url.to_string();
        let url = url.trim_end_matches('/').to_owned();
        let client = ClientBuilder::try_from(config);
        let client = client.with_context(|| format!("cannot speak to {url}"))?;
        let said = Arc::new(Mutex::new(BTreeSet::new()));
        let listening = MapResponseLayer::new(move |response: Response<Box<DynBody>>| {
            warn(response.headers(), &said);
            response
        });
        Ok(Place {
            client: client.with_layer(&listening).build(),
            namespace,
            url,
        })
    }

    /// The kubeconfig to use, or nothing for the one that kubectl would take. What somebody has typed counts for more than
    /// what is in the environment; a context is one of those that kubectl knows.
    fn choose(
        &self,
        is_set: bool,
        in_directory: Option<PathBuf>,
        own: Option<PathBuf>,
    ) -> Option<PathBuf> {
        match (&self.kubeconfig, in_directory) {
            (Some(path), _) => Some(path.clone()),
            (None, Some(path)) => Some(path),
            (None, None) if is_set || self.context.is_some() => None,
            (None, None) => own,
        }
    }
}

impl Place {
    /// Asks the server; what goes wrong becomes an error that one can act on.
    pub(super) async fn ask<T>(
        &self,
        asking: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Error> {
        let answer = patiently(|| format!("for an answer from {}", self.url), asking).await;
        answer.map_err(|error| self.explain(error))
    }

    pub(super) fn explain(&self, error: kube::Error) -> Error {
        match error {
            kube::Error::Api(status) => anyhow!(said(&status.reason, &status.message)),
            kube::Error::HyperError(_) | kube::Error::Service(_) => anyhow!(
                "nothing answers at {} ({}): start a cluster with `sandbar up`, or name another one with --kubeconfig",
                self.url,
                root(&error),
            ),
            other => Error::from(other).context(format!("speaking to {}", self.url)),
        }
    }
}

fn root(error: &kube::Error) -> String {
    let mut cause = error.source();
    let mut text = error.to_string();
    while let Some(inner) = cause {
        text = inner.to_string();
        cause = inner.source();
    }
    text
}

/// Says what the server warns of, each thing once.
fn warn(headers: &HeaderMap, said: &Mutex<BTreeSet<String>>) {
    for header in headers.get_all(WARNING) {
        let Some(text) = header.to_str().ok().and_then(warning) else {
            continue;
        };
        let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.insert(text.clone()) {
            eprintln!("Warning: {text}");
        }
    }
}

/// The text in `299 - "text"`.
fn warning(header: &str) -> Option<String> {
    let (_, text) = header.split_once('"')?;
    let (text, _) = text.rsplit_once('"')?;
    Some(text.replace("\\\"", "\"").replace("\\\\", "\\"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::path::PathBuf;

    use super::{Where, warning};

    #[test]
    fn what_is_typed_counts_for_more_than_the_environment_and_that_for_more_than_the_default() {
        let own = PathBuf::from("/home/.sandbar/kubeconfig");
        for (kubeconfig, in_directory, context, is_set, expected) in [
            (Some("/k"), None, None, true, Some("/k")),
            (
                None,
                Some("/d/kubeconfig"),
                None,
                true,
                Some("/d/kubeconfig"),
            ),
            (None, None, None, true, None),
            (None, None, Some("prod"), false, None),
            (None, None, None, false, own.to_str()),
        ] {
            let place = Where {
                namespace: None,
                kubeconfig: kubeconfig.map(PathBuf::from),
                context: context.map(str::to_owned),
                data_dir: None,
            };
            let in_directory = in_directory.map(PathBuf::from);
            let chosen = place.choose(is_set, in_directory, Some(own.clone()));
            assert_eq!(chosen, expected.map(PathBuf::from));
        }
    }

    #[test]
    fn a_warning_is_what_stands_in_quotes() {
        assert_eq!(
            warning(r#"299 - "unknown field \"spec.nope\"""#).unwrap(),
            "unknown field \"spec.nope\""
        );
        assert_eq!(warning("299 -"), None);
    }
}

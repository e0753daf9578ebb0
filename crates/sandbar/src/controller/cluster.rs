//! The cluster that the controllers work on: how it is reached and what it has.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use engine::in_place::Platform;
use http::{HeaderValue, header};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

const USER_AGENT: &str = concat!("sandbar-controller/", env!("CARGO_PKG_VERSION"));
/// Longer than the server keeps a watch on which nothing happens.
const SILENCE: Duration = Duration::from_secs(330);
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
const LABEL_DOMAINS: &str = "/etc/sandbox-config/allowed-label-domains";

/// What must be served, by group and version.
const CORE: (&str, &[&str]) = ("agents.x-k8s.io/v1beta1", &["sandboxes"]);
const EXTENSIONS: (&str, &[&str]) = (
    "extensions.agents.x-k8s.io/v1beta1",
    &["sandboxclaims", "sandboxtemplates", "sandboxwarmpools"],
);

/// A client, and the host that it asks.
pub(super) async fn connect(kubeconfig: Option<&Path>) -> Result<(Client, String)> {
    let mut config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path);
            let kubeconfig = kubeconfig.with_context(|| {
                format!(
                    "cannot read {}: name another with --kubeconfig",
                    path.display()
                )
            })?;
            let options = KubeConfigOptions::default();
            let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
            config.with_context(|| format!("{} names no usable cluster", path.display()))?
        }
        None => Config::infer()
            .await
            .context("no cluster is known: name one with --kubeconfig")?,
    };
    let agent = HeaderValue::from_static(USER_AGENT);
    config.headers.push((header::USER_AGENT, agent));
    config.read_timeout = Some(SILENCE);
    config.reset_reader_on_write = true;
    // a write that is sent again behind our back finds its own first try and takes it for somebody else's
    config.default_retry = false;
    let host = config.cluster_url.authority();
    let host = host.map(ToString::to_string).unwrap_or_default();
    let client = Client::try_from(config).context("cannot talk to the cluster")?;
    Ok((client, host))
}

/// The namespace of the pod that this is.
pub(super) fn own_namespace() -> Option<String> {
    let text = std::fs::read_to_string(OWN_NAMESPACE).ok()?;
    Some(text.trim().to_owned()).filter(|namespace| !namespace.is_empty())
}

/// The domains in which claims may label pods, where somebody has said so.
pub(super) fn label_domains() -> Option<Vec<String>> {
    std::fs::read_to_string(LABEL_DOMAINS)
        .ok()
        .map(|text| domains(&text))
        .filter(|domains| !domains.is_empty())
}

fn domains(text: &str) -> Vec<String> {
    text.split([',', '\n'])
        .map(|domain| domain.trim().to_ascii_lowercase())
        .filter(|domain| !domain.is_empty())
        .collect()
}

/// The kinds that are not served, or nothing if all are.
pub(super) async fn missing(client: &Client, extensions: bool) -> kube::Result<Vec<String>> {
    let mut missing = Vec::new();
    let groups = [CORE, EXTENSIONS];
    for (version, kinds) in groups.iter().take(if extensions { 2 } else { 1 }) {
        let served = match client.list_api_group_resources(version).await {
            Ok(list) => list.resources,
            Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
            Err(error) => return Err(error),
        };
        let is_missing = |kind: &&&str| !served.iter().any(|found| found.name == **kind);
        let kinds = kinds.iter().filter(is_missing);
        missing.extend(kinds.map(|kind| format!("{kind} of {version}")));
    }
    Ok(missing)
}

/// What the cluster can do to a running pod.
pub(super) async fn platform(client: &Client) -> kube::Result<Platform> {
    let version = client.apiserver_version().await?;
    let core = client.list_core_api_resources("v1").await?;
    let lists_resize = core.resources.iter().any(|one| one.name == "pods/resize");
    Ok(Platform::of(minor(&version.minor), lists_resize))
}

/// Some providers write `31+`.
fn minor(text: &str) -> u32 {
    let end = text.find(|byte: char| !byte.is_ascii_digit());
    text[..end.unwrap_or(text.len())]
        .parse()
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{domains, minor};

    #[test]
    fn domains_are_set_apart_by_commas_and_lines() {
        assert_eq!(
            domains("Sandbox.Users.io, example.com\n\n other.dev \n"),
            ["sandbox.users.io", "example.com", "other.dev"]
        );
        assert!(domains(" ,\n").is_empty());
    }

    #[test]
    fn a_minor_version_may_have_a_tail() {
        assert_eq!([minor("36"), minor("31+"), minor("")], [36, 31, 0]);
    }
}

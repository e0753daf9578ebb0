//! Service accounts, as whom tests act.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use k8s_openapi::api::{authentication::v1::TokenRequest, core::v1::ServiceAccount};
use kube::api::PostParams;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use serde_json::Value;

use crate::Testbed;

const PATIENCE: Duration = Duration::from_secs(60);

impl Testbed {
    /// A kubeconfig of a service account that has been given rights. A server learns of new roles in its own time and refuses
    /// until then, so that this returns once the account may read all these paths.
    pub async fn kubeconfig_of(
        &self,
        namespace: &str,
        account: &str,
        readable: &[&str],
    ) -> Result<Kubeconfig> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), namespace);
        let asked = TokenRequest::default();
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &asked)
            .await
            .with_context(|| format!("asking for a token of {namespace}/{account}"))?;
        let token = answer.status.and_then(|status| status.token);
        let token = token.context("a token request without a token")?;
        let mut kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        for user in &mut kubeconfig.auth_infos {
            user.auth_info = Some(AuthInfo {
                token: Some(token.clone().into()),
                ..AuthInfo::default()
            });
        }
        let options = KubeConfigOptions::default();
        let config = Config::from_custom_kubeconfig(kubeconfig.clone(), &options).await?;
        let client = Client::try_from(config)?;
        for path in readable {
            until_readable(&client, path).await?;
        }
        Ok(kubeconfig)
    }
}

async fn until_readable(client: &Client, path: &str) -> Result<()> {
    let give_up = Instant::now() + PATIENCE;
    loop {
        let request = http::Request::get(path).body(Vec::new())?;
        match client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 403 => {
                if Instant::now() > give_up {
                    bail!("{path} was never allowed: {}", status.message);
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer.map(drop).with_context(|| format!("reading {path}")),
        }
    }
}

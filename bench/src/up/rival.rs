//! The testbed's cluster with a kubelet and containerd.

use anyhow::Result;
use bench::client::Access;
use bench::times::progress;
use testbed::{Namespace, OwnOptions, Testbed};

use crate::pods::Side;

const IMAGE: &str = "busybox:v1";

pub(crate) struct Rival {
    bed: Testbed,
    namespace: Namespace,
}

impl Rival {
    pub(crate) async fn start() -> Result<Self> {
        progress("starting a cluster with a kubelet");
        let options = OwnOptions {
            kubelet: true,
            controller_manager: true,
            fsync: true,
            ..OwnOptions::default()
        };
        let bed = Testbed::own(options).await?;
        bed.import(&bed.busybox_image(IMAGE)?).await?;
        let namespace = bed.namespace("bench").await?;
        Ok(Self { bed, namespace })
    }

    pub(crate) async fn side(&self) -> Result<Side> {
        Ok(Side {
            name: "kubelet",
            access: Access::read(&self.bed.kubeconfig()).await?,
            pods: format!("/api/v1/namespaces/{}/pods", self.namespace),
            image: IMAGE,
        })
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.bed.stop().await
    }
}

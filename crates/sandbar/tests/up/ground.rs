//! The scenarios of the real cluster, on an instance of this program each.

use kube::Client;

use crate::instance::Instance;

pub(crate) struct Ground(Instance);

impl Ground {
    pub(crate) async fn open(_: &str) -> Self {
        let up = Instance::start().await;
        for version in ["v1", "v2"] {
            up.import(&format!("docker.io/library/busybox:{version}"), version);
        }
        Self(up)
    }

    pub(crate) fn namespace(&self) -> &'static str {
        "default"
    }

    pub(crate) fn client(&self) -> Client {
        self.0.client.clone()
    }
}

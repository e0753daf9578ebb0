//! The configuration files of the programs.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::images::PAUSE;
use crate::mounts::INSIDE;
use crate::plan::Plan;

/// Writes everything that the programs of `plan` read, below `dir`.
pub(crate) fn write(dir: &Path, plan: &Plan) -> Result<()> {
    let save = |name: &str, text: &str| {
        let path = dir.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };
    save("audit-policy.yaml", AUDIT_POLICY)?;
    if plan.spec.kwok() {
        save("kwok.yaml", &crate::stages::render(&plan.spec))?;
    }
    if let Some(node) = &plan.tools.node {
        save("kubelet.yaml", &kubelet(&plan.cgroup))?;
        save("containerd.toml", &containerd(&node.cni, snapshotter(dir)))?;
        let cni = dir.join("cni");
        fs::create_dir_all(&cni).with_context(|| format!("creating {}", cni.display()))?;
        save("cni/10-testbed.conflist", &network(&plan.net().pods()))?;
    }
    Ok(())
}

/// Counts writes; reads would only make the log long.
const AUDIT_POLICY: &str = "\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  verbs: [get, list, watch]
- level: Metadata
";

fn kubelet(cgroup: &str) -> String {
    format!(
        "\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: false}}
  x509: {{clientCAFile: {INSIDE}/pki/ca.crt}}
  webhook: {{enabled: true}}
authorization: {{mode: Webhook}}
cgroupDriver: cgroupfs
cgroupRoot: /{cgroup}
failCgroupV1: false
failSwapOn: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
evictionHard: {{}}
imageGCHighThresholdPercent: 100
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
resolvConf: {INSIDE}/resolv.conf
volumePluginDir: /var/lib/kubelet/plugins
maxPods: 240
# the defaults protect a production API server from its nodes; here they only make tests slow
kubeAPIQPS: 200
kubeAPIBurst: 400
eventRecordQPS: 0
registryPullQPS: 0
serializeImagePulls: false
"
    )
}

/// Overlay file systems cannot be stacked on one another, which is what a cache inside a container would need.
fn snapshotter(dir: &Path) -> &'static str {
    const OVERLAYFS: u64 = 0x794c_7630;
    match rustix::fs::statfs(dir) {
        Ok(fs) if fs.f_type.cast_unsigned() == OVERLAYFS => "native",
        _ => "overlayfs",
    }
}

fn containerd(cni: &Path, snapshotter: &str) -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # without CAP_SYS_RESOURCE runc fails to lower the score and the container does not start
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{}"
    conf_dir = "{INSIDE}/cni"
"#,
        cni.display()
    )
}

/// Every pod has a routed link of its own. On a bridge, answers between two pods would bypass the address
/// translation of services unless the kernel filters bridged packets too.
fn network(pods: &str) -> String {
    format!(
        r#"{{
  "cniVersion": "0.4.0",
  "name": "testbed",
  "plugins": [
    {{
      "type": "ptp",
      "ipMasq": false,
      "ipam": {{
        "type": "host-local",
        "dataDir": "/var/lib/cni/networks",
        "ranges": [[{{"subnet": "{pods}"}}]],
        "routes": [{{"dst": "0.0.0.0/0"}}]
      }}
    }},
    {{"type": "portmap", "capabilities": {{"portMappings": true}}}}
  ]
}}
"#
    )
}

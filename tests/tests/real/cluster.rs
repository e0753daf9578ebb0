//! API servers of our own, one for each rendering of the CRDs, shared by the tests of this binary.

use std::{
    io::Write,
    process::{Output, Stdio},
    sync::{
        LazyLock,
        atomic::{AtomicU32, Ordering},
    },
};

use api::crds::{Conversion, Family, Versions, render};
use serde_json::Value;
use testbed::{OwnOptions, Testbed};

// One family a cluster: both have a Sandbox, and where both are installed the short name `sandbox` is ambiguous.

/// The sigs kinds in v1beta1 alone.
pub(crate) static V1BETA1: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::with(Family::Sigs, Versions::V1beta1));
/// The sigs kinds in v1alpha1 alone: a cluster before its migration.
pub(crate) static V1ALPHA1: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::with(Family::Sigs, Versions::V1alpha1));
/// The kruise kinds.
pub(crate) static KRUISE: LazyLock<Cluster> =
    LazyLock::new(|| Cluster::with(Family::Kruise, Versions::V1alpha1));

pub(crate) struct Cluster {
    bed: Testbed,
}

/// The cluster that has the given version of the given kind.
pub(crate) fn cluster_of(api_version: &str) -> &'static Cluster {
    match api_version {
        "agents.kruise.io/v1alpha1" => &KRUISE,
        version if version.ends_with("/v1alpha1") => &V1ALPHA1,
        _ => &V1BETA1,
    }
}

/// What a kubectl call said.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) ok: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Cluster {
    pub(crate) fn empty() -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        Self {
            bed: runtime
                .block_on(Testbed::own(OwnOptions::default()))
                .unwrap(),
        }
    }

    fn with(family: Family, versions: Versions) -> Self {
        let cluster = Self::empty();
        let crds = render(&[family], versions, Conversion::None).unwrap();
        for crd in crds {
            let said = cluster.kubectl(
                &["create", "-f", "-"],
                Some(&serde_json::to_value(crd).unwrap()),
            );
            assert!(said.ok, "{said:?}");
        }
        cluster.wait_for_crds();
        cluster
    }

    pub(crate) fn wait_for_crds(&self) {
        let said = self.kubectl(
            &[
                "wait",
                "--for=condition=Established",
                "crd",
                "--all",
                "--timeout=60s",
            ],
            None,
        );
        assert!(said.ok, "{said:?}");
    }

    pub(crate) fn kubectl(&self, args: &[&str], stdin: Option<&Value>) -> Said {
        let mut kubectl = self.bed.kubectl();
        kubectl
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = kubectl.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        if let Some(object) = stdin {
            input.write_all(object.to_string().as_bytes()).unwrap();
        }
        drop(input);
        Said::from(child.wait_with_output().unwrap())
    }

    /// A fresh namespace's name.
    pub(crate) fn namespace(&self, prefix: &str) -> String {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{prefix}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let said = self.kubectl(&["create", "namespace", &name], None);
        assert!(said.ok, "{said:?}");
        name
    }

    /// The stored object of the same kind and name, if there is one.
    pub(crate) fn stored(&self, object: &Value) -> Option<Value> {
        let said = self.kubectl(&["get", "-f", "-", "-o", "json"], Some(object));
        match said.ok {
            // kubectl wraps what it reads from standard input in a list
            true => Some(serde_json::from_str::<Value>(&said.stdout).unwrap()["items"][0].take()),
            false => {
                assert!(said.stderr.contains("NotFound"), "{said:?}");
                None
            }
        }
    }
}

impl From<Output> for Said {
    fn from(output: Output) -> Self {
        Self {
            ok: output.status.success(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

/// The smallest valid object of a kind, in a namespace.
pub(crate) fn minimal(api_version: &str, kind: &str, namespace: &str) -> Value {
    suite::objects::minimal(api_version, kind, namespace).unwrap()
}

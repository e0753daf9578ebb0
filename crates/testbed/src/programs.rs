//! The command line of each program.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::binaries::NodeTools;
use crate::command::run;
use crate::mounts::INSIDE;
use crate::plan::Plan;

pub(crate) const NODE_NAME: &str = "testbed";

pub(crate) fn etcd(plan: &Plan) -> Result<Command> {
    let mut etcd = Command::new(plan.tools.path("etcd")?);
    etcd.args(["--name=testbed", "--log-level=warn"])
        .arg(format!("--data-dir={INSIDE}/etcd"))
        .args(["--listen-client-urls=http://127.0.0.1:2379"])
        .args(["--advertise-client-urls=http://127.0.0.1:2379"])
        .args(["--listen-peer-urls=http://127.0.0.1:2380"])
        // a benchmark writes more than the default 2 GB of history
        .args([
            "--quota-backend-bytes=8589934592",
            "--auto-compaction-retention=5m",
        ]);
    if !plan.spec.fsync {
        etcd.arg("--unsafe-no-fsync");
    }
    Ok(etcd)
}

pub(crate) fn apiserver(plan: &Plan) -> Result<Command> {
    let net = plan.net();
    let pki = format!("{INSIDE}/pki");
    let mut apiserver = Command::new(plan.tools.path("kube-apiserver")?);
    apiserver
        .arg("--etcd-servers=http://127.0.0.1:2379")
        .arg(format!("--advertise-address={}", net.node()))
        .arg(format!("--service-cluster-ip-range={}", net.services()))
        .args([
            "--secure-port=6443",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged=true",
        ])
        .arg(format!("--tls-cert-file={pki}/apiserver.crt"))
        .arg(format!("--tls-private-key-file={pki}/apiserver.key"))
        .arg(format!("--cert-dir={pki}"))
        .arg(format!("--client-ca-file={pki}/ca.crt"))
        .arg(format!("--token-auth-file={pki}/tokens.csv"))
        .arg(format!(
            "--service-account-key-file={pki}/service-accounts.pub"
        ))
        .arg(format!(
            "--service-account-signing-key-file={pki}/service-accounts.key"
        ))
        .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
        .arg(format!(
            "--kubelet-client-certificate={pki}/kubelet-client.crt"
        ))
        .arg(format!("--kubelet-client-key={pki}/kubelet-client.key"))
        // by name, `kubectl exec` would ask a DNS server
        .arg("--kubelet-preferred-address-types=InternalIP")
        .args([
            "--max-requests-inflight=3000",
            "--max-mutating-requests-inflight=1000",
        ]);
    if plan.spec.audit {
        apiserver
            .arg(format!("--audit-policy-file={INSIDE}/audit-policy.yaml"))
            .arg(format!("--audit-log-path={INSIDE}/logs/audit.log"))
            // it would otherwise begin a new file every 100 MB, and counts would begin anew with it
            .arg("--audit-log-maxsize=102400");
    }
    if !plan.spec.controller_manager {
        // both wait for something that only the controller-manager does
        apiserver.arg("--disable-admission-plugins=ServiceAccount,TaintNodesByCondition");
    }
    Ok(apiserver)
}

pub(crate) fn controller_manager(plan: &Plan) -> Result<Command> {
    let mut manager = Command::new(plan.tools.path("kube-controller-manager")?);
    manager
        .arg(format!(
            "--kubeconfig={INSIDE}/controller-manager.kubeconfig"
        ))
        .arg(format!("--root-ca-file={INSIDE}/pki/ca.crt"))
        .arg(format!(
            "--service-account-private-key-file={INSIDE}/pki/service-accounts.key"
        ))
        .arg(format!("--cert-dir={INSIDE}/pki"))
        .args(["--leader-elect=false", "--enable-hostpath-provisioner"])
        .args(["--kube-api-qps=500", "--kube-api-burst=1000"]);
    if plan.spec.kwok() {
        // fake nodes renew their leases too seldom for the default of 50 s, and all pods would count as lost again and again
        manager.arg("--node-monitor-grace-period=1h");
    }
    Ok(manager)
}

pub(crate) fn scheduler(plan: &Plan) -> Result<Command> {
    let mut scheduler = Command::new(plan.tools.path("kube-scheduler")?);
    scheduler
        .arg(format!("--kubeconfig={INSIDE}/scheduler.kubeconfig"))
        .arg(format!("--cert-dir={INSIDE}/pki"))
        .args([
            "--leader-elect=false",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
        ]);
    Ok(scheduler)
}

pub(crate) fn kwok(plan: &Plan) -> Result<Command> {
    let mut kwok = Command::new(plan.tools.path("kwok")?);
    kwok.arg(format!("--kubeconfig={INSIDE}/kwok.kubeconfig"))
        .arg(format!("--config={INSIDE}/kwok.yaml"))
        .arg("--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake")
        .arg("--node-lease-duration-seconds=400")
        .arg(format!("--node-ip={}", plan.net().node()))
        // nothing answers there, so the range only has to be large
        .arg("--cidr=10.128.0.1/10");
    // it would otherwise read and write a configuration in the user's home
    kwok.env("KWOK_WORKDIR", format!("{INSIDE}/tmp"));
    Ok(kwok)
}

pub(crate) fn kubelet(plan: &Plan, node: &NodeTools) -> Result<Command> {
    let mut kubelet = Command::new(plan.tools.path("kubelet")?);
    kubelet
        .arg(format!("--kubeconfig={INSIDE}/kubelet.kubeconfig"))
        .arg(format!("--config={INSIDE}/kubelet.yaml"))
        .arg(format!("--hostname-override={NODE_NAME}"))
        .arg(format!("--node-ip={}", plan.net().node()));
    with_path(&mut kubelet, &node.path)?;
    Ok(kubelet)
}

pub(crate) fn kube_proxy(plan: &Plan, node: &NodeTools) -> Result<Command> {
    let mut proxy = Command::new(plan.tools.path("kube-proxy")?);
    proxy
        .arg(format!("--kubeconfig={INSIDE}/proxy.kubeconfig"))
        .arg(format!("--cluster-cidr={}", plan.net().pods()))
        .arg(format!("--hostname-override={NODE_NAME}"))
        // the connection table's size belongs to the machine
        .args(["--proxy-mode=iptables", "--conntrack-max-per-core=0"])
        // the default waits a second between a service and its rules
        .args(["--iptables-min-sync-period=100ms"]);
    node_environment(&mut proxy, node)?;
    Ok(proxy)
}

pub(crate) fn containerd(node: &NodeTools) -> Result<Command> {
    let mut containerd = node_program(node, "containerd")?;
    containerd
        .arg(format!("--config={INSIDE}/containerd.toml"))
        .arg("--log-level=info");
    node_environment(&mut containerd, node)?;
    Ok(containerd)
}

/// `ctr` on the namespace that the kubelet uses.
pub(crate) fn ctr(node: &NodeTools) -> Result<Command> {
    let mut ctr = node_program(node, "ctr")?;
    ctr.args(CTR_OPTIONS);
    Ok(ctr)
}

/// How `ctr` finds what the kubelet sees.
pub(crate) const CTR_OPTIONS: [&str; 2] = [
    "--address=/run/containerd/containerd.sock",
    "--namespace=k8s.io",
];

/// By its full path: this process does not have the node's `PATH`.
fn node_program(node: &NodeTools, name: &str) -> Result<Command> {
    let program = node.path.iter().map(|d| d.join(name)).find(|p| p.is_file());
    let program = program.with_context(|| format!("{name} is not among the node's programs"))?;
    Ok(Command::new(program))
}

fn with_path(command: &mut Command, dirs: &[impl AsRef<Path>]) -> Result<()> {
    let old =
        env::var_os("PATH").unwrap_or_else(|| OsString::from("/usr/sbin:/usr/bin:/sbin:/bin"));
    let all = dirs
        .iter()
        .map(|d| d.as_ref().to_owned())
        .chain(env::split_paths(&old));
    command.env("PATH", env::join_paths(all).context("joining PATH")?);
    Ok(())
}

/// Lets a command run the node's programs, which may not be installed on the machine.
fn node_environment(command: &mut Command, node: &NodeTools) -> Result<()> {
    with_path(
        command,
        &[node.iptables.as_slice(), node.path.as_slice()].concat(),
    )?;
    if !node.libraries.is_empty() {
        command.env(
            "LD_LIBRARY_PATH",
            env::join_paths(&node.libraries).context("joining paths")?,
        );
    }
    if let Some(xtables) = &node.xtables {
        command.env("XTABLES_LIBDIR", xtables);
    }
    Ok(())
}

/// Keeps the first iptables that works with this kernel.
pub(crate) fn choose_iptables(node: &mut NodeTools) -> Result<()> {
    let mut errors = String::new();
    for dir in std::mem::take(&mut node.iptables) {
        let mut trial = Command::new(dir.join("iptables"));
        node_environment(&mut trial, node)?;
        let rule = [
            "-t",
            "nat",
            "-A",
            "OUTPUT",
            "-m",
            "comment",
            "--comment",
            "trial",
        ];
        let rule = rule
            .iter()
            .chain(&["-m", "conntrack", "--ctstate", "NEW", "-j", "ACCEPT"]);
        match run(trial.args(rule), "trying iptables") {
            Ok(_) => {
                let mut flush = Command::new(dir.join("iptables"));
                node_environment(&mut flush, node)?;
                run(
                    flush.args(["-t", "nat", "-F", "OUTPUT"]),
                    "removing the trial rule",
                )?;
                node.iptables = vec![dir];
                return Ok(());
            }
            Err(error) => errors.push_str(&format!("\n{error:#}")),
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    anyhow::bail!(
        "the kernel supports neither kind of iptables (nf_tables and ip_tables with nat and conntrack are needed):{errors}"
    )
}

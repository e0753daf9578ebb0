//! The network of the node: addresses of pods, the ways between them, the host and the world, and who may use them.
//!
//! Each pod is at one end of a pair of links; the other end is on the host, which has a route to that one address.
//! There is no bridge: on a bridge two pods would talk past the host's routing, and policy would need a second table
//! in the bridge's own family. So every packet of a pod passes the host's forwarding, or its input, and one table has
//! all rules. Only IPv4; what a pod says in IPv6 is dropped.
//!
//! By default a pod reaches the world through the host's address, networks that the host is in included (a policy can
//! close those), the resolver on the gateway's address, and nothing else: not the host's services, the API among them,
//! not another pod of this or another instance, not the metadata addresses of clouds. The host reaches every pod. What
//! policies change about that is in `policy`, what becomes of connections that exist in `rules::base`.
//!
//! A pod that was attached cannot send until `enforce` was called with it, so no packet leaves before its policies
//! are in place. Rules of other programs stay in force beside these: a firewall that drops what is forwarded cuts pods
//! off from the world.
//!
//! Everything here needs the rights of an administrator of the network. Without, `Network::none` leaves pods their
//! loopback link, which `dial_from_inside` reaches.

mod dns;
mod error;
mod forwarding;
mod namespace;
mod netlink;
mod nftables;
mod policy;
mod range;
mod record;
mod routed;
pub mod rules;
mod turn;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

pub(crate) use dns::DOMAIN;
pub use dns::Records;
pub use error::{KernelError, NetworkError};
pub use forwarding::Forwarding;
pub use ipnet::Ipv4Net;
pub use namespace::{DialError, dial, dial_from_inside, loopback_from_inside};
pub use policy::{NamedPort, PolicyPod, Snapshot};

use rustix::thread::CapabilitySet;

use namespace::on_a_thread;
use record::Record;
use routed::Routed;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the instance keeps `network.json` and `network/`. Two directories are two instances.
    pub directory: PathBuf,
    /// Which addresses pods get. Without, some that nothing on this machine uses.
    pub range: Option<Ipv4Net>,
    /// Where the resolvers of the host are named.
    pub resolv_conf: PathBuf,
}

impl Settings {
    pub fn new(directory: impl Into<PathBuf>) -> Settings {
        Settings {
            directory: directory.into(),
            range: None,
            resolv_conf: PathBuf::from("/etc/resolv.conf"),
        }
    }
}

/// The network of one instance. It outlives this process unless it is closed.
#[derive(Debug)]
pub struct Network {
    routed: Option<Routed>,
}

impl Network {
    /// Takes up what an earlier process left, or makes everything anew. Pods that are still attached go on under the
    /// rules they had, until `enforce` replaces these.
    pub async fn open(settings: Settings) -> Result<Network, NetworkError> {
        if !is_permitted() {
            return Err(NetworkError::NotPermitted);
        }
        let routed = Some(Routed::open(settings).await?);
        Ok(Network { routed })
    }

    /// No network: pods have their loopback link.
    pub fn none() -> Network {
        Network { routed: None }
    }

    /// Puts a pod on the net, by its network namespace such as `/proc/<pid>/ns/net`. A pod that was attached before
    /// keeps its address, but gets a new link. None without a network.
    pub async fn attach(
        &self,
        pod: &str,
        namespace: &Path,
    ) -> Result<Option<Ipv4Addr>, NetworkError> {
        match &self.routed {
            Some(routed) => routed.attach(pod, namespace).await.map(Some),
            None => Ok(None),
        }
    }

    /// Takes a pod off the net, if it is on it, and its address back.
    pub async fn detach(&self, pod: &str) -> Result<(), NetworkError> {
        match &self.routed {
            Some(routed) => routed.detach(pod).await,
            None => Ok(()),
        }
    }

    /// Detaches every pod but these, and removes links that belong to no pod.
    pub async fn sweep(&self, known: &BTreeSet<String>) -> Result<(), NetworkError> {
        match &self.routed {
            Some(routed) => routed.sweep(known).await,
            None => Ok(()),
        }
    }

    /// Makes the rules be what the policies want, all at once. Pods that are not attached are left out; attached ones
    /// that are not in the snapshot cannot send.
    pub async fn enforce(&self, snapshot: &Snapshot) -> Result<(), NetworkError> {
        match &self.routed {
            Some(routed) => routed.enforce(snapshot).await,
            None => Ok(()),
        }
    }

    /// Which names the resolver knows from now on.
    pub fn set_records(&self, records: Records) {
        if let Some(routed) = &self.routed {
            routed.set_records(records);
        }
    }

    /// The attached pods.
    pub fn addresses(&self) -> BTreeMap<String, Ipv4Addr> {
        self.routed
            .as_ref()
            .map(Routed::addresses)
            .unwrap_or_default()
    }

    /// The host's address as pods know it.
    pub fn gateway(&self) -> Option<Ipv4Addr> {
        self.routed.as_ref().map(Routed::gateway)
    }

    /// The addresses that pods have.
    pub fn range(&self) -> Option<Ipv4Net> {
        self.routed.as_ref().map(Routed::range)
    }

    /// What `/etc/resolv.conf` says in pods of a namespace; nothing without a network.
    pub fn resolv_conf(&self, namespace: &str) -> String {
        let gateway = self.gateway();
        gateway.map_or_else(String::new, |gateway| dns::resolv_conf(gateway, namespace))
    }

    /// The rules as `nft` would list them; empty before the first `enforce`.
    pub async fn describe(&self) -> String {
        match &self.routed {
            Some(routed) => routed.describe().await,
            None => String::new(),
        }
    }

    /// Stops the resolver and leaves all else as it is, for a process that comes back.
    pub async fn leave(self) {
        if let Some(routed) = self.routed {
            routed.stop().await;
        }
    }

    /// Stops and removes every trace.
    pub async fn close(self) -> Result<Forwarding, NetworkError> {
        match self.routed {
            Some(routed) => {
                let record = routed.stop().await;
                on_a_thread(move || routed::remove(&record)).await
            }
            None => Ok(Forwarding::Untouched),
        }
    }
}

/// Whether this process may manage links and rules.
pub fn is_permitted() -> bool {
    let own = rustix::thread::capabilities(None);
    own.is_ok_and(|own| own.effective.contains(CapabilitySet::NET_ADMIN))
}

/// Removes every trace of an instance that no process runs.
pub async fn remove(directory: &Path) -> Result<Forwarding, NetworkError> {
    let record = Record::at(directory);
    on_a_thread(move || routed::remove(&record)).await
}

/// The names of the nftables tables of this machine that could be an instance's.
pub async fn tables() -> Result<Vec<String>, NetworkError> {
    on_a_thread(|| nftables::tables().map_err(NetworkError::kernel("list the rules"))).await
}

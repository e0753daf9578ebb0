//! The resolver of pods: names of the cluster from records, all others from the resolvers of the host.
//!
//! It listens on the gateway's address, by UDP and TCP. Whoever asks has a source address that the rules vouch for, so
//! it decides who may ask for names outside. Every packet is hostile: of a query that goes on to others only the
//! question is kept, and how much may be under way at once is bounded, for each pod and for all.

mod forward;
mod records;
mod server;
mod wire;

pub use records::Records;
pub(super) use server::Server;

/// The names of the cluster end so.
pub(crate) const DOMAIN: &str = "cluster.local";

/// What `/etc/resolv.conf` of a pod says.
pub(super) fn resolv_conf(gateway: std::net::Ipv4Addr, namespace: &str) -> String {
    format!(
        "search {namespace}.svc.{DOMAIN} svc.{DOMAIN} {DOMAIN}\n\
         nameserver {gateway}\n\
         options ndots:5\n"
    )
}

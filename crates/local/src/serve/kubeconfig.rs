//! What clients need to know, in the file that all of them read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

/// The name of the cluster and of the context.
const NAME: &str = "sandbar";

/// Where a client on the same machine finds a server that listens on `address`.
pub(super) fn server(address: SocketAddr) -> String {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    format!("https://{}", SocketAddr::new(ip, address.port()))
}

/// A kubeconfig that needs no other file. JSON is YAML.
pub(super) fn render(server: &str, authority: &str, user: &str, token: &str) -> String {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": NAME,
        "clusters": [{
            "name": NAME,
            "cluster": {
                "server": server,
                "certificate-authority-data": STANDARD.encode(authority),
            },
        }],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": user}}],
    });
    format!("{config:#}\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::server;

    #[test]
    fn a_client_is_sent_to_an_address_that_it_can_connect_to() {
        for (address, url) in [
            ("127.0.0.1:7443", "https://127.0.0.1:7443"),
            ("0.0.0.0:1", "https://127.0.0.1:1"),
            ("[::]:1", "https://[::1]:1"),
            ("10.1.2.3:443", "https://10.1.2.3:443"),
        ] {
            assert_eq!(server(address.parse().unwrap()), url);
        }
    }
}

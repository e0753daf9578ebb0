//! Files that containers of a pod share, and those of their runs.

use std::{fs, io, net::Ipv4Addr, path::Path};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;

/// A file of a run, and what was rotated away from it.
pub(super) fn forget(newest: &Path) -> io::Result<()> {
    let (Some(directory), Some(name)) = (newest.parent(), newest.file_name()) else {
        return Ok(());
    };
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let file = entry.file_name();
        let bytes = file.as_encoded_bytes();
        let rest = bytes.strip_prefix(name.as_encoded_bytes());
        if rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b".")) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// What `/etc/hosts` says in a pod.
pub(super) fn hosts(pod: &Pod, hostname: &str, address: Option<Ipv4Addr>) -> String {
    let mut text = "127.0.0.1\tlocalhost\n\
        ::1\tlocalhost ip6-localhost ip6-loopback\n\
        fe00::0\tip6-localnet\n\
        fe00::0\tip6-mcastprefix\n\
        fe00::1\tip6-allnodes\n\
        fe00::2\tip6-allrouters\n"
        .to_owned();
    let spec = pod.spec.as_ref();
    let subdomain = spec.and_then(|spec| spec.subdomain.as_deref());
    let namespace = pod.namespace().unwrap_or_default();
    let full = subdomain
        .filter(|subdomain| !subdomain.is_empty())
        .map(|subdomain| format!("{hostname}.{subdomain}.{namespace}.svc.cluster.local\t"));
    let own = address.unwrap_or(Ipv4Addr::LOCALHOST);
    text += &format!("{own}\t{}{hostname}\n", full.unwrap_or_default());
    for alias in spec
        .iter()
        .flat_map(|spec| spec.host_aliases.iter().flatten())
    {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        text += &format!("{}\t{names}\n", alias.ip);
    }
    text
}

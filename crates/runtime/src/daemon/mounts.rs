//! Volumes that `/init` names: directories of an NFS server.

use std::ffi::CString;
use std::fs;
use std::net::IpAddr;

use rustix::mount::{MountFlags, mount};
use serde::Deserialize;

#[derive(Deserialize)]
pub(super) struct VolumeMount {
    /// `<address>:<directory>`.
    nfs_target: String,
    path: String,
}

/// Mounts what is not mounted yet.
pub(super) fn mount_all(volumes: &[VolumeMount]) -> Result<(), String> {
    if volumes.is_empty() {
        return Ok(());
    }
    let mounted = fs::read_to_string("/proc/self/mounts")
        .map_err(|e| format!("cannot read what is mounted: {e}"))?;
    volumes
        .iter()
        .filter(|volume| !is_mounted(&mounted, volume))
        .try_for_each(mount_one)
}

fn is_mounted(mounted: &str, volume: &VolumeMount) -> bool {
    mounted.lines().any(|line| {
        let mut fields = line.split(' ');
        fields.next() == Some(&volume.nfs_target) && fields.next() == Some(&volume.path)
    })
}

fn mount_one(volume: &VolumeMount) -> Result<(), String> {
    let VolumeMount { nfs_target, path } = volume;
    let address = server(nfs_target)
        .ok_or_else(|| format!("nfs_target '{nfs_target}' is not <address>:<directory>"))?;
    let options = format!(
        "addr={address},vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=2049,nolock,noacl"
    );
    let options = CString::new(options).map_err(|e| e.to_string())?;
    fs::create_dir_all(path).map_err(|e| format!("cannot make '{path}': {e}"))?;
    mount(nfs_target, path, "nfs", MountFlags::empty(), &*options)
        .map_err(|e| format!("cannot mount {nfs_target} at '{path}': {e}"))
}

/// The kernel does not resolve names.
fn server(target: &str) -> Option<IpAddr> {
    let (host, directory) = target.rsplit_once(":/")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    (!directory.contains('\0')).then(|| host.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::{VolumeMount, is_mounted, server};

    #[test]
    fn a_volume_that_is_mounted_is_left_alone() {
        let volume = VolumeMount {
            nfs_target: "10.0.0.1:/data".into(),
            path: "/mnt/data".into(),
        };
        let mounted = "proc /proc proc rw 0 0\n10.0.0.1:/data /mnt/data nfs rw 0 0\n";
        assert!(is_mounted(mounted, &volume));
        assert!(!is_mounted(
            "10.0.0.1:/data /mnt/other nfs rw 0 0\n",
            &volume
        ));
    }

    #[test]
    fn a_target_names_the_address_of_its_server() {
        assert_eq!(server("10.0.0.1:/data"), "10.0.0.1".parse().ok());
        assert_eq!(server("[fd00::1]:/data"), "fd00::1".parse().ok());
        assert_eq!(server("storage:/data"), None);
        assert_eq!(server("10.0.0.1"), None);
    }
}

//! From a request of CSI to a mount. Nothing is touched here.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use rustix::mount::MountFlags;

use crate::code::Code;
use crate::daemon::error::Error;
use crate::daemon::mounts::{Mount, Source};
use crate::messages::csi::NodePublishVolumeRequest;

const SUPPORTED: &str = "'bind', 'nfs' and 'nfs.csi.k8s.io'";

/// What servers of today speak; the kernel does not negotiate by itself.
const NFS_VERSION: &str = "vers=4.1";

const FLAGS: [(&str, MountFlags); 6] = [
    ("rw", MountFlags::empty()),
    ("ro", MountFlags::RDONLY),
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
];

pub(super) fn of(driver: &str, request: &NodePublishVolumeRequest) -> Result<Mount, Error> {
    let (mut flags, options) = flags_and_options(request)?;
    let source = match driver {
        "bind" => directory(&request.volume_context, &options),
        "nfs" | "nfs.csi.k8s.io" => export(&request.volume_context, options),
        _ => Err(Error::new(
            Code::Unimplemented,
            format!("storage driver '{driver}' is not supported, only {SUPPORTED} are"),
        )),
    }?;
    let target = PathBuf::from(&request.target_path);
    if !target.is_absolute() || request.target_path.contains('\0') {
        let message = format!("targetPath '{}' is not absolute", request.target_path);
        return Err(Error::invalid(message));
    }
    if request.readonly {
        flags |= MountFlags::RDONLY;
    }
    Ok(Mount {
        source,
        target,
        flags,
    })
}

/// Flags are the kernel's, options the file system's.
fn flags_and_options(request: &NodePublishVolumeRequest) -> Result<(MountFlags, Vec<&str>), Error> {
    let capability = request.volume_capability.as_ref();
    if capability.is_some_and(|capability| capability.block.is_some()) {
        return Err(Error::invalid(
            "a block volume cannot be mounted here, only directories",
        ));
    }
    let said = capability.and_then(|capability| capability.mount.as_ref());
    let said = said.map_or(&[][..], |mount| &mount.mount_flags);
    let mut flags = MountFlags::empty();
    let mut options = Vec::new();
    for name in said.iter().flat_map(|several| several.split(',')) {
        match FLAGS.iter().find(|(known, _)| *known == name) {
            Some((_, flag)) => flags |= *flag,
            None => options.push(name),
        }
    }
    Ok((flags, options))
}

fn directory(attributes: &BTreeMap<String, String>, options: &[&str]) -> Result<Source, Error> {
    if let Some(option) = options.first() {
        return Err(Error::invalid(format!(
            "driver 'bind' knows no mount flag '{option}'"
        )));
    }
    attribute(attributes, "path")?;
    Ok(Source::Directory(joined(attributes, &["path"])?))
}

fn export(attributes: &BTreeMap<String, String>, mut options: Vec<&str>) -> Result<Source, Error> {
    let server = attribute(attributes, "server")?;
    let directory = joined(attributes, &["share", "subDir", "path"])?;
    let server = if server.contains(':') && !server.starts_with('[') {
        format!("[{server}]")
    } else {
        server.to_owned()
    };
    let has_version = |option: &&str| option.starts_with("vers=") || option.starts_with("nfsvers=");
    if !options.iter().any(has_version) {
        options.push(NFS_VERSION);
    }
    Source::nfs(
        &format!("{server}:{}", directory.display()),
        &options.join(","),
    )
}

fn attribute<'a>(attributes: &'a BTreeMap<String, String>, name: &str) -> Result<&'a str, Error> {
    match attributes.get(name) {
        Some(value) if !value.is_empty() => Ok(value),
        _ => Err(Error::invalid(format!(
            "the volume has no attribute '{name}'"
        ))),
    }
}

/// Attributes below each other, as far as they are there.
fn joined(attributes: &BTreeMap<String, String>, names: &[&str]) -> Result<PathBuf, Error> {
    let mut path = PathBuf::from("/");
    for (name, value) in names
        .iter()
        .filter_map(|name| attributes.get_key_value(*name))
    {
        for component in Path::new(value).components() {
            match component {
                Component::RootDir => {}
                Component::Normal(part) if !value.contains('\0') => path.push(part),
                _ => {
                    let message = format!(
                        "attribute '{name}' of the volume is '{value}', which leads elsewhere"
                    );
                    return Err(Error::invalid(message));
                }
            }
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use rustix::mount::MountFlags;
    use serde_json::{Value, json};

    use super::of;
    use crate::code::Code;
    use crate::daemon::mounts::Source;
    use crate::messages::csi::NodePublishVolumeRequest;

    fn request(attributes: Value, flags: Value) -> NodePublishVolumeRequest {
        serde_json::from_value(json!({
            "targetPath": "/mnt/x",
            "volumeContext": attributes,
            "volumeCapability": {"mount": {"mountFlags": flags}},
        }))
        .unwrap()
    }

    #[test]
    fn an_export_is_made_of_the_attributes_of_either_kind_of_driver() {
        for (attributes, flags, exported, with) in [
            (
                json!({"server": "10.0.0.1", "path": "/data/sub"}),
                json!([]),
                "10.0.0.1:/data/sub",
                "addr=10.0.0.1,vers=4.1",
            ),
            (
                json!({"server": "fd00::1", "share": "/a/", "subDir": "b", "path": "/"}),
                json!(["nfsvers=3,nolock", "hard"]),
                "[fd00::1]:/a/b",
                "addr=fd00::1,nfsvers=3,nolock,hard",
            ),
        ] {
            let mount = of("nfs", &request(attributes, flags)).unwrap();
            let Source::Nfs { export, options } = mount.source else {
                panic!("{:?}", mount.source);
            };
            assert_eq!((&*export, options.to_str()), (exported, Ok(with)));
        }
    }

    #[test]
    fn flags_are_the_kernels_and_the_volume_is_read_only_if_either_says_so() {
        let attributes = json!({"path": "/data"});
        let mut asked = request(attributes.clone(), json!(["nosuid,nodev"]));
        let flags = |asked: &NodePublishVolumeRequest| of("bind", asked).unwrap().flags;
        assert_eq!(flags(&asked), MountFlags::NOSUID | MountFlags::NODEV);
        asked.readonly = true;
        assert!(flags(&asked).contains(MountFlags::RDONLY));
        assert_eq!(
            flags(&request(attributes, json!(["ro"]))),
            MountFlags::RDONLY
        );
    }

    #[test]
    fn what_cannot_be_mounted_is_named() {
        let nothing = json!([]);
        for (driver, attributes, flags, code, says) in [
            (
                "oss.example.com",
                json!({}),
                &nothing,
                Code::Unimplemented,
                "'oss.example.com'",
            ),
            ("bind", json!({}), &nothing, Code::InvalidArgument, "'path'"),
            (
                "bind",
                json!({"path": "/a/../b"}),
                &nothing,
                Code::InvalidArgument,
                "'/a/../b'",
            ),
            (
                "bind",
                json!({"path": "/a"}),
                &json!(["vers=3"]),
                Code::InvalidArgument,
                "'vers=3'",
            ),
            (
                "nfs",
                json!({"path": "/a"}),
                &nothing,
                Code::InvalidArgument,
                "'server'",
            ),
            (
                "nfs",
                json!({"server": "name"}),
                &nothing,
                Code::InvalidArgument,
                "'name:/'",
            ),
        ] {
            let refusal = of(driver, &request(attributes, flags.clone())).unwrap_err();
            assert_eq!(refusal.code, code, "{}", refusal.message);
            assert!(refusal.message.contains(says), "{}", refusal.message);
        }
    }

    #[test]
    fn neither_a_block_volume_nor_a_relative_target_is_mounted() {
        let mut block = request(json!({"path": "/a"}), json!([]));
        block.volume_capability = serde_json::from_value(json!({"block": {}})).unwrap();
        let mut relative = request(json!({"path": "/a"}), json!([]));
        relative.target_path = "mnt".into();
        for asked in [block, relative] {
            assert_eq!(of("bind", &asked).unwrap_err().code, Code::InvalidArgument);
        }
    }
}

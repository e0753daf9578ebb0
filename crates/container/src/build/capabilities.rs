//! Which capabilities a container has.

use std::collections::BTreeSet;

use super::BuildError;
use crate::settings::Capabilities;

/// What container runtimes give everybody, without the two that reach beyond the container: raw sockets, which could forge
/// packets on the pods' bridge, and the making of devices.
const DEFAULT: [&str; 12] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// What may be added on top.
const GRANTABLE: [&str; 11] = [
    "BLOCK_SUSPEND",
    "IPC_LOCK",
    "IPC_OWNER",
    "LEASE",
    "NET_ADMIN",
    "NET_BROADCAST",
    "NET_RAW",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TTY_CONFIG",
    "WAKE_ALARM",
];

/// Whoever has one of these has the machine, unless whoever started Sandbar does not have it either.
const DECISIVE: [&str; 17] = [
    "AUDIT_CONTROL",
    "AUDIT_READ",
    "BPF",
    "CHECKPOINT_RESTORE",
    "DAC_READ_SEARCH",
    "LINUX_IMMUTABLE",
    "MAC_ADMIN",
    "MAC_OVERRIDE",
    "MKNOD",
    "PERFMON",
    "SYSLOG",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_MODULE",
    "SYS_PACCT",
    "SYS_RAWIO",
    "SYS_TIME",
];

/// With the right to trace whom it likes a container is one step from whoever enters it to run a command, who has not yet left
/// everything outside behind. To trace its own processes it needs none.
const NEVER: &str = "SYS_PTRACE";

/// The names, with `CAP_`, of what is granted.
pub(super) fn granted(
    wanted: &Capabilities,
    user_namespace: bool,
) -> Result<BTreeSet<String>, BuildError> {
    let mut granted: BTreeSet<&str> = DEFAULT.into();
    for name in &wanted.drop {
        match plain(name).as_str() {
            "ALL" => granted.clear(),
            name => {
                known(name)?;
                granted.remove(name);
            }
        }
    }
    for name in &wanted.add {
        let name = plain(name);
        if name == NEVER {
            return Err(BuildError::Refused(format!(
                "capability {name} is never granted, because commands that enter the container could be taken over with it: \
                 to trace processes of the same user no capability is needed"
            )));
        }
        if !user_namespace && (name == "ALL" || DECISIVE.contains(&name.as_str())) {
            return Err(BuildError::Refused(format!(
                "capability {name} would hand over the machine and is granted to no pod of a sandbar that runs as root, with \
                 hostUsers: false or without: run sandbar as an ordinary user"
            )));
        }
        match name.as_str() {
            "ALL" => granted.extend(all()),
            name => {
                granted.insert(known(name)?);
            }
        }
    }
    Ok(granted.into_iter().map(|n| format!("CAP_{n}")).collect())
}

fn all() -> impl Iterator<Item = &'static str> {
    DEFAULT.into_iter().chain(GRANTABLE).chain(DECISIVE)
}

fn known(name: &str) -> Result<&'static str, BuildError> {
    all()
        .chain([NEVER])
        .find(|known| *known == name)
        .ok_or_else(|| BuildError::Refused(format!("there is no capability {name:?}")))
}

fn plain(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    upper.strip_prefix("CAP_").unwrap_or(&upper).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{DEFAULT, granted};
    use crate::settings::Capabilities;

    fn capabilities(add: &[&str], drop: &[&str]) -> Capabilities {
        let own = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
        Capabilities {
            add: own(add),
            drop: own(drop),
        }
    }

    #[test]
    fn the_default_set_neither_forges_packets_nor_makes_devices() {
        let set = granted(&Capabilities::default(), false).unwrap();
        assert_eq!(set.len(), DEFAULT.len());
        assert!(!set.contains("CAP_NET_RAW") && !set.contains("CAP_MKNOD"));
    }

    #[test]
    fn what_is_dropped_and_added_again_is_there() {
        let set = granted(&capabilities(&["net_admin", "CAP_KILL"], &["ALL"]), false).unwrap();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        assert_eq!(set, ["CAP_KILL", "CAP_NET_ADMIN"]);
    }

    #[test]
    fn the_machine_is_not_handed_over() {
        for name in ["SYS_ADMIN", "CAP_SYS_MODULE", "mknod", "ALL"] {
            assert!(
                granted(&capabilities(&[name], &[]), false).is_err(),
                "{name}"
            );
            assert!(granted(&capabilities(&[name], &[]), true).is_ok(), "{name}");
        }
    }

    #[test]
    fn the_right_to_trace_is_granted_to_nobody() {
        for user_namespace in [true, false] {
            for name in ["SYS_PTRACE", "cap_sys_ptrace"] {
                let refused = granted(&capabilities(&[name], &[]), user_namespace);
                let refused = refused.unwrap_err().to_string();
                assert!(refused.contains("is never granted"), "{refused}");
            }
        }
        let all = granted(&capabilities(&["ALL"], &[]), true).unwrap();
        assert!(all.contains("CAP_SYS_ADMIN") && !all.contains("CAP_SYS_PTRACE"));
        assert!(granted(&capabilities(&[], &["SYS_PTRACE"]), false).is_ok());
    }

    #[test]
    fn who_is_refused_is_not_sent_where_he_is_already() {
        let refused = granted(&capabilities(&["SYS_ADMIN"], &[]), false).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "capability SYS_ADMIN would hand over the machine and is granted to no pod of a sandbar that runs as root, \
             with hostUsers: false or without: run sandbar as an ordinary user"
        );
    }

    #[test]
    fn unknown_names_are_refused() {
        assert!(granted(&capabilities(&["FLY"], &[]), false).is_err());
        assert!(granted(&capabilities(&[], &["FLY"]), false).is_err());
    }
}

//! Pods that this node never runs, whatever time brings. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, Sysctl};

use super::trouble::Trouble;

/// Settings of the kernel that each pod has of its own, and with which it harms nobody else: those that Kubernetes calls safe.
const SAFE: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];

/// Why a pod is not run here, with the reason of its status.
pub(crate) fn rejection(spec: &PodSpec, is_isolated: bool) -> Option<Trouble> {
    let name = asked(spec)
        .map(name)
        .find(|name| !is_isolated || !SAFE.contains(&name.as_str()))?;
    let why = match is_isolated {
        true => format!("only these can be set: {}", SAFE.join(", ")),
        false => "without isolation the kernel's settings are those of this machine".to_owned(),
    };
    let message = format!("sysctl {name:?} is forbidden on this node: {why}");
    Some(Trouble::new("SysctlForbidden", message))
}

/// What the kernel is to be told for a pod, by names with dots.
pub(crate) fn sysctls(spec: &PodSpec) -> BTreeMap<String, String> {
    let all = asked(spec).map(|sysctl| (name(sysctl), sysctl.value.clone()));
    all.collect()
}

fn asked(spec: &PodSpec) -> impl Iterator<Item = &Sysctl> {
    let context = spec.security_context.iter();
    context.flat_map(|context| context.sysctls.iter().flatten())
}

/// Kubernetes takes slashes for dots, and then dots for slashes.
fn name(sysctl: &Sysctl) -> String {
    let name = &sysctl.name;
    match name.find(['.', '/']).map(|at| &name[at..=at]) {
        Some("/") => {
            let swapped = name.chars().map(|one| match one {
                '/' => '.',
                '.' => '/',
                other => other,
            });
            swapped.collect()
        }
        _ => name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodSpec;
    use serde_json::{from_value, json};

    use super::{rejection, sysctls};

    fn spec(sysctls: &[(&str, &str)]) -> PodSpec {
        let sysctls = sysctls.iter();
        let sysctls = sysctls.map(|(name, value)| json!({"name": name, "value": value}));
        let context = json!({"sysctls": sysctls.collect::<Vec<_>>()});
        from_value(json!({"containers": [], "securityContext": context})).unwrap()
    }

    #[test]
    fn safe_settings_are_set_and_others_are_no_pods_business() {
        let safe = spec(&[
            ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
            ("net/ipv4/tcp_syncookies", "0"),
        ]);
        assert_eq!(rejection(&safe, true), None);
        let set: Vec<_> = sysctls(&safe).into_iter().collect();
        let expected = [
            ("net.ipv4.tcp_rmem", "4096 131072 6291456"),
            ("net.ipv4.tcp_syncookies", "0"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(set, expected);
        for forbidden in [
            "kernel.msgmax",
            "net.core.somaxconn",
            "vm/swappiness",
            "net",
        ] {
            let asked = spec(&[("net.ipv4.tcp_syncookies", "1"), (forbidden, "1")]);
            let rejection = rejection(&asked, true).unwrap();
            assert_eq!(rejection.reason, "SysctlForbidden");
            let name = forbidden.replace('/', ".");
            assert!(rejection.message.contains(&name), "{}", rejection.message);
        }
        assert_eq!(rejection(&spec(&[]), true), None);
    }

    #[test]
    fn without_isolation_no_setting_is_a_pods_own() {
        assert!(rejection(&spec(&[("net.ipv4.tcp_syncookies", "1")]), false).is_some());
        assert_eq!(rejection(&spec(&[]), false), None);
    }
}

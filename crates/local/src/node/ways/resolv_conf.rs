//! What `/etc/resolv.conf` says in a pod, by its policy and what it adds. Pure.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::{Pod, PodDNSConfig};

use crate::network::DOMAIN;

/// Resolvers that a library asks; more are ignored.
const NAMESERVERS: usize = 3;
/// As many domains as a kubelet lets through, and characters in all of them.
const SEARCHES: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

#[derive(Default)]
struct Resolver {
    nameservers: Vec<String>,
    searches: Vec<String>,
    options: Vec<(String, Option<String>)>,
}

/// What the host asks is no use in a pod, where the host's loopback is not: pods with the policy `Default` ask the gateway as
/// well, and do not search the cluster.
pub(super) fn resolv_conf(gateway: Ipv4Addr, pod: &Pod) -> String {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    let spec = pod.spec.as_ref();
    let on_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref());
    let mut resolver = match policy.unwrap_or("ClusterFirst") {
        "None" => Resolver::default(),
        "Default" => Resolver::at(gateway),
        "ClusterFirst" if on_host => Resolver::at(gateway),
        _ => Resolver::of_cluster(gateway, namespace),
    };
    if let Some(more) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        resolver.add(more);
    }
    resolver.text()
}

impl Resolver {
    fn at(gateway: Ipv4Addr) -> Self {
        Self {
            nameservers: vec![gateway.to_string()],
            ..Self::default()
        }
    }

    fn of_cluster(gateway: Ipv4Addr, namespace: &str) -> Self {
        let services = format!("svc.{DOMAIN}");
        Self {
            searches: vec![
                format!("{namespace}.{services}"),
                services,
                DOMAIN.to_owned(),
            ],
            options: vec![("ndots".to_owned(), Some("5".to_owned()))],
            ..Self::at(gateway)
        }
    }

    fn add(&mut self, more: &PodDNSConfig) {
        add_new(&mut self.nameservers, more.nameservers.as_deref());
        add_new(&mut self.searches, more.searches.as_deref());
        for option in more.options.iter().flatten() {
            let Some(name) = &option.name else { continue };
            let known = self.options.iter_mut().find(|(known, _)| known == name);
            match known {
                Some((_, value)) => value.clone_from(&option.value),
                None => self.options.push((name.clone(), option.value.clone())),
            }
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        let mut room = SEARCH_CHARACTERS;
        let searches = self.searches.iter().take(SEARCHES).take_while(|domain| {
            let left = room.checked_sub(domain.len());
            room = left.map_or(0, |left| left.saturating_sub(1));
            left.is_some()
        });
        let searches: Vec<_> = searches.map(String::as_str).collect();
        if !searches.is_empty() {
            text += &format!("search {}\n", searches.join(" "));
        }
        for nameserver in self.nameservers.iter().take(NAMESERVERS) {
            text += &format!("nameserver {nameserver}\n");
        }
        let option = |(name, value): &(String, Option<String>)| match value {
            Some(value) if !value.is_empty() => format!("{name}:{value}"),
            _ => name.clone(),
        };
        let options: Vec<_> = self.options.iter().map(option).collect();
        if !options.is_empty() {
            text += &format!("options {}\n", options.join(" "));
        }
        text
    }
}

fn add_new(all: &mut Vec<String>, more: Option<&[String]>) {
    for one in more.into_iter().flatten() {
        if !all.contains(one) {
            all.push(one.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use serde_json::{Value, from_value, json};

    use super::resolv_conf;

    fn text(spec: Value) -> String {
        let mut pod = json!({"metadata": {"namespace": "n"}, "spec": spec});
        pod["spec"]["containers"] = json!([]);
        resolv_conf(Ipv4Addr::new(10, 88, 0, 1), &from_value(pod).unwrap())
    }

    #[test]
    fn names_of_the_cluster_come_first_unless_a_pod_says_otherwise() {
        let first = "search n.svc.cluster.local svc.cluster.local cluster.local\n\
                     nameserver 10.88.0.1\n\
                     options ndots:5\n";
        assert_eq!(text(json!({})), first);
        assert_eq!(text(json!({"dnsPolicy": "ClusterFirst"})), first);
        let on_host = json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true});
        assert_eq!(text(on_host), first);
        let plain = "nameserver 10.88.0.1\n";
        assert_eq!(text(json!({"dnsPolicy": "Default"})), plain);
        let on_host = json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true});
        assert_eq!(text(on_host), plain);
    }

    #[test]
    fn a_pod_without_a_policy_says_everything_itself() {
        let config = json!({
            "nameservers": ["192.0.2.1"],
            "searches": ["example.org"],
            "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
        });
        let spec = json!({"dnsPolicy": "None", "dnsConfig": config});
        let said = "search example.org\nnameserver 192.0.2.1\noptions ndots:2 edns0\n";
        assert_eq!(text(spec), said);
    }

    #[test]
    fn what_a_pod_adds_is_added_once_and_its_options_win() {
        let config = json!({
            "nameservers": ["192.0.2.1", "10.88.0.1", "192.0.2.2", "192.0.2.3"],
            "searches": ["example.org", "cluster.local"],
            "options": [{"name": "ndots", "value": "1"}],
        });
        let said = "search n.svc.cluster.local svc.cluster.local cluster.local example.org\n\
                    nameserver 10.88.0.1\nnameserver 192.0.2.1\nnameserver 192.0.2.2\n\
                    options ndots:1\n";
        assert_eq!(text(json!({"dnsConfig": config})), said);
    }

    #[test]
    fn a_search_list_that_is_too_long_is_cut_between_domains() {
        let (long, longer) = ("a".repeat(1200), "b".repeat(1200));
        let config = json!({"searches": [long, longer, "c"]});
        let said = text(json!({"dnsPolicy": "None", "dnsConfig": config}));
        assert_eq!(said, format!("search {long}\n"));
    }
}

//! What a pod may know of itself: the values of `fieldRef` and `resourceFieldRef`, for variables and for files.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// What only the node knows of a pod, and the pod.
#[derive(Clone, Copy)]
pub(crate) struct Facts<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) pod_ip: Option<&'a str>,
    pub(crate) host_ip: &'a str,
    /// Of the node: what a container without limits may use.
    pub(crate) allocatable: &'a BTreeMap<String, Quantity>,
}

impl Facts<'_> {
    /// The field of the pod at a path.
    pub(crate) fn field(&self, path: &str) -> Result<String, String> {
        let metadata = &self.pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        if let Some((path, key)) = subscript(path) {
            let map = match path {
                "metadata.labels" => &metadata.labels,
                "metadata.annotations" => &metadata.annotations,
                _ => return Err(format!("fieldPath {path:?} does not support subscript")),
            };
            let value = map.as_ref().and_then(|map| map.get(key));
            return Ok(value.cloned().unwrap_or_default());
        }
        let spec = |field: fn(&k8s_openapi::api::core::v1::PodSpec) -> &Option<String>| {
            let value = self.pod.spec.as_ref().map(|spec| text(field(spec)));
            value.unwrap_or_default()
        };
        Ok(match path {
            "metadata.name" => text(&metadata.name),
            "metadata.namespace" => text(&metadata.namespace),
            "metadata.uid" => text(&metadata.uid),
            "metadata.labels" => lines(metadata.labels.as_ref()),
            "metadata.annotations" => lines(metadata.annotations.as_ref()),
            "spec.nodeName" => spec(|spec| &spec.node_name),
            "spec.serviceAccountName" => spec(|spec| &spec.service_account_name),
            "status.podIP" | "status.podIPs" => self.pod_ip.unwrap_or_default().to_owned(),
            "status.hostIP" | "status.hostIPs" => self.host_ip.to_owned(),
            _ => return Err(format!("unsupported fieldPath: {path}")),
        })
    }

    /// The resource of a container, in whole divisors. `own` is the container whose variable it is.
    pub(crate) fn resource(
        &self,
        selector: &ResourceFieldSelector,
        own: Option<&Container>,
    ) -> Result<String, String> {
        let container = match selector.container_name.as_deref().unwrap_or_default() {
            "" => own.ok_or_else(|| "container \"\" not found".to_owned())?,
            name => {
                let found = containers(self.pod).find(|container| container.name == name);
                found.ok_or_else(|| format!("container {name} not found"))?
            }
        };
        let resource = selector.resource.as_str();
        let unsupported = || format!("unsupported container resource : {resource}");
        let (kind, name) = resource.split_once('.').ok_or_else(unsupported)?;
        let is_known = matches!(name, "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-");
        if !is_known || !matches!(kind, "limits" | "requests") {
            return Err(unsupported());
        }
        let resources = container.resources.as_ref();
        let amount = |map: Option<&BTreeMap<String, Quantity>>| {
            let amount = map.and_then(|map| quantity::Quantity::parse(&map.get(name)?.0).ok());
            amount.filter(|amount| !amount.is_zero())
        };
        let amount = match kind {
            "limits" => amount(resources.and_then(|it| it.limits.as_ref()))
                .or_else(|| amount(Some(self.allocatable))),
            _ => amount(resources.and_then(|it| it.requests.as_ref())),
        };
        let amount = amount.unwrap_or_else(|| 0.into());
        let divisor = selector.divisor.as_ref();
        let divisor = divisor.and_then(|divisor| quantity::Quantity::parse(&divisor.0).ok());
        let divisor = divisor.filter(|divisor| !divisor.is_zero());
        let divisor = divisor.unwrap_or_else(|| 1.into());
        let (amount, divisor) = match name {
            "cpu" => (amount.milli_value(), divisor.milli_value()),
            _ => (amount.value(), divisor.value()),
        };
        Ok(divided_up(amount, divisor).to_string())
    }
}

fn containers(pod: &Pod) -> impl Iterator<Item = &Container> {
    let spec = pod.spec.iter();
    spec.flat_map(|spec| {
        let init = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(init)
    })
}

fn divided_up(amount: i64, divisor: i64) -> i64 {
    let divisor = divisor.max(1);
    amount / divisor + i64::from(amount % divisor > 0)
}

/// `metadata.labels['key']`, taken apart.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (path, rest) = path.split_once("['")?;
    Some((path, rest.strip_suffix("']")?))
}

/// One line per entry: `key="value"`.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten();
    let lines: Vec<String> = lines
        .map(|(key, value)| format!("{key}={}", quoted(value)))
        .collect();
    lines.join("\n")
}

/// As Go writes a text so that it fits on a line.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if u32::from(c) < 0x20 || u32::from(c) == 0x7f => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::core::v1::{Pod, ResourceFieldSelector};
    use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
    use serde_json::json;

    use super::Facts;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u-1",
                "labels": {"app": "web", "a.b/c": "1"},
                "annotations": {"note": "two \"lines\"\nhere\u{1}", "plain": "é"},
            },
            "spec": {
                "nodeName": "machine", "serviceAccountName": "robot",
                "containers": [
                    {"name": "c", "resources": {
                        "limits": {"cpu": "1500m", "memory": "100Mi"},
                        "requests": {"cpu": "250m", "memory": "64Mi"},
                    }},
                    {"name": "free"},
                ],
            },
        }))
        .unwrap()
    }

    fn allocatable() -> BTreeMap<String, Quantity> {
        let amount = |name: &str, text: &str| (name.to_owned(), Quantity(text.to_owned()));
        [amount("cpu", "2"), amount("memory", "4Gi")].into()
    }

    #[test]
    fn fields_are_as_the_pod_and_its_node_say() {
        let (pod, allocatable) = (pod(), allocatable());
        let facts = Facts {
            pod: &pod,
            pod_ip: Some("10.88.0.2"),
            host_ip: "192.0.2.1",
            allocatable: &allocatable,
        };
        for (path, value) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u-1"),
            ("metadata.labels['app']", "web"),
            ("metadata.labels['a.b/c']", "1"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['plain']", "é"),
            ("metadata.labels", "a.b/c=\"1\"\napp=\"web\""),
            (
                "metadata.annotations",
                "note=\"two \\\"lines\\\"\\nhere\\x01\"\nplain=\"é\"",
            ),
            ("spec.nodeName", "machine"),
            ("spec.serviceAccountName", "robot"),
            ("status.podIP", "10.88.0.2"),
            ("status.podIPs", "10.88.0.2"),
            ("status.hostIP", "192.0.2.1"),
            ("status.hostIPs", "192.0.2.1"),
        ] {
            assert_eq!(facts.field(path).as_deref(), Ok(value), "{path}");
        }
        for path in ["status.phase", "metadata.name['x']", ""] {
            assert!(facts.field(path).is_err(), "{path}");
        }
        let without = Facts {
            pod_ip: None,
            ..facts
        };
        assert_eq!(without.field("status.podIP").as_deref(), Ok(""));
    }

    #[test]
    fn resources_are_counted_in_divisors_and_rounded_up() {
        let (pod, allocatable) = (pod(), allocatable());
        let facts = Facts {
            pod: &pod,
            pod_ip: None,
            host_ip: "",
            allocatable: &allocatable,
        };
        let own = &pod.spec.as_ref().unwrap().containers[0];
        let of = |container: Option<&str>, resource: &str, divisor: Option<&str>| {
            let selector = ResourceFieldSelector {
                container_name: container.map(str::to_owned),
                divisor: divisor.map(|text| Quantity(text.to_owned())),
                resource: resource.to_owned(),
            };
            facts.resource(&selector, Some(own))
        };
        for (container, resource, divisor, value) in [
            (None, "limits.cpu", None, "2"),
            (None, "limits.cpu", Some("0"), "2"),
            (None, "limits.cpu", Some("1m"), "1500"),
            (None, "requests.cpu", Some("1"), "1"),
            (None, "limits.memory", None, "104857600"),
            (None, "limits.memory", Some("1Mi"), "100"),
            (None, "limits.memory", Some("3Mi"), "34"),
            (None, "requests.memory", Some("1Ki"), "65536"),
            (Some("free"), "limits.cpu", None, "2"),
            (Some("free"), "limits.memory", Some("1Gi"), "4"),
            (Some("free"), "requests.memory", None, "0"),
            (Some("c"), "limits.ephemeral-storage", None, "0"),
        ] {
            let found = of(container, resource, divisor);
            assert_eq!(
                found.as_deref(),
                Ok(value),
                "{container:?} {resource} {divisor:?}"
            );
        }
        let unknown = of(None, "limits.gpu", None).unwrap_err();
        assert_eq!(unknown, "unsupported container resource : limits.gpu");
        let absent = of(Some("x"), "limits.cpu", None).unwrap_err();
        assert_eq!(absent, "container x not found");
    }
}

//! What is filled into a pod, or the template of one, that was left out.

use quantity::Quantity;
use serde_json::{Map, Value, json};

use crate::kinds::access::{child_mut, fill, fill_int, fill_text, items_mut, made, made_in};

type Object = Map<String, Value>;

const FILE_MODE: i64 = 0o644;

/// All lists of containers.
const CONTAINERS: &[&str] = &["initContainers", "containers", "ephemeralContainers"];
/// Those that have resources.
const RESOURCEFUL: &[&str] = &["initContainers", "containers"];

/// A pod.
pub(super) fn pod(object: &mut Value) {
    if let Some(Value::Object(status)) = object.get_mut("status") {
        same_address(status);
    }
    let spec = made(object, "spec");
    pod_spec(spec);
    for list in RESOURCEFUL {
        for container in items_mut(spec, list) {
            if let Some(resources) = child_mut(container, "resources") {
                request_what_is_limited(resources);
            }
        }
    }
    request_for_the_pod(spec);
    fill(spec, "enableServiceLinks", true);
    if spec.get("hostNetwork") == Some(&Value::Bool(true)) {
        for list in RESOURCEFUL {
            items_mut(spec, list).for_each(use_ports_of_the_host);
        }
    }
}

/// The address stands by itself and first in a list; clients of old know only the former.
fn same_address(status: &mut Object) {
    let alone = status.get("podIP").and_then(Value::as_str);
    let first = status
        .get("podIPs")
        .and_then(|list| list.pointer("/0/ip")?.as_str());
    match (alone.unwrap_or_default(), first.unwrap_or_default()) {
        (alone, first) if alone == first => {}
        ("", first) => {
            let first = first.to_owned();
            status.insert("podIP".to_owned(), first.into());
        }
        (alone, _) => {
            let list = json!([{"ip": alone}]);
            status.insert("podIPs".to_owned(), list);
        }
    }
}

/// The spec of a pod or of a template.
pub(in crate::kinds) fn pod_spec(spec: &mut Object) {
    fill_text(spec, "dnsPolicy", "ClusterFirst");
    fill_text(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill_text(spec, "schedulerName", "default-scheduler");
    same_account(spec);
    for list in CONTAINERS {
        items_mut(spec, list).for_each(container);
    }
    items_mut(spec, "volumes").for_each(volume);
    if let Some(resources) = child_mut(spec, "resources") {
        coarse(resources);
    }
}

/// The account has an old name beside its own, which says the same.
fn same_account(spec: &mut Object) {
    let name = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|key| spec.get(*key).and_then(Value::as_str))
        .filter(|name| !name.is_empty());
    if let Some(name) = name.map(str::to_owned) {
        spec.insert("serviceAccountName".to_owned(), name.clone().into());
        spec.insert("serviceAccount".to_owned(), name.into());
    }
}

fn container(container: &mut Object) {
    let image = container.get("image").and_then(Value::as_str);
    let policy = pull_policy(image.unwrap_or_default());
    fill_text(container, "imagePullPolicy", policy);
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    coarse(made_in(container, "resources"));
    for port in items_mut(container, "ports") {
        fill_text(port, "protocol", "TCP");
    }
    for variable in items_mut(container, "env") {
        if let Some(source) = child_mut(variable, "valueFrom") {
            field_of_v1(source);
            if let Some(file) = child_mut(source, "fileKeyRef") {
                fill(file, "optional", false);
            }
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = child_mut(container, probe) {
            self::probe(probe);
        }
    }
    if let Some(lifecycle) = child_mut(container, "lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(hook) = child_mut(lifecycle, hook) {
                http_get(hook);
            }
        }
    }
}

/// What moves is pulled always; what has no tag and no digest is `latest`.
fn pull_policy(image: &str) -> &'static str {
    match tag(image) {
        Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

/// The tag of an image; nothing if it has a digest alone, or is none.
fn tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let last = name.rsplit('/').next().unwrap_or(name);
    let (repository, tag) = match last.split_once(':') {
        Some((repository, tag)) => (repository, Some(tag)),
        None => (last, None),
    };
    let letter = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"._-".contains(&b);
    if repository.is_empty() || !repository.bytes().all(letter) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, None) => Some("latest"),
        (None, Some(_)) => None,
    }
}

fn probe(probe: &mut Object) {
    fill_int(probe, "timeoutSeconds", 1);
    fill_int(probe, "periodSeconds", 10);
    fill_int(probe, "successThreshold", 1);
    fill_int(probe, "failureThreshold", 3);
    http_get(probe);
    if let Some(grpc) = child_mut(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn http_get(handler: &mut Object) {
    if let Some(get) = child_mut(handler, "httpGet") {
        fill_text(get, "path", "/");
        fill_text(get, "scheme", "HTTP");
    }
}

fn field_of_v1(source: &mut Object) {
    if let Some(field) = child_mut(source, "fieldRef") {
        fill_text(field, "apiVersion", "v1");
    }
}

fn volume(volume: &mut Object) {
    if !volume.keys().any(|key| key != "name") {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for (source, settings) in volume.iter_mut() {
        let Some(settings) = settings.as_object_mut() else {
            continue;
        };
        match source.as_str() {
            "secret" | "configMap" => fill(settings, "defaultMode", FILE_MODE),
            "downwardAPI" => {
                fill(settings, "defaultMode", FILE_MODE);
                items_mut(settings, "items").for_each(field_of_v1);
            }
            "projected" => projected(settings),
            "hostPath" => fill(settings, "type", ""),
            "image" => {
                let image = settings.get("reference").and_then(Value::as_str);
                let policy = pull_policy(image.unwrap_or_default());
                fill_text(settings, "pullPolicy", policy);
            }
            "ephemeral" => {
                let template = child_mut(settings, "volumeClaimTemplate");
                if let Some(spec) = template.and_then(|template| child_mut(template, "spec")) {
                    fill(spec, "volumeMode", "Filesystem");
                }
            }
            "iscsi" => fill_text(settings, "iscsiInterface", "default"),
            "rbd" => {
                fill_text(settings, "pool", "rbd");
                fill_text(settings, "user", "admin");
                fill_text(settings, "keyring", "/etc/ceph/keyring");
            }
            "scaleIO" => {
                fill_text(settings, "storageMode", "ThinProvisioned");
                fill_text(settings, "fsType", "xfs");
            }
            "azureDisk" => {
                fill(settings, "cachingMode", "ReadWrite");
                fill(settings, "kind", "Shared");
                fill(settings, "fsType", "ext4");
                fill(settings, "readOnly", false);
            }
            _ => {}
        }
    }
}

fn projected(projected: &mut Object) {
    fill(projected, "defaultMode", FILE_MODE);
    for source in items_mut(projected, "sources") {
        if let Some(token) = child_mut(source, "serviceAccountToken") {
            fill(token, "expirationSeconds", 3600);
        }
        if let Some(fields) = child_mut(source, "downwardAPI") {
            items_mut(fields, "items").for_each(field_of_v1);
        }
    }
}

fn coarse(resources: &mut Object) {
    for amounts in resources.values_mut().filter_map(Value::as_object_mut) {
        for amount in amounts.values_mut() {
            if let Some(coarser) = amount.as_str().and_then(in_thousandths) {
                *amount = coarser.into();
            }
        }
    }
}

/// Resources have nothing finer than a thousandth. Nothing if the amount is fine as it is.
fn in_thousandths(amount: &str) -> Option<String> {
    let fine = amount.ends_with(['n', 'u']) || amount.contains("e-");
    let amount = Quantity::parse(amount).ok().filter(|_| fine)?;
    let coarse = Quantity::parse(&format!("{}m", amount.milli_value()));
    coarse.ok().map(|coarse| coarse.to_string())
}

fn request_what_is_limited(resources: &mut Object) {
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    let requests = made_in(resources, "requests");
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

/// A pod with limits of its own requests what its containers do together, else what it is limited to.
fn request_for_the_pod(spec: &mut Object) {
    let limits = spec
        .get("resources")
        .and_then(|resources| resources.get("limits"));
    let Some(limits) = limits.and_then(Value::as_object).cloned() else {
        return;
    };
    let together = ["cpu", "memory"].map(|name| (name, requested_together(spec, name)));
    let requests = made_in(made_in(spec, "resources"), "requests");
    for (name, sum) in together {
        if let Some(sum) = sum {
            fill(requests, name, shown(sum));
        }
    }
    let of_pods = |name: &str| matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
    for (name, amount) in limits {
        if of_pods(&name) {
            requests.entry(name).or_insert(amount);
        }
    }
}

/// A sum of thousandths as a quantity.
fn shown(thousandths: i128) -> String {
    let whole_kibi = thousandths > 0 && thousandths % (1000 * 1024) == 0;
    let written = match whole_kibi {
        true => format!("{}Ki", thousandths / (1000 * 1024)),
        false => format!("{thousandths}m"),
    };
    Quantity::parse(&written).map_or(written, |sum| sum.to_string())
}

/// In thousandths. Containers run beside each other and beside the init containers that stay; the other init
/// containers run alone.
fn requested_together(spec: &Object, resource: &str) -> Option<i128> {
    let of = |container: &Value| {
        let request = container.pointer("/resources/requests")?.get(resource)?;
        let request = Quantity::parse(request.as_str()?).ok()?;
        Some(i128::from(request.milli_value()))
    };
    let list = |name: &str| {
        spec.get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
    };
    let add = |sum: Option<i128>, more: Option<i128>| match (sum, more) {
        (Some(sum), Some(more)) => Some(sum + more),
        (sum, more) => sum.or(more),
    };
    let (mut stay, mut most) = (None, None);
    for container in list("initContainers") {
        let stays = container.get("restartPolicy").and_then(Value::as_str) == Some("Always");
        let beside = add(stay, of(container));
        if stays {
            stay = beside;
        }
        most = most.max(beside);
    }
    list("containers")
        .fold(stay, |sum, container| add(sum, of(container)))
        .max(most)
}

fn use_ports_of_the_host(container: &mut Object) {
    for port in items_mut(container, "ports") {
        let number = port.get("containerPort").and_then(Value::as_i64);
        fill_int(port, "hostPort", number.unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use super::{in_thousandths, pull_policy};

    #[test]
    fn what_is_pulled_always_is_told_by_the_tag() {
        let always = ["i", "i:latest", "r.example:5000/a/i", "r/i:latest"];
        let once = ["i:1", "i@sha256:0123", "i:1@sha256:0123", " i", "I", ""];
        for image in always {
            assert_eq!(pull_policy(image), "Always", "{image}");
        }
        for image in once {
            assert_eq!(pull_policy(image), "IfNotPresent", "{image}");
        }
    }

    #[test]
    fn resources_have_nothing_finer_than_a_thousandth() {
        assert_eq!(in_thousandths("100u").as_deref(), Some("1m"));
        assert_eq!(in_thousandths("1500u").as_deref(), Some("2m"));
        assert_eq!(in_thousandths("100m"), None);
    }
}

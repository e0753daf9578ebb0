//! The generated CRDs hold every fact of the CRDs that users have installed today.
//!
//! `fixtures/crd-facts.tsv` lists those facts: group/kind, version, path, type, required,
//! constraints. Children of Kubernetes' own types are not in it; they are checked by name below.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use api::crds::{Conversion, Family, Versions, render};
use serde_json::{Map, Value, json};

const FACTS: &str = include_str!("fixtures/crd-facts.tsv");

struct Fact<'a> {
    kind: &'a str,
    version: &'a str,
    path: &'a str,
    type_: &'a str,
    required: bool,
    constraints: Map<String, Value>,
}

fn facts() -> Vec<Fact<'static>> {
    let rows = FACTS.lines().skip(1);
    rows.map(|row| {
        let mut cells = row.split('\t');
        let mut cell = || cells.next().unwrap_or_default();
        Fact {
            kind: cell(),
            version: cell(),
            path: cell(),
            type_: cell(),
            required: cell() == "required",
            constraints: match cell() {
                "" => Map::new(),
                json => serde_json::from_str(json).unwrap(),
            },
        }
    })
    .collect()
}

/// The default rendering, as JSON: `group/Kind` → CRD.
fn crds() -> BTreeMap<String, Value> {
    let all = [Family::Sigs, Family::Kruise];
    render(&all, Versions::Both, Conversion::Webhook)
        .unwrap()
        .into_iter()
        .map(|crd| {
            let key = format!("{}/{}", crd.spec.group, crd.spec.names.kind);
            (key, serde_json::to_value(crd).unwrap())
        })
        .collect()
}

fn version<'a>(crd: &'a Value, name: &str) -> &'a Value {
    let versions = crd["spec"]["versions"].as_array().unwrap();
    versions
        .iter()
        .find(|version| version["name"] == name)
        .unwrap()
}

struct Field<'a> {
    schema: &'a Value,
    required: bool,
}

/// Follows a path such as `spec.env[].name` or `metadata.labels{}`.
fn field<'a>(version: &'a Value, path: &str) -> Option<Field<'a>> {
    let mut schema = &version["schema"]["openAPIV3Schema"];
    let mut required = false;
    for step in path.split('.') {
        let name = step.trim_end_matches("[]").trim_end_matches("{}");
        required = schema["required"]
            .as_array()
            .is_some_and(|list| list.iter().any(|entry| entry == name));
        schema = schema.get("properties")?.get(name)?;
        match &step[name.len()..] {
            "[]" => (schema, required) = (schema.get("items")?, false),
            "{}" => (schema, required) = (schema.get("additionalProperties")?, false),
            _ => {}
        }
    }
    Some(Field { schema, required })
}

fn type_of(schema: &Value) -> &str {
    match schema.get("type") {
        Some(name) => name.as_str().unwrap(),
        None if schema.get("pattern").is_some() => "any",
        None if schema["x-kubernetes-int-or-string"] == true => "int-or-string",
        None => "any",
    }
}

/// What the fact demands and the schema lacks.
fn differences(fact: &Fact, field: &Field) -> Vec<String> {
    let mut found = Vec::new();
    let mut expect = |what: &str, theirs: Value, ours: Value| {
        if theirs != ours {
            found.push(format!("{what}: theirs {theirs}, ours {ours}"));
        }
    };
    expect("type", json!(fact.type_), json!(type_of(field.schema)));
    expect("required", json!(fact.required), json!(field.required));
    for (name, theirs) in &fact.constraints {
        let ours = field.schema.get(name.as_str()).cloned().unwrap_or_default();
        match name.as_str() {
            "enum" => expect(name, sorted(theirs), sorted(&without_additions(fact, ours))),
            "minimum" | "maximum" => expect(name, json!(theirs.as_f64()), json!(ours.as_f64())),
            "cel" => {
                let rules = rules(field.schema);
                let missing: Vec<_> = theirs
                    .as_array()
                    .unwrap()
                    .iter()
                    .filter(|rule| !rules.contains(rule))
                    .collect();
                expect(name, json!(missing), json!([]));
            }
            _ => expect(name, theirs.clone(), ours),
        }
    }
    found
}

/// Values of ours beside the reference's: kind, version, path, value.
const ADDITIONS: &[(&str, &str, &str, &str)] = &[(
    "extensions.agents.x-k8s.io/SandboxWarmPool",
    "v1beta1",
    "spec.updateStrategy.type",
    "RollingUpdate",
)];

fn without_additions(fact: &Fact, mut values: Value) -> Value {
    let here = |(kind, version, path, _): &&(&str, &str, &str, &str)| {
        (*kind, *version, *path) == (fact.kind, fact.version, fact.path)
    };
    for (_, _, path, addition) in ADDITIONS.iter().filter(here) {
        let all = values.as_array_mut().unwrap();
        let before = all.len();
        all.retain(|value| value != addition);
        assert_eq!(all.len(), before - 1, "{path}: {addition} is not there");
    }
    values
}

fn sorted(list: &Value) -> Value {
    let mut items: Vec<_> = list.as_array().cloned().unwrap_or_default();
    items.sort_by_key(Value::to_string);
    json!(items)
}

fn rules(schema: &Value) -> Vec<&Value> {
    let list = schema["x-kubernetes-validations"].as_array();
    list.into_iter()
        .flatten()
        .map(|validation| &validation["rule"])
        .collect()
}

#[test]
fn every_field_of_the_reference_tables_is_in_our_crds() {
    let crds = crds();
    let mut compared = 0;
    let mut problems = Vec::new();
    for fact in facts().iter().filter(|fact| fact.path != ".") {
        let place = format!("{} {} {}", fact.kind, fact.version, fact.path);
        match field(version(&crds[fact.kind], fact.version), fact.path) {
            None => problems.push(format!("{place}: missing")),
            Some(field) => problems.extend(
                differences(fact, &field)
                    .iter()
                    .map(|text| format!("{place}: {text}")),
            ),
        }
        compared += 1;
    }
    println!("parity: {compared} field rows compared");
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        compared, 440,
        "the tables list 440 fields of the kinds in scope"
    );
}

/// Fields of ours in the family's kinds, which only v1beta1 has.
const OWN_FIELDS: &[&str] = &[
    "spec.claimPolicy",
    "spec.updateStrategy.rollingUpdate",
    "status.updatedReplicas",
    "status.updatedAvailableReplicas",
    "status.currentRevision",
    "status.updateRevision",
    "status.conditions",
];

#[test]
fn fields_of_ours_in_pools_are_in_v1beta1_only() {
    let crds = crds();
    let pool = &crds["extensions.agents.x-k8s.io/SandboxWarmPool"];
    for path in OWN_FIELDS {
        assert!(field(version(pool, "v1beta1"), path).is_some(), "{path}");
        assert!(field(version(pool, "v1alpha1"), path).is_none(), "{path}");
    }
}

#[test]
fn names_scope_subresources_and_columns_are_those_of_the_reference() {
    let crds = crds();
    let mut compared = 0;
    for fact in facts().iter().filter(|fact| fact.path == ".") {
        let crd = &crds[fact.kind];
        let version = version(crd, fact.version);
        let columns = version["additionalPrinterColumns"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let columns: Vec<_> = columns
            .iter()
            .map(|column| json!([column["name"], column["type"], column["jsonPath"], 0]))
            .collect();
        let subresources = match version.get("subresources") {
            Some(Value::Object(map)) if !map.is_empty() => json!(map),
            _ => Value::Null,
        };
        let ours = json!({
            "categories": crd["spec"]["names"].get("categories").cloned().unwrap_or_default(),
            "columns": columns,
            "plural": crd["spec"]["names"]["plural"],
            "scope": crd["spec"]["scope"],
            "served": version["served"],
            "shortNames": crd["spec"]["names"]["shortNames"],
            "storage": version["storage"],
            "subresources": subresources,
        });
        assert_eq!(
            ours,
            Value::Object(fact.constraints.clone()),
            "{} {}",
            fact.kind,
            fact.version
        );
        compared += 1;
    }
    println!("parity: {compared} kinds and versions compared");
    assert_eq!(compared, 14);
}

/// (kind, path) of every field whose type is Kubernetes' own, and the children it must have.
fn kubernetes_children() -> Vec<(
    &'static str,
    Vec<&'static str>,
    &'static str,
    Vec<&'static str>,
)> {
    const SANDBOX: &str = "agents.x-k8s.io/Sandbox";
    const TEMPLATE: &str = "extensions.agents.x-k8s.io/SandboxTemplate";
    const CLAIM: &str = "extensions.agents.x-k8s.io/SandboxClaim";
    let both = || vec!["v1alpha1", "v1beta1"];
    let selector = || {
        vec![
            "matchLabels",
            "matchLabels{}",
            "matchExpressions[].key",
            "matchExpressions[].operator",
            "matchExpressions[].values[]",
        ]
    };
    let mut rows = Vec::new();
    for kind in [SANDBOX, TEMPLATE] {
        rows.push((kind, both(), "spec.podTemplate.spec", POD_SPEC.to_vec()));
        rows.push((
            kind,
            both(),
            "spec.volumeClaimTemplates[].spec",
            CLAIM_SPEC.to_vec(),
        ));
    }
    rows.push((
        CLAIM,
        vec!["v1beta1"],
        "spec.volumeClaimTemplates[].spec",
        CLAIM_SPEC.to_vec(),
    ));
    for path in [
        "ingress[].from[].podSelector",
        "ingress[].from[].namespaceSelector",
        "egress[].to[].podSelector",
        "egress[].to[].namespaceSelector",
    ] {
        let path = format!("spec.networkPolicy.{path}").leak();
        rows.push((TEMPLATE, both(), path, selector()));
    }
    let update_ops = "agents.kruise.io/SandboxUpdateOps";
    rows.push((update_ops, vec!["v1alpha1"], "spec.selector", selector()));
    rows
}

const POD_SPEC: &[&str] = &[
    "activeDeadlineSeconds",
    "affinity",
    "automountServiceAccountToken",
    "containers",
    "dnsConfig",
    "dnsPolicy",
    "enableServiceLinks",
    "ephemeralContainers",
    "hostAliases",
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostUsers",
    "hostname",
    "hostnameOverride",
    "imagePullSecrets",
    "initContainers",
    "nodeName",
    "nodeSelector",
    "os",
    "overhead",
    "preemptionPolicy",
    "priority",
    "priorityClassName",
    "readinessGates",
    "resourceClaims",
    "resources",
    "restartPolicy",
    "runtimeClassName",
    "schedulerName",
    "schedulingGates",
    "schedulingGroup",
    "securityContext",
    "serviceAccount",
    "serviceAccountName",
    "setHostnameAsFQDN",
    "shareProcessNamespace",
    "subdomain",
    "terminationGracePeriodSeconds",
    "tolerations",
    "topologySpreadConstraints",
    "volumes",
];

const CLAIM_SPEC: &[&str] = &[
    "accessModes",
    "dataSource",
    "dataSourceRef",
    "resources",
    "selector",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
    "volumeName",
];

#[test]
fn fields_of_kubernetes_own_types_have_their_children() {
    let crds = crds();
    let mut compared = 0;
    for (kind, versions, path, children) in kubernetes_children() {
        for name in versions {
            let version = version(&crds[kind], name);
            for child in &children {
                let path = format!("{path}.{child}");
                assert!(
                    field(version, &path).is_some(),
                    "{kind} {name} {path} is missing"
                );
                compared += 1;
            }
        }
    }
    println!("parity: {compared} children of Kubernetes' own types found");
    assert_eq!(compared, 258);
}

#[test]
fn selectors_are_atomic_maps_with_atomic_lists() {
    let crds = crds();
    let mut compared = 0;
    for (kind, versions, path, children) in kubernetes_children() {
        for name in versions {
            if !children.contains(&"matchLabels") {
                continue;
            }
            let selector = field(version(&crds[kind], name), path).unwrap().schema;
            assert_eq!(selector["x-kubernetes-map-type"], "atomic", "{kind} {path}");
            let expressions = &selector["properties"]["matchExpressions"];
            assert_eq!(
                expressions["x-kubernetes-list-type"], "atomic",
                "{kind} {path}"
            );
            let item = &expressions["items"];
            assert_eq!(
                item["required"],
                json!(["key", "operator"]),
                "{kind} {path}"
            );
            assert_eq!(
                item["properties"]["values"]["x-kubernetes-list-type"],
                "atomic"
            );
            compared += 1;
        }
    }
    assert_eq!(compared, 9);
}

#[test]
fn resources_of_a_kruise_claim_are_quantities() {
    let crds = crds();
    let version = version(&crds["agents.kruise.io/SandboxClaim"], "v1alpha1");
    for name in ["limits", "requests"] {
        let path = format!("spec.inplaceUpdate.resources.{name}{{}}");
        let quantity = field(version, &path).unwrap().schema;
        assert_eq!(quantity["x-kubernetes-int-or-string"], true);
        assert_eq!(
            quantity["anyOf"],
            json!([{"type": "integer"}, {"type": "string"}])
        );
        assert!(
            quantity["pattern"].as_str().unwrap().contains("[KMGTPE]i"),
            "{quantity}"
        );
    }
}

/// (path below a pod spec, keys) of its list-maps; `atomic` for lists replaced whole.
const POD_SPEC_LISTS: &[(&str, &[&str])] = &[
    ("containers", &["name"]),
    ("initContainers", &["name"]),
    ("ephemeralContainers", &["name"]),
    ("volumes", &["name"]),
    ("imagePullSecrets", &["name"]),
    ("resourceClaims", &["name"]),
    ("schedulingGates", &["name"]),
    ("hostAliases", &["ip"]),
    (
        "topologySpreadConstraints",
        &["topologyKey", "whenUnsatisfiable"],
    ),
    ("containers[].ports", &["containerPort", "protocol"]),
    ("containers[].env", &["name"]),
    ("tolerations", &[]),
    ("readinessGates", &[]),
];

#[test]
fn lists_of_a_pod_spec_merge_as_those_of_a_pod() {
    let crds = crds();
    let version = version(&crds["agents.x-k8s.io/Sandbox"], "v1beta1");
    for (path, keys) in POD_SPEC_LISTS {
        let list = field(version, &format!("spec.podTemplate.spec.{path}"))
            .unwrap()
            .schema;
        if keys.is_empty() {
            assert_eq!(list["x-kubernetes-list-type"], "atomic", "{path}");
        } else {
            assert_eq!(list["x-kubernetes-list-type"], "map", "{path}");
            assert_eq!(list["x-kubernetes-list-map-keys"], json!(keys), "{path}");
        }
    }
}

fn collect_defaults(schema: &Value, path: &str, out: &mut BTreeSet<String>) {
    if let Some(default) = schema.get("default") {
        let field = path.rsplit('.').take(2).collect::<Vec<_>>();
        out.insert(format!("{}.{}={default}", field[1], field[0]));
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        collect_defaults(property, &format!("{path}.{name}"), out);
    }
    for nested in ["items", "additionalProperties"] {
        if let Some(nested) = schema.get(nested) {
            collect_defaults(nested, path, out);
        }
    }
}

#[test]
fn a_pod_spec_has_the_defaults_of_its_markers_and_no_others() {
    let crds = crds();
    let version = version(&crds["agents.x-k8s.io/Sandbox"], "v1beta1");
    let mut defaults = BTreeSet::new();
    let spec = field(version, "spec.podTemplate.spec").unwrap().schema;
    collect_defaults(spec, "podTemplate.spec", &mut defaults);
    let (names, others): (BTreeSet<_>, BTreeSet<_>) = defaults
        .iter()
        .map(String::as_str)
        .partition(|default| default.ends_with(".name=\"\""));
    let expected = [
        "azureDisk.fsType=\"ext4\"",
        "azureDisk.readOnly=false",
        "fileKeyRef.optional=false",
        "grpc.service=\"\"",
        "iscsi.iscsiInterface=\"default\"",
        "ports.protocol=\"TCP\"",
        "rbd.keyring=\"/etc/ceph/keyring\"",
        "rbd.pool=\"rbd\"",
        "rbd.user=\"admin\"",
        "scaleIO.fsType=\"xfs\"",
        "scaleIO.storageMode=\"ThinProvisioned\"",
    ];
    assert_eq!(others, BTreeSet::from(expected));
    assert!(names.contains("secretKeyRef.name=\"\""), "{names:?}");
    assert!(
        !names.contains("containers.name=\"\""),
        "a container must keep its required name"
    );
}

#[test]
fn nothing_below_a_pod_spec_carries_a_description_and_client_side_apply_has_room() {
    for (kind, crd) in crds() {
        for version in crd["spec"]["versions"].as_array().unwrap() {
            if let Some(pod) = field(version, "spec.podTemplate.spec") {
                assert!(
                    !pod.schema.to_string().contains("\"description\":\""),
                    "{kind}"
                );
            }
        }
        // `kubectl apply` stores the whole object in one annotation of at most 256 KiB
        let bytes = crd.to_string().len();
        assert!(bytes < 256 * 1024, "{kind}: {bytes} bytes");
    }
}

#[test]
fn v1alpha1_is_deprecated_with_its_warning_when_both_versions_are_served() {
    let crds = crds();
    let version = version(&crds["extensions.agents.x-k8s.io/SandboxClaim"], "v1alpha1");
    assert_eq!(version["deprecated"], true);
    assert_eq!(
        version["deprecationWarning"],
        "extensions.agents.x-k8s.io/v1alpha1 SandboxClaim is deprecated; \
         use extensions.agents.x-k8s.io/v1beta1 SandboxClaim instead"
    );
}

#[test]
fn a_single_version_is_stored_and_not_deprecated() {
    for versions in [Versions::V1alpha1, Versions::V1beta1] {
        for crd in render(&[Family::Sigs], versions, Conversion::None).unwrap() {
            let [only] = crd.spec.versions.as_slice() else {
                panic!("{:?}", crd.metadata.name)
            };
            assert!(only.storage && only.served);
            assert_eq!(only.deprecated, None);
            assert_eq!(crd.spec.conversion.unwrap().strategy, "None");
        }
    }
}

#[test]
fn both_versions_without_conversion_are_refused() {
    let refused = render(&[Family::Sigs], Versions::Both, Conversion::None).unwrap_err();
    assert!(refused.to_string().contains("lose fields"), "{refused}");
    assert!(render(&[Family::Kruise], Versions::Both, Conversion::None).is_ok());
}

//! The Go types that templates are made of, compiled from `types.txt`.
//!
//! The table says what JSON cannot: which fields are pointers, so that zero differs from absent; which hold quantities; and
//! in which order Go writes them.

use std::{collections::HashMap, sync::LazyLock};

use serde_json::Value;

/// Both families' own types around those of Kubernetes; the same notation as in the table.
const FAMILIES: &str = "\
Blueprint podTemplate:SandboxPodTemplate volumeClaimTemplates:[]SandboxClaimTemplate? service:*bool?
SandboxPodTemplate spec:PodSpec metadata:SandboxPodMetadata
SandboxPodMetadata labels:map[]string? annotations:map[]string?
SandboxClaimTemplate metadata:SandboxClaimMetadata spec:PersistentVolumeClaimSpec
SandboxClaimMetadata name:string? labels:map[]string? annotations:map[]string?
SandboxSetRevision template:*PodTemplateSpec? volumeClaimTemplates:[]PersistentVolumeClaim? \
persistentContents:[]string? runtimes:[]RuntimeConfig? pauseStrategy:*PauseStrategy?
RuntimeConfig name:string
PauseStrategy type:string? hibernateStrategy:*HibernateStrategy?
HibernateStrategy type:string?
TemplateReference name:string kind:*string? apiVersion:*string?
";

/// What absent fields stand for, as far as the API server or the kubelet fills them in the same way everywhere: a type a
/// line, its fields with their defaults as JSON.
const DEFAULTS: &str = r#"AzureDiskVolumeSource cachingMode="ReadWrite" fsType="ext4" kind="Shared" readOnly=false
ConfigMapEnvSource optional=false
ConfigMapKeySelector optional=false
ConfigMapProjection optional=false
ConfigMapVolumeSource defaultMode=420 optional=false
Container lifecycle={} securityContext={} terminationMessagePath="/dev/termination-log" terminationMessagePolicy="File"
ContainerPort protocol="TCP"
DownwardAPIVolumeSource defaultMode=420
FileKeySelector optional=false
GRPCAction service=""
HTTPGetAction path="/" scheme="HTTP"
HostPathVolumeSource type=""
ISCSIVolumeSource iscsiInterface="default"
ObjectFieldSelector apiVersion="v1"
PersistentVolumeClaimSpec volumeMode="Filesystem"
PodSpec affinity={} dnsConfig={} dnsPolicy="ClusterFirst" enableServiceLinks=true hostUsers=true resources={} restartPolicy="Always" schedulerName="default-scheduler" securityContext={} setHostnameAsFQDN=false shareProcessNamespace=false terminationGracePeriodSeconds=30
Probe failureThreshold=3 periodSeconds=10 successThreshold=1 timeoutSeconds=1
ProjectedVolumeSource defaultMode=420
RBDVolumeSource keyring="/etc/ceph/keyring" pool="rbd" user="admin"
ResourceFieldSelector divisor="1e0"
ScaleIOVolumeSource fsType="xfs" storageMode="ThinProvisioned"
SecretEnvSource optional=false
SecretKeySelector optional=false
SecretProjection optional=false
SecretVolumeSource defaultMode=420 optional=false
SecurityContext privileged=false procMount="Default" readOnlyRootFilesystem=false
ServiceAccountTokenProjection expirationSeconds=3600
Toleration operator="Equal"
TopologySpreadConstraint minDomains=1 nodeAffinityPolicy="Honor" nodeTaintsPolicy="Ignore"
VolumeMount mountPropagation="None" recursiveReadOnly="Disabled""#;

fn defaults() -> impl Iterator<Item = (&'static str, &'static str, Value)> {
    DEFAULTS.lines().flat_map(|line| {
        let mut words = line.split(' ');
        let name = words.next().unwrap_or_default();
        words.filter_map(move |word| {
            let (field, value) = word.split_once('=')?;
            Some((name, field, value.parse().ok()?))
        })
    })
}

#[derive(Debug)]
pub(super) enum Kind {
    Text,
    Int,
    Bool,
    Quantity,
    IntOrText,
    Time,
    /// Whatever it is, it is kept.
    Raw,
    List(Box<Kind>),
    Map(Box<Kind>),
    Pointer(Box<Kind>),
    Struct(&'static str),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Omit {
    Never,
    WhenEmpty,
    WhenZero,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) omit: Omit,
    pub(super) default: Option<Value>,
}

/// The fields of a struct in the order of its source.
pub(super) type Fields = Vec<Field>;

static TABLE: LazyLock<HashMap<&'static str, Fields>> = LazyLock::new(|| {
    let lines = include_str!("types.txt").lines().chain(FAMILIES.lines());
    let mut table: HashMap<&str, Fields> = lines
        .filter_map(|line| {
            let (name, fields) = line.split_once(' ')?;
            Some((name, fields.split(' ').filter_map(field).collect()))
        })
        .collect();
    for (name, of, value) in defaults() {
        let fields = table.get_mut(name).into_iter().flatten();
        if let Some(field) = fields.into_iter().find(|field| field.name == of) {
            field.default = Some(value);
        }
    }
    table
});

/// The fields of a struct; none if the table has no such struct.
pub(super) fn fields(name: &str) -> &'static [Field] {
    TABLE.get(name).map_or(&[], Vec::as_slice)
}

fn field(written: &'static str) -> Option<Field> {
    let (name, kind) = written.split_once(':')?;
    let (kind, omit) = match kind.strip_suffix('?') {
        Some(kind) => (kind, Omit::WhenEmpty),
        None => match kind.strip_suffix('~') {
            Some(kind) => (kind, Omit::WhenZero),
            None => (kind, Omit::Never),
        },
    };
    Some(Field {
        name,
        kind: read(kind),
        omit,
        default: None,
    })
}

fn read(written: &'static str) -> Kind {
    let boxed = |inner| Box::new(read(inner));
    if let Some(inner) = written.strip_prefix('*') {
        return Kind::Pointer(boxed(inner));
    }
    if let Some(inner) = written.strip_prefix("[]") {
        return Kind::List(boxed(inner));
    }
    if let Some(inner) = written.strip_prefix("map[]") {
        return Kind::Map(boxed(inner));
    }
    match written {
        "string" => Kind::Text,
        "int" => Kind::Int,
        "bool" => Kind::Bool,
        "Quantity" => Kind::Quantity,
        "IntOrString" => Kind::IntOrText,
        "Time" | "MicroTime" => Kind::Time,
        "FieldsV1" | "RawExtension" => Kind::Raw,
        name => Kind::Struct(name),
    }
}

#[cfg(test)]
mod tests {
    use super::{DEFAULTS, Kind, TABLE, defaults, fields};

    fn structs(kind: &Kind) -> Option<&'static str> {
        match kind {
            Kind::List(inner) | Kind::Map(inner) | Kind::Pointer(inner) => structs(inner),
            Kind::Struct(name) => Some(name),
            Kind::Text
            | Kind::Int
            | Kind::Bool
            | Kind::Quantity
            | Kind::IntOrText
            | Kind::Time
            | Kind::Raw => None,
        }
    }

    #[test]
    fn every_type_that_is_named_is_there() {
        // structs without fields are lines without a space, which the table leaves out
        let mut empty: Vec<&str> = TABLE
            .values()
            .flatten()
            .filter_map(|field| structs(&field.kind))
            .filter(|name| fields(name).is_empty())
            .collect();
        empty.sort_unstable();
        empty.dedup();
        assert_eq!(empty, Vec::<&str>::new());
    }

    #[test]
    fn every_default_has_its_field() {
        let written = DEFAULTS.matches('=').count();
        assert_eq!(defaults().count(), written);
        for (name, of, _) in defaults() {
            let has = fields(name)
                .iter()
                .any(|field| field.name == of && field.default.is_some());
            assert!(has, "{name}.{of}");
        }
    }
}

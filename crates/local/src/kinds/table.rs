//! What discovery says about the built-in kinds, and which rules they have.

use super::{
    BuiltIn, BuiltInSubresource, Rules, deployment, event, namespace, network_policy, node, pod,
    secret, service, small, storage,
};

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
const STREAM_VERBS: &[&str] = &["create", "get"];
const PROXY_VERBS: &[&str] = &["create", "delete", "get", "patch", "update"];

/// A subresource that has the kind of its resource.
const fn own(name: &'static str, verbs: &'static [&'static str]) -> BuiltInSubresource {
    foreign(name, "", None, verbs)
}

const fn foreign(
    name: &'static str,
    kind: &'static str,
    group_version: Option<(&'static str, &'static str)>,
    verbs: &'static [&'static str],
) -> BuiltInSubresource {
    BuiltInSubresource {
        name,
        kind,
        group_version,
        verbs,
    }
}

const STATUS: BuiltInSubresource = own("status", STATUS_VERBS);

const POD: BuiltIn = BuiltIn {
    short_names: &["po"],
    categories: &["all"],
    subresources: &[
        foreign("attach", "PodAttachOptions", None, STREAM_VERBS),
        foreign("binding", "Binding", None, &["create"]),
        own("ephemeralcontainers", STATUS_VERBS),
        foreign("eviction", "Eviction", Some(("policy", "v1")), &["create"]),
        foreign("exec", "PodExecOptions", None, STREAM_VERBS),
        own("log", &["get"]),
        foreign("portforward", "PodPortForwardOptions", None, STREAM_VERBS),
        foreign("proxy", "PodProxyOptions", None, PROXY_VERBS),
        own("resize", STATUS_VERBS),
        STATUS,
    ],
    rules: pod::RULES,
    ..namespaced("", "v1", "Pod", "pods")
};

/// In the order of discovery: groups, then plurals.
pub static BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        short_names: &["cm"],
        rules: secret::CONFIG_MAP,
        ..namespaced("", "v1", "ConfigMap", "configmaps")
    },
    BuiltIn {
        short_names: &["ev"],
        rules: event::CORE,
        ..namespaced("", "v1", "Event", "events")
    },
    BuiltIn {
        short_names: &["ns"],
        subresources: &[own("finalize", &["update"]), STATUS],
        rules: namespace::RULES,
        ..cluster("", "v1", "Namespace", "namespaces")
    },
    BuiltIn {
        short_names: &["no"],
        subresources: &[STATUS],
        rules: node::RULES,
        ..cluster("", "v1", "Node", "nodes")
    },
    BuiltIn {
        short_names: &["pvc"],
        subresources: &[STATUS],
        rules: storage::CLAIM,
        ..namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    },
    BuiltIn {
        short_names: &["pv"],
        subresources: &[STATUS],
        rules: storage::VOLUME,
        ..cluster("", "v1", "PersistentVolume", "persistentvolumes")
    },
    POD,
    BuiltIn {
        rules: secret::SECRET,
        ..namespaced("", "v1", "Secret", "secrets")
    },
    BuiltIn {
        short_names: &["sa"],
        subresources: &[foreign(
            "token",
            "TokenRequest",
            Some(("authentication.k8s.io", "v1")),
            &["create"],
        )],
        rules: small::SERVICE_ACCOUNT,
        ..namespaced("", "v1", "ServiceAccount", "serviceaccounts")
    },
    BuiltIn {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[
            foreign("proxy", "ServiceProxyOptions", None, PROXY_VERBS),
            STATUS,
        ],
        rules: service::RULES,
        ..namespaced("", "v1", "Service", "services")
    },
    BuiltIn {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: &[STATUS],
        rules: crate::crd::RULES,
        ..cluster(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        )
    },
    BuiltIn {
        rules: small::CONTROLLER_REVISION,
        ..namespaced("apps", "v1", "ControllerRevision", "controllerrevisions")
    },
    BuiltIn {
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[
            foreign("scale", "Scale", Some(("autoscaling", "v1")), STATUS_VERBS),
            STATUS,
        ],
        rules: deployment::DEPLOYMENT,
        ..namespaced("apps", "v1", "Deployment", "deployments")
    },
    BuiltIn {
        rules: small::LEASE,
        ..namespaced("coordination.k8s.io", "v1", "Lease", "leases")
    },
    BuiltIn {
        short_names: &["ev"],
        rules: event::OWN,
        ..namespaced("events.k8s.io", "v1", "Event", "events")
    },
    BuiltIn {
        short_names: &["netpol"],
        rules: network_policy::RULES,
        ..namespaced(
            "networking.k8s.io",
            "v1",
            "NetworkPolicy",
            "networkpolicies",
        )
    },
    BuiltIn {
        short_names: &["pdb"],
        subresources: &[STATUS],
        rules: deployment::BUDGET,
        ..namespaced(
            "policy",
            "v1",
            "PodDisruptionBudget",
            "poddisruptionbudgets",
        )
    },
    BuiltIn {
        short_names: &["sc"],
        rules: storage::CLASS,
        ..cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses")
    },
];

const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> BuiltIn {
    BuiltIn {
        namespaced: true,
        ..cluster(group, version, kind, plural)
    }
}

const fn cluster(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
) -> BuiltIn {
    BuiltIn {
        group,
        version,
        kind,
        plural,
        short_names: &[],
        categories: &[],
        namespaced: false,
        subresources: &[],
        rules: Rules::PLAIN,
    }
}

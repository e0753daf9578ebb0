//! What discovery says about the built-in kinds, and which rules they have.

use super::{BuiltIn, BuiltInSubresource, NameRule, Rules};

const STATUS_VERBS: &[&str] = &["get", "patch", "update"];

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
        foreign("binding", "Binding", None, &["create"]),
        own("ephemeralcontainers", STATUS_VERBS),
        foreign("eviction", "Eviction", Some(("policy", "v1")), &["create"]),
        own("resize", STATUS_VERBS),
        STATUS,
    ],
    ..namespaced("", "v1", "Pod", "pods")
};

/// In the order of discovery: groups, then plurals.
pub static BUILT_IN: &[BuiltIn] = &[
    BuiltIn {
        short_names: &["cm"],
        ..namespaced("", "v1", "ConfigMap", "configmaps")
    },
    BuiltIn {
        short_names: &["ev"],
        ..namespaced("", "v1", "Event", "events")
    },
    BuiltIn {
        short_names: &["ns"],
        subresources: &[own("finalize", &["update"]), STATUS],
        rules: Rules {
            name: NameRule::Label,
            ..Rules::PLAIN
        },
        ..cluster("", "v1", "Namespace", "namespaces")
    },
    BuiltIn {
        short_names: &["no"],
        subresources: &[STATUS],
        ..cluster("", "v1", "Node", "nodes")
    },
    BuiltIn {
        short_names: &["pvc"],
        subresources: &[STATUS],
        ..namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    },
    BuiltIn {
        short_names: &["pv"],
        subresources: &[STATUS],
        ..cluster("", "v1", "PersistentVolume", "persistentvolumes")
    },
    POD,
    namespaced("", "v1", "Secret", "secrets"),
    BuiltIn {
        short_names: &["sa"],
        ..namespaced("", "v1", "ServiceAccount", "serviceaccounts")
    },
    BuiltIn {
        short_names: &["svc"],
        categories: &["all"],
        subresources: &[STATUS],
        rules: Rules {
            name: NameRule::LetterLabel,
            ..Rules::PLAIN
        },
        ..namespaced("", "v1", "Service", "services")
    },
    BuiltIn {
        short_names: &["crd", "crds"],
        categories: &["api-extensions"],
        subresources: &[STATUS],
        rules: Rules {
            generation: true,
            ..Rules::PLAIN
        },
        ..cluster(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
        )
    },
    namespaced("apps", "v1", "ControllerRevision", "controllerrevisions"),
    BuiltIn {
        short_names: &["deploy"],
        categories: &["all"],
        subresources: &[
            foreign("scale", "Scale", Some(("autoscaling", "v1")), STATUS_VERBS),
            STATUS,
        ],
        rules: Rules {
            generation: true,
            ..Rules::PLAIN
        },
        ..namespaced("apps", "v1", "Deployment", "deployments")
    },
    namespaced("coordination.k8s.io", "v1", "Lease", "leases"),
    BuiltIn {
        short_names: &["ev"],
        ..namespaced("events.k8s.io", "v1", "Event", "events")
    },
    BuiltIn {
        short_names: &["netpol"],
        rules: Rules {
            generation: true,
            ..Rules::PLAIN
        },
        ..namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
    },
    BuiltIn {
        short_names: &["pdb"],
        subresources: &[STATUS],
        rules: Rules {
            generation: true,
            ..Rules::PLAIN
        },
        ..namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
    },
    BuiltIn {
        short_names: &["sc"],
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

//! What several measurements need.

pub mod client;
pub mod definitions;
pub mod process;
pub mod servers;
pub mod table;
pub mod times;
pub mod watch;

use serde_json::{Value, json};

/// A sandbox as people write them: three containers, probes, volumes, affinity.
pub fn sandbox() -> Value {
    let container = |name: &str| {
        json!({
            "name": name,
            "image": "registry.example.com/agents/runtime:1.2.3",
            "command": ["/usr/bin/agent", "--listen", ":8080"],
            "env": (0..12).map(|index| json!({"name": format!("NAME_{index}"), "value": "some value"})).collect::<Value>(),
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}, {"containerPort": 9090, "protocol": "TCP"}],
            "resources": {"limits": {"cpu": "2", "memory": "4Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}},
            "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 5},
            "livenessProbe": {"exec": {"command": ["true"]}, "failureThreshold": 3},
            "securityContext": {"runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
            "volumeMounts": [{"name": "data", "mountPath": "/data"}, {"name": "tmp", "mountPath": "/tmp"}],
        })
    };
    json!({
        "apiVersion": "agents.x-k8s.io/v1beta1",
        "kind": "Sandbox",
        "metadata": {"name": "one", "namespace": "default", "labels": {"app": "agent"}},
        "spec": {
            "operatingMode": "Running",
            "podTemplate": {
                "metadata": {"labels": {"app": "agent", "team": "x"}, "annotations": {"a": "b"}},
                "spec": {
                    "initContainers": [container("setup")],
                    "containers": [container("agent"), container("sidecar")],
                    "volumes": [
                        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                        {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
                        {"name": "config", "configMap": {"name": "config", "items": [{"key": "a", "path": "b"}]}},
                    ],
                    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "pool", "operator": "In", "values": ["agents"]}]},
                    ]}}},
                    "tolerations": [{"key": "agents", "operator": "Exists", "effect": "NoSchedule"}],
                    "topologySpreadConstraints": [{
                        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": {"app": "agent"}},
                    }],
                    "restartPolicy": "Always",
                    "terminationGracePeriodSeconds": 30,
                    "serviceAccountName": "agent",
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
            }],
        },
    })
}

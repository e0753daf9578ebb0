//! How long admission of a Sandbox with a full pod spec takes:
//! `cargo run --release -p bench --bin bench-structural`.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

use api::{
    crds::{Conversion, Family, Versions, render},
    structural::Schema,
};
use serde_json::{Value, json};

const ROUNDS: u32 = 5_000;

fn main() {
    let crds = render(&[Family::Sigs], Versions::V1beta1, Conversion::None).unwrap_or_default();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == "Sandbox");
    let schema = crd
        .and_then(|crd| serde_json::to_value(&crd.spec.versions[0].schema).ok())
        .map(|mut schema| schema["openAPIV3Schema"].take())
        .unwrap_or_default();
    let begun = Instant::now();
    let Ok(compiled) = Schema::compile(&schema) else {
        println!("our own schema does not compile");
        return;
    };
    println!("compile            {:>10.1?}", begun.elapsed());
    let object = sandbox();
    println!("object             {:>8} bytes", object.to_string().len());
    let mut admitted = object.clone();
    let unknown = compiled.admit(&mut admitted);
    println!(
        "unknown, errors    {unknown:?} {:?}",
        compiled.validate(&admitted)
    );

    let copy = measure(|| {
        black_box(object.clone());
    });
    let admit = measure(|| {
        let mut object = object.clone();
        _ = compiled.admit(&mut object);
        black_box(&object);
    });
    let validate = measure(|| {
        black_box(compiled.validate(&admitted));
    });
    let update = measure(|| {
        black_box(compiled.validate_update(&admitted, &admitted));
    });
    let admit = admit.saturating_sub(copy);
    println!("copy               {copy:>10.1?}");
    println!("default + prune    {admit:>10.1?}");
    println!("validate           {validate:>10.1?}");
    println!("validate an update {update:>10.1?}");
    println!("create, all        {:>10.1?}", admit + validate);
}

fn measure(mut work: impl FnMut()) -> Duration {
    for _ in 0..ROUNDS / 10 {
        work();
    }
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        work();
    }
    begun.elapsed() / ROUNDS
}

/// A sandbox as people write them: three containers, probes, volumes, affinity.
fn sandbox() -> Value {
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

//! `sandbar api` as users of an unmodified kubectl meet it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apply;
mod change;
mod custom;
mod lasting;
mod plugin;
mod read;
mod server;

/// A pod, a service that finds it, and what it needs.
const WEB: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {colour: blue, size: "3"}
---
apiVersion: v1
kind: Secret
metadata: {name: key, labels: {app: web}}
data: {password: aHVudGVyMg==}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk, labels: {app: web}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web, labels: {app: web}}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec:
  containers:
  - name: main
    image: nginx:1
    env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}]
    resources: {limits: {memory: 64Mi}}
---
apiVersion: v1
kind: Pod
metadata: {name: idle, labels: {app: idle}}
spec:
  nodeName: far-away
  containers: [{name: main, image: busybox}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: nginx:1}, {name: side, image: side:1}]}
"#;

const SANDBOX: &str = r#"
apiVersion: agents.x-k8s.io/v1beta1
kind: Sandbox
metadata: {name: box, labels: {team: a}}
spec: {podTemplate: {spec: {containers: [{name: main, image: "busybox:1"}]}}}
"#;

const SANDBOX_SET: &str = r#"
apiVersion: agents.kruise.io/v1alpha1
kind: SandboxSet
metadata: {name: set}
spec: {replicas: 1, template: {spec: {containers: [{name: main, image: "busybox:1"}]}}}
"#;

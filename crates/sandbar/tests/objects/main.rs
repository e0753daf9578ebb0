//! `sandbar get`, `apply`, `delete`, `logs` and `exec` as people without kubectl use them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apply;
mod delete;
mod get;
mod host;
mod server;
mod streams;
mod trouble;

/// Two settings and a pod.
const WEB: &str = r#"
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, labels: {app: web}}
data: {colour: blue}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: other}
---
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: main, image: "nginx:1"}]}
"#;

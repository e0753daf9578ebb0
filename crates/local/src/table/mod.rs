//! Tables, as `kubectl get` asks for them.

pub mod json_path;

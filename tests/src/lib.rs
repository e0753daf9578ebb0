//! What the real-cluster suite and its tools share.

pub mod distill;
pub mod go_types;
pub mod objects;
pub mod proto;
pub mod template_types;

//! What the real-cluster suite and its tools share.

pub mod distill;
pub mod objects;

//! What is proven on kube-apiserver, kubelet and containerd is proven here, in the same words.

#[path = "../../../../tests/tests/fleet/claims.rs"]
mod claims;
#[path = "../../../../tests/tests/fleet/endings.rs"]
mod endings;
#[path = "../../../../tests/tests/fleet/pools.rs"]
mod pools;
#[path = "../../../../tests/tests/fleet/sandboxes.rs"]
mod sandboxes;
#[path = "../../../../tests/tests/fleet/steady.rs"]
mod steady;

//! Labels and annotations of the family.

/// Label of pods, services and volume claims: the hash of their sandbox's name.
pub const NAME_HASH: &str = "agents.x-k8s.io/sandbox-name-hash";
/// Label by which somebody allows an object without a controller to be taken over.
pub const ADOPTABLE: &str = "agents.x-k8s.io/adoptable";
/// Label of sandboxes and pods that belong to a pool.
pub const WARM_POOL: &str = "agents.x-k8s.io/warm-pool-sandbox";
/// Label of sandboxes and pods: the hash of their template's name.
pub const TEMPLATE_REF_HASH: &str = "agents.x-k8s.io/sandbox-template-ref-hash";
/// Label that says which client asked.
pub const CREATED_BY: &str = "agents.x-k8s.io/created-by";
/// Annotation of a sandbox: the name of its pod.
pub const POD_NAME: &str = "agents.x-k8s.io/pod-name";
/// Annotations of a pod: which of its labels and annotations came from the template.
pub const PROPAGATED_LABELS: &str = "agents.x-k8s.io/propagated-labels";
pub const PROPAGATED_ANNOTATIONS: &str = "agents.x-k8s.io/propagated-annotations";

pub const GROUP: &str = "agents.x-k8s.io";
pub const EXTENSIONS: &str = "extensions.agents.x-k8s.io";
pub const API_VERSION: &str = "agents.x-k8s.io/v1beta1";

const TRACE_CONTEXT: &str = "opentelemetry.io/trace-context";
const CLIENTS: [&str; 3] = ["go-client", "python-client", "controller"];

/// Whether a key is ours to set, and a template's to leave alone.
pub fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    matches!(domain, Some(GROUP | EXTENSIONS)) || key == TRACE_CONTEXT
}

/// The client as it is told to the outside: one of those that are known.
pub fn known_client(name: &str) -> &str {
    CLIENTS
        .into_iter()
        .find(|known| *known == name)
        .unwrap_or("unknown")
}

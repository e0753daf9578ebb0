//! Labels and annotations of the family.

/// Label of pods, services and volume claims: the hash of their sandbox's name.
pub const NAME_HASH: &str = "agents.x-k8s.io/sandbox-name-hash";
/// Label by which somebody allows an object without a controller to be taken over.
pub const ADOPTABLE: &str = "agents.x-k8s.io/adoptable";
/// Label of sandboxes and pods that belong to a pool.
pub const WARM_POOL: &str = "agents.x-k8s.io/warm-pool-sandbox";
/// Label of sandboxes and pods: the hash of their template's name.
pub const TEMPLATE_REF_HASH: &str = "agents.x-k8s.io/sandbox-template-ref-hash";
/// Label of sandboxes: the hash of what they were made from.
pub const TEMPLATE_HASH: &str = "agents.x-k8s.io/sandbox-template-hash";
/// The same of the pod template alone; nobody reads it any more.
pub const POD_TEMPLATE_HASH: &str = "agents.x-k8s.io/sandbox-pod-template-hash";
/// Label of sandboxes: whether a claim found it waiting.
pub const LAUNCH_TYPE: &str = "agents.x-k8s.io/launch-type";
pub const WARM: &str = "warm";
pub const COLD: &str = "cold";
/// Label of sandboxes: the claim that has it.
pub const CLAIM_UID: &str = "agents.x-k8s.io/claim-uid";
/// Annotation, and formerly label, of a claim: the sandbox that it got.
pub const SANDBOX_NAME: &str = "agents.x-k8s.io/sandbox-name";
/// Annotation of sandboxes: the name of their template.
pub const TEMPLATE_REF: &str = "agents.x-k8s.io/sandbox-template-ref";
/// Annotations of a claim that say when it was asked for, seen and answered.
pub const CLIENT_REQUESTED: &str = "agents.x-k8s.io/client-first-requested-at";
pub const WEBHOOK_OBSERVED: &str = "agents.x-k8s.io/webhook-first-observed-at";
pub const FIRST_OBSERVED: &str = "agents.x-k8s.io/controller-first-observed-at";
pub const FIRST_READY: &str = "agents.x-k8s.io/claim-first-ready-at";
pub const SAFE_TO_EVICT: &str = "cluster-autoscaler.kubernetes.io/safe-to-evict";

/// Annotation of a member that is taken out of stock for an update in place.
pub const FENCE: &str = "sandbar.dev/update";
/// Annotation of a member that a rollout has made.
pub const FOR_ROLLOUT: &str = "sandbar.dev/for-rollout";
/// Annotation of a claim that narrows the policy of its pool.
pub const CLAIM_POLICY: &str = "sandbar.dev/claim-policy";
/// Annotation of a claim and of its sandbox: the revision that it got.
pub const REVISION: &str = "sandbar.dev/revision";
/// The same: its pool wanted another revision by then, if it says `true`.
pub const STALE: &str = "sandbar.dev/stale";
/// Annotation of a pool whose claims may not do that, if it says `false`.
pub const CLAIM_OVERRIDES: &str = "sandbar.dev/claim-overrides";
/// Annotation of a pool: revisions that were rolled back as bad, set apart by commas. Nobody gets one of their members.
pub const RETIRED: &str = "sandbar.dev/retired-revisions";
/// Annotation of a pod that says what an update in place found and wants.
pub const POD_UPDATE: &str = "sandbar.dev/pod-update";
/// Label of stored revisions: the hash of their pool's name.
pub const HISTORY_OF: &str = "sandbar.dev/history-of";
/// Where our own names are.
pub const DOMAIN: &str = "sandbar.dev/";

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

pub const EXTENSIONS_API_VERSION: &str = "extensions.agents.x-k8s.io/v1beta1";

pub const TRACE_CONTEXT: &str = "opentelemetry.io/trace-context";
const CLIENTS: [&str; 3] = ["go-client", "python-client", "controller"];

/// Whether a key is ours to set, and a template's to leave alone.
pub fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map(|(domain, _)| domain);
    matches!(domain, Some(GROUP | EXTENSIONS)) || key == TRACE_CONTEXT
}

/// Whether a controller reads annotations with this key.
pub fn is_ours(key: &str) -> bool {
    key.starts_with(GROUP) || key.starts_with(DOMAIN) || key == TRACE_CONTEXT
}

/// The client as it is told to the outside: one of those that are known.
pub fn known_client(name: &str) -> &str {
    CLIENTS
        .into_iter()
        .find(|known| *known == name)
        .unwrap_or("unknown")
}

//! Pods that are never run here.

use super::{Shell, Trouble, simple};

#[test]
fn a_pod_that_is_rejected_has_failed_with_the_reason_and_is_never_made() {
    let mut world = simple();
    world.facts.rejected = Some(Trouble::new("SysctlForbidden", "why"));
    assert_eq!(world.settle(), Vec::<String>::new());
    assert_eq!(world.phase(), "Failed");
    assert_eq!(world.status().reason.as_deref(), Some("SysctlForbidden"));
    let message = world.status().message.as_deref();
    assert_eq!(message, Some("Pod was rejected: why"));
    assert_eq!(world.status().container_statuses, None);
    assert!(matches!(world.facts.shell, Shell::Absent));
    assert_eq!(world.tell(), None);
}

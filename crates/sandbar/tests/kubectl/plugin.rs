//! This program as a plugin of kubectl.

use crate::server::User;

const POOL: &str = r#"
apiVersion: extensions.agents.x-k8s.io/v1beta1
kind: SandboxWarmPool
metadata: {name: pool}
spec: {replicas: 2, sandboxTemplateRef: {name: one}, updateStrategy: {type: RollingUpdate}}
"#;

#[test]
fn a_rollout_is_steered_through_kubectl() {
    let user = User::admin();
    let listed = user.run("", "plugin list").1;
    assert!(listed.contains("kubectl-sandbar"), "{listed}");
    user.does_with(POOL, "create -f -");
    let namespace = &user.namespace;
    let said = user.does("sandbar rollout pause pool");
    assert_eq!(said, format!("{namespace}/pool paused\n"));
    let paused =
        || user.sees("swp/pool")["spec"]["updateStrategy"]["rollingUpdate"]["paused"].clone();
    assert_eq!(paused(), true);
    let said = user.does("sandbar rollout status swp/pool --no-watch");
    assert!(said.contains("SandboxTemplate \"one\" not found"), "{said}");
    user.does("sandbar rollout resume pool");
    assert_ne!(paused(), true);
    let complaint = user.fails("sandbar rollout status nobody");
    let expected = format!("{namespace}/nobody not found");
    assert!(complaint.contains(&expected), "{complaint}");
}

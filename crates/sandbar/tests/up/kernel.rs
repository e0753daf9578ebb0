//! What of the kernel a pod may set, and what it is shown.

use serde_json::json;

use crate::instance::{Instance, container, sh};

#[tokio::test]
async fn safe_sysctls_are_the_pods_own_and_others_fail_it() {
    let up = Instance::start().await;
    let spec = |sysctls: serde_json::Value| {
        json!({
            "securityContext": {"sysctls": sysctls},
            "containers": [sh("main", "exec sleep 1000")],
        })
    };
    let safe = json!([
        {"name": "net.ipv4.tcp_keepalive_time", "value": "601"},
        {"name": "net/ipv4/ip_local_port_range", "value": "40000 40100"},
    ]);
    up.pod("safe", spec(safe)).await;
    up.ready("safe").await;
    let files = ["tcp_keepalive_time", "ip_local_port_range"];
    let files = files.map(|file| format!("/proc/sys/net/ipv4/{file}"));
    let (out, code) = up.exec("safe", &["cat", &files[0], &files[1]]);
    assert_eq!((out.as_str(), code), ("601\n40000\t40100\n", 0));

    let unsafe_one = json!([{"name": "kernel.msgmax", "value": "1"}]);
    up.pod("unsafe", spec(unsafe_one)).await;
    let pod = up.phase("unsafe", "Failed").await;
    let status = pod.status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("SysctlForbidden"));
    let message = status.message.unwrap();
    assert!(message.contains("\"kernel.msgmax\""), "{message}");
    assert_eq!(status.container_statuses, None);
    up.event("SysctlForbidden").await;

    let wrong = json!([{"name": "net.ipv4.tcp_syncookies", "value": "many"}]);
    up.pod("wrong", spec(wrong)).await;
    let says = |pod: &k8s_openapi::api::core::v1::Pod| {
        let text = serde_json::to_string(&pod.status).unwrap();
        text.contains("setting sysctl net.ipv4.tcp_syncookies")
    };
    up.until("wrong", "said what it cannot have", says).await;
}

#[tokio::test]
async fn proc_is_shown_whole_only_to_pods_with_their_own_users() {
    let up = Instance::start().await;
    let mut one = sh(
        "main",
        "grep -q . /proc/interrupts && echo shown; exec sleep 1000",
    );
    one["securityContext"] = json!({"procMount": "Unmasked"});
    up.pod(
        "own",
        json!({"hostUsers": false, "containers": [one.clone()]}),
    )
    .await;
    up.ready("own").await;
    assert_eq!(up.says("own", "shown\n").await, "shown\n");
    up.pod("root", json!({"containers": [one]})).await;
    let is_refused = |pod: &k8s_openapi::api::core::v1::Pod| {
        let waiting = container(pod, "main").state.and_then(|state| state.waiting);
        waiting.is_some_and(|waiting| {
            waiting.reason.as_deref() == Some("CreateContainerConfigError")
                && waiting
                    .message
                    .is_some_and(|why| why.contains("hostUsers: false"))
        })
    };
    up.until("root", "was refused", is_refused).await;
}

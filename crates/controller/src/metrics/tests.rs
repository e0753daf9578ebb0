use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use super::{FirstReady, Metrics};
use crate::{clock::after, queue::Next};

fn lines(metrics: &Metrics, start: &str) -> Vec<String> {
    let text = metrics.text();
    let all = text.lines().filter(|line| line.starts_with(start));
    all.map(str::to_owned).collect()
}

#[test]
fn a_claim_is_told_once_for_each_thing_that_is_known_of_it() {
    let metrics = Metrics::default();
    let start = Timestamp::UNIX_EPOCH;
    let at = |millis| after(start, Duration::from_millis(millis));
    metrics.claim_adopted("ns", Some("python"), "pool", true, "go-client");
    metrics.claim_created_cold("ns", None, "pool", "unknown");
    metrics.claim_first_ready(&FirstReady {
        namespace: "ns",
        launch_type: Some("warm"),
        template: Some("python"),
        now: at(1_020),
        // a client whose clock is ahead
        requested: Some(at(1_030)),
        admitted: None,
        first_seen: Some(at(1_000)),
        sandbox: Some((start, at(700))),
    });
    assert_eq!(
        lines(&metrics, "agent_sandbox_claim_creation_total{"),
        [
            "agent_sandbox_claim_creation_total{namespace=\"ns\",sandbox_template=\"__unknown__\",\
             launch_type=\"cold\",warmpool_name=\"pool\",pod_condition=\"not_ready\",created_by=\"unknown\"} 1",
            "agent_sandbox_claim_creation_total{namespace=\"ns\",sandbox_template=\"python\",\
             launch_type=\"warm\",warmpool_name=\"pool\",pod_condition=\"ready\",created_by=\"go-client\"} 1",
        ]
    );
    let labels = "{launch_type=\"warm\",sandbox_template=\"python\"";
    let sum = |name: &str| lines(&metrics, &format!("{name}_sum"));
    assert_eq!(
        sum("agent_sandbox_claim_controller_startup_latency_ms"),
        [format!(
            "agent_sandbox_claim_controller_startup_latency_ms_sum{labels}}} 20"
        )]
    );
    assert_eq!(
        sum("sandbar_claim_ready_seconds"),
        [format!("sandbar_claim_ready_seconds_sum{labels}}} 0.02")]
    );
    assert_eq!(
        sum("agent_sandbox_creation_latency_ms"),
        [
            "agent_sandbox_creation_latency_ms_sum{namespace=\"ns\",launch_type=\"warm\",\
             sandbox_template=\"python\"} 700"
        ]
    );
    assert!(sum("agent_sandbox_claim_startup_latency_ms").is_empty());
    assert!(sum("agent_sandbox_client_claim_startup_latency_ms").is_empty());
    let buckets = lines(
        &metrics,
        "agent_sandbox_claim_controller_startup_latency_ms_bucket",
    );
    assert_eq!(buckets.len(), 16);
    assert!(buckets[0].ends_with("le=\"100\"} 1"), "{}", buckets[0]);
    assert!(buckets[14].contains("le=\"240000\""), "{}", buckets[14]);
}

#[test]
fn passes_are_told_by_how_they_end() {
    let metrics = Metrics::default();
    let work = metrics.work("sandbox");
    for next in [Next::Never, Next::Never, Next::Retry] {
        work.ended(next, Duration::from_millis(3));
    }
    let told = lines(&metrics, "controller_runtime_reconcile_");
    for expected in [
        "controller_runtime_reconcile_total{controller=\"sandbox\",result=\"success\"} 2",
        "controller_runtime_reconcile_total{controller=\"sandbox\",result=\"requeue_after\"} 0",
        "controller_runtime_reconcile_total{controller=\"sandbox\",result=\"error\"} 1",
        "controller_runtime_reconcile_errors_total{controller=\"sandbox\"} 1",
        "controller_runtime_reconcile_time_seconds_count{controller=\"sandbox\"} 3",
    ] {
        assert!(
            told.iter().any(|line| line == expected),
            "{expected} in {told:#?}"
        );
    }
}

#[test]
fn what_is_collected_ends_with_its_collector() {
    let metrics = Metrics::default();
    let first = metrics.collect("here", |text| text.single("x", "X.", "gauge", 1));
    let second = metrics.collect("here", |text| text.single("x", "X.", "gauge", 2));
    drop(first);
    assert_eq!(lines(&metrics, "x "), ["x 2"]);
    drop(second);
    assert!(lines(&metrics, "x ").is_empty());
}

#[test]
fn the_process_is_told() {
    let told = Metrics::default();
    for name in [
        "process_start_time_seconds ",
        "process_cpu_seconds_total ",
        "process_resident_memory_bytes ",
        "process_open_fds ",
        "agent_sandbox_build_info{git_version=\"v",
        "sandbar_leading 0",
    ] {
        assert_eq!(lines(&told, name).len(), 1, "{name}");
    }
}

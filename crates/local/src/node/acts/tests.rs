use std::{
    fs,
    future::{pending, ready},
    net::Ipv4Addr,
    time::Duration,
};

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{LEAST, forget, hosts, left_by};

#[tokio::test(start_paused = true)]
async fn a_hook_takes_its_time_from_the_container_but_not_all_of_it() {
    let seconds = Duration::from_secs;
    let grace = seconds(10);
    assert_eq!(left_by(ready(()), grace).await, grace);
    assert_eq!(left_by(sleep(seconds(3)), grace).await, seconds(7));
    assert_eq!(left_by(pending(), grace).await, LEAST);
}

#[test]
fn a_pod_finds_itself_and_its_aliases_among_its_hosts() {
    let own = |spec: Value| {
        let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).unwrap();
        let text = hosts(&pod, "h", Some(Ipv4Addr::new(10, 0, 0, 9)));
        let (_, own) = text.split_once("ip6-allrouters\n").unwrap();
        own.to_owned()
    };
    let plain = "10.0.0.9\th\n";
    assert_eq!(own(json!({"containers": []})), plain);
    let no_subdomain = json!({"containers": [], "subdomain": ""});
    assert_eq!(own(no_subdomain), plain);
    let spec = json!({
        "containers": [],
        "subdomain": "s",
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["one", "two"]}],
    });
    let full = "10.0.0.9\th.s.n.svc.cluster.local\th\n192.0.2.1\tone\ttwo\n";
    assert_eq!(own(spec), full);
}

#[test]
fn a_run_is_forgotten_with_what_was_rotated_away_and_no_other_run_is() {
    let directory = tempfile::tempdir().unwrap();
    let all = ["1", "1.2030", "10", "11.2030", "2"];
    for name in all {
        fs::write(directory.path().join(name), "").unwrap();
    }
    forget(&directory.path().join("1")).unwrap();
    let is_left = |name: &&str| directory.path().join(name).exists();
    let left: Vec<_> = all.into_iter().filter(is_left).collect();
    assert_eq!(left, ["10", "11.2030", "2"]);
}

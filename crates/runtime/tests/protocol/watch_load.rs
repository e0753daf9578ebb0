//! Watchers of directories in which much happens, and watchers that nobody asks.

use serde_json::{Value, json};

use crate::daemon::Daemon;

fn watch(daemon: &Daemon) -> Value {
    let request = json!({"path": "", "includeEntry": true});
    let made = daemon.call("/filesystem.Filesystem/CreateWatcher", &request);
    json!({"watcherId": made["watcherId"]})
}

fn events(daemon: &Daemon, watcher: &Value) -> Vec<Value> {
    let told = daemon.call("/filesystem.Filesystem/GetWatcherEvents", watcher);
    told["events"].as_array().unwrap().clone()
}

#[test]
fn a_command_that_writes_without_end_keeps_nobody_from_being_served() {
    let daemon = Daemon::launch();
    let watchers = [(); 10].map(|()| watch(&daemon));
    // in turns, or the kernel would tell only once of many
    let script = "exec 3> a 4> b; echo ready; while :; do echo >&3; echo >&4; done";
    let mut writer = daemon.start(script);
    assert_eq!(writer.stdout(), "ready\n");
    for _ in 0..20 {
        assert_eq!(daemon.get("/health").status, 204);
    }
    assert!(!events(&daemon, &watchers[0]).is_empty());
}

#[test]
fn what_waits_for_watchers_that_nobody_asks_is_bounded_and_others_miss_nothing() {
    let daemon = Daemon::launch();
    let _forgotten: Vec<Value> = (0..20).map(|_| watch(&daemon)).collect();
    let asked = watch(&daemon);
    for round in 0..40 {
        // as many as a kernel keeps at least
        let script = "i=0; while [ $i -lt 250 ]; do i=$((i+1)); echo >> a; echo >> b; done";
        assert_eq!(daemon.run(script).end["exitCode"].as_i64().unwrap_or(0), 0);
        let told = events(&daemon, &asked);
        let writes = told
            .iter()
            .filter(|told| told["type"] == "EVENT_TYPE_WRITE");
        assert_eq!(writes.count(), 500, "in round {round}");
    }
    let peak = daemon.peak_memory();
    assert!(peak < 64 << 20, "{peak} bytes");
}

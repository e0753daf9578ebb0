//! Tests that change the machine, each in namespaces of its own: what it mounts and listens on goes with them.

use std::process::Command;

use rustix::process::geteuid;

const INSIDE: &str = "SANDBAR_TEST_ALONE";

/// The addresses of the machine that a test is alone on, on the way to everywhere else.
pub(crate) const OUTWARD_V4: &str = "10.77.0.2";
pub(crate) const OUTWARD_V6: &str = "fd77::2";

const MACHINE: &str = r#"
mount -t tmpfs tmpfs "$TMPDIR"
ip link set lo up
ip link add outward type veth peer name beyond
ip link set outward up && ip link set beyond up
ip address add 10.77.0.2/24 dev outward
ip address add fd77::2/64 dev outward nodad
ip route add default via 10.77.0.1
ip -6 route add default via fd77::1
exec "$0" "$@""#;

/// Runs the test of this name again, alone in namespaces for networks, mounts and processes, and there its body. Only root can.
pub(crate) fn alone(test: &str, body: impl FnOnce()) {
    if std::env::var_os(INSIDE).is_some() {
        return body();
    }
    if !geteuid().is_root() {
        return;
    }
    // in memory inside: what stays mounted somewhere in there cannot be removed, and goes with it
    let temporary = tempfile::tempdir().unwrap();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child"])
        .args(["--mount-proc", "sh", "-ec", MACHINE])
        .arg(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture"])
        .env(INSIDE, "1")
        .env("TMPDIR", temporary.path())
        .output()
        .expect("cannot run unshare: install the package `util-linux`");
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

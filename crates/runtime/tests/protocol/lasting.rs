//! What must not keep a daemon from its work: clients that leave or stall, a log that nobody reads, its own end.

use std::process::Command;

use crate::daemon::{Daemon, PROGRAM};

#[test]
fn a_log_that_nobody_reads_any_more_is_no_reason_to_end() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(PROGRAM);
    // below a file, which is something to complain about
    command.args(["--legacy-port", "0", "--legacy-root"]);
    command.arg(file.path().join("root")).stderr(writer);
    let mut daemon = Daemon::launch_by(command, "127.0.0.1");
    assert_eq!(daemon.get("/health").status, 204);
    daemon.assert_alive();
}

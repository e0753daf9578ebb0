//! How many descriptors may be open, by the program and in its sandboxes.

use crate::instance::{Instance, PROGRAM};

#[tokio::test]
async fn the_program_has_all_descriptors_that_it_may_and_sandboxes_what_it_began_with() {
    let script = "ulimit -S -n 777; exec \"$@\"";
    let launcher = ["sh", "-c", script, "sh", PROGRAM].map(str::to_owned);
    let directory = tempfile::tempdir().unwrap();
    let up = Instance::launched(launcher.to_vec(), directory, &["--pool", "0"]).await;
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", up.pid())).unwrap();
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    let [soft, hard] = line
        .unwrap()
        .split_whitespace()
        .skip(3)
        .take(2)
        .collect::<Vec<_>>()[..]
    else {
        panic!("{limits}");
    };
    assert_eq!(soft, hard);
    up.run("one", "ulimit -S -n; exec sleep 1000").await;
    assert_eq!(up.says("one", "\n").await, "777\n");
    let (said, _) = up.exec("one", &["sh", "-c", "ulimit -S -n; ulimit -H -n"]);
    assert_eq!(said, format!("777\n{hard}\n"));
}

//! Real containers for the tests of the node.
//!
//! They are forked by a helper, which must be a program of one thread: it is this very test program, told to run one test.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use container::{ContainerSettings, Helper, Overlay, Pod, PodSettings, Root};
use tempfile::TempDir;
use tokio::sync::watch;

use super::inside::Inside;
use super::place::PodPlace;
use super::probes::Target;
use super::tenants::Tenant;

/// Names no test: it only tells the helper from a test that is run like any other.
const AS_HELPER: &str = "as-the-container-helper";

#[test]
fn the_test_program_can_be_the_helper() {
    if std::env::args().any(|argument| argument == AS_HELPER) {
        container::helper::run();
    }
}

/// A pod with containers that take their programs from this machine. It ends with this.
pub(super) struct Lodge {
    pub(super) pod: Arc<Pod>,
    pub(super) place: PodPlace,
    pub(super) running: watch::Sender<BTreeMap<String, u32>>,
    layer: PathBuf,
    _helper: Helper,
    _directory: TempDir,
}

impl Lodge {
    pub(super) async fn open() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().file_name().unwrap().to_string_lossy();
        let cgroup_parent = format!("sandbar-test{}", name.replace('.', "-"));
        let layer = directory.path().join("layer");
        make_layer(&layer);
        let place = PodPlace::new(directory.path(), "uid");
        std::fs::create_dir_all(place.shim()).unwrap();
        let helper = helper();
        let settings = PodSettings {
            dir: place.shim(),
            hostname: "lodge".to_owned(),
            cgroup_parent,
            cgroup: "pod-lodge".to_owned(),
            user_namespace: None,
            first: None,
            isolated: true,
            sysctls: BTreeMap::new(),
        };
        let pod = helper.start_pod(&settings).await.unwrap();
        Self {
            pod: Arc::new(pod),
            place,
            running: watch::Sender::default(),
            layer,
            _helper: helper,
            _directory: directory,
        }
    }

    /// Starts the first run of a container.
    pub(super) async fn start(
        &self,
        name: &str,
        script: &str,
        change: impl FnOnce(&mut ContainerSettings),
    ) {
        let root = Root {
            layers: vec![self.layer.clone()],
            read_only: false,
        };
        let args = ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
        let log = self.place.log(name, 0);
        std::fs::create_dir_all(log.parent().unwrap()).unwrap();
        let mut settings = ContainerSettings::new(name, root, args, log);
        settings.overlays = vec![Overlay {
            destination: "/usr".into(),
            layers: vec!["/usr".into()],
            read_only: true,
        }];
        change(&mut settings);
        self.pod.start(&settings).await.unwrap();
        self.running
            .send_modify(|running| _ = running.insert(name.to_owned(), 0));
    }

    pub(super) fn tenant(&self) -> Tenant {
        Tenant {
            place: self.place.clone(),
            pod: Some(Arc::clone(&self.pod)),
            running: self.running.subscribe(),
        }
    }

    pub(super) fn target(&self, container: &str) -> Target {
        Target {
            pod: Arc::clone(&self.pod),
            label: "p_default(uid)".to_owned(),
            container: container.to_owned(),
            address: None,
            dialer: Arc::new(Inside::directly()),
        }
    }

    /// Ends everything. A test that fails does not come here, and is cleaned up after.
    pub(super) async fn close(self) {
        self.pod.stop(&[], Duration::ZERO).await.unwrap();
    }
}

impl Drop for Lodge {
    fn drop(&mut self) {
        let dir = self.place.shim();
        if container::remains(&dir).shim_alive {
            let pid = self.pod.pid().to_string();
            let _ = Command::new("kill").args(["-9", &pid]).status();
            while container::remains(&dir).shim_alive {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        if let Err(error) = container::sweep(&dir) {
            eprintln!("{error}");
        }
    }
}

fn helper() -> Helper {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let module = module_path!().split_once("::").unwrap().1;
    let test = format!("{module}::the_test_program_can_be_the_helper");
    command.args(["--exact", "--test-threads=1", &test, AS_HELPER]);
    Helper::spawn(command).unwrap()
}

fn make_layer(layer: &Path) {
    for directory in ["usr", "tmp", "etc", "root", "proc", "dev", "sys"] {
        std::fs::create_dir_all(layer.join(directory)).unwrap();
    }
    for link in ["bin", "sbin", "lib", "lib64"] {
        if Path::new("/").join(link).is_symlink() {
            symlink(format!("usr/{link}"), layer.join(link)).unwrap();
        }
    }
}

/// Waits for something that happens soon.
pub(super) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to be that {what}");
}

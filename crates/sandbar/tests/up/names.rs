//! Names that pods find each other by.

use k8s_openapi::api::core::v1::Service;
use kube::api::DeleteParams;
use serde_json::json;

use crate::instance::{Instance, eventually, ip, ready_by_file, sh};

const LOOK_UP: &str = "
import socket, sys
try:
    print(*sorted({found[4][0] for found in socket.getaddrinfo(sys.argv[1], 80, socket.AF_INET)}))
except socket.gaierror:
    print('nobody')
";

#[tokio::test]
async fn a_headless_service_names_its_ready_pods_inside_of_others() {
    let up = Instance::start().await;
    let spec =
        json!({"clusterIP": "None", "selector": {"name": "server"}, "ports": [{"port": 80}]});
    let service = json!({"metadata": {"name": "web"}, "spec": spec});
    up.create::<Service>(service).await;
    let one = ready_by_file(sh("main", "exec sleep 1000"));
    let spec = json!({"hostname": "first", "subdomain": "web", "containers": [one]});
    up.pod("server", spec).await;
    up.run("client", "exec sleep 1000").await;
    let address = format!("{}\n", ip(&up.phase("server", "Running").await));
    up.ready("client").await;
    let look_up = |name: &str| up.exec("client", &["python3", "-c", LOOK_UP, name]).0;
    assert_eq!(look_up("web"), "nobody\n");
    assert_eq!(up.exec("server", &["touch", "/tmp/ready"]).1, 0);
    up.ready("server").await;
    eventually("the service has a pod", async || look_up("web") == address).await;
    for name in ["web.default", "web.default.svc.cluster.local", "first.web"] {
        assert_eq!(look_up(name), address, "{name}");
    }
    assert_eq!(look_up("other"), "nobody\n");
    let services = up.api::<Service>();
    let options = DeleteParams::default();
    services.delete("web", &options).await.unwrap();
    eventually("the name is gone", async || look_up("web") == "nobody\n").await;
}

use serde_json::{Value, json};

use crate::kinds::Part;
use crate::kinds::testing::{World, create, faults, update};

fn service(spec: Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": spec})
}

#[test]
fn a_service_gets_an_address_and_defaults() {
    let made = create(
        "Service",
        service(json!({"selector": {"app": "x"}, "ports": [{"port": 80}]})),
    );
    let mut made = made.unwrap();
    let address = made["spec"]["clusterIP"].take();
    assert!(address.as_str().unwrap().starts_with("10.96."), "{address}");
    assert_eq!(made["spec"]["clusterIPs"], json!([address]));
    made["spec"]["clusterIPs"].take();
    assert_eq!(
        made["spec"],
        json!({
            "clusterIP": null, "clusterIPs": null,
            "internalTrafficPolicy": "Cluster",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
            "selector": {"app": "x"},
            "sessionAffinity": "None",
            "type": "ClusterIP",
        })
    );
    assert_eq!(made["status"], json!({"loadBalancer": {}}));
}

#[test]
fn an_address_that_is_taken_is_not_given_again() {
    let spec = json!({"ports": [{"port": 80}]});
    let first = create("Service", service(spec.clone())).unwrap();
    let address = first["spec"]["clusterIP"].clone();
    let world = World::new().with("services", "other", first);
    let second = world.create("Service", service(spec)).unwrap();
    assert_ne!(second["spec"]["clusterIP"], address);
    let wish = json!({"clusterIP": address, "ports": [{"port": 80}]});
    let fault = world.create("Service", service(wish)).unwrap_err();
    assert!(
        fault[0].contains("provided IP is already allocated"),
        "{fault:?}"
    );
}

#[test]
fn a_headless_service_has_no_address() {
    let spec = json!({"clusterIP": "None", "selector": {"app": "x"}, "ports": [{"port": 80, "targetPort": "web"}]});
    let made = create("Service", service(spec)).unwrap();
    assert_eq!(made["spec"]["clusterIPs"], json!(["None"]));
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4"]));
    let open = json!({"clusterIP": "None", "ports": [{"port": 80}]});
    let made = create("Service", service(open)).unwrap();
    assert_eq!(made["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(made["spec"]["ipFamilyPolicy"], "RequireDualStack");
}

#[test]
fn an_external_name_is_all_there_is() {
    let made = create(
        "Service",
        service(json!({"type": "ExternalName", "externalName": "example.com"})),
    );
    assert_eq!(
        made.unwrap()["spec"],
        json!({"externalName": "example.com", "sessionAffinity": "None", "type": "ExternalName"})
    );
}

#[test]
fn bad_ports_are_refused() {
    let table = [
        (
            json!({"ports": [{"port": 0}]}),
            vec![
                "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                "spec.ports[0].targetPort: Invalid value: 0: must be between 1 and 65535, inclusive",
            ],
        ),
        (
            json!({"ports": [{"port": 80}, {"port": 81}]}),
            vec![
                "spec.ports[0].name: Required value",
                "spec.ports[1].name: Required value",
            ],
        ),
        (
            json!({"ports": [{"name": "a", "port": 80}, {"name": "a", "port": 81}]}),
            vec!["spec.ports[1].name: Duplicate value: \"a\""],
        ),
        (
            json!({"ports": [{"port": 80, "protocol": "XYZ"}]}),
            vec![
                "spec.ports[0].protocol: Unsupported value: \"XYZ\": supported values: \"SCTP\", \"TCP\", \"UDP\"",
            ],
        ),
        (
            json!({"type": "Strange", "ports": [{"port": 80}]}),
            vec![
                "spec.type: Unsupported value: \"Strange\": supported values: \"ClusterIP\", \"ExternalName\", \
                 \"LoadBalancer\", \"NodePort\"",
            ],
        ),
        (json!({}), vec!["spec.ports: Required value"]),
    ];
    for (spec, expected) in table {
        assert_eq!(faults("Service", service(spec)), expected);
    }
}

#[test]
fn an_address_is_kept_and_cannot_be_changed() {
    let made = create("Service", service(json!({"ports": [{"port": 80}]}))).unwrap();
    let put = update("Service", Part::Main, &made, |service| {
        service["spec"] = json!({"ports": [{"port": 81}]});
    });
    let put = put.unwrap();
    assert_eq!(put["spec"]["clusterIP"], made["spec"]["clusterIP"]);
    assert_eq!(put["spec"]["ports"][0]["targetPort"], 81);
    let fault = update("Service", Part::Main, &made, |service| {
        service["spec"]["clusterIP"] = "10.250.250.250".into();
        service["spec"]["clusterIPs"] = json!(["10.250.250.250"]);
    });
    let fault = fault.unwrap_err();
    let expected =
        "spec.clusterIPs[0]: Invalid value: [\"10.250.250.250\"]: may not change once set";
    assert_eq!(fault, [expected]);
}

#[test]
fn a_service_that_becomes_an_external_name_loses_its_address() {
    let made = create("Service", service(json!({"ports": [{"port": 80}]}))).unwrap();
    let renamed = update("Service", Part::Main, &made, |service| {
        service["spec"]["type"] = "ExternalName".into();
        service["spec"]["externalName"] = "example.com".into();
    })
    .unwrap();
    assert_eq!(renamed["spec"].get("clusterIP"), None);
    assert_eq!(renamed["spec"].get("ipFamilies"), None);
}

#[test]
fn ports_of_nodes_are_given_and_kept() {
    let made = create(
        "Service",
        service(json!({"type": "NodePort", "ports": [{"port": 80}]})),
    )
    .unwrap();
    let port = made["spec"]["ports"][0]["nodePort"].as_i64().unwrap();
    assert!((30000..32768).contains(&port));
    assert_eq!(made["spec"]["externalTrafficPolicy"], "Cluster");
    let put = update("Service", Part::Main, &made, |service| {
        service["spec"] = json!({"type": "NodePort", "ports": [{"port": 81}]});
    });
    assert_eq!(put.unwrap()["spec"]["ports"][0]["nodePort"], port);
}

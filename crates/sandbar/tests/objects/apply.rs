//! `sandbar apply`.

use serde_json::json;

use crate::{WEB, server::User};

const CRDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sigs/v1beta1");

#[test]
fn it_says_what_has_become_of_each_object() {
    let user = User::new();
    let file = user.write("web.yaml", WEB);
    let line = format!("apply -f {file}");
    assert_eq!(
        user.does(&line),
        "configmap/settings created\nconfigmap/other created\npod/web created\n"
    );
    assert_eq!(
        user.does(&line),
        "configmap/settings unchanged\nconfigmap/other unchanged\npod/web unchanged\n"
    );
    let changed = WEB.replace("colour: blue", "size: '3'");
    assert_eq!(
        user.does_with(&changed, "apply -f - --server-side"),
        "configmap/settings configured\nconfigmap/other unchanged\npod/web unchanged\n"
    );
    assert_eq!(user.sees("cm settings")["data"], json!({"size": "3"}));
}

#[test]
fn lists_json_and_directories_are_read() {
    let user = User::new();
    std::fs::create_dir(user.path("all")).unwrap();
    user.write("all/1.yaml", WEB);
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "in-list"}},
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}},
    ]});
    user.write("all/2.json", &list.to_string());
    let said = user.does(&format!(
        "apply -f {} -n default",
        user.path("all").display()
    ));
    assert!(
        said.ends_with("pod/web created\nconfigmap/in-list created\nnamespace/new created\n"),
        "{said}"
    );
    user.does_with(WEB, "apply -n new -f -");
    assert_eq!(
        user.does("get cm -n new -l app=web -o name"),
        "configmap/settings\n"
    );
}

#[test]
fn definitions_and_their_objects_come_in_one_call() {
    let user = User::new();
    let said = user.does(&format!("apply -f {CRDS} -f {EXAMPLES}"));
    assert!(
        said.contains(
            "customresourcedefinition.apiextensions.k8s.io/sandboxes.agents.x-k8s.io created\n"
        ),
        "{said}"
    );
    let template = user.does("get sandboxtemplates.extensions.agents.x-k8s.io -o name");
    assert!(
        said.contains(&template.lines().next().unwrap().to_string()),
        "{said}"
    );
    assert!(!said.contains("unchanged"), "{said}");
    let table = user.does("get sandboxes.agents.x-k8s.io");
    assert!(table.starts_with("NAME "), "{table}");
}

#[test]
fn what_fails_is_named_and_the_rest_is_applied() {
    let user = User::new();
    std::fs::create_dir(user.path("all")).unwrap();
    user.write("all/1.yaml", "a: [");
    let several = "{apiVersion: v1, kind: ConfigMap, metadata: {name: UPPER}}\n---\n\
                   {apiVersion: x.io/v1, kind: Thing, metadata: {name: a}}\n---\n\
                   {apiVersion: v1, kind: ConfigMap, metadata: {name: misspelled}, dada: {}}\n---\n\
                   {apiVersion: v1, kind: ConfigMap, metadata: {name: lost, namespace: nowhere}}\n---\n\
                   {apiVersion: v1, kind: ConfigMap, metadata: {name: good}}\n";
    user.write("all/2.yaml", several);
    let directory = user.path("all");
    let directory = directory.display();
    let said = user.run(
        "",
        &format!("apply -f {directory} -f {directory}/none.yaml"),
    );
    assert_eq!(said.code, 1);
    assert_eq!(said.out, "configmap/good created\n");
    let complaints: Vec<&str> = said.err.lines().collect();
    for (complaint, parts) in complaints.iter().zip([
        ["1.yaml: ", "line "],
        [
            "2.yaml: ConfigMap \"UPPER\": error from server (Invalid): ",
            "RFC 1123",
        ],
        [
            "2.yaml: Thing \"a\": no matches for kind \"Thing\" in version \"x.io/v1\"",
            "CustomResourceDefinition first",
        ],
        ["2.yaml: ConfigMap \"misspelled\": ", "dada"],
        [
            "2.yaml: ConfigMap \"lost\": error from server (NotFound): ",
            "namespaces \"nowhere\" not found",
        ],
        ["cannot read ", "none.yaml: No such file"],
    ]) {
        for part in parts {
            assert!(complaint.contains(part), "{part}: {complaint}");
        }
    }
    assert_eq!(complaints.len(), 6, "{said:?}");
}

#[test]
fn a_conflict_names_who_has_the_field_and_how_to_take_it() {
    let user = User::new();
    user.does_with(WEB, "apply -f -");
    // somebody else, by the API
    let kubeconfig = user.path(".sandbar/kubeconfig");
    set_colour(&kubeconfig);
    let red = WEB.replace("blue", "red");
    let said = user.run(&red, "apply -f -");
    assert_eq!(said.code, 1);
    for part in [
        "standard input: ConfigMap \"settings\": ",
        "conflict with \"somebody\"",
        ".data.colour",
        "--force-conflicts",
    ] {
        assert!(said.err.contains(part), "{said:?}");
    }
    assert_eq!(user.sees("cm settings")["data"]["colour"], "green");
    let said = user.does_with(&red, "apply -f - --force-conflicts");
    assert!(
        said.starts_with("configmap/settings configured\n"),
        "{said}"
    );
    assert_eq!(user.sees("cm settings")["data"]["colour"], "red");
}

#[tokio::main(flavor = "current_thread")]
async fn set_colour(kubeconfig: &std::path::Path) {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api, Client, Config,
        api::{Patch, PatchParams},
        config::{KubeConfigOptions, Kubeconfig},
    };
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(Client::try_from(config.unwrap()).unwrap());
    let patch = Patch::Merge(json!({"data": {"colour": "green"}}));
    let params = PatchParams {
        field_manager: Some("somebody".to_owned()),
        ..PatchParams::default()
    };
    maps.patch("settings", &params, &patch).await.unwrap();
}

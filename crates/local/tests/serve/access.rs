//! Who gets in, and how far.

use http::{Method, Request};
use serde_json::{Value, json};

use crate::support::{Server, bearer, said_to, whole};

#[tokio::test]
async fn the_kubeconfigs_let_an_admin_and_a_viewer_in() {
    let server = Server::start().await;
    let said = said_to(&server.admin().await, "/api/v1/nodes").await;
    assert_eq!(
        said.unwrap(),
        json!({
            "user": "admin", "groups": ["system:masters", "system:authenticated"],
            "verb": "list", "token": false,
        })
    );
    let said = said_to(&server.viewer().await, "/api/v1/nodes").await;
    assert_eq!(said.unwrap()["user"], "viewer");
}

#[tokio::test]
async fn a_viewer_can_neither_write_nor_read_secrets() {
    let server = Server::start().await;
    let viewer = server.viewer().await;
    let delete = Request::delete("/api/v1/namespaces/default/pods/x");
    let secret = Request::get("/api/v1/namespaces/default/secrets/x");
    for (request, verb, kind) in [(delete, "delete", "pods"), (secret, "get", "secrets")] {
        let refused = viewer
            .request::<Value>(request.body(Vec::new()).unwrap())
            .await;
        let Err(kube::Error::Api(status)) = refused else {
            panic!("{refused:?}");
        };
        assert_eq!((status.code, status.reason.as_str()), (403, "Forbidden"));
        assert_eq!(
            status.message,
            format!(
                "{kind} \"x\" is forbidden: User \"viewer\" cannot {verb} resource \"{kind}\" \
                 in API group \"\" in the namespace \"default\""
            )
        );
    }
}

#[tokio::test]
async fn without_a_token_one_may_only_ask_how_the_server_is() {
    let server = Server::start().await;
    let mut session = server.http2().await;
    let healthy = session.send(Method::GET, "/healthz", &[]).await;
    assert_eq!(whole(healthy).await.2, "ok");
    let refused = session.send(Method::POST, "/healthz", &[]).await;
    let (code, _, body) = whole(refused).await;
    assert_eq!(code, 403);
    assert!(body.contains("User \\\"system:anonymous\\\" cannot post path"));

    let refused = session.send(Method::GET, "/api/v1/pods", &[]).await;
    let (code, headers, body) = whole(refused).await;
    assert_eq!(code, 401);
    assert_eq!(headers["content-type"], "application/json");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body,
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401,
        })
    );
}

#[tokio::test]
async fn a_wrong_token_opens_nothing() {
    let server = Server::start().await;
    let mut session = server.http1().await;
    let mut nearly = server.token("admin");
    nearly.pop();
    for token in ["wrong", &nearly] {
        for path in ["/healthz", "/api", "/api/v1/pods"] {
            let (code, _, _) = whole(session.get(path, token).await).await;
            assert_eq!(code, 401, "{path}");
        }
    }
}

#[tokio::test]
async fn an_admin_may_act_as_somebody_with_fewer_rights_and_nobody_else_may() {
    let server = Server::start().await;
    let mut session = server.http2().await;
    let (admin, viewer) = (
        bearer(&server.token("admin")),
        bearer(&server.token("viewer")),
    );
    let acting = [
        ("authorization", admin.as_str()),
        ("impersonate-user", "viewer"),
    ];
    let said = session.send(Method::GET, "/api/v1/pods", &acting).await;
    assert!(whole(said).await.2.contains("\"user\":\"viewer\""));
    let refused = session.send(Method::DELETE, "/api/v1/pods", &acting).await;
    assert_eq!(refused.status(), 403);

    let rising = [
        ("authorization", viewer.as_str()),
        ("impersonate-user", "admin"),
    ];
    let (code, _, body) = whole(session.send(Method::GET, "/api", &rising).await).await;
    assert_eq!(code, 403);
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        body["message"],
        "users \"admin\" is forbidden: User \"viewer\" cannot impersonate resource \"users\" \
         in API group \"\" at the cluster scope"
    );

    let nobody = [
        ("authorization", admin.as_str()),
        ("impersonate-group", "g"),
    ];
    let refused = session.send(Method::GET, "/api", &nobody).await;
    assert_eq!(refused.status(), 400);
}

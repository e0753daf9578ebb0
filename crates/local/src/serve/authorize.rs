//! Who may do what.

use crate::status::{Failure, Qualified};

use super::attributes::{Attributes, Target};

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub groups: Vec<String>,
}

impl Identity {
    fn new(name: &str, groups: &[&str]) -> Identity {
        Identity {
            name: name.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        }
    }

    /// May do everything.
    pub fn admin() -> Identity {
        Identity::new("admin", &[MASTERS, AUTHENTICATED])
    }

    /// May read everything but Secrets.
    pub fn viewer() -> Identity {
        Identity::new(VIEWER, &[AUTHENTICATED])
    }

    /// Nobody in particular.
    pub fn anonymous() -> Identity {
        Identity::new("system:anonymous", &[UNAUTHENTICATED])
    }

    /// Somebody on whose behalf another asks.
    pub(super) fn impersonated(name: &str, mut groups: Vec<String>) -> Identity {
        groups.push(AUTHENTICATED.to_owned());
        Identity {
            name: name.to_owned(),
            groups,
        }
    }
}

const MASTERS: &str = "system:masters";
const AUTHENTICATED: &str = "system:authenticated";
const UNAUTHENTICATED: &str = "system:unauthenticated";
const VIEWER: &str = "viewer";

enum Subject {
    User(&'static str),
    Group(&'static str),
}

impl Subject {
    fn includes(&self, identity: &Identity) -> bool {
        match self {
            Subject::User(name) => identity.name == *name,
            Subject::Group(name) => identity.groups.iter().any(|group| group == name),
        }
    }
}

type Permits = fn(&Attributes) -> bool;

/// Everything that anybody may do. The rights of the first three groups are those that a real server gives them.
const GRANTS: &[(Subject, Permits)] = &[
    (Subject::Group(MASTERS), |_| true),
    (Subject::Group(UNAUTHENTICATED), is_public),
    (Subject::Group(AUTHENTICATED), is_public),
    (Subject::Group(AUTHENTICATED), is_discovery),
    (Subject::Group(AUTHENTICATED), is_about_oneself),
    (Subject::User(VIEWER), is_harmless_reading),
];

/// What may be known without a token.
pub(super) const PUBLIC: &[&str] = &["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// These and what is below them.
const DISCOVERY: &[&str] = &["/api", "/apis", "/openapi"];

const SELF_REVIEWS: &[(&str, &str)] = &[
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
    ("authentication.k8s.io", "selfsubjectreviews"),
];

/// The others are doors into pods, to nodes, or to credentials, even when they are only read.
const READABLE_SUBRESOURCES: &[&str] = &["", "status", "scale", "log"];

fn is_public(what: &Attributes) -> bool {
    what.target.is_none() && what.verb == "get" && PUBLIC.contains(&what.path.as_str())
}

fn is_discovery(what: &Attributes) -> bool {
    let below = |root: &&str| {
        let rest = what.path.strip_prefix(*root);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    what.target.is_none()
        && what.verb == "get"
        && what.is_unambiguous()
        && DISCOVERY.iter().any(below)
}

fn is_about_oneself(what: &Attributes) -> bool {
    what.target.as_ref().is_some_and(|target| {
        let kind = (target.group.as_str(), target.resource.as_str());
        what.verb == "create" && target.subresource.is_empty() && SELF_REVIEWS.contains(&kind)
    })
}

fn is_harmless_reading(what: &Attributes) -> bool {
    let harmless = |target: &Target| {
        (target.group.as_str(), target.resource.as_str()) != ("", "secrets")
            && READABLE_SUBRESOURCES.contains(&target.subresource.as_str())
    };
    matches!(what.verb.as_str(), "get" | "list" | "watch")
        && what.target.as_ref().is_some_and(harmless)
        && what.is_unambiguous()
}

/// The answer for whoever may not do what they ask for.
pub fn authorize(who: &Identity, what: &Attributes) -> Result<(), Failure> {
    let granted = GRANTS
        .iter()
        .any(|(subject, permits)| subject.includes(who) && permits(what));
    if granted {
        Ok(())
    } else {
        Err(denied(who, what))
    }
}

fn denied(who: &Identity, what: &Attributes) -> Failure {
    let (user, verb) = (quoted(&who.name), &what.verb);
    let Some(target) = &what.target else {
        let why = format!("User {user} cannot {verb} path {}", quoted(&what.path));
        return Failure::forbidden(Qualified::NOTHING, "", &harmless(&why));
    };
    let resource = match target.subresource.as_str() {
        "" => target.resource.clone(),
        subresource => format!("{}/{subresource}", target.resource),
    };
    let scope = match target.namespace.as_str() {
        "" => "at the cluster scope".to_owned(),
        namespace => format!("in the namespace {}", quoted(namespace)),
    };
    let why = format!(
        "User {user} cannot {verb} resource {} in API group {} {scope}",
        quoted(&resource),
        quoted(&target.group),
    );
    let kind = Qualified {
        group: &target.group,
        plural: &target.resource,
    };
    Failure::forbidden(kind, &target.name, &harmless(&why))
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A browser must not take the message for HTML.
fn harmless(message: &str) -> String {
    message
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::{Attributes, Identity, authorize};

    fn may(who: &Identity, method: &str, uri: &str) -> Result<(), String> {
        let what = Attributes::of(&method.parse().unwrap(), &uri.parse().unwrap());
        authorize(who, &what).map_err(|failure| failure.message().to_owned())
    }

    #[test]
    fn an_admin_may_do_everything() {
        for (method, uri) in [
            ("DELETE", "/api/v1/namespaces/n/secrets"),
            ("POST", "/api/v1/namespaces/n/pods/a/exec"),
            ("GET", "/metrics"),
            ("GET", "/api//v1/secrets"),
        ] {
            assert_eq!(may(&Identity::admin(), method, uri), Ok(()));
        }
    }

    #[test]
    fn a_viewer_may_read_and_discover() {
        for (method, uri) in [
            ("GET", "/api/v1/namespaces/n/pods/a"),
            ("GET", "/api/v1/namespaces/n/pods/a/log"),
            ("GET", "/apis/apps/v1/deployments?watch=true"),
            ("GET", "/apis/agents.x-k8s.io/v1beta1/sandboxes"),
            ("GET", "/api"),
            ("GET", "/apis/apps/v1"),
            ("GET", "/openapi/v3/apis/apps/v1"),
            ("GET", "/healthz"),
            ("GET", "/version"),
            (
                "POST",
                "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
            ),
        ] {
            assert_eq!(may(&Identity::viewer(), method, uri), Ok(()), "{uri}");
        }
    }

    #[test]
    fn a_viewer_writes_by_no_path_and_no_method() {
        let paths = [
            "/api/v1/namespaces/n/pods/a",
            "/api/v1/watch/namespaces/n/pods/a",
            "/api/v1/watch/namespaces/n/pods",
            "/api/v1/proxy/namespaces/n/pods/a",
            "/apis/apps/v1/watch/namespaces/n/deployments/a/scale",
        ];
        for path in paths {
            for method in ["POST", "PUT", "PATCH", "DELETE"] {
                let answer = may(&Identity::viewer(), method, path);
                assert!(answer.is_err(), "{method} {path}");
            }
        }
    }

    /// The messages of a real server for a user of this name without rights.
    #[test]
    fn a_viewer_is_refused_in_the_words_of_the_real_server() {
        for (method, uri, message) in [
            (
                "DELETE",
                "/api/v1/namespaces/default/pods/x",
                r#"pods "x" is forbidden: User "viewer" cannot delete resource "pods" in API group "" in the namespace "default""#,
            ),
            (
                "DELETE",
                "/api/v1/namespaces/default/pods",
                r#"pods is forbidden: User "viewer" cannot deletecollection resource "pods" in API group "" in the namespace "default""#,
            ),
            (
                "POST",
                "/apis/apps/v1/namespaces/default/deployments",
                r#"deployments.apps is forbidden: User "viewer" cannot create resource "deployments" in API group "apps" in the namespace "default""#,
            ),
            (
                "POST",
                "/api/v1/namespaces/default/pods/x/eviction",
                r#"pods "x" is forbidden: User "viewer" cannot create resource "pods/eviction" in API group "" in the namespace "default""#,
            ),
            (
                "POST",
                "/healthz",
                r#"forbidden: User "viewer" cannot post path "/healthz""#,
            ),
            (
                "GET",
                "/metrics",
                r#"forbidden: User "viewer" cannot get path "/metrics""#,
            ),
            (
                "GET",
                "/a%3Cb",
                r#"forbidden: User "viewer" cannot get path "/a&lt;b""#,
            ),
            (
                "GET",
                "/api/v1/secrets",
                r#"secrets is forbidden: User "viewer" cannot list resource "secrets" in API group "" at the cluster scope"#,
            ),
            (
                "GET",
                "/api//v1/secrets",
                r#"v1 "secrets" is forbidden: User "viewer" cannot get resource "v1" in API group "" at the cluster scope"#,
            ),
            (
                "GET",
                "/api/v1//secrets",
                r#"forbidden: User "viewer" cannot get resource "" in API group "" at the cluster scope"#,
            ),
        ] {
            let refused = may(&Identity::viewer(), method, uri);
            assert_eq!(refused, Err(message.to_owned()), "{method} {uri}");
        }
    }

    #[test]
    fn a_viewer_does_not_get_at_secrets_or_into_pods_by_any_path() {
        for uri in [
            "/api/v1/namespaces/n/secrets/a",
            "/api/v1/secrets?watch=1",
            "/api/v1/watch/secrets",
            "/api/v1/namespaces/n/%73ecrets",
            "/api/v1/namespaces/n%2Fsecrets",
            "/api/v1/./secrets",
            "/openapi/../api/v1/secrets",
            "//api/v1/secrets",
            "/api/v1/namespaces/n//secrets",
            "/api/v1/namespaces/n/pods/a/exec",
            "/api/v1/namespaces/n/pods/a/proxy",
            "/api/v1/nodes/a/proxy/logs",
            "/api/v1/proxy/nodes/a",
        ] {
            assert!(may(&Identity::viewer(), "GET", uri).is_err(), "{uri}");
        }
    }

    #[test]
    fn nobody_may_only_ask_how_the_server_is() {
        let nobody = Identity::anonymous();
        for path in ["/healthz", "/livez", "/readyz", "/version"] {
            assert_eq!(may(&nobody, "GET", path), Ok(()));
        }
        assert_eq!(
            may(&nobody, "GET", "/livez/ping"),
            Err(r#"forbidden: User "system:anonymous" cannot get path "/livez/ping""#.to_owned())
        );
        assert!(may(&nobody, "POST", "/healthz").is_err());
    }

    #[test]
    fn a_refusal_about_no_object_has_empty_details() {
        let what = Attributes::of(&http::Method::GET, &"/metrics".parse().unwrap());
        let refusal = authorize(&Identity::viewer(), &what).unwrap_err();
        assert_eq!(refusal.code(), 403);
        assert_eq!(refusal.body()["details"], json!({}));
    }
}

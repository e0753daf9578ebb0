//! What a request asks for, as authorisation sees it.

use http::{Method, Uri};
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::selector::Fields;

/// A request: what it does to which object, or to which path if that is about no object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attributes {
    pub verb: String,
    /// Decoded, without the query.
    pub path: String,
    pub target: Option<Target>,
}

/// The objects that a request is about. What it does not name is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    pub group: String,
    pub version: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

impl Attributes {
    pub fn of(method: &Method, uri: &Uri) -> Attributes {
        let path = percent_decode_str(uri.path())
            .decode_utf8_lossy()
            .into_owned();
        let (verb, target) = match target(&path) {
            Some((special, mut target)) => {
                let query = uri.query().unwrap_or_default();
                let own = verb(method, query, &mut target);
                // a verb in the path stands for reading; whoever writes there writes
                let verb = match *method == Method::GET {
                    true => special.unwrap_or(own),
                    false => own,
                };
                (verb.to_owned(), Some(target))
            }
            None => (method.as_str().to_ascii_lowercase(), None),
        };
        Attributes { verb, path, target }
    }

    /// What somebody asks to be told whether they may do it: the spec of a SelfSubjectAccessReview.
    pub fn of_review(spec: &Value) -> Attributes {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let path = &spec["nonResourceAttributes"];
        if path.is_object() {
            return Attributes {
                verb: text(&path["verb"]),
                path: text(&path["path"]),
                target: None,
            };
        }
        let resource = &spec["resourceAttributes"];
        let target = Target {
            group: text(&resource["group"]),
            version: text(&resource["version"]),
            resource: text(&resource["resource"]),
            subresource: text(&resource["subresource"]),
            namespace: text(&resource["namespace"]),
            name: text(&resource["name"]),
        };
        Attributes {
            verb: text(&resource["verb"]),
            path: String::new(),
            target: Some(target),
        }
    }

    /// Whether every reader of the path must take it for the same one.
    pub(super) fn is_unambiguous(&self) -> bool {
        let path = self.path.strip_suffix('/').unwrap_or(&self.path);
        let mut segments = path.split('/').skip(1);
        segments.all(|segment| !matches!(segment, "" | "." | ".."))
    }
}

/// The verbs that stand in the path, before the resource.
const PATH_VERBS: [&str; 2] = ["proxy", "watch"];

/// What follows the name of a namespace without being a resource in it.
const NAMESPACE_SUBRESOURCES: [&str; 2] = ["status", "finalize"];

fn target(path: &str) -> Option<(Option<&'static str>, Target)> {
    let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
    let (group, version, mut rest) = match &parts[..] {
        ["api", version, rest @ ..] => ("", *version, rest),
        ["apis", group, version, rest @ ..] => (*group, *version, rest),
        _ => return None,
    };
    let special = PATH_VERBS
        .into_iter()
        .find(|verb| rest.first() == Some(verb));
    if special.is_some() {
        rest = &rest[1..];
    }
    let namespace = match rest {
        ["namespaces", namespace, subresource, ..]
            if NAMESPACE_SUBRESOURCES.contains(subresource) =>
        {
            *namespace
        }
        ["namespaces", namespace, inner @ ..] => {
            rest = if inner.is_empty() { rest } else { inner };
            *namespace
        }
        _ => "",
    };
    let (resource, rest) = rest.split_first()?;
    let mut names = rest.iter().map(|part| (*part).to_owned());
    let name = names.next().unwrap_or_default();
    // what is proxied to has paths of its own
    let subresource = names.next().filter(|_| special != Some("proxy"));
    let target = Target {
        group: group.to_owned(),
        version: version.to_owned(),
        resource: (*resource).to_owned(),
        subresource: subresource.unwrap_or_default(),
        namespace: namespace.to_owned(),
        name,
    };
    Some((special, target))
}

/// A list of the objects of one name is a request for that name.
fn verb(method: &Method, query: &str, target: &mut Target) -> &'static str {
    let one = !target.name.is_empty();
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if one => "delete",
        Method::DELETE => "deletecollection",
        Method::GET | Method::HEAD if one => "get",
        Method::GET | Method::HEAD => {
            let mut watch = None;
            for (key, value) in form_urlencoded::parse(query.as_bytes()) {
                match &*key {
                    "watch" if watch.is_none() => {
                        watch = Some(!matches!(&*value.to_ascii_lowercase(), "false" | "0"));
                    }
                    "fieldSelector" if target.name.is_empty() => {
                        target.name = selected_name(&value).unwrap_or_default();
                    }
                    _ => {}
                }
            }
            if watch == Some(true) { "watch" } else { "list" }
        }
        _ => "",
    }
}

fn selected_name(selector: &str) -> Option<String> {
    let fields = Fields::parse(selector).ok()?;
    let field = fields
        .iter()
        .find(|field| field.equal && field.path == "metadata.name")?;
    let name = &field.value;
    let is_name = !matches!(name.as_str(), "." | "..") && !name.contains(['/', '%']);
    is_name.then(|| name.clone())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::Attributes;

    /// `verb group/resource/subresource namespace name`, or `verb path`.
    fn said(method: &str, uri: &str) -> String {
        let attributes = Attributes::of(&method.parse().unwrap(), &uri.parse().unwrap());
        let verb = &attributes.verb;
        match attributes.target {
            None => format!("{verb} {}", attributes.path),
            Some(t) => format!(
                "{verb} {}/{}/{} {} {}",
                t.group, t.resource, t.subresource, t.namespace, t.name
            ),
        }
    }

    #[test]
    fn a_request_is_read_as_the_real_server_reads_it() {
        for (method, uri, expected) in [
            ("GET", "/", "get /"),
            ("GET", "/api", "get /api"),
            ("GET", "/api/v1", "get /api/v1"),
            ("GET", "/apis/apps/v1", "get /apis/apps/v1"),
            ("POST", "/healthz", "post /healthz"),
            ("GET", "/a%3Cb", "get /a<b"),
            ("GET", "/api/v1/pods", "list /pods/  "),
            ("GET", "/api/v1/pods?watch=1", "watch /pods/  "),
            ("GET", "/api/v1/pods?watch=", "watch /pods/  "),
            ("GET", "/api/v1/pods?watch=False", "list /pods/  "),
            (
                "GET",
                "/api/v1/pods?fieldSelector=metadata.name%3Da",
                "list /pods/  a",
            ),
            ("HEAD", "/api/v1/namespaces/n/pods/a", "get /pods/ n a"),
            (
                "GET",
                "/api/v1/namespaces/n/pods/a?watch=1",
                "get /pods/ n a",
            ),
            (
                "GET",
                "/api/v1/namespaces/n/pods/a/log",
                "get /pods/log n a",
            ),
            (
                "POST",
                "/api/v1/namespaces/n/pods/a/eviction",
                "create /pods/eviction n a",
            ),
            (
                "POST",
                "/apis/apps/v1/namespaces/n/deployments",
                "create apps/deployments/ n ",
            ),
            (
                "PUT",
                "/apis/apps/v1/namespaces/n/deployments/a/scale",
                "update apps/deployments/scale n a",
            ),
            ("PATCH", "/api/v1/nodes/a", "patch /nodes/  a"),
            ("DELETE", "/api/v1/nodes/a", "delete /nodes/  a"),
            ("DELETE", "/api/v1/nodes", "deletecollection /nodes/  "),
            ("OPTIONS", "/api/v1/pods", " /pods/  "),
            ("GET", "/api/v1/namespaces", "list /namespaces/  "),
            ("GET", "/api/v1/namespaces/n", "get /namespaces/ n n"),
            (
                "PUT",
                "/api/v1/namespaces/n/finalize",
                "update /namespaces/finalize n n",
            ),
            ("GET", "/api/v1/watch/namespaces/n/pods", "watch /pods/ n "),
            (
                "GET",
                "/api/v1/proxy/namespaces/n/pods/a/x/y",
                "proxy /pods/ n a",
            ),
            ("GET", "/api/v1/namespaces/n/%73ecrets", "list /secrets/ n "),
            ("GET", "/api/v1/namespaces/n%2Fsecrets", "list /secrets/ n "),
            ("GET", "/api//v1/secrets", "get /v1/  secrets"),
        ] {
            assert_eq!(said(method, uri), expected, "{method} {uri}");
        }
    }

    #[test]
    fn a_path_that_routers_clean_up_differently_is_ambiguous() {
        let unambiguous = |path: &str| {
            let attributes = Attributes::of(&http::Method::GET, &path.parse().unwrap());
            attributes.is_unambiguous()
        };
        assert!(unambiguous("/api/v1/pods"));
        assert!(unambiguous("/api/"));
        for path in [
            "//api/v1/pods",
            "/api//v1/pods",
            "/api/v1/../v1/pods",
            "/api/%2e/v1",
        ] {
            assert!(!unambiguous(path), "{path}");
        }
    }
}

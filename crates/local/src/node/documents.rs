//! The Secrets and ConfigMaps that a pod speaks of, as they were when they were asked for.

use std::collections::{BTreeMap, BTreeSet};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{
    ConfigMap, Container, EnvFromSource, EnvVarSource, Pod, Secret, Volume,
};
use kube::{Api, Client};

use super::trouble::Trouble;

/// The entries of a Secret or ConfigMap.
pub(crate) type Entries = BTreeMap<String, Vec<u8>>;

/// By name. One that is not here does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Documents {
    pub(crate) secrets: BTreeMap<String, Entries>,
    pub(crate) config_maps: BTreeMap<String, Entries>,
}

impl Documents {
    /// Asks for all that the environment and the volumes of a pod name, and for nothing if they name none.
    pub(crate) async fn fetch(client: &Client, pod: &Pod) -> Result<Self, Trouble> {
        let Named {
            secrets,
            config_maps,
        } = named(pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let of_secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
        let of_config_maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
        let secrets = secrets.into_iter().map(|name| {
            let api = &of_secrets;
            async move {
                let found = api.get_opt(name).await;
                let found = found.map_err(|error| unread("secret", name, &error))?;
                Ok(found.map(|found| (name.to_owned(), of_secret(found))))
            }
        });
        let config_maps = config_maps.into_iter().map(|name| {
            let api = &of_config_maps;
            async move {
                let found = api.get_opt(name).await;
                let found = found.map_err(|error| unread("configmap", name, &error))?;
                Ok(found.map(|found| (name.to_owned(), of_config_map(found))))
            }
        });
        let both = futures::future::try_join(try_join_all(secrets), try_join_all(config_maps));
        let (secrets, config_maps) = both.await?;
        Ok(Self {
            secrets: secrets.into_iter().flatten().collect(),
            config_maps: config_maps.into_iter().flatten().collect(),
        })
    }
}

fn unread(what: &str, name: &str, error: &kube::Error) -> Trouble {
    Trouble::config(format!("failed to get {what} {name:?}: {error}"))
}

fn of_secret(secret: Secret) -> Entries {
    let data = secret.data.unwrap_or_default().into_iter();
    data.map(|(key, value)| (key, value.0)).collect()
}

fn of_config_map(map: ConfigMap) -> Entries {
    let text = map.data.unwrap_or_default().into_iter();
    let binary = map.binary_data.unwrap_or_default().into_iter();
    text.map(|(key, value)| (key, value.into_bytes()))
        .chain(binary.map(|(key, value)| (key, value.0)))
        .collect()
}

/// What a pod names, whether it has to be there or not.
#[derive(Debug, Default, PartialEq, Eq)]
struct Named<'a> {
    secrets: BTreeSet<&'a str>,
    config_maps: BTreeSet<&'a str>,
}

fn named(pod: &Pod) -> Named<'_> {
    let mut named = Named::default();
    let Some(spec) = &pod.spec else {
        return named;
    };
    for container in spec.init_containers.iter().flatten() {
        named.of_container(container);
    }
    for container in &spec.containers {
        named.of_container(container);
    }
    for volume in spec.volumes.iter().flatten() {
        named.of_volume(volume);
    }
    // a reference without a name is to nothing, and a request for it would be for all of them
    named.secrets.remove("");
    named.config_maps.remove("");
    named
}

impl<'a> Named<'a> {
    fn of_container(&mut self, container: &'a Container) {
        for from in container.env_from.iter().flatten() {
            let EnvFromSource {
                config_map_ref,
                secret_ref,
                prefix: _,
            } = from;
            self.config_maps
                .extend(config_map_ref.iter().map(|it| it.name.as_str()));
            self.secrets
                .extend(secret_ref.iter().map(|it| it.name.as_str()));
        }
        let env = container.env.iter().flatten();
        for from in env.filter_map(|variable| variable.value_from.as_ref()) {
            let EnvVarSource {
                config_map_key_ref,
                secret_key_ref,
                field_ref: _,
                file_key_ref: _,
                resource_field_ref: _,
            } = from;
            self.config_maps
                .extend(config_map_key_ref.iter().map(|it| it.name.as_str()));
            self.secrets
                .extend(secret_key_ref.iter().map(|it| it.name.as_str()));
        }
    }

    fn of_volume(&mut self, volume: &'a Volume) {
        let secret = volume.secret.as_ref();
        self.secrets
            .extend(secret.and_then(|it| it.secret_name.as_deref()));
        self.config_maps
            .extend(volume.config_map.iter().map(|it| it.name.as_str()));
        let projected = volume.projected.iter();
        for source in projected.flat_map(|it| it.sources.iter().flatten()) {
            self.secrets
                .extend(source.secret.iter().map(|it| it.name.as_str()));
            self.config_maps
                .extend(source.config_map.iter().map(|it| it.name.as_str()));
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{ConfigMap, Pod};
    use serde_json::json;

    use super::{Documents, named, of_config_map};

    fn pod(spec: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"namespace": "ns"}, "spec": spec})).unwrap()
    }

    #[test]
    fn all_that_environment_and_volumes_speak_of_is_named() {
        let pod = pod(json!({
            "initContainers": [
                {"name": "i", "envFrom": [{"secretRef": {"name": "s1"}}, {"configMapRef": {"name": "c1"}}]},
            ],
            "containers": [{"name": "c", "env": [
                {"name": "A", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k", "optional": true}}},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "c2", "key": "k"}}},
                {"name": "C", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "D", "value": "s9"},
            ]}],
            "volumes": [
                {"name": "a", "secret": {"secretName": "s3"}},
                {"name": "b", "configMap": {"name": "c3"}},
                {"name": "c", "projected": {"sources": [
                    {"secret": {"name": "s4"}}, {"configMap": {"name": "c4"}}, {"secret": {"name": "s2"}},
                ]}},
                {"name": "d", "emptyDir": {}},
                {"name": "e", "secret": {}},
            ],
        }));
        let named = named(&pod);
        assert_eq!(
            named.secrets.into_iter().collect::<Vec<_>>(),
            ["s1", "s2", "s3", "s4"]
        );
        assert_eq!(
            named.config_maps.into_iter().collect::<Vec<_>>(),
            ["c1", "c2", "c3", "c4"]
        );
    }

    #[test]
    fn a_config_map_has_texts_and_bytes() {
        let map: ConfigMap = serde_json::from_value(json!({
            "data": {"a": "text"}, "binaryData": {"b": "/w=="},
        }))
        .unwrap();
        let entries = of_config_map(map);
        assert_eq!(entries["a"], b"text");
        assert_eq!(entries["b"], [0xff]);
    }

    #[tokio::test]
    async fn nothing_is_asked_for_when_nothing_is_named() {
        let service = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::other("asked"))
        });
        let client = kube::Client::new(service, "ns");
        let fetch = |spec| {
            let client = client.clone();
            async move { Documents::fetch(&client, &pod(spec)).await }
        };
        let none = fetch(json!({"containers": [{"name": "c"}]})).await;
        assert_eq!(none, Ok(Documents::default()));
        let one = json!({"containers": [], "volumes": [{"name": "v", "configMap": {"name": "m"}}]});
        let trouble = fetch(one).await.unwrap_err();
        assert_eq!(trouble.reason, "CreateContainerConfigError");
        assert!(
            trouble.message.starts_with("failed to get configmap \"m\""),
            "{trouble:?}"
        );
    }

    #[tokio::test]
    async fn what_is_there_is_fetched_and_what_is_not_is_left_out() {
        let service = tower::service_fn(|request: http::Request<kube::client::Body>| async move {
            let (code, body) = match request.uri().path() {
                "/api/v1/namespaces/ns/secrets/here" => (
                    200,
                    json!({"metadata": {"name": "here"}, "data": {"k": "dmFsdWU="}}),
                ),
                _ => {
                    let status = json!({
                        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                        "message": "not found", "reason": "NotFound", "code": 404,
                    });
                    (404, status)
                }
            };
            let body = kube::client::Body::from(serde_json::to_vec(&body).unwrap());
            let response = http::Response::builder().status(code).body(body);
            Ok::<_, std::io::Error>(response.unwrap())
        });
        let client = kube::Client::new(service, "ns");
        let env = json!([{"secretRef": {"name": "here"}}, {"secretRef": {"name": "gone"}}]);
        let pod = pod(json!({"containers": [{"name": "c", "envFrom": env}]}));
        let documents = Documents::fetch(&client, &pod).await.unwrap();
        assert_eq!(documents.secrets.len(), 1);
        assert_eq!(documents.secrets["here"]["k"], b"value");
        assert!(documents.config_maps.is_empty());
    }
}

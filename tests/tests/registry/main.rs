//! Images from a real registry server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod server;

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use local::image::layer::LayerError;
use local::image::{Auth, DocumentError, Error, Images, Platform, Reference};
use oci_client::manifest::OciImageIndex;
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::Notify;

use server::{PASSWORD, Registry, USER, layer};

struct Place {
    directory: TempDir,
    images: Images,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let images = Images::open(&directory.path().join("images")).unwrap();
        Self { directory, images }
    }

    async fn pull(&self, reference: &Reference) -> Result<local::image::Image, Error> {
        self.images.pull(reference, &Auth::Anonymous, |_| {}).await
    }

    fn count(&self, part: &str) -> usize {
        fs::read_dir(self.directory.path().join("images").join(part))
            .unwrap()
            .count()
    }
}

#[tokio::test]
async fn an_image_is_pulled_by_tag_and_by_digest() {
    let registry = Registry::start(false);
    let reference = registry.reference("team/app:1");
    let digest = registry
        .push(&reference, &[layer("a", b"first"), layer("b", b"second")])
        .await;
    let place = Place::new();
    let image = place.pull(&reference).await.unwrap();
    assert_eq!(image.digest.as_deref(), Some(digest.as_str()));
    assert_eq!(image.config.cmd, ["/bin/true"]);
    assert_eq!(fs::read(image.layers[0].join("a")).unwrap(), b"first");
    assert_eq!(fs::read(image.layers[1].join("b")).unwrap(), b"second");
    assert_eq!(place.images.get(&reference).unwrap(), Some(image.clone()));

    let by_digest = registry.reference(&format!("team/app@{digest}"));
    let place = Place::new();
    let other = place.pull(&by_digest).await.unwrap();
    assert_eq!((other.id, other.digest), (image.id, image.digest));
    assert!(place.images.get(&reference).unwrap().is_none());
}

#[tokio::test]
async fn layers_that_are_here_are_not_fetched_again() {
    let registry = Registry::start(false);
    let (one, two) = (
        registry.reference("team/one:1"),
        registry.reference("team/two:1"),
    );
    let shared = layer("shared", b"shared");
    registry.push(&one, std::slice::from_ref(&shared)).await;
    registry
        .push(&two, &[shared.clone(), layer("own", b"own")])
        .await;
    let place = Place::new();
    place.pull(&one).await.unwrap();
    registry.forget(&shared);
    let image = place.pull(&two).await.unwrap();
    assert_eq!(image.layers.len(), 2);
}

#[tokio::test]
async fn of_an_index_the_image_for_this_machine_is_pulled() {
    let registry = Registry::start(false);
    let single = registry.reference("team/app:single");
    let digest = registry.push(&single, &[layer("a", b"x")]).await;
    let entry = |architecture: &str| {
        json!({
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": digest,
            "size": registry.size(&digest),
            "platform": {"os": "linux", "architecture": architecture},
        })
    };
    let index = |entries: &[serde_json::Value]| -> OciImageIndex {
        let kind = "application/vnd.oci.image.index.v1+json";
        serde_json::from_value(json!({"schemaVersion": 2, "mediaType": kind, "manifests": entries}))
            .unwrap()
    };
    let many = registry.reference("team/app:many");
    let here = Platform::here().architecture;
    registry
        .push_index(&many, index(&[entry("s390x"), entry(&here)]))
        .await;
    let place = Place::new();
    let image = place.pull(&many).await.unwrap();
    // the name led to the index
    assert_ne!(image.digest.as_deref(), Some(digest.as_str()));
    assert!(image.layers[0].join("a").exists());

    let none = registry.reference("team/app:none");
    registry
        .push_index(&none, index(&[entry("s390x"), entry("riscv64")]))
        .await;
    let error = place.pull(&none).await.unwrap_err();
    let is_said = matches!(
        &error,
        Error::Document {
            reason: DocumentError::Platform(_),
            ..
        }
    );
    assert!(is_said, "{error}");
    assert!(
        error
            .to_string()
            .ends_with("it is there for linux/riscv64, linux/s390x"),
        "{error}"
    );
}

#[tokio::test]
async fn an_image_that_is_not_there_is_named_with_its_registry() {
    let registry = Registry::start(false);
    let reference = registry.reference("team/missing:1");
    let error = Place::new().pull(&reference).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    let said = error.to_string();
    let registry = reference.registry();
    let expected = format!("image {registry}/team/missing:1 is not in the registry {registry}: ");
    assert!(said.starts_with(&expected), "{said}");
}

#[tokio::test]
async fn a_registry_with_users_lets_only_them_read() {
    let registry = Registry::start(true);
    let reference = registry.reference("team/app:1");
    registry.push(&reference, &[layer("a", b"x")]).await;
    let place = Place::new();
    let password = |password: &str| Auth::Password {
        user: USER.to_owned(),
        password: password.to_owned(),
    };
    for (auth, help) in [
        (Auth::Anonymous, "does not let strangers read"),
        (password("wrong"), "check user name and password"),
    ] {
        let error = place
            .images
            .pull(&reference, &auth, |_| {})
            .await
            .unwrap_err();
        assert!(
            matches!(error, Error::Unauthorized { status: 401, .. }),
            "{error}"
        );
        assert!(error.to_string().contains(help), "{error}");
    }
    let image = place
        .images
        .pull(&reference, &password(PASSWORD), |_| {})
        .await
        .unwrap();
    assert!(image.layers[0].join("a").exists());
}

#[tokio::test]
async fn a_blob_that_the_registry_has_damaged_is_refused() {
    let registry = Registry::start(false);
    let reference = registry.reference("team/app:1");
    let blob = layer("a", &[7; 5_000]);
    registry.push(&reference, std::slice::from_ref(&blob)).await;
    registry.damage(&blob);
    let place = Place::new();
    let error = place.pull(&reference).await.unwrap_err();
    let is_said = matches!(
        &error,
        Error::Layer {
            reason: LayerError::Digest { .. },
            ..
        }
    );
    assert!(is_said, "{error}");
    assert_eq!(
        (
            place.count("layers"),
            place.count("downloads"),
            place.count("names")
        ),
        (0, 0, 0)
    );
}

#[tokio::test]
async fn a_pull_that_is_given_up_is_gone_on_with() {
    let registry = Registry::start(false);
    let reference = registry.reference("team/large:1");
    let mut state = 1_u64;
    let noise: Vec<u8> = (0..16 << 20)
        .map(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state.to_be_bytes()[0]
        })
        .collect();
    registry.push(&reference, &[layer("noise", &noise)]).await;
    let place = Place::new();
    let enough = Arc::new(Notify::new());
    let tell = Arc::clone(&enough);
    let pull = place
        .images
        .pull(&reference, &Auth::Anonymous, move |progress| {
            if progress.done > 1 << 20 {
                tell.notify_one();
            }
        });
    tokio::select! {
        biased;
        () = enough.notified() => {}
        done = pull => panic!("it was not interrupted: {done:?}"),
    }
    assert_eq!((place.count("downloads"), place.count("layers")), (1, 0));
    let first = Arc::new(AtomicU64::new(u64::MAX));
    let seen = Arc::clone(&first);
    let image = place
        .images
        .pull(&reference, &Auth::Anonymous, move |progress| {
            seen.fetch_min(progress.done, Ordering::SeqCst);
        })
        .await
        .unwrap();
    assert!(first.load(Ordering::SeqCst) > 0);
    assert_eq!(fs::read(image.layers[0].join("noise")).unwrap(), noise);
    assert_eq!(place.count("downloads"), 0);
}

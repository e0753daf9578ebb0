//! What is kept, who may read it, and what a restart makes of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use local::serve::{Home, Options, StartError};
use tempfile::TempDir;

use crate::support::{client, connect, options, said_to, start};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

async fn start_and_stop(directory: &Path) -> Result<(), StartError> {
    start(directory, options()).await?.stop().await;
    Ok(())
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

#[tokio::test]
async fn nobody_else_may_read_what_is_secret() {
    let directory = TempDir::new().unwrap();
    let directory = directory.path().join("new");
    start_and_stop(&directory).await.unwrap();
    for (name, expected) in [
        ("", 0o700),
        ("pki", 0o700),
        ("store", 0o700),
        ("tokens", 0o700),
        ("pki/ca.key", 0o600),
        ("pki/server.key", 0o600),
        ("tokens/admin", 0o600),
        ("tokens/viewer", 0o600),
        ("kubeconfig", 0o600),
        ("kubeconfig-viewer", 0o600),
    ] {
        assert_eq!(mode(&directory.join(name)), expected, "{name}");
    }
    let loose = directory.join("tokens/admin");
    fs::set_permissions(&loose, fs::Permissions::from_mode(0o644)).unwrap();
    start_and_stop(&directory).await.unwrap();
    assert_eq!(mode(&loose), 0o600);
}

#[tokio::test]
async fn a_kubeconfig_outlives_a_restart_on_the_same_port() {
    let directory = TempDir::new().unwrap();
    let running = start(directory.path(), options()).await.unwrap();
    let listen = running.address();
    let kept = directory.path().join("copy");
    fs::copy(running.kubeconfig(), &kept).unwrap();
    running.stop().await;

    let again = Options {
        listen,
        ..options()
    };
    let running = start(directory.path(), again).await.unwrap();
    let said = said_to(&client(&kept).await, "/api").await.unwrap();
    assert_eq!(said["user"], "admin");
    assert_eq!(
        read(directory.path(), "copy"),
        read(directory.path(), "kubeconfig")
    );
    running.stop().await;
}

#[tokio::test]
async fn a_new_name_gets_a_new_certificate_from_the_same_authority() {
    let directory = TempDir::new().unwrap();
    let authority = directory.path().join("pki/ca.crt");
    let named = |names: &[&str]| Options {
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        ..options()
    };
    let running = start(directory.path(), named(&[])).await.unwrap();
    let before = (
        read(directory.path(), "pki/ca.crt"),
        read(directory.path(), "pki/server.crt"),
    );
    let refused = connect(running.address(), &authority, "box.example", &[]).await;
    assert!(refused.is_err());
    running.stop().await;

    let running = start(directory.path(), named(&["box.example", "10.1.2.3"]))
        .await
        .unwrap();
    for name in [
        "box.example",
        "10.1.2.3",
        "127.0.0.1",
        "::1",
        "kubernetes.default.svc",
    ] {
        let stream = connect(running.address(), &authority, name, &[]).await;
        assert!(stream.is_ok(), "{name}: {stream:?}");
    }
    assert_eq!(read(directory.path(), "pki/ca.crt"), before.0);
    assert_ne!(read(directory.path(), "pki/server.crt"), before.1);
    running.stop().await;

    for bad in ["no name", "näme"] {
        let error = start(directory.path(), named(&[bad])).await.err();
        assert!(matches!(error, Some(StartError::Name { .. })), "{error:?}");
    }
}

/// The states that a kill between two writes leaves, and some that only a person makes.
#[tokio::test]
async fn what_a_killed_start_leaves_is_made_whole() {
    let finished = TempDir::new().unwrap();
    start_and_stop(finished.path()).await.unwrap();
    for (gone, torn) in [
        // the authority's key is written first, then its certificate, then the server's
        (vec!["pki/ca.crt", "pki/server.key", "pki/server.crt"], None),
        (vec!["pki/server.key", "pki/server.crt"], None),
        (vec!["pki/server.crt"], None),
        (vec!["pki/server.key"], None),
        (vec!["tokens/admin", "tokens/viewer", "kubeconfig"], None),
        (vec!["tokens/viewer", "kubeconfig"], None),
        (vec!["kubeconfig"], None),
        // a key that was renewed without its certificate
        (vec![], Some(("pki/server.key", "pki/ca.key"))),
        (vec![], Some(("pki/server.crt", "tokens/admin"))),
        // a file that was never renamed
        (vec![], Some(("kubeconfig.new", "tokens/admin"))),
    ] {
        for name in &gone {
            fs::remove_file(finished.path().join(name)).unwrap();
        }
        if let Some((to, from)) = torn {
            fs::copy(finished.path().join(from), finished.path().join(to)).unwrap();
        }
        let running = start(finished.path(), options()).await.unwrap();
        let said = said_to(&client(&running.kubeconfig()).await, "/api").await;
        assert_eq!(said.unwrap()["user"], "admin", "{gone:?} {torn:?}");
        running.stop().await;
        assert!(!finished.path().join("kubeconfig.new").exists());
    }
}

/// Making a new authority would silently lock out everyone who trusts the old one.
#[tokio::test]
async fn an_authority_that_cannot_sign_is_reported() {
    let directory = TempDir::new().unwrap();
    let key = directory.path().join("pki/ca.key");
    start_and_stop(directory.path()).await.unwrap();

    fs::copy(directory.path().join("pki/server.key"), &key).unwrap();
    fs::remove_file(directory.path().join("pki/server.crt")).unwrap();
    let error = start_and_stop(directory.path())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("ca.key does not belong to ca.crt"),
        "{error}"
    );

    fs::write(&key, "nonsense").unwrap();
    let error = start_and_stop(directory.path())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("ca.key holds no key"), "{error}");

    fs::remove_file(&key).unwrap();
    let error = start_and_stop(directory.path())
        .await
        .unwrap_err()
        .to_string();
    assert!(error.contains("ca.key is missing"), "{error}");
}

#[tokio::test]
async fn a_token_that_could_be_guessed_is_refused() {
    let directory = TempDir::new().unwrap();
    start_and_stop(directory.path()).await.unwrap();
    fs::write(directory.path().join("tokens/viewer"), "\n").unwrap();
    let error = start_and_stop(directory.path())
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("remove the file to get a new token"),
        "{error}"
    );
}

#[test]
fn a_directory_is_for_one_process_at_a_time() {
    let directory = TempDir::new().unwrap();
    let held = Home::open(directory.path()).unwrap();
    let refused = Home::open(directory.path()).unwrap_err().to_string();
    let process = format!("is in use by process {}", std::process::id());
    assert!(refused.ends_with(&process), "{refused}");
    drop(held);
    assert!(Home::open(directory.path()).is_ok());
}

#[test]
fn a_directory_that_cannot_be_made_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().join("below");
    let refused = Home::open(&path).unwrap_err().to_string();
    let start = format!("cannot use {} as the data directory: ", path.display());
    assert!(refused.starts_with(&start), "{refused}");
}

#[test]
fn an_instance_is_the_same_however_its_directory_is_spelled() {
    let directory = tempfile::tempdir().unwrap();
    let (real, link) = (directory.path().join("real"), directory.path().join("link"));
    fs::create_dir(&real).unwrap();
    std::os::unix::fs::symlink(&real, &link).unwrap();
    let real = real.canonicalize().unwrap();
    for spelled in [link, real.join("../link/../real")] {
        assert_eq!(Home::open(spelled).unwrap().path(), real);
    }
}

//! A registry of one's own on loopback, and what is pushed to it.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Once;

use flate2::Compression;
use flate2::write::GzEncoder;
use local::image::{Digest, Platform, Reference};
use oci_client::Client;
use oci_client::client::{ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::manifest::OciImageIndex;
use oci_client::secrets::RegistryAuth;
use serde_json::json;
use tempfile::TempDir;

pub(crate) const USER: &str = "tester";
pub(crate) const PASSWORD: &str = "U*U";
/// The password as bcrypt writes it.
const HASH: &str = "$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW";

pub(crate) struct Registry {
    address: String,
    process: Child,
    directory: TempDir,
    has_users: bool,
}

/// A layer and what it unpacks to.
#[derive(Clone)]
pub(crate) struct Layer {
    archive: Vec<u8>,
    blob: Vec<u8>,
}

/// A layer of one file.
pub(crate) fn layer(name: &str, content: &[u8]) -> Layer {
    layer_of([(name, 0o644, content)])
}

/// A layer of files with their modes.
pub(crate) fn layer_of<'a>(files: impl IntoIterator<Item = (&'a str, u32, &'a [u8])>) -> Layer {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, mode, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(mode);
        tar.append_data(&mut header, name, content).unwrap();
    }
    let archive = tar.into_inner().unwrap();
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&archive).unwrap();
    Layer {
        archive,
        blob: packed.finish().unwrap(),
    }
}

impl Registry {
    pub(crate) fn start(has_users: bool) -> Self {
        Self::listening("127.0.0.1:0", has_users)
    }

    /// One that listens on an address of this machine.
    pub(crate) fn listening(on: &str, has_users: bool) -> Self {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            let provider = rustls::crypto::ring::default_provider();
            // only one of those who use TLS here can be the first
            let _ = provider.install_default();
        });
        let directory = tempfile::tempdir().unwrap();
        let users = directory.path().join("users");
        fs::write(&users, format!("{USER}:{HASH}\n")).unwrap();
        let mut config = json!({
            "version": 0.1,
            "log": {"level": "info"},
            "storage": {"filesystem": {"rootdirectory": directory.path().join("data")}},
            "http": {"addr": on},
        });
        if has_users {
            config["auth"] = json!({"htpasswd": {"realm": "test", "path": users}});
        }
        let file = directory.path().join("config.yml");
        fs::write(&file, config.to_string()).unwrap();
        // it ends with this process, however that ends
        let mut process = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(testbed::registry().unwrap())
            .arg("serve")
            .arg(file)
            .env("OTEL_TRACES_EXPORTER", "none")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("cannot run setpriv: install the package `util-linux`");
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let address = lines.find_map(|line| {
            let line = line.unwrap();
            let (_, rest) = line.split_once("listening on ")?;
            let end = rest.find(|c: char| c != '.' && c != ':' && !c.is_ascii_digit());
            Some(rest[..end.unwrap_or(rest.len())].to_owned())
        });
        let address = address.expect("the registry ended before it listened");
        // its pipe must not fill
        std::thread::spawn(move || lines.for_each(drop));
        Self {
            address,
            process,
            directory,
            has_users,
        }
    }

    pub(crate) fn reference(&self, rest: &str) -> Reference {
        format!("{}/{rest}", self.address).parse().unwrap()
    }

    fn client(&self) -> (Client, RegistryAuth) {
        let client = Client::new(ClientConfig {
            protocol: ClientProtocol::Http,
            ..ClientConfig::default()
        });
        let auth = match self.has_users {
            true => RegistryAuth::Basic(USER.to_owned(), PASSWORD.to_owned()),
            false => RegistryAuth::Anonymous,
        };
        (client, auth)
    }

    /// Pushes an image and returns the digest of its manifest.
    pub(crate) async fn push(&self, reference: &Reference, layers: &[Layer]) -> String {
        let platform = Platform::here();
        let diff_ids = layers
            .iter()
            .map(|layer| Digest::of(&layer.archive).to_string());
        let config = json!({
            "os": platform.os,
            "architecture": platform.architecture,
            "config": {"Cmd": ["/bin/true"]},
            "rootfs": {"type": "layers", "diff_ids": diff_ids.collect::<Vec<_>>()},
        });
        let config = Config::oci_v1(config.to_string().into_bytes(), None);
        let layers: Vec<ImageLayer> = layers
            .iter()
            .map(|layer| ImageLayer::oci_v1_gzip(layer.blob.clone(), None))
            .collect();
        let (client, auth) = self.client();
        client
            .push(reference, &layers, config, &auth, None)
            .await
            .unwrap();
        client
            .fetch_manifest_digest(reference, &auth)
            .await
            .unwrap()
    }

    pub(crate) async fn push_index(&self, reference: &Reference, index: OciImageIndex) {
        let (client, auth) = self.client();
        client
            .push_manifest_list(reference, &auth, index)
            .await
            .unwrap();
    }

    fn blob(&self, digest: &Digest) -> PathBuf {
        let hex = digest.hex();
        let blobs = self
            .directory
            .path()
            .join("data/docker/registry/v2/blobs/sha256");
        blobs.join(&hex[..2]).join(hex).join("data")
    }

    pub(crate) fn size(&self, digest: &str) -> u64 {
        fs::metadata(self.blob(&digest.parse().unwrap()))
            .unwrap()
            .len()
    }

    /// Changes a byte of a blob on the registry's disk.
    pub(crate) fn damage(&self, layer: &Layer) {
        let path = self.blob(&Digest::of(&layer.blob));
        let mut content = fs::read(&path).unwrap();
        // the time in the header of gzip: what it unpacks to is the same
        content[5] ^= 1;
        fs::write(path, content).unwrap();
    }

    /// Takes a blob from the registry's disk.
    pub(crate) fn forget(&self, layer: &Layer) {
        fs::remove_file(self.blob(&Digest::of(&layer.blob))).unwrap();
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

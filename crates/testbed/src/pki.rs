//! Who may talk to the API server: one certificate authority, the serving certificate, and a token per user.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use crate::paths::hex;
use crate::plan::Net;

/// The users of a cluster: name, groups, and the file of their kubeconfig.
const USERS: &[(&str, &str, &str)] = &[
    ("admin", "system:masters", "kubeconfig"),
    // its controllers would otherwise each need a service account, which costs seconds at the start
    (
        "system:kube-controller-manager",
        "system:masters",
        "controller-manager.kubeconfig",
    ),
    ("system:kube-scheduler", "", "scheduler.kubeconfig"),
    ("system:kube-proxy", "", "proxy.kubeconfig"),
    ("system:node:testbed", "system:nodes", "kubelet.kubeconfig"),
    ("kwok", "system:masters", "kwok.kubeconfig"),
];

/// Writes everything below `dir`: `pki/*` and the kubeconfigs.
pub(crate) fn write(dir: &Path, net: Net) -> Result<()> {
    let pki = dir.join("pki");
    fs::create_dir_all(&pki).with_context(|| format!("creating {}", pki.display()))?;
    let save = |name: &str, text: &str| {
        let path = pki.join(name);
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))
    };

    let ca_key = KeyPair::generate().context("generating the authority's key")?;
    let mut ca = CertificateParams::new(Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    ca.distinguished_name
        .push(DnType::CommonName, "sandbar-testbed");
    let ca_cert = ca
        .self_signed(&ca_key)
        .context("signing the authority's certificate")?
        .pem();
    save("ca.crt", &ca_cert)?;
    let issuer = Issuer::new(ca, ca_key);

    let serving = serving_params(net)?;
    let key = KeyPair::generate().context("generating the API server's key")?;
    save("apiserver.crt", &serving.signed_by(&key, &issuer)?.pem())?;
    save("apiserver.key", &key.serialize_pem())?;

    // what the API server shows to the kubelet for logs and exec
    let mut client = CertificateParams::new(Vec::new())?;
    client
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    client
        .distinguished_name
        .push(DnType::OrganizationName, "system:masters");
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().context("generating the kubelet client's key")?;
    save(
        "kubelet-client.crt",
        &client.signed_by(&key, &issuer)?.pem(),
    )?;
    save("kubelet-client.key", &key.serialize_pem())?;

    let accounts = KeyPair::generate().context("generating the service accounts' key")?;
    save("service-accounts.key", &accounts.serialize_pem())?;
    save("service-accounts.pub", &accounts.public_key_pem())?;

    let mut tokens = String::new();
    for (user, groups, file) in USERS {
        let token = random_token()?;
        tokens.push_str(&format!("{token},{user},{user},\"{groups}\"\n"));
        let path = dir.join(file);
        fs::write(&path, kubeconfig(net, &ca_cert, user, &token))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    save("tokens.csv", &tokens)
}

fn serving_params(net: Net) -> Result<CertificateParams> {
    let mut names: Vec<String> = [
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "localhost",
    ]
    .map(str::to_owned)
    .to_vec();
    names.push("kubernetes.default.svc.cluster.local".to_owned());
    names.extend([
        net.node().to_string(),
        net.api_service().to_string(),
        "127.0.0.1".to_owned(),
    ]);
    let mut params = CertificateParams::new(names)?;
    params
        .distinguished_name
        .push(DnType::CommonName, "kube-apiserver");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn random_token() -> Result<String> {
    use std::io::Read as _;
    let mut bytes = [0; 16];
    fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .context("reading random bytes for a token")?;
    Ok(hex(&bytes))
}

/// A kubeconfig that needs no other file. JSON is YAML.
fn kubeconfig(net: Net, ca: &str, user: &str, token: &str) -> String {
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "testbed",
        "clusters": [{
            "name": "testbed",
            "cluster": {"server": net.server(), "certificate-authority-data": base64(ca.as_bytes())},
        }],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": user}}],
    });
    format!("{config:#}\n")
}

fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let b = [
            chunk[0],
            chunk.get(1).copied().unwrap_or(0),
            chunk.get(2).copied().unwrap_or(0),
        ];
        let n = u32::from(b[0]) << 16 | u32::from(b[1]) << 8 | u32::from(b[2]);
        for i in 0..4 {
            if i <= chunk.len() {
                out.push(char::from(ALPHABET[(n >> (18 - 6 * i) & 63) as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_pads_every_remainder() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v")] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }
}

//! The server's certificate and the authority that signs it, kept in `pki` of the data directory.
//!
//! A kill between any two writes leaves a usable state. An authority's key without its certificate has signed
//! nothing that anybody trusts, and both are made anew. A server's key that does not fit its certificate, or a
//! certificate that the authority has not signed, is replaced, as one that is about to expire.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, ServerConfig};

use super::error::StartError;
use super::home::{Access, Home};

/// What every server answers to.
const NAMES: &[&str] = &[
    "127.0.0.1",
    "::1",
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Stored authorities have this name in their certificate, and what they sign must repeat it.
const AUTHORITY: &str = "sandbar";

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Clocks of clients may be behind.
const BACKDATED: Duration = DAY;
/// An authority lives as long as its directory: everyone who has its certificate would need another.
const AUTHORITY_LIFETIME: Duration = DAY.saturating_mul(365 * 100);
const SERVER_LIFETIME: Duration = DAY.saturating_mul(365);
/// A certificate with less than this is replaced.
const SERVER_RESERVE: Duration = DAY.saturating_mul(30);

const AUTHORITY_CERTIFICATE: &str = "pki/ca.crt";
const AUTHORITY_KEY: &str = "pki/ca.key";
const SERVER_CERTIFICATE: &str = "pki/server.crt";
const SERVER_KEY: &str = "pki/server.key";

const REMEDY: &str =
    "put the right one back, or remove the pki directory and hand out the new kubeconfig";

/// What a server shows to its clients, and what they need to believe it.
#[derive(Debug)]
pub(super) struct Identification {
    /// The authority's certificate, as PEM.
    pub(super) authority: String,
    pub(super) server: Arc<CertifiedKey>,
}

/// What is stored if it serves, or else new certificates: for the names every server has and `extra` ones.
pub(super) fn prepare(
    home: &Home,
    extra: &[String],
    now: SystemTime,
) -> Result<Identification, StartError> {
    let fixed = NAMES.iter().copied();
    let names = fixed.chain(extra.iter().map(String::as_str));
    let names: Vec<ServerName> = names.map(parse_name).collect::<Result<_, _>>()?;
    let authority = match Authority::load(home)? {
        Some(authority) => authority,
        None => Authority::make(home, now)?,
    };
    let server = match authority.stored_server(home, &names, now)? {
        Some(server) => server,
        None => authority.new_server(home, &names, now)?,
    };
    Ok(Identification {
        authority: authority.certificate,
        server: Arc::new(server),
    })
}

struct Authority {
    certificate: String,
    key: KeyPair,
    verifier: Arc<WebPkiServerVerifier>,
}

impl Authority {
    fn load(home: &Home) -> Result<Option<Authority>, StartError> {
        let Some(certificate) = home.read(AUTHORITY_CERTIFICATE)? else {
            return Ok(None);
        };
        let unusable = |name: &str, problem: String| StartError::Unusable {
            path: home.file(name),
            problem,
            remedy: REMEDY,
        };
        let key = home
            .read_secret(AUTHORITY_KEY)?
            .ok_or_else(|| unusable(AUTHORITY_KEY, "is missing".to_owned()))?;
        let key = KeyPair::from_pem(&key)
            .map_err(|error| unusable(AUTHORITY_KEY, format!("holds no key ({error})")))?;
        let verifier = verifier(&certificate).map_err(|error| {
            unusable(
                AUTHORITY_CERTIFICATE,
                format!("holds no certificate ({error})"),
            )
        })?;
        Ok(Some(Authority {
            certificate,
            key,
            verifier,
        }))
    }

    /// The key goes first: without its certificate it counts for nothing.
    fn make(home: &Home, now: SystemTime) -> Result<Authority, StartError> {
        let key = KeyPair::generate().map_err(StartError::crypto)?;
        let mut params = authority_params()?;
        set_validity(&mut params, now, AUTHORITY_LIFETIME);
        let certificate = params.self_signed(&key).map_err(StartError::crypto)?.pem();
        let verifier = verifier(&certificate).map_err(StartError::crypto)?;
        home.write(AUTHORITY_KEY, &key.serialize_pem(), Access::Owner)?;
        home.write(AUTHORITY_CERTIFICATE, &certificate, Access::Everybody)?;
        Ok(Authority {
            certificate,
            key,
            verifier,
        })
    }

    /// The stored certificate, if a client would accept it under every one of `names`, now and for a while.
    fn stored_server(
        &self,
        home: &Home,
        names: &[ServerName],
        now: SystemTime,
    ) -> Result<Option<CertifiedKey>, StartError> {
        let (Some(certificate), Some(key)) = (
            home.read(SERVER_CERTIFICATE)?,
            home.read_secret(SERVER_KEY)?,
        ) else {
            return Ok(None);
        };
        let Ok(server) = certified(&certificate, &key) else {
            return Ok(None);
        };
        let serves = [now, now + SERVER_RESERVE]
            .into_iter()
            .all(|when| self.accepts(&server, names, when));
        Ok(serves.then_some(server))
    }

    fn new_server(
        &self,
        home: &Home,
        names: &[ServerName],
        now: SystemTime,
    ) -> Result<CertifiedKey, StartError> {
        let texts: Vec<String> = names.iter().map(|name| name.to_str().into()).collect();
        let mut params = CertificateParams::new(texts).map_err(StartError::crypto)?;
        params
            .distinguished_name
            .push(DnType::CommonName, "sandbar API");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, SERVER_LIFETIME);
        let key = KeyPair::generate().map_err(StartError::crypto)?;
        let issuer_params = authority_params()?;
        let issuer = Issuer::from_params(&issuer_params, &self.key);
        let certificate = params
            .signed_by(&key, &issuer)
            .map_err(StartError::crypto)?
            .pem();
        let key = key.serialize_pem();
        let server = certified(&certificate, &key).map_err(StartError::crypto)?;
        if !self.accepts(&server, names, now) {
            return Err(StartError::Unusable {
                path: home.file(AUTHORITY_KEY),
                problem: "does not belong to ca.crt".to_owned(),
                remedy: REMEDY,
            });
        }
        home.write(SERVER_KEY, &key, Access::Owner)?;
        home.write(SERVER_CERTIFICATE, &certificate, Access::Everybody)?;
        Ok(server)
    }

    fn accepts(&self, server: &CertifiedKey, names: &[ServerName], when: SystemTime) -> bool {
        let when = UnixTime::since_unix_epoch(since_epoch(when));
        let under = |certificate: &CertificateDer, name: &ServerName| {
            self.verifier
                .verify_server_cert(certificate, &[], name, &[], when)
                .is_ok()
        };
        server
            .end_entity_cert()
            .is_ok_and(|certificate| names.iter().all(|name| under(certificate, name)))
    }
}

fn parse_name(name: &str) -> Result<ServerName<'_>, StartError> {
    ServerName::try_from(name).map_err(|_| StartError::Name {
        name: name.to_owned(),
    })
}

fn authority_params() -> Result<CertificateParams, StartError> {
    let mut params = CertificateParams::new(Vec::new()).map_err(StartError::crypto)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    params
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY);
    Ok(params)
}

fn set_validity(params: &mut CertificateParams, now: SystemTime, lifetime: Duration) {
    let now = rcgen::date_time_ymd(1970, 1, 1) + since_epoch(now);
    params.not_before = now - BACKDATED;
    params.not_after = now + lifetime;
}

fn since_epoch(when: SystemTime) -> Duration {
    when.duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn verifier(certificate: &str) -> Result<Arc<WebPkiServerVerifier>, String> {
    let certificate =
        CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|e| e.to_string())?;
    let mut roots = RootCertStore::empty();
    roots.add(certificate).map_err(|e| e.to_string())?;
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
        .build()
        .map_err(|e| e.to_string())
}

/// Fails if the key is not the certificate's.
fn certified(certificate: &str, key: &str) -> Result<CertifiedKey, String> {
    let certificate =
        CertificateDer::from_pem_slice(certificate.as_bytes()).map_err(|e| e.to_string())?;
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|e| e.to_string())?;
    CertifiedKey::from_der(vec![certificate], key, &provider()).map_err(|e| e.to_string())
}

pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The certificate that connections get; a newer one takes its place while the server runs.
#[derive(Debug)]
pub(super) struct Current(RwLock<Arc<CertifiedKey>>);

impl Current {
    pub(super) fn new(server: Arc<CertifiedKey>) -> Current {
        Current(RwLock::new(server))
    }

    pub(super) fn replace(&self, server: Arc<CertifiedKey>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = server;
    }
}

impl ResolvesServerCert for Current {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.0.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&current))
    }
}

/// TLS 1.3 and 1.2, HTTP/2 before HTTP/1.1.
pub(super) fn config(current: Arc<Current>) -> Result<ServerConfig, StartError> {
    let mut config = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(StartError::crypto)?
        .with_no_client_auth()
        .with_cert_resolver(current);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use std::time::{Duration, SystemTime};

    use tempfile::TempDir;

    use super::{DAY, Home, Identification, prepare};

    fn server(of: &Identification) -> &[u8] {
        of.server.end_entity_cert().unwrap()
    }

    /// Whether certificates are the same at `start` and `later` after it: the authority's, the server's.
    fn kept(start: SystemTime, later: Duration) -> (bool, bool) {
        let directory = TempDir::new().unwrap();
        let home = Home::open(directory.path()).unwrap();
        let before = prepare(&home, &[], start).unwrap();
        let after = prepare(&home, &[], start + later).unwrap();
        (
            before.authority == after.authority,
            server(&before) == server(&after),
        )
    }

    #[test]
    fn a_certificate_is_renewed_before_it_expires_and_not_earlier() {
        let now = SystemTime::now();
        for (days, is_kept) in [(0, true), (334, true), (336, false), (366, false)] {
            assert_eq!(kept(now, DAY * days), (true, is_kept), "after {days} days");
        }
    }

    #[test]
    fn an_authority_outlives_a_generation_of_servers() {
        assert_eq!(kept(SystemTime::now(), DAY * 365 * 30), (true, false));
    }

    #[test]
    fn a_certificate_from_the_future_of_a_wrong_clock_is_replaced() {
        let ahead = SystemTime::now() + DAY * 100;
        let directory = TempDir::new().unwrap();
        let home = Home::open(directory.path()).unwrap();
        let future = prepare(&home, &[], ahead).unwrap();
        let now = prepare(&home, &[], SystemTime::now()).unwrap();
        assert_eq!(future.authority, now.authority);
        assert_ne!(server(&future), server(&now));
    }
}

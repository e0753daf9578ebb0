//! One repository of a registry, read over HTTP. Whatever the server does, it is given bounded time and memory.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use oci_spec::distribution::Reference;
use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue, RANGE, WWW_AUTHENTICATE};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, Response, StatusCode, Url};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;

use super::auth::{Auth, Challenge};
use super::digest::Digest;
use super::document::{INDEXES, LONGEST, MANIFESTS};
use super::error::Error;

/// To open a connection, and between two pieces of an answer.
const PATIENCE: Duration = Duration::from_secs(30);

const MOST_REDIRECTS: usize = 5;

/// Answers that are not content: tokens and errors.
const SMALL: u64 = 64 << 10;

pub(super) struct Registry {
    http: Client,
    base: String,
    reference: Reference,
    auth: Auth,
    is_plain: bool,
    /// What the registry wanted, once it has said so.
    authorization: Mutex<Option<HeaderValue>>,
}

/// A manifest or an index, and what the registry says it is.
pub(super) struct Fetched {
    pub(super) text: Vec<u8>,
    pub(super) kind: String,
}

/// Servers give it under one of two names or, as that of Docker Hub does, under both.
#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

#[derive(Deserialize)]
struct Complaints {
    errors: Vec<Complaint>,
}

#[derive(Deserialize)]
struct Complaint {
    #[serde(default)]
    message: String,
}

impl Registry {
    /// `insecure` names the registries that are asked without TLS, beside those on this machine.
    pub(super) fn new(
        reference: &Reference,
        auth: &Auth,
        insecure: &[String],
    ) -> Result<Self, Error> {
        let host = reference.resolve_registry();
        let is_here = is_loopback(host);
        let is_plain = is_here || insecure.iter().any(|name| name == reference.registry());
        let scheme = if is_plain { "http" } else { "https" };
        let follow = move |attempt: Attempt<'_>| match refused(attempt.url(), is_plain, is_here) {
            _ if attempt.previous().len() > MOST_REDIRECTS => {
                attempt.error("it redirects without end")
            }
            Some(reason) => attempt.error(reason),
            None => attempt.follow(),
        };
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls())
            .user_agent(concat!("sandbar/", env!("CARGO_PKG_VERSION")))
            .redirect(Policy::custom(follow))
            .referer(false)
            .connect_timeout(PATIENCE)
            .read_timeout(PATIENCE);
        if is_here {
            builder = builder.no_proxy();
        }
        let http = builder.build().map_err(|error| Error::Unreachable {
            reference: reference.whole(),
            registry: reference.registry().to_owned(),
            reason: chain(&error),
        })?;
        Ok(Self {
            http,
            base: format!("{scheme}://{host}/v2/{}", reference.repository()),
            reference: reference.clone(),
            auth: auth.clone(),
            is_plain,
            authorization: Mutex::new(None),
        })
    }

    /// The document that the reference names, or one that an index names.
    pub(super) async fn manifest(&self, digest: Option<&Digest>) -> Result<Fetched, Error> {
        let named = digest.map(ToString::to_string);
        let expected = named.as_deref().or_else(|| self.reference.digest());
        let which = expected.or_else(|| self.reference.tag());
        let url = format!("{}/manifests/{}", self.base, which.unwrap_or("latest"));
        let accepted = [INDEXES, MANIFESTS].concat().join(", ");
        let response = self.get(&url, Some(&accepted), None).await?;
        if response.status() == StatusCode::NOT_FOUND {
            return Err(Error::NotFound {
                reference: self.reference(),
                registry: self.name(),
            });
        }
        let mut response = self.successful(response).await?;
        let kind = header(response.headers(), "content-type").unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        let kind = match INDEXES.contains(&kind) || MANIFESTS.contains(&kind) {
            true => kind.to_owned(),
            // some serve all of them as plain JSON
            false => String::new(),
        };
        let text = self.read(&mut response, LONGEST).await?;
        if let Some(expected) = expected {
            self.check(&text, expected)?;
        }
        Ok(Fetched { text, kind })
    }

    /// A small blob.
    pub(super) async fn config(&self, digest: &Digest) -> Result<Vec<u8>, Error> {
        let response = self.blob(digest, 0).await?;
        let mut response = self.successful(response).await?;
        let text = self.read(&mut response, LONGEST).await?;
        self.check(&text, &digest.to_string())?;
        Ok(text)
    }

    /// Asks for a blob from a place on. What the status is, is for the caller.
    pub(super) async fn blob(&self, digest: &Digest, from: u64) -> Result<Response, Error> {
        let url = format!("{}/blobs/{digest}", self.base);
        let range = (from > 0).then(|| format!("bytes={from}-"));
        self.get(&url, None, range.as_deref()).await
    }

    async fn get(
        &self,
        url: &str,
        accept: Option<&str>,
        range: Option<&str>,
    ) -> Result<Response, Error> {
        let first = self.send(url, accept, range).await?;
        if first.status() != StatusCode::UNAUTHORIZED {
            return Ok(first);
        }
        let mut challenges = first
            .headers()
            .get_all(WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| Challenge::parse(value.to_str().ok()?));
        let Some(challenge) = challenges.next() else {
            return Err(self.unauthorized(StatusCode::UNAUTHORIZED));
        };
        let authorization = match (challenge, &self.auth) {
            (Challenge::Basic, _) | (Challenge::Bearer { .. }, Auth::Token(_)) => {
                self.auth.header()
            }
            (
                Challenge::Bearer {
                    realm,
                    service,
                    scope,
                },
                Auth::Anonymous | Auth::Password { .. },
            ) => Some(self.token(&realm, service, scope).await?),
        };
        let value = authorization.and_then(|text| HeaderValue::from_str(&text).ok());
        let Some(mut value) = value else {
            return Err(self.unauthorized(StatusCode::UNAUTHORIZED));
        };
        value.set_sensitive(true);
        *self.known() = Some(value);
        self.send(url, accept, range).await
    }

    async fn send(
        &self,
        url: &str,
        accept: Option<&str>,
        range: Option<&str>,
    ) -> Result<Response, Error> {
        let mut headers = HeaderMap::new();
        for (name, text) in [(ACCEPT, accept), (RANGE, range)] {
            if let Some(value) = text.and_then(|text| HeaderValue::from_str(text).ok()) {
                headers.insert(name, value);
            }
        }
        if let Some(value) = self.known().clone() {
            headers.insert(AUTHORIZATION, value);
        }
        let sent = self.http.get(url).headers(headers).send().await;
        sent.map_err(|error| self.unreachable(&error))
    }

    /// Fetches a token from the server that the registry names.
    async fn token(
        &self,
        realm: &str,
        service: Option<String>,
        scope: Option<String>,
    ) -> Result<String, Error> {
        let mut url = Url::parse(realm)
            .map_err(|_| self.protocol("the address of its token server is none"))?;
        // a password must not go over the net for everybody to read
        if url.scheme() != "https" && !self.is_plain {
            return Err(self.protocol("its token server does not use TLS"));
        }
        let scope =
            scope.unwrap_or_else(|| format!("repository:{}:pull", self.reference.repository()));
        url.query_pairs_mut().append_pair("scope", &scope);
        if let Some(service) = service {
            url.query_pairs_mut().append_pair("service", &service);
        }
        let mut request = self.http.get(url);
        if let Some(header) = self.auth.header() {
            request = request.header(AUTHORIZATION, header);
        }
        let response = request.send().await;
        let response = response.map_err(|error| self.unreachable(&error))?;
        let mut response = self.successful(response).await?;
        let text = self.read(&mut response, SMALL).await?;
        let answer: Option<Token> = serde_json::from_slice(&text).ok();
        let token = answer.and_then(|answer| answer.token.or(answer.access_token));
        let token = token.ok_or_else(|| self.protocol("its token server gives no token"))?;
        Ok(format!("Bearer {token}"))
    }

    /// The response, if it is one of success.
    pub(super) async fn successful(&self, mut response: Response) -> Result<Response, Error> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(self.unauthorized(status));
        }
        let text = self.read(&mut response, SMALL).await.unwrap_or_default();
        let said: Option<Complaints> = serde_json::from_slice(&text).ok();
        let said = said.and_then(|said| said.errors.into_iter().next());
        let said = said.map(|one| one.message.chars().take(200).collect::<String>());
        Err(Error::Status {
            reference: self.reference(),
            registry: self.name(),
            status: status.as_u16(),
            said: said.map(|said| format!(": {said}")).unwrap_or_default(),
        })
    }

    async fn read(&self, response: &mut Response, most: u64) -> Result<Vec<u8>, Error> {
        let mut text = Vec::new();
        loop {
            let chunk = response.chunk().await;
            let Some(chunk) = chunk.map_err(|error| self.unreachable(&error))? else {
                return Ok(text);
            };
            if (text.len() + chunk.len()) as u64 > most {
                return Err(self.protocol(&format!("its answer is longer than {most} bytes")));
            }
            text.extend_from_slice(&chunk);
        }
    }

    fn check(&self, text: &[u8], expected: &str) -> Result<(), Error> {
        let actual = Digest::of(text).to_string();
        match actual == expected {
            true => Ok(()),
            false => Err(self.protocol(&format!(
                "what it sends for {expected} has the digest {actual}"
            ))),
        }
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Option<HeaderValue>> {
        self.authorization
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// What is being read, for messages.
    pub(super) fn reference(&self) -> String {
        self.reference.whole()
    }

    /// The name of the registry, as in the reference.
    pub(super) fn name(&self) -> String {
        self.reference.registry().to_owned()
    }

    fn unauthorized(&self, status: StatusCode) -> Error {
        let help = match self.auth {
            Auth::Anonymous => {
                "give a user name with --username, or the pod an image pull secret; or the image does not exist"
            }
            Auth::Password { .. } => "check user name and password",
            Auth::Token(_) => "check the token",
        };
        Error::Unauthorized {
            reference: self.reference(),
            registry: self.name(),
            who: self.auth.who(),
            status: status.as_u16(),
            help,
        }
    }

    pub(super) fn unreachable(&self, error: &reqwest::Error) -> Error {
        Error::Unreachable {
            reference: self.reference(),
            registry: self.name(),
            reason: chain(error),
        }
    }

    pub(super) fn protocol(&self, reason: &str) -> Error {
        Error::Protocol {
            reference: self.reference(),
            registry: self.name(),
            reason: reason.to_owned(),
        }
    }
}

pub(super) fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    Some(headers.get(name)?.to_str().ok()?.to_owned())
}

/// Why a redirect is not followed: it would give up TLS, or have this machine ask itself on behalf of a stranger.
fn refused(url: &Url, is_plain: bool, is_here: bool) -> Option<&'static str> {
    if url.scheme() != "https" && !is_plain {
        return Some("it redirects to an address without TLS");
    }
    let host = url.host_str().unwrap_or_default();
    let is_inside = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
        Ok(IpAddr::V4(address)) => address.is_link_local() || address.is_unspecified(),
        Ok(IpAddr::V6(address)) => address.is_unicast_link_local() || address.is_unspecified(),
        Err(_) => false,
    };
    match !is_here && (is_inside || is_loopback(host)) {
        true => Some("it redirects to an address inside of this machine"),
        false => None,
    }
}

/// Whether a registry is on this machine. `host` may have a port.
fn is_loopback(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, port)| {
        match port.bytes().all(|byte| byte.is_ascii_digit()) {
            true => name,
            false => host,
        }
    });
    let address = name.trim_matches(['[', ']']).parse::<IpAddr>();
    name == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// The certificates that the machine trusts, read once.
fn tls() -> ClientConfig {
    static CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    let make = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = match builder.with_safe_default_protocol_versions() {
            Ok(builder) => builder,
            Err(error) => unreachable!("ring has the usual versions: {error}"),
        };
        builder.with_root_certificates(roots).with_no_client_auth()
    };
    CONFIG.get_or_init(make).clone()
}

/// An error and its causes, without the address: the caller names the registry.
pub(super) fn chain(error: &reqwest::Error) -> String {
    let mut text = String::new();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&error.to_string());
        cause = error.source();
    }
    match (text.is_empty(), error.is_timeout()) {
        (true, true) => "it does not answer".to_owned(),
        (true, false) => "the connection broke off".to_owned(),
        (false, _) => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{is_loopback, refused};

    #[test]
    fn registries_of_this_machine_are_known() {
        for host in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:5000",
            "127.1.2.3",
            "[::1]:5000",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "localhost.example",
            "registry.example:5000",
            "10.0.0.1:5000",
            "1270.0.0.1",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn no_registry_sends_this_machine_to_itself_or_away_from_tls() {
        for (url, is_plain, is_here, is_refused) in [
            ("https://cdn.example/blob", false, false, false),
            ("http://cdn.example/blob", false, false, true),
            ("http://cdn.example/blob", true, false, false),
            ("https://127.0.0.1/secret", false, false, true),
            ("https://localhost:7443/api", false, false, true),
            ("http://169.254.169.254/latest", true, false, true),
            ("https://[::1]/", false, false, true),
            ("https://[fe80::1]/", false, false, true),
            ("http://127.0.0.1:1/blob", true, true, false),
        ] {
            let answer = refused(&url.parse().unwrap(), is_plain, is_here);
            assert_eq!(answer.is_some(), is_refused, "{url}");
        }
    }
}

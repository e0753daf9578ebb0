//! What the rest of Sandbar says to a daemon, ours or E2B's: commands with a deadline, files, `/init`, health.
//!
//! `exchange` is one request and its answer, `command` runs commands, here is everything else. Each request has a connection
//! of its own: callers are seldom, and a sandbox may be gone the next time.

mod command;
mod exchange;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use serde::Serialize;

pub use self::command::Command;
use self::exchange::{Answer, Request, SMALL};
pub use crate::code::Code;

/// How long small requests may take.
const SHORT: Duration = Duration::from_secs(10);

/// `/init` comes first, when the daemon may not be up yet: how often, how long and with which pause between it is tried.
const INIT_TRIES: u32 = 5;
const INIT_TRY: Duration = Duration::from_secs(1);
const INIT_PAUSE: Duration = Duration::from_millis(200);

/// One daemon, spoken to as one user.
#[derive(Clone, Debug)]
pub struct Client {
    /// Host and port.
    address: String,
    token: Option<String>,
    user: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// Nobody answered, or not to the end. What was asked for may have been done.
    Unreachable { address: String, cause: String },
    /// The daemon said no.
    Refused { code: Code, message: String },
    /// The time that was given is over.
    Late(Duration),
    /// The daemon does not know any more what became of a command that it had started.
    Lost { tag: String },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Init {
    pub env_vars: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_user: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_workdir: Option<String>,
}

impl Client {
    /// A daemon at `host:port`.
    pub fn new(address: impl Into<String>) -> Self {
        Self {
            address: address.into(),
            token: None,
            user: None,
        }
    }

    #[must_use]
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// Whoever the daemon takes by default, if this is not said.
    #[must_use]
    pub fn as_user(self, user: impl Into<String>) -> Self {
        let user = Some(user.into());
        Self { user, ..self }
    }

    pub async fn health(&self) -> Result<(), Error> {
        let request = Request::new(Method::GET, "/health");
        self.ask(request, SHORT).await.map(drop)
    }

    /// Tried again while the daemon is not there or busy, not when it refuses.
    pub async fn init(&self, init: &Init) -> Result<(), Error> {
        let mut pause = INIT_PAUSE;
        for _ in 1..INIT_TRIES {
            match self.init_once(init).await {
                Err(error) if error.may_pass() => {}
                outcome => return outcome,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.init_once(init).await
    }

    async fn init_once(&self, init: &Init) -> Result<(), Error> {
        // text with text for keys always can be written
        let body = serde_json::to_vec(init).unwrap_or_default();
        let request = Request::new(Method::POST, "/init")
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .body(body);
        self.ask(request, INIT_TRY).await.map(drop)
    }

    /// The content of a file, if it is no larger than `most`.
    pub async fn read(&self, path: &str, most: usize, limit: Duration) -> Result<Bytes, Error> {
        let request = Request::new(Method::GET, self.files(path));
        let reading = async {
            let mut answer = self.send(request).await?;
            accepted(&mut answer, Code::NotFound).await?;
            match answer.body(most).await? {
                Some(content) => Ok(content),
                None => Err(Error::Refused {
                    code: Code::ResourceExhausted,
                    message: format!("{path} is larger than {most} bytes"),
                }),
            }
        };
        within(limit, reading).await
    }

    /// Makes or replaces a file, and the directories above it.
    pub async fn write(&self, path: &str, content: &[u8], limit: Duration) -> Result<(), Error> {
        // every version of the daemon knows this form
        let random = RandomState::new();
        let boundary = format!("{:016x}{:016x}", random.hash_one(0), random.hash_one(1));
        let head = format!(
            "--{boundary}\r\ncontent-disposition: form-data; name=\"file\"; filename=\"file\"\r\n\
             content-type: application/octet-stream\r\n\r\n"
        );
        let tail = format!("\r\n--{boundary}--\r\n");
        let content_type = format!("multipart/form-data; boundary={boundary}");
        let request = Request::new(Method::POST, self.files(path))
            .text_header(CONTENT_TYPE, &content_type)
            .body([head.as_bytes(), content, tail.as_bytes()].concat());
        self.ask(request, limit).await.map(drop)
    }

    fn files(&self, path: &str) -> String {
        let mut query = form_urlencoded::Serializer::new("/files?".to_owned());
        query.append_pair("path", path);
        if let Some(user) = &self.user {
            query.append_pair("username", user);
        }
        query.finish()
    }

    /// Sends a request whose answer is small.
    async fn ask(&self, request: Request, limit: Duration) -> Result<Bytes, Error> {
        let asking = async {
            let mut answer = self.send(request).await?;
            accepted(&mut answer, Code::NotFound).await?;
            Ok(answer.body(SMALL).await?.unwrap_or_default())
        };
        within(limit, asking).await
    }

    async fn send(&self, mut request: Request) -> Result<Answer, Error> {
        if let Some(token) = &self.token {
            request = request.text_header("x-access-token", token);
        }
        if let Some(user) = &self.user {
            let credentials = STANDARD.encode(format!("{user}:"));
            request = request.text_header(AUTHORIZATION, &format!("Basic {credentials}"));
        }
        request.send(&self.address).await
    }
}

/// `missing` is what it means that there is no such path.
async fn accepted(answer: &mut Answer, missing: Code) -> Result<(), Error> {
    if answer.status.is_success() {
        return Ok(());
    }
    let body = answer.body(SMALL).await?.unwrap_or_default();
    Err(refusal(answer.status, &body, missing))
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let outcome = tokio::time::timeout(limit, work).await;
    outcome.unwrap_or(Err(Error::Late(limit)))
}

/// Errors of calls name their code; of plain requests it follows from the status, in the way that Connect says.
fn refusal(status: StatusCode, body: &[u8], missing: Code) -> Error {
    let parsed: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let by_status = match status.as_u16() {
        400 => Code::InvalidArgument,
        401 => Code::Unauthenticated,
        403 => Code::PermissionDenied,
        404 => missing,
        408 | 429 | 502..=504 => Code::Unavailable,
        409 => Code::AlreadyExists,
        413 | 507 => Code::ResourceExhausted,
        405 | 415 | 501 | 505 => Code::Unimplemented,
        402..=499 => Code::InvalidArgument,
        _ => Code::Unknown,
    };
    let code = parsed["code"].as_str().map_or(by_status, Code::of_name);
    let text = || String::from_utf8_lossy(body).trim().to_owned();
    let message = parsed["message"].as_str().map_or_else(text, str::to_owned);
    Error::Refused { code, message }
}

impl Error {
    pub fn is_refused_as(&self, wanted: Code) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    /// Whether it may be another way in a moment.
    fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Late(_) => true,
            Self::Refused { code, .. } => {
                matches!(code, Code::Unavailable | Code::Unknown | Code::Internal)
            }
            Self::Lost { .. } => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable { address, cause } => {
                write!(out, "the daemon at {address} does not answer: {cause}")
            }
            Self::Refused { code, message } => write!(out, "{}: {message}", code.name()),
            Self::Late(limit) => write!(out, "not done within {limit:?}"),
            Self::Lost { tag } => write!(
                out,
                "the command {tag} was started, and the daemon that ran it is no more: \
                 whether it was carried out is not known"
            ),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::{Code, StatusCode, refusal};

    #[test]
    fn what_is_wrong_with_a_request_does_not_pass() {
        for (status, passes) in [
            (400, false),
            (405, false),
            (408, true),
            (409, false),
            (413, false),
            (415, false),
            (418, false),
            (429, true),
            (500, true),
            (501, false),
            (503, true),
            (507, false),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            let refused = refusal(status, b"", Code::NotFound);
            assert_eq!(refused.may_pass(), passes, "{status}: {refused}");
        }
    }
}

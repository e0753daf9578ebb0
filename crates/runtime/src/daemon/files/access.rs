//! Who may read or write a file: whoever has the access token, or a URL signed with it.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use http::StatusCode;
use http::request::Parts;
use sha2::{Digest, Sha256};

use super::{Query, Refusal};
use crate::daemon::Daemon;
use crate::daemon::settings::same;

#[derive(Clone, Copy)]
pub(super) enum Operation {
    Read,
    Write,
}

impl Operation {
    fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

pub(super) fn check(
    daemon: &Daemon,
    request: &Parts,
    query: &Query,
    operation: Operation,
) -> Result<(), Refusal> {
    let Some(token) = daemon.settings.token() else {
        return Ok(());
    };
    if let Some(given) = request.headers.get("x-access-token") {
        return if same(given.as_bytes(), token.as_bytes()) {
            Ok(())
        } else {
            refuse("access token present in header but does not match")
        };
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    check_signature(query, operation, &token, now)
}

fn check_signature(
    query: &Query,
    operation: Operation,
    token: &str,
    now: u64,
) -> Result<(), Refusal> {
    let Some(signature) = &query.signature else {
        return refuse("missing signature query parameter");
    };
    let expiration = match query.expiration.as_deref().map(str::parse::<i64>) {
        None => None,
        Some(Ok(seconds)) => Some(seconds),
        Some(Err(_)) => {
            return Err(Refusal::bad_request(
                "signature_expiration is not a number of seconds",
            ));
        }
    };
    let expected = sign(query, operation, token, expiration);
    if !same(signature.as_bytes(), expected.as_bytes()) {
        return refuse("invalid signature");
    }
    // said only to those who could have signed it
    if expiration.is_some_and(|seconds| seconds < i64::try_from(now).unwrap_or(i64::MAX)) {
        return refuse("signature is already expired");
    }
    Ok(())
}

fn sign(query: &Query, operation: Operation, token: &str, expiration: Option<i64>) -> String {
    let path = query.path.as_deref().unwrap_or_default();
    let user = query.username.as_deref().unwrap_or_default();
    let mut text = format!("{path}:{}:{user}:{token}", operation.name());
    if let Some(seconds) = expiration {
        text.push_str(&format!(":{seconds}"));
    }
    format!("v1_{}", STANDARD_NO_PAD.encode(Sha256::digest(text)))
}

fn refuse(message: &str) -> Result<(), Refusal> {
    Err(Refusal::new(StatusCode::UNAUTHORIZED, message))
}

#[cfg(test)]
mod tests {
    use super::{Operation, check_signature, sign};
    use crate::daemon::files::Query;

    fn query(signature: Option<String>, expiration: Option<&str>) -> Query {
        Query {
            path: Some("hello.txt".into()),
            username: Some("user".into()),
            signature,
            expiration: expiration.map(Into::into),
        }
    }

    #[test]
    fn signatures_are_those_of_the_clients() {
        let token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
        let signature = sign(&query(None, None), Operation::Read, token, None);
        assert_eq!(signature, "v1_gUtH/s9YCJWgCizjfUxuWfhFE4QSydOWEIIvfLwDr6E");
    }

    #[test]
    fn that_a_signature_has_expired_is_said_only_of_a_correct_one() {
        let signature = sign(&query(None, None), Operation::Read, "token", Some(100));
        let check = |query: &Query, now| check_signature(query, Operation::Read, "token", now);
        let good = query(Some(signature.clone()), Some("100"));
        assert!(check(&good, 100).is_ok());
        let expired = check(&good, 101).unwrap_err();
        assert_eq!(expired.message, "signature is already expired");
        let longer = query(Some(signature), Some("200"));
        let forged = check(&longer, 101).unwrap_err();
        assert_eq!(forged.message, "invalid signature");
    }
}

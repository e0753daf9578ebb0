//! Who holds which token. A token is all that a client has to show.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::HeaderMap;
use http::header::AUTHORIZATION;
use subtle::ConstantTimeEq as _;

use super::authorize::Identity;
use super::error::StartError;
use super::home::{Access, Home};
use super::pki::provider;

/// The tokens of a data directory.
pub struct Tokens {
    pub(super) admin: String,
    pub(super) viewer: String,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// What a request shows of its sender.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Somebody's token.
    Token(Identity),
    /// A token of nobody.
    WrongToken,
    Nothing,
}

impl Tokens {
    /// The stored ones; those that are not there are made.
    pub(super) fn prepare(home: &Home) -> Result<Tokens, StartError> {
        Ok(Tokens {
            admin: token(home, "tokens/admin")?,
            viewer: token(home, "tokens/viewer")?,
        })
    }

    /// The token is what stands between the scheme and the next space, as a real server reads it.
    pub(super) fn shown(&self, headers: &HeaderMap) -> Shown {
        let header = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        let mut words = header
            .unwrap_or_default()
            .trim_ascii()
            .split(|b| *b == b' ');
        let is_bearer = words
            .next()
            .is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"));
        match words.next() {
            Some(token) if is_bearer && !token.is_empty() => {
                self.owner(token).map_or(Shown::WrongToken, Shown::Token)
            }
            _ => Shown::Nothing,
        }
    }

    /// Takes as long for a token that is nearly right as for any other of its length.
    fn owner(&self, token: &[u8]) -> Option<Identity> {
        let is = |expected: &str| bool::from(expected.as_bytes().ct_eq(token));
        let (admin, viewer) = (is(&self.admin), is(&self.viewer));
        match (admin, viewer) {
            (true, _) => Some(Identity::admin()),
            (false, true) => Some(Identity::viewer()),
            (false, false) => None,
        }
    }
}

fn token(home: &Home, name: &str) -> Result<String, StartError> {
    if let Some(text) = home.read_secret(name)? {
        let token = text.trim();
        // an empty or short one would be guessed
        if token.len() < 32 || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(StartError::Unusable {
                path: home.file(name),
                problem: "holds no token of at least 32 visible characters".to_owned(),
                remedy: "remove the file to get a new token",
            });
        }
        return Ok(token.to_owned());
    }
    let mut bytes = [0; 32];
    provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| StartError::Crypto("the system gives no random bytes".to_owned()))?;
    let token = URL_SAFE_NO_PAD.encode(bytes);
    home.write(name, &format!("{token}\n"), Access::Owner)?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};

    use super::{Identity, Shown, Tokens};

    fn shown(header: &'static str) -> Shown {
        let tokens = Tokens {
            admin: "a-token".to_owned(),
            viewer: "v-token".to_owned(),
        };
        let value = HeaderValue::from_static(header);
        tokens.shown(&HeaderMap::from_iter([(AUTHORIZATION, value)]))
    }

    #[test]
    fn a_token_tells_who_asks() {
        assert_eq!(shown("Bearer a-token"), Shown::Token(Identity::admin()));
        assert_eq!(shown("bearer a-token"), Shown::Token(Identity::admin()));
        assert_eq!(shown("Bearer v-token"), Shown::Token(Identity::viewer()));
        assert_eq!(shown("Bearer v-token x"), Shown::Token(Identity::viewer()));
    }

    #[test]
    fn a_wrong_token_is_not_the_same_as_none() {
        for header in ["Bearer a-toke", "Bearer a-tokens", "Bearer x y"] {
            assert_eq!(shown(header), Shown::WrongToken, "{header}");
        }
        for header in ["", "Bearer", "Bearer  a-token", "Basic a-token"] {
            assert_eq!(shown(header), Shown::Nothing, "{header}");
        }
    }
}

//! Content addresses: SHA-256, the only algorithm that registries use for images.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The SHA-256 of some content, written `sha256:` and 64 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest {
    /// 64 lower case digits: it becomes a file name.
    hex: String,
}

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no digest: sha256: and 64 hexadecimal digits are expected")]
pub struct DigestError(String);

impl Digest {
    /// The digest of these bytes.
    pub fn of(content: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(content))
    }

    pub(super) fn finish(hash: Sha256) -> Self {
        let hex = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Self { hex }
    }

    /// The digits without the name of the algorithm.
    pub fn hex(&self) -> &str {
        &self.hex
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", self.hex)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let hex = text.strip_prefix("sha256:").filter(|hex| {
            let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            hex.len() == 64 && hex.bytes().all(is_digit)
        });
        match hex {
            Some(hex) => Ok(Self {
                hex: hex.to_owned(),
            }),
            None => Err(DigestError(text.chars().take(120).collect())),
        }
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn only_sha256_in_lower_case_is_a_digest() {
        let empty = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(empty.parse::<Digest>().unwrap(), Digest::of(b""));
        for wrong in [
            "",
            "sha256:",
            "sha256:e3b0",
            "sha512:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:E3B0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha256:../../298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b8555",
        ] {
            assert!(wrong.parse::<Digest>().is_err(), "{wrong}");
        }
    }
}

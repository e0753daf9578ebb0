//! Names of images as people write them: `[HOST[:PORT]/]PATH[:TAG][@DIGEST]`.
//!
//! The crate that has the type also reads it, by a regular expression that takes 20 MiB of memory for as long as the program
//! runs.

use oci_spec::distribution::{ParseError, Reference};

const HUB: &str = "docker.io";
const HUB_BEFORE: &str = "index.docker.io";
const LONGEST_PATH: usize = 255;
const LONGEST_TAG: usize = 128;
/// Algorithms, and how many hexadecimal digits they give.
const DIGESTS: [(&str, usize); 3] = [("sha256", 64), ("sha384", 96), ("sha512", 128)];

/// What is left out is what Docker takes it for: its hub, the library there, and `latest`.
pub(super) fn parse(text: &str) -> Result<Reference, ParseError> {
    let (text, digest) = match text.split_once('@') {
        Some((text, digest)) => (text, Some(check_digest(digest)?)),
        None => (text, None),
    };
    let after_slash = text.rfind('/').map_or(0, |slash| slash + 1);
    let (name, tag) = match text[after_slash..].rfind(':') {
        Some(colon) => {
            let (name, tag) = text.split_at(after_slash + colon);
            (name, Some(check_tag(&tag[1..])?))
        }
        None => (text, None),
    };
    let (registry, repository) = split(name)?;
    Ok(match (tag, digest) {
        (Some(tag), Some(digest)) => {
            Reference::with_tag_and_digest(registry, repository, tag.to_owned(), digest.to_owned())
        }
        (None, Some(digest)) => Reference::with_digest(registry, repository, digest.to_owned()),
        (tag, None) => {
            Reference::with_tag(registry, repository, tag.unwrap_or("latest").to_owned())
        }
    })
}

fn split(name: &str) -> Result<(String, String), ParseError> {
    let is_host = |first: &str| first.contains(['.', ':']) || first == "localhost";
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => (first, rest),
        _ => (HUB, name),
    };
    check_host(host)?;
    check_path(path)?;
    let host = if host == HUB_BEFORE { HUB } else { host };
    let path = match host == HUB && !path.contains('/') {
        true => format!("library/{path}"),
        false => path.to_owned(),
    };
    match path.len() > LONGEST_PATH {
        true => Err(ParseError::NameTooLong),
        false => Ok((host.to_owned(), path)),
    }
}

fn check_host(host: &str) -> Result<(), ParseError> {
    let (names, port) = match host.split_once(':') {
        Some((names, port)) => (names, Some(port)),
        None => (host, None),
    };
    let is_port = |port: &str| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    let is_label = |label: &str| {
        let bytes = label.as_bytes();
        let ends = bytes.first().into_iter().chain(bytes.last());
        !bytes.is_empty()
            && ends.into_iter().all(u8::is_ascii_alphanumeric)
            && bytes
                .iter()
                .all(|b| b.is_ascii_alphanumeric() || *b == b'-')
    };
    match names.split('.').all(is_label) && port.is_none_or(is_port) {
        true => Ok(()),
        false => Err(ParseError::ReferenceInvalidFormat),
    }
}

fn check_path(path: &str) -> Result<(), ParseError> {
    if path.is_empty() {
        return Err(ParseError::NameEmpty);
    }
    if path.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return Err(ParseError::NameContainsUppercase);
    }
    match path.split('/').all(is_component) {
        true => Ok(()),
        false => Err(ParseError::ReferenceInvalidFormat),
    }
}

/// Lower-case letters and digits, with one dot, one or two underscores, or any number of dashes between.
fn is_component(component: &str) -> bool {
    let is_word = |byte: char| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let is_separator =
        |text: &str| matches!(text, "" | "." | "_" | "__") || text.bytes().all(|byte| byte == b'-');
    component.starts_with(is_word)
        && component.ends_with(is_word)
        && component.split(is_word).all(is_separator)
}

fn check_tag(tag: &str) -> Result<&str, ParseError> {
    let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let bytes = tag.as_bytes();
    let is_tag = bytes.first().is_some_and(is_word)
        && bytes.len() <= LONGEST_TAG
        && bytes.iter().all(|b| is_word(b) || matches!(b, b'.' | b'-'));
    match is_tag {
        true => Ok(tag),
        false => Err(ParseError::TagInvalidFormat),
    }
}

fn check_digest(digest: &str) -> Result<&str, ParseError> {
    let (algorithm, hex) = digest
        .split_once(':')
        .ok_or(ParseError::DigestInvalidFormat)?;
    let known = DIGESTS.iter().find(|(name, _)| *name == algorithm);
    let (_, length) = known.ok_or(ParseError::DigestUnsupported)?;
    if !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(ParseError::DigestInvalidFormat);
    }
    match hex.len() == *length {
        true => Ok(digest),
        false => Err(ParseError::DigestInvalidLength),
    }
}

#[cfg(test)]
mod tests {
    use oci_spec::distribution::{ParseError, Reference};
    use proptest::prelude::{ProptestConfig, any, prop, proptest};

    use super::parse;

    #[test]
    fn what_is_left_out_is_what_docker_takes_it_for() {
        let digest = format!("sha256:{}", "a1".repeat(32));
        for (text, whole) in [
            ("busybox", "docker.io/library/busybox:latest"),
            ("me/app:v1", "docker.io/me/app:v1"),
            ("index.docker.io/app", "docker.io/library/app:latest"),
            ("localhost/app", "localhost/app:latest"),
            ("host:5000/a/b:1", "host:5000/a/b:1"),
            ("app:5000", "docker.io/library/app:5000"),
            (
                &format!("ghcr.io/a/b@{digest}"),
                &format!("ghcr.io/a/b@{digest}"),
            ),
            (
                &format!("ghcr.io/a/b:v2@{digest}"),
                &format!("ghcr.io/a/b:v2@{digest}"),
            ),
        ] {
            assert_eq!(parse(text).unwrap().whole(), whole, "{text}");
        }
    }

    #[test]
    fn what_is_no_name_is_refused_with_the_reason() {
        let long = "a".repeat(256);
        for (text, error) in [
            ("", ParseError::NameEmpty),
            ("Busybox", ParseError::NameContainsUppercase),
            ("host.io/", ParseError::NameEmpty),
            ("a//b", ParseError::ReferenceInvalidFormat),
            ("a..b", ParseError::ReferenceInvalidFormat),
            ("-a", ParseError::ReferenceInvalidFormat),
            ("../../etc", ParseError::ReferenceInvalidFormat),
            ("host:port/a", ParseError::ReferenceInvalidFormat),
            ("a:", ParseError::TagInvalidFormat),
            ("a:.x", ParseError::TagInvalidFormat),
            ("a@sha256:12", ParseError::DigestInvalidLength),
            ("a@md5:12", ParseError::DigestUnsupported),
            ("a@sha256", ParseError::DigestInvalidFormat),
            (&long, ParseError::NameTooLong),
        ] {
            assert_eq!(parse(text).unwrap_err(), error, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn names_mean_what_the_crate_takes_them_for(
            host in prop::option::of("([a-z0-9]{1,4}[.:-]?){1,3}(:[0-9]{1,5})?"),
            path in "([a-z0-9]{1,3}[._/-]{0,2}){1,4}",
            tag in prop::option::of("[A-Za-z0-9_.-]{0,6}"),
            has_digest in any::<bool>(),
        ) {
            let mut text = host.map(|host| host + "/").unwrap_or_default() + &path;
            text += &tag.map(|tag| format!(":{tag}")).unwrap_or_default();
            if has_digest {
                text += &format!("@sha256:{}", "0f".repeat(32));
            }
            let theirs: Result<Reference, ParseError> = text.parse();
            // they take a host with an underscore for one, and then cannot find it
            if !theirs.as_ref().is_ok_and(|name| name.registry().contains('_')) {
                assert_eq!(parse(&text).ok(), theirs.ok(), "{text}");
            }
        }
    }
}

//! What form the body of a request has.

use super::{Encoding, JSON, OBJECTS, PROTOBUF, YAML};
use crate::status::Failure;

/// How an object is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyEncoding {
    Text(Encoding),
    /// Built-in kinds only.
    Protobuf,
}

/// How a patch is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatchKind {
    Json,
    Merge,
    /// Built-in kinds only.
    Strategic,
    Apply,
}

const PATCHES: [(&str, PatchKind); 4] = [
    ("application/json-patch+json", PatchKind::Json),
    ("application/merge-patch+json", PatchKind::Merge),
    (
        "application/strategic-merge-patch+json",
        PatchKind::Strategic,
    ),
    ("application/apply-patch+yaml", PatchKind::Apply),
];

/// The encoding of an object, or of the options of a delete, by the `Content-Type` of the request.
pub(crate) fn body_encoding(content_type: Option<&str>) -> Result<BodyEncoding, Failure> {
    let media_type = media_type(content_type.unwrap_or_default());
    match media_type.as_deref() {
        Some("" | JSON) => Ok(BodyEncoding::Text(Encoding::Json)),
        Some(YAML) => Ok(BodyEncoding::Text(Encoding::Yaml)),
        Some(PROTOBUF) => Ok(BodyEncoding::Protobuf),
        _ => Err(Failure::unsupported_media_type(&OBJECTS)),
    }
}

/// The type without its parameters, if those are well-formed.
fn media_type(content_type: &str) -> Option<String> {
    let mut parts = content_type.split(';');
    let media_type = parts.next()?.trim().to_ascii_lowercase();
    let well_formed = |parameter: &str| {
        let parameter = parameter.trim();
        let quoted = |value: &str| value.len() > 1 && value.ends_with('"');
        parameter.is_empty()
            || parameter
                .split_once('=')
                .is_some_and(|(_, value)| !value.starts_with('"') || quoted(value))
    };
    parts.all(well_formed).then_some(media_type)
}

/// The kind of a patch, by the `Content-Type` of the request.
pub(crate) fn patch_kind(content_type: Option<&str>, built_in: bool) -> Result<PatchKind, Failure> {
    let content_type = content_type.unwrap_or_default();
    let before = |text: &'_ str| text.find(';').unwrap_or(text.len());
    if built_in {
        // their router takes a list of types, as if it were an Accept
        let mut types = content_type
            .split(',')
            .map(|one| one[..before(one)].trim_matches(' '));
        if !types.any(|one| PATCHES.iter().any(|(name, _)| *name == one)) {
            return Err(Failure::unsupported_patch());
        }
    }
    let possible = || {
        let all = PATCHES.iter();
        all.filter(|(_, kind)| built_in || *kind != PatchKind::Strategic)
    };
    let wanted = &content_type[..before(content_type)];
    let found = possible().find(|(name, _)| *name == wanted);
    found.map(|(_, kind)| *kind).ok_or_else(|| {
        let names: Vec<&str> = possible().map(|(name, _)| *name).collect();
        Failure::unsupported_media_type(&names)
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::{BodyEncoding, Encoding, PatchKind, body_encoding, patch_kind};

    #[test]
    fn objects_are_json_or_yaml_or_protobuf() {
        for content_type in [
            "",
            "application/json",
            "APPLICATION/JSON",
            " application/json ",
            "application/json;",
            "application/json; charset=utf-8",
        ] {
            assert_eq!(
                body_encoding(Some(content_type)),
                Ok(BodyEncoding::Text(Encoding::Json)),
                "{content_type}"
            );
        }
        let json = BodyEncoding::Text(Encoding::Json);
        assert_eq!(body_encoding(None), Ok(json));
        let yaml = BodyEncoding::Text(Encoding::Yaml);
        assert_eq!(body_encoding(Some("application/yaml")), Ok(yaml));
        for content_type in [
            "application/vnd.kubernetes.protobuf",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ] {
            let encoding = body_encoding(Some(content_type));
            assert_eq!(encoding, Ok(BodyEncoding::Protobuf), "{content_type}");
        }
        for content_type in [
            "text/plain",
            "nonsense",
            "application/json; charset",
            "application/json; a=\"b",
            "application/json, text/plain",
            "application/vnd.kubernetes.protobuf;x",
        ] {
            let failure = body_encoding(Some(content_type)).unwrap_err();
            assert_eq!(failure.code(), 415);
            assert_eq!(
                failure.message(),
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json, application/yaml, application/vnd.kubernetes.protobuf"
            );
        }
    }

    #[test]
    fn a_patch_says_its_kind() {
        for (content_type, kind) in [
            ("application/json-patch+json", PatchKind::Json),
            (
                "application/merge-patch+json; charset=utf-8",
                PatchKind::Merge,
            ),
            ("application/apply-patch+yaml", PatchKind::Apply),
        ] {
            for built_in in [true, false] {
                assert_eq!(patch_kind(Some(content_type), built_in), Ok(kind));
            }
        }
        let strategic = Some("application/strategic-merge-patch+json");
        assert_eq!(patch_kind(strategic, true), Ok(PatchKind::Strategic));
    }

    #[test]
    fn an_unknown_kind_of_patch_is_refused_in_the_words_of_who_refuses() {
        let routed = "415: Unsupported Media Type";
        let own = "the body of the request was in an unknown format - accepted media types include: \
                   application/json-patch+json, application/merge-patch+json, \
                   application/strategic-merge-patch+json, application/apply-patch+yaml";
        let custom = "the body of the request was in an unknown format - accepted media types include: \
                      application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        for (content_type, built_in, message) in [
            ("application/json", true, routed),
            ("", true, routed),
            ("Application/merge-patch+json", true, routed),
            ("application/merge-patch+json,application/json", true, own),
            ("application/merge-patch+json ;x=y", true, own),
            ("application/json", false, custom),
            ("application/strategic-merge-patch+json", false, custom),
        ] {
            let failure = patch_kind(Some(content_type), built_in).unwrap_err();
            assert_eq!(failure.message(), message, "{content_type}");
            assert_eq!(failure.code(), 415);
        }
    }
}

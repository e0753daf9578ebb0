//! What a file is, for the headers of its download.

use std::path::Path;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

const BY_EXTENSION: [(&str, &str); 30] = [
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("css", "text/css; charset=utf-8"),
    ("csv", "text/csv; charset=utf-8"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("htm", "text/html; charset=utf-8"),
    ("html", "text/html; charset=utf-8"),
    ("ico", "image/x-icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript; charset=utf-8"),
    ("json", "application/json"),
    ("md", "text/markdown; charset=utf-8"),
    ("mjs", "text/javascript; charset=utf-8"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("txt", "text/plain; charset=utf-8"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wave"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xml", "text/xml; charset=utf-8"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
];

const BY_FIRST_BYTES: [(&[u8], &str); 7] = [
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/x-gzip"),
    (b"<!DOCTYPE html", "text/html; charset=utf-8"),
];

/// By the name, else by how the file begins.
pub(super) fn content_type(path: &Path, beginning: &[u8]) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    let named = BY_EXTENSION.iter().find(|(known, _)| *known == extension);
    let begun = BY_FIRST_BYTES
        .iter()
        .find(|(known, _)| beginning.starts_with(known));
    if let Some((_, kind)) = named {
        return kind;
    }
    if let Some((_, kind)) = begun {
        return kind;
    }
    if beginning.iter().any(|byte| is_binary(*byte)) {
        "application/octet-stream"
    } else {
        "text/plain; charset=utf-8"
    }
}

/// Control characters that no text contains.
fn is_binary(byte: u8) -> bool {
    byte < 0x20 && !matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b)
}

/// The `Content-Disposition` of a file that is to be shown.
pub(super) fn disposition(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if !name.is_ascii() || name.bytes().any(|byte| byte.is_ascii_control()) {
        let encoded = utf8_percent_encode(&name, NON_ALPHANUMERIC);
        return format!("inline; filename*=utf-8''{encoded}");
    }
    if !name.is_empty() && name.bytes().all(is_token) {
        return format!("inline; filename={name}");
    }
    let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
    format!("inline; filename=\"{escaped}\"")
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{content_type, disposition};

    #[test]
    fn names_that_headers_cannot_hold_are_escaped() {
        for (name, expected) in [
            ("/x/a.txt", "inline; filename=a.txt"),
            ("/x/a b\".txt", "inline; filename=\"a b\\\".txt\""),
            ("/x/ä", "inline; filename*=utf-8''%C3%A4"),
            ("/x/a\nb", "inline; filename*=utf-8''a%0Ab"),
        ] {
            assert_eq!(disposition(Path::new(name)), expected);
        }
    }

    #[test]
    fn a_file_without_a_known_name_is_what_it_begins_with() {
        let kind = |beginning| content_type(Path::new("/x/file"), beginning);
        assert_eq!(kind(b"hello"), "text/plain; charset=utf-8");
        assert_eq!(kind(b"\x00\x01"), "application/octet-stream");
        assert_eq!(kind(b"\x89PNG\r\n\x1a\n..."), "image/png");
        assert_eq!(
            content_type(Path::new("/x/a.JSON"), b""),
            "application/json"
        );
    }
}

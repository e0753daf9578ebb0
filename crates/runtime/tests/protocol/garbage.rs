//! What no client should send: fragments of what clients do send, put together at random, and cut off. The same in every run.

use std::io::Read as _;

use flate2::Compression;
use flate2::read::GzEncoder;
use proptest::collection::vec;
use proptest::prelude::{Just, any, prop_oneof};
use proptest::sample::select;
use proptest::strategy::{BoxedStrategy, Strategy};

const JSON: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "null",
    "-1",
    "1e999",
    "\"\\ud800\"",
    "\"process\"",
    "\"cmd\"",
    "\"/bin/true\"",
    "\"args\"",
    "\"start\"",
    "\"pid\"",
    "\"data\"",
    "\"input\"",
    "\"stdin\"",
    "\"aGk=\"",
    "\"path\"",
    "{\"process\": {\"cmd\": \"/bin/true\", \"args\": [\"a\"]}}",
    "{\"process\": {\"cmd\": \"/bin/true\"}, \"pty\": {\"size\": {\"cols\": 4294967295}}}",
    "{\"start\": {\"process\": {\"pid\": 4294967295}}}",
    "{\"data\": {\"input\": {\"stdin\": \"aGk=\"}}}",
];

/// Fields of protobuf: a `StartRequest`, a `StreamInputRequest`, and what is none.
const PROTOBUF: &[&[u8]] = &[
    b"\x0a\x0b\x0a\x09/bin/true",
    b"\x0a\x04\x0a\x02\x08\x01",
    b"\x12\x06\x12\x04\x0a\x02hi",
    b"\x1a\x00",
    b"\x20\x01",
    b"\x0a\xff\xff\xff\xff\x0f",
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\x0b\x0b\x0b\x0c",
    b"\x07",
];

const FORM: &[&[u8]] = &[
    b"--XX",
    b"--XX\r\n",
    b"\r\n--XX\r\n",
    b"\r\n--XX--",
    b"--",
    b"-",
    b"\r\n",
    b"\r",
    b"\n",
    b"\r\n\r\n",
    b"Content-Disposition: form-data; name=\"file\"; filename=\"",
    b"Content-Disposition: form-data; name=file; filename*=UTF-8''",
    b"content-disposition:",
    b"Content-Type: text/plain\r\n",
    b"--Content-Disposition: form-data; name=file\r\n",
    b"; name=file",
    b"; name=\"file\"",
    b"; filename=",
    b"\"",
    b"\\\"",
    b"\\",
    b"%00",
    b"%ff%c3",
    b"\xff",
    b"\0",
    b"content",
];

const CONTENT_TYPES: &[&str] = &[
    "multipart/form-data; boundary=XX",
    "multipart/form-data; charset=x; boundary=\"XX\"; y",
    "multipart/form-data; boundary=\"X\\X\"",
    "multipart/form-data; boundary=",
    "multipart/form-data; boundary=\"",
    "multipart/form-data;;;=;boundary=XX",
    "multipart/form-data; boundary=\u{e9}",
    "multipart/form-data",
    "application/octet-stream",
    "",
];

const PATH: &[&str] = &[
    "a", "b", "in", "up", "out", "loop", "far", "..", "../", "/", "//", ".", "./", "~", "~/",
    "~root", "\0", "\u{e9}", "\n", " ", "\\", "%2e%2e", "%00", "%ff", "%", "-", "*", ":",
];

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..24)
}

fn of<T: AsRef<[u8]> + ?Sized + 'static>(
    words: &'static [&'static T],
    most: usize,
) -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        19 => select((0..words.len()).collect::<Vec<_>>()).prop_map(|at| words[at].as_ref().to_vec()),
        1 => bytes(),
    ];
    vec(word, 0..most).prop_map(|words| words.concat())
}

/// JSON, protobuf, both of them packed, and none of these.
pub(crate) fn messages() -> BoxedStrategy<Vec<u8>> {
    let plain = || cut_off(prop_oneof![of(JSON, 10), of(PROTOBUF, 6), bytes()]);
    prop_oneof![4 => plain(), 1 => plain().prop_map(|message| gzip(&message))].boxed()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut packed = Vec::new();
    let mut packer = GzEncoder::new(bytes, Compression::fast());
    packer.read_to_end(&mut packed).unwrap();
    packed
}

/// Most with the length that they have.
fn envelope() -> impl Strategy<Value = Vec<u8>> {
    let flags = prop_oneof![6 => Just(0), 2 => Just(1), 1 => Just(2), 1 => any::<u8>()];
    let length = prop_oneof![
        8 => Just(None),
        1 => (0..40_u32).prop_map(Some),
        1 => any::<u32>().prop_map(Some),
    ];
    (flags, length, messages()).prop_map(|(flags, length, message)| {
        let length = length.unwrap_or(u32::try_from(message.len()).unwrap());
        [&[flags], &length.to_be_bytes()[..], &message].concat()
    })
}

fn cut_off(whole: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let rest = prop_oneof![3 => Just(None), 1 => any::<proptest::sample::Index>().prop_map(Some)];
    (whole, rest).prop_map(|(mut whole, rest)| {
        if let Some(rest) = rest {
            whole.truncate(rest.index(whole.len() + 1));
        }
        whole
    })
}

/// Streams of Connect and gRPC, and what is none.
pub(crate) fn streams() -> BoxedStrategy<Vec<u8>> {
    let streams = vec(envelope(), 0..5).prop_map(|all| all.concat());
    cut_off(prop_oneof![9 => streams, 1 => bytes()]).boxed()
}

/// A content type, and a body that fits it or not.
pub(crate) fn forms() -> BoxedStrategy<(String, Vec<u8>)> {
    let content_type = prop_oneof![4 => Just(CONTENT_TYPES[0]), 1 => select(CONTENT_TYPES)];
    let name = paths_of(80).prop_map(String::into_bytes);
    let quotes: &[(&[u8], &[u8])] = &[(b"=\"", b"\""), (b"*=UTF-8''", b"")];
    let named = (of(FORM, 3), select(quotes), name, of(FORM, 8)).prop_map(
        |(before, (quote, unquote), name, after)| {
            let head = b"--XX\r\nContent-Disposition: form-data; name=\"file\"; filename";
            let end = b"\r\n\r\ncontent";
            [&before, &head[..], quote, &name, unquote, end, &after].concat()
        },
    );
    let body = cut_off(prop_oneof![named, of(FORM, 16)]);
    (content_type.prop_map(str::to_owned), body).boxed()
}

/// Some longer than the kernel takes.
pub(crate) fn paths() -> BoxedStrategy<String> {
    paths_of(1_000).boxed()
}

fn paths_of(repeated: usize) -> impl Strategy<Value = String> {
    let word = prop_oneof![
        60 => select(PATH).prop_map(str::to_owned),
        1 => any::<char>().prop_map(|character| character.to_string()),
        1 => Just("long/".repeat(repeated)),
        1 => Just("x".repeat(300)),
    ];
    vec(word, 0..12).prop_map(|words| words.concat())
}

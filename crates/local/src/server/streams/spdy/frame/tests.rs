#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use bytes::BytesMut;

use super::{Decoder, Encoder, Event, FrameError, LARGEST_CONTROL, PIECE, Reset, control};
use crate::server::streams::spdy::headers::Packer;

/// All that can be made of some bytes, however they come in.
fn decode(bytes: &[u8], at_a_time: usize) -> Result<Vec<Event>, FrameError> {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::new();
    let mut events = Vec::new();
    for part in bytes.chunks(at_a_time) {
        buffer.extend_from_slice(part);
        while let Some(event) = decoder.decode(&mut buffer)? {
            events.push(event);
        }
    }
    Ok(events)
}

pub(in crate::server::streams::spdy) fn syn_stream(
    packer: &mut Packer,
    id: u32,
    headers: &[(&str, &str)],
) -> Vec<u8> {
    let mut block = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
    for text in headers.iter().flat_map(|(name, value)| [name, value]) {
        block.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
        block.extend_from_slice(text.as_bytes());
    }
    let block = packer.pack(&block);
    control(1, &[&id.to_be_bytes(), &[0; 6], &block])
}

#[test]
fn frames_are_read_in_pieces_of_any_size() {
    let mut packer = Packer::new();
    let bytes = [
        syn_stream(&mut packer, 1, &[("streamtype", "stdin")]),
        syn_stream(&mut packer, 3, &[("streamtype", "stdout")]),
        Encoder::data(1, 5, false).to_vec(),
        b"hello".to_vec(),
        Encoder::data(1, 0, true).to_vec(),
        Encoder::ping(7),
        Encoder::reset(3, Reset::Cancel),
        Encoder::go_away(3),
    ]
    .concat();
    let whole = decode(&bytes, bytes.len()).unwrap();
    let kinds: Vec<String> = whole
        .iter()
        .map(|event| match event {
            Event::Opened {
                stream, headers, ..
            } => {
                format!("{stream} {}", headers.get("streamType").unwrap())
            }
            Event::Data {
                stream,
                bytes,
                is_last,
            } => format!("{stream} {bytes:?} {is_last}"),
            other => format!("{other:?}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "1 stdin",
            "3 stdout",
            "1 b\"hello\" false",
            "1 b\"\" true",
            "Ping(7)",
            "Reset { stream: 3 }",
            "GoAway",
        ]
    );
    let data = |events: &[Event]| -> Vec<u8> {
        let data = events.iter().filter_map(|event| match event {
            Event::Data { bytes, .. } => Some(bytes.to_vec()),
            _ => None,
        });
        data.flatten().collect()
    };
    for size in [1, 2, 3, 7, 11] {
        let events = decode(&bytes, size).unwrap();
        assert_eq!(data(&events), b"hello");
        assert_eq!(events.last(), Some(&Event::GoAway));
    }
}

#[test]
fn a_large_frame_of_data_is_passed_on_in_pieces() {
    let length = 1_000_000;
    let mut bytes = Encoder::data(1, length, true).to_vec();
    bytes.resize(bytes.len() + length, b'x');
    let events = decode(&bytes, bytes.len()).unwrap();
    let pieces: Vec<(usize, bool)> = events
        .iter()
        .map(|event| match event {
            Event::Data { bytes, is_last, .. } => (bytes.len(), *is_last),
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(pieces.iter().all(|(size, _)| *size <= PIECE));
    assert_eq!(pieces.iter().map(|(size, _)| size).sum::<usize>(), length);
    assert_eq!(pieces.iter().filter(|(_, is_last)| *is_last).count(), 1);
    assert!(pieces.last().unwrap().1);
}

#[test]
fn what_nobody_sends_ends_the_connection() {
    let too_long = u32::try_from(LARGEST_CONTROL + 1).unwrap();
    let mut oversized = control(1, &[]);
    oversized[4..8].copy_from_slice(&too_long.to_be_bytes());
    let mut old = Encoder::ping(1);
    old[1] = 2;
    for (bytes, expected) in [
        (old, FrameError::Version(2)),
        (control(5, &[]), FrameError::Type(5)),
        (
            oversized,
            FrameError::Length {
                kind: 1,
                length: LARGEST_CONTROL + 1,
            },
        ),
        (
            control(6, &[&[1]]),
            FrameError::Length { kind: 6, length: 1 },
        ),
        (control(7, &[]), FrameError::Length { kind: 7, length: 0 }),
        (
            control(1, &[&[0; 9]]),
            FrameError::Length { kind: 1, length: 9 },
        ),
        (control(3, &[&[0; 8]]), FrameError::NoStream),
        (Encoder::data(0, 0, false).to_vec(), FrameError::NoStream),
    ] {
        assert_eq!(decode(&bytes, bytes.len()), Err(expected), "{bytes:?}");
    }
}

#[test]
fn settings_and_windows_are_nothing_to_us() {
    let bytes = [
        control(4, &[&[0, 0, 0, 1], &[0; 8]]),
        control(9, &[&[0, 0, 0, 1], &[0xff; 4]]),
    ]
    .concat();
    let nothing = Event::Other { ended: None };
    assert_eq!(decode(&bytes, 5), Ok(vec![nothing.clone(), nothing]));
}

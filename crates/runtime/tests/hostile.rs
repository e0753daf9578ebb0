//! Frames, forms and paths made of fragments at random: nothing panics. `fuzz/` drives the same for longer, and
//! `tests/protocol` sends such to a daemon.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use proptest::prelude::{ProptestConfig, any, proptest};
use proptest::test_runner::RngSeed;

#[path = "../../../fuzz/drive/forms.rs"]
mod forms;
#[path = "../../../fuzz/drive/frames.rs"]
mod frames;
#[path = "protocol/garbage.rs"]
mod garbage;
#[path = "../../../fuzz/drive/request_paths.rs"]
mod request_paths;
#[path = "../../../fuzz/drive/seeds.rs"]
mod seeds;

fn always_the_same() -> ProptestConfig {
    ProptestConfig {
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::with_cases(20_000)
    }
}

#[test]
fn no_seed_panics() {
    seeds::drive_all("forms", forms::drive);
    seeds::drive_all("frames", frames::drive);
    seeds::drive_all("request_paths", request_paths::drive);
}

proptest! {
    #![proptest_config(always_the_same())]

    #[test]
    fn frames_are_understood_the_same_in_pieces(
        flags in any::<u8>(),
        size in any::<u8>(),
        stream in garbage::streams(),
    ) {
        frames::drive(&[&[flags, size], stream.as_slice()].concat());
    }

    #[test]
    fn forms_are_understood_the_same_in_pieces(size in any::<u8>(), form in garbage::forms()) {
        let (content_type, body) = form;
        forms::drive(&[&[size], content_type.as_bytes(), &[0], &body].concat());
    }

    #[test]
    fn paths_stay_within_their_root(path in garbage::paths()) {
        request_paths::drive(path.as_bytes());
    }
}

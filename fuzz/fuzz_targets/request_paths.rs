#![no_main]

#[path = "../drive/request_paths.rs"]
mod drive;

libfuzzer_sys::fuzz_target!(|input: &[u8]| drive::drive(input));

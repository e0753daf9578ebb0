//! What the fuzzer begins with, among it what it once found.

use std::fs;
use std::path::Path;

/// Drives every seed of a target. A crate stands two levels below the repository.
pub(crate) fn drive_all(target: &str, drive: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds");
    let files = fs::read_dir(seeds.join(target)).expect("a directory of seeds");
    for file in files {
        let path = file.expect("a seed").path();
        drive(&fs::read(&path).expect("a seed that can be read"));
    }
}

//! In a process of its own: what others allocate meanwhile would be counted, too.

use std::{fs, hint::black_box};

/// In bytes.
fn anonymous_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kibibytes
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
        << 10
}

#[test]
fn what_is_freed_is_given_back_though_nothing_is_allocated_afterwards() {
    allocator::give_back_at_once();
    let before = anonymous_memory();
    let pieces: Vec<Box<[u8; 1000]>> = (0..64_000)
        .map(|_| Box::new(black_box([1; 1000])))
        .collect();
    let full = anonymous_memory();
    drop(black_box(pieces));
    let after = anonymous_memory();
    assert!(full - before > 50_000_000, "{before} {full}");
    assert!(after - before < 10_000_000, "{before} {after}");
}

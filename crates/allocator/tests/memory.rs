//! In a process of its own: what others allocate or read meanwhile would be counted, too. The two tests count different kinds.

use std::{fs, hint::black_box};

/// In bytes.
fn memory(kind: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(kind));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kibibytes
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
        << 10
}

#[test]
fn what_is_freed_is_given_back_though_nothing_is_allocated_afterwards() {
    allocator::give_back_at_once();
    let before = memory("RssAnon:");
    let pieces: Vec<Box<[u8; 1000]>> = (0..64_000)
        .map(|_| Box::new(black_box([1; 1000])))
        .collect();
    let full = memory("RssAnon:");
    drop(black_box(pieces));
    let after = memory("RssAnon:");
    assert!(full - before > 50_000_000, "{before} {full}");
    assert!(after - before < 10_000_000, "{before} {after}");
}

const SIZE: usize = 8 << 20;
static CONSTANTS: [u8; SIZE] = [7; SIZE];

fn sum(bytes: &[u8]) -> usize {
    let bytes = black_box(bytes).iter();
    bytes.map(|byte| usize::from(*byte)).sum()
}

#[test]
fn constants_that_are_put_away_take_no_memory_and_are_there_when_they_are_read_again() {
    assert_eq!(sum(&CONSTANTS), 7 * SIZE);
    let full = memory("RssFile:");
    allocator::put_away(&CONSTANTS);
    let after = memory("RssFile:");
    assert!(full - after > SIZE / 2, "{full} {after}");
    assert_eq!(sum(&CONSTANTS), 7 * SIZE);
}

#[test]
fn what_was_made_while_the_program_runs_is_not_put_away() {
    let made: &'static [u8] = vec![7; 1 << 16].leak();
    allocator::put_away(made);
    assert_eq!(sum(made), 7 << 16);
}

#[test]
fn constants_of_less_than_a_page_stay_where_they_are() {
    for few in [&[][..], &CONSTANTS[1..4000]] {
        allocator::put_away(few);
        assert_eq!(sum(few), 7 * few.len());
    }
}

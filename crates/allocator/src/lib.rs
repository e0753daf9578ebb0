//! The allocator of whatever program links this.

use std::{
    ffi::{c_int, c_long},
    ops::Range,
};

use mimalloc::MiMalloc;
use rustix::mm::Advice;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

/// Requests make and drop trees of small pieces; see docs/benchmarks.md for what it saves.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay`; crates have no name for it.
const PURGE_DELAY: c_int = 15;

/// From now on free memory goes back to the machine at once.
///
/// By default it goes back when something is allocated or freed a second later: a program that has been busy and then is idle
/// would keep what it needed at its busiest. To be called before threads are there.
pub fn give_back_at_once() {
    // SAFETY: the option exists in the version that is linked, and any value of it is sound at any time.
    unsafe { mi_option_set(PURGE_DELAY, 0) }
}

/// Takes constants of the program out of memory until somebody reads them again, which costs a look into the program's file.
///
/// Only whole pages: at both ends something else may share one.
pub fn put_away(constants: &'static [u8]) {
    let page = rustix::param::page_size();
    let whole = constants.as_ptr().align_offset(page);
    let length = constants.len().saturating_sub(whole) / page * page;
    if length == 0 {
        return;
    }
    let first = constants[whole..].as_ptr();
    if is_of_a_file(first.addr()..first.addr() + length) {
        let first = first.cast_mut().cast();
        // SAFETY: these pages are within a slice that lives for ever. They show a file and cannot have been written, so that what
        // is read there next is the same again.
        let _ = unsafe { rustix::mm::madvise(first, length, Advice::LinuxDontNeed) };
    }
}

/// Whether all of this is what a file says, and nobody can write it.
fn is_of_a_file(range: Range<usize>) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    maps.lines().any(|line| {
        let parts: Vec<&str> = line.split_ascii_whitespace().collect();
        let [addresses, "r--p", _, _, inode, ..] = parts[..] else {
            return false;
        };
        let ends = addresses.split_once('-').map(|(first, last)| {
            [first, last].map(|text| usize::from_str_radix(text, 16).unwrap_or_default())
        });
        inode != "0" && ends.is_some_and(|[first, last]| first <= range.start && range.end <= last)
    })
}

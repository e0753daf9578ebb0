//! The allocator of whatever program links this.

use std::ffi::{c_int, c_long};

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
/// Only whole pages: at both ends something else may share one. The kernel may decline, such as when the file is somebody
/// else's, and then they stay.
pub fn put_away(constants: &'static [u8]) {
    let page = rustix::param::page_size();
    let whole = constants.as_ptr().align_offset(page);
    let length = constants.len().saturating_sub(whole) / page * page;
    if length == 0 {
        return;
    }
    let first = constants[whole..].as_ptr().cast_mut().cast();
    // SAFETY: these pages are within a slice that lives for ever, and this advice changes nothing that can be read there.
    let _ = unsafe { rustix::mm::madvise(first, length, Advice::LinuxPageOut) };
}

//! The allocator of whatever program links this.

use std::ffi::{c_int, c_long};

use mimalloc::MiMalloc;

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

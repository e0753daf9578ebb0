//! The daemon of sandboxes as a static program that needs nothing of the image it is put into.

use local::image::Daemon;

pub(crate) const DAEMON: Daemon = Daemon(include_bytes!(env!("SANDBAR_RUNTIME")));

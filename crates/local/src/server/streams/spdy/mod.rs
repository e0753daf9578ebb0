//! SPDY/3.1 as far as Kubernetes speaks it: streams that the client opens, in a connection that was upgraded.
//!
//! There is no flow control: clients neither give windows nor keep to them. Whoever does not read holds up the connection,
//! so what waits for a stream is bounded, and then the socket is no longer read.

mod connection;
mod frame;
mod headers;

pub(super) use connection::{Connection, Stream, open};
pub use frame::{Decoder, Event, FrameError};
pub use headers::Headers;

//! The objects Sandbar serves, as plain data: both API families, the CRDs generated from them, and
//! the conversions between their versions. Nothing here performs I/O.

pub mod core;
pub mod crds;
pub mod decode;
pub mod depth;
pub mod kruise;
pub mod open;
pub mod patch;
pub mod protobuf;
pub mod schema;
mod shared;
pub mod sigs;
pub mod structural;

//! What the figures should be, by how the controller is configured.

use crate::report::Target;

pub(crate) struct Targets {
    pub(crate) writes: Target,
    pub(crate) reconciles: Target,
    /// Milliseconds, as all that follow.
    pub(crate) api_server: Target,
    /// p50, p99
    pub(crate) one_at_a_time: [Target; 2],
    /// claims/s, p99
    pub(crate) parallel: [Target; 2],
    /// p99
    pub(crate) poisson: Target,
}

impl Targets {
    pub(crate) fn default_flags() -> Self {
        Self {
            writes: Target::AtMost(9.0),
            reconciles: Target::AtMost(6.0),
            api_server: Target::AtMost(55.0),
            one_at_a_time: [Target::AtMost(20.0), Target::AtMost(45.0)],
            parallel: [Target::AtLeast(32.0), Target::AtMost(800.0)],
            poisson: Target::AtMost(300.0),
        }
    }

    /// Without events and stamps.
    pub(crate) fn lean() -> Self {
        Self {
            writes: Target::AtMost(6.0),
            reconciles: Target::AtMost(5.0),
            api_server: Target::AtMost(38.0),
            one_at_a_time: [Target::AtMost(18.0), Target::AtMost(40.0)],
            parallel: [Target::AtLeast(45.0), Target::AtMost(600.0)],
            poisson: Target::AtMost(200.0),
        }
    }
}

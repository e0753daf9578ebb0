//! Whether a container's image is pulled, in the words of the kubelet.

/// `imagePullPolicy` of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// Whether the node has an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    Absent,
    Present,
    /// It is part of the node: no registry has it.
    BuiltIn,
}

/// What to do about an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Use,
    Pull,
    /// The reason of the waiting container, and its message.
    Fail {
        reason: &'static str,
        message: String,
    },
}

impl PullPolicy {
    /// The policy of that name. The API has filled in what was absent, by the tag of the image.
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "Always" => Some(Self::Always),
            "IfNotPresent" => Some(Self::IfNotPresent),
            "Never" => Some(Self::Never),
            _ => None,
        }
    }

    /// Decides about the image that a container names.
    pub fn decide(self, image: &str, presence: Presence) -> Decision {
        match (self, presence) {
            (_, Presence::BuiltIn) | (Self::IfNotPresent | Self::Never, Presence::Present) => {
                Decision::Use
            }
            (Self::Always, Presence::Absent | Presence::Present)
            | (Self::IfNotPresent, Presence::Absent) => Decision::Pull,
            (Self::Never, Presence::Absent) => Decision::Fail {
                reason: "ErrImageNeverPull",
                message: format!(
                    "Container image {image:?} is not present with pull policy of Never"
                ),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Decision, Presence, PullPolicy};

    #[test]
    fn images_are_pulled_as_a_kubelet_pulls_them() {
        let never = Decision::Fail {
            reason: "ErrImageNeverPull",
            message: "Container image \"a:1\" is not present with pull policy of Never".to_owned(),
        };
        for (policy, presence, decision) in [
            ("Always", Presence::Absent, Decision::Pull),
            ("Always", Presence::Present, Decision::Pull),
            ("IfNotPresent", Presence::Absent, Decision::Pull),
            ("IfNotPresent", Presence::Present, Decision::Use),
            ("Never", Presence::Absent, never),
            ("Never", Presence::Present, Decision::Use),
            ("Always", Presence::BuiltIn, Decision::Use),
            ("IfNotPresent", Presence::BuiltIn, Decision::Use),
            ("Never", Presence::BuiltIn, Decision::Use),
        ] {
            let policy = PullPolicy::parse(policy).unwrap();
            assert_eq!(
                policy.decide("a:1", presence),
                decision,
                "{policy:?} {presence:?}"
            );
        }
        assert_eq!(PullPolicy::parse("always"), None);
    }
}

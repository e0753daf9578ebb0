//! Why something of a pod cannot be, as a container's waiting state says it.

/// In the words of a kubelet, such as `CreateContainerConfigError` and `secret "a" not found`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trouble {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Trouble {
    pub(crate) fn new(reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }

    /// What the container needs is not there, or says nothing that makes sense.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self::new("CreateContainerConfigError", message)
    }

    /// The machine would not do it.
    pub(crate) fn create(message: impl Into<String>) -> Self {
        Self::new("CreateContainerError", message)
    }
}

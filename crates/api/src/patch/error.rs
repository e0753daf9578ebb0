//! What a failed patch is answered with.

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::patch::apply::Conflicts;

/// A patch that was not applied. Each variant is one HTTP code.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum PatchError {
    #[error("{0}")]
    BadRequest(String),
    #[error(transparent)]
    Conflict(Conflicts),
    #[error("{0}")]
    TooLarge(String),
    /// The patch is well formed but does not fit the object. The server keeps the reason to itself.
    #[error("the server rejected our request due to an error in our request")]
    Unprocessable(String),
    /// What kube-apiserver answers with code 500 although the client is at fault.
    #[error("{0}")]
    Internal(String),
}

impl PatchError {
    pub fn code(&self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::Conflict(_) => 409,
            Self::TooLarge(_) => 413,
            Self::Unprocessable(_) => 422,
            Self::Internal(_) => 500,
        }
    }

    /// The `Status` object of the answer.
    pub fn status(&self) -> Value {
        let mut status = json!({
            "apiVersion": "v1",
            "kind": "Status",
            "metadata": {},
            "status": "Failure",
            "message": self.to_string(),
            "code": self.code(),
        });
        let (reason, details) = match self {
            Self::BadRequest(_) => ("BadRequest", None),
            Self::Conflict(conflicts) => {
                ("Conflict", Some(json!({ "causes": conflicts.causes() })))
            }
            Self::TooLarge(_) => ("RequestEntityTooLarge", None),
            Self::Unprocessable(_) => ("Invalid", Some(Value::Object(Map::new()))),
            // the server has no reason for an error it did not expect
            Self::Internal(_) => return status,
        };
        status["reason"] = reason.into();
        if let Some(details) = details {
            status["details"] = details;
        }
        status
    }
}

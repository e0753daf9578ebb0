//! What a server says of a request that it refuses, in words for people.

use anyhow::Error;

/// What is between a server and a container may refuse without a reason.
pub(crate) fn said(reason: &str, message: &str) -> String {
    match reason {
        "" | "Failed to parse error data" => message.trim_end().to_owned(),
        _ => format!("error from server ({reason}): {message}"),
    }
}

/// An error with all that led to it. By itself, the error of a refusal would print the answer's fields, and its message twice.
pub(crate) fn in_words(error: &Error) -> String {
    let mut words = Vec::new();
    for cause in error.chain() {
        if let Some(kube::Error::Api(status)) = cause.downcast_ref() {
            words.push(said(&status.reason, &status.message));
            break;
        }
        words.push(cause.to_string());
    }
    words.join(": ")
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_refusal_is_told_with_its_reason_if_it_has_one() {
        assert_eq!(
            said("NotFound", "pods \"x\" not found"),
            "error from server (NotFound): pods \"x\" not found"
        );
        assert_eq!(said("", "no\n"), "no");
    }

    #[test]
    fn a_refusal_is_told_once_after_what_was_tried() {
        let status = Status::failure("somebody wrote", "Conflict").with_code(409);
        let error = Error::from(kube::Error::Api(status.boxed())).context("cannot go back");
        assert_eq!(
            in_words(&error),
            "cannot go back: error from server (Conflict): somebody wrote"
        );
        let error = Error::msg("no file").context("cannot read");
        assert_eq!(in_words(&error), "cannot read: no file");
    }
}

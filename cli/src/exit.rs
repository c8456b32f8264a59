//! How the program ends: every failure has one exit code, given by one match.

use std::{error::Error, process::ExitCode};

use muster_proto::transport::describe;

use crate::output::text::visible;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// What was typed makes no sense here.
    #[error("{0}")]
    Usage(String),
    /// No master answers, or it is elsewhere.
    #[error("{0}")]
    Unreachable(String),
    /// The master said no, or something on this host went wrong.
    #[error("{0}")]
    Refused(String),
    /// The operator said no.
    #[error("not confirmed; nothing was done")]
    NotConfirmed,
    /// What failed has been told already: a job's error, findings of verify.
    #[error("failed")]
    Told,
    /// Who reads the output went away, as `head` does: no failure.
    #[error("the output is closed")]
    OutputClosed,
}

impl Failure {
    /// The exit code; these numbers are a contract.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::OutputClosed => 0,
            Failure::Refused(_) | Failure::NotConfirmed | Failure::Told => 1,
            Failure::Usage(_) => 2,
            Failure::Unreachable(_) => 3,
        }
    }

    /// The text for stderr, if anything is left to be told.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Failure::Told | Failure::OutputClosed => None,
            Failure::Usage(_) | Failure::Unreachable(_) | Failure::Refused(_) | Failure::NotConfirmed => {
                Some(format!("error: {self}"))
            }
        }
    }
}

impl From<Failure> for ExitCode {
    fn from(failure: Failure) -> Self {
        ExitCode::from(failure.code())
    }
}

/// Makes a failure of its text.
type Kind = fn(String) -> Failure;

/// Start of the master's answer when it holds the office no more (or not yet); it goes on to name the master.
const NOT_THE_MASTER: &str = "not the master:";

impl From<tonic::Status> for Failure {
    fn from(status: tonic::Status) -> Self {
        use tonic::Code;
        // A cause is there when the connection failed; what a master answered has none.
        if status.source().is_some() {
            return Failure::Unreachable(format!(
                "the master can't be reached: {}",
                visible(&describe(&status))
            ));
        }
        let message = visible(status.message());
        let code = status.code();
        if message.starts_with(NOT_THE_MASTER) {
            return Failure::Unreachable(message);
        }
        let kinds: [(Code, Kind, &str); 6] = [
            (Code::Unavailable, Failure::Unreachable, "the master is not available: "),
            (Code::DeadlineExceeded, Failure::Unreachable, "the master did not answer in time: "),
            (Code::InvalidArgument, Failure::Usage, ""),
            (Code::PermissionDenied, Failure::Refused, "not allowed: "),
            (Code::Unauthenticated, Failure::Refused, "the master does not know you: "),
            (Code::Unimplemented, Failure::Refused, "the master's version can't do this: "),
        ];
        match kinds.into_iter().find(|(known, _, _)| *known == code) {
            Some((_, failure, prefix)) => failure(format!("{prefix}{message}")),
            None if message.is_empty() => Failure::Refused(format!("the master refused: {code}")),
            None => Failure::Refused(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use tonic::Status;

    use super::*;

    #[test]
    fn every_answer_has_its_exit_code() {
        for (status, code) in [
            (Status::unavailable("connection refused"), 3),
            (Status::deadline_exceeded("60 s"), 3),
            (Status::failed_precondition("not the master: node2 is"), 3),
            (Status::failed_precondition("jobs run"), 1),
            (Status::invalid_argument("name"), 2),
            (Status::not_found("node nodee1; did you mean node1?"), 1),
            (Status::permission_denied("reader"), 1),
            (Status::unauthenticated("revoked"), 1),
            (Status::resource_exhausted("queue"), 1),
            (Status::internal(""), 1),
        ] {
            let failure = Failure::from(status.clone());
            assert_eq!(failure.code(), code, "{status:?}");
            assert!(failure.text().unwrap().len() > "error: ".len(), "{status:?}");
        }
        assert_eq!((Failure::OutputClosed.code(), Failure::OutputClosed.text()), (0, None));
        assert_eq!((Failure::Told.code(), Failure::Told.text()), (1, None));
    }

    #[test]
    fn control_bytes_in_an_answer_are_made_visible() {
        let failure = Failure::from(Status::not_found("a\u{1b}[2Jb"));
        assert_eq!(failure.to_string(), "a\\u{1b}[2Jb");
    }
}

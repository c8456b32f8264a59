//! Puts failed calls into words, and tells those that were answered from those that were not.
use std::error::Error;

use tonic::Status;

use super::connect::{DialError, PING_LIMIT};

/// The failure to connect behind an error or status, if that is what it is.
pub fn dial_error(error: &(dyn Error + 'static)) -> Option<DialError> {
    chain(error).find_map(|error| error.downcast_ref::<DialError>().cloned())
}

/// Whether the status was made on this side, because no connection could be made, or it was lost before the server
/// answered. The server may or may not have acted on the call.
pub fn unanswered(status: &Status) -> bool {
    // What the server sent has no cause on this side.
    status.source().is_some()
}

/// An error or status in words for an operator: why no connection could be made or how it was lost, or what the
/// server answered, or the causes, outermost first.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    if let Some(dial) = dial_error(error) {
        return dial.to_string();
    }
    let mut parts: Vec<String> = Vec::new();
    for error in chain(error) {
        let text = match error.downcast_ref::<Status>() {
            // A status made of a local error repeats that error's text.
            Some(status) if unanswered(status) => continue,
            Some(status) => {
                let message = status.message();
                let text = if message.is_empty() { status.code().description() } else { message };
                parts.push(text.to_owned());
                break;
            }
            None => error.to_string(),
        };
        if let Some(lost) = lost_reason(&text) {
            return format!("the connection was lost: {lost}");
        }
        let said = parts.last().is_some_and(|last| last.contains(&text));
        if !said && text != "transport error" {
            parts.push(text);
        }
    }
    if parts.is_empty() {
        parts.push(error.to_string());
    }
    parts.join(": ")
}

/// The HTTP/2 library gives the causes of a lost connection as text only.
fn lost_reason(text: &str) -> Option<String> {
    if text.contains("close_notify") || text.contains("connection closed") {
        return Some("closed by the other side".to_owned());
    }
    if text.contains("onnection reset") {
        return Some("reset by the other side".to_owned());
    }
    if text.contains("keep-alive timed out") || text.contains("roken pipe") {
        return Some(format!("no answer to a ping within {} s, or closed", PING_LIMIT.as_secs()));
    }
    None
}

fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (**error).source())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_shown_as_the_server_worded_them() {
        let status = Status::not_found("there is no job 7, the connection closed it");
        assert_eq!(describe(&status), "there is no job 7, the connection closed it");
        assert!(!unanswered(&status));
        assert_eq!(describe(&Status::unimplemented("")), "Operation is not implemented or not supported");
    }

    #[test]
    fn causes_follow_what_they_caused() {
        #[derive(Debug, thiserror::Error)]
        #[error("could not ask the node")]
        struct Outer(#[source] Status);
        assert_eq!(describe(&Outer(Status::aborted("it is busy"))), "could not ask the node: it is busy");
        let status = Status::from_error(Box::new(std::io::Error::other("Connection reset by peer")));
        assert!(unanswered(&status));
        assert_eq!(describe(&Outer(status)), "the connection was lost: reset by the other side");
    }
}

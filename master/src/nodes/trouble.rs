//! Tells a node that was not reached from one that answered "no", and puts both into words.

use std::{error::Error, sync::atomic::Ordering, time::Duration};

use muster_proto::transport::{EPOCH_SEEN, describe, dial_error, unanswered};
use tonic::{Code, Status};

use super::{limits::words, shared::Shared};

/// Texts by which the gRPC library says, as if the server had answered, that an answer broke off.
const BROKEN_OFF: [&str; 2] = ["missing grpc-status trailer", "Unexpected EOF decoding stream"];
/// How a node begins the message with which it refuses an epoch.
const EPOCH_PREFIX: &str = "epoch:";

/// Why a call brought no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// No connection, or it was lost, or no answer in time (HOOKS.md R3).
    #[error("{0}")]
    NotReached(String),
    /// The daemon answered with an error.
    #[error("{message}")]
    Refused {
        /// The kind of error.
        code: Code,
        /// The daemon's words.
        message: String,
    },
    /// The daemon refused this master's epoch: another master is in office.
    #[error("this master is no longer in office: {0}")]
    OfficeLost(String),
}

impl Shared {
    /// The error behind a status; an office lost to another master is reported at once, whatever the call was.
    pub(super) fn error(&self, status: &Status) -> CallError {
        self.error_after(Duration::ZERO, status)
    }

    /// The same for a call on whose connection nothing was heard for so long.
    pub(super) fn error_after(&self, quiet: Duration, status: &Status) -> CallError {
        if not_reached(status) {
            return CallError::NotReached(self.lost_words(quiet, status));
        }
        let message = describe(status);
        if status.code() == Code::FailedPrecondition && message.starts_with(EPOCH_PREFIX) {
            let seen = status.metadata().get(EPOCH_SEEN).and_then(|seen| seen.to_str().ok()?.parse().ok());
            if seen.is_some_and(|seen: u64| seen <= self.office.load().epoch) {
                // A starting master may have passed on to a higher epoch while a call of the lower one was under way.
                return CallError::Refused { code: status.code(), message };
            }
            self.epoch_above.fetch_max(seen.unwrap_or(0), Ordering::SeqCst);
            (self.settings.office_lost)(message.clone());
            return CallError::OfficeLost(message);
        }
        CallError::Refused { code: status.code(), message }
    }

    fn lost_words(&self, quiet: Duration, status: &Status) -> String {
        if status.code() == Code::Unauthenticated && !unanswered(status) {
            return format!("the node refused this master's certificate: {}", status.message());
        }
        if dial_error(status).is_none() {
            let outermost: &(dyn Error + 'static) = status;
            let mut causes = std::iter::successors(Some(outermost), |error| (**error).source());
            let limit = self.limits().keepalive.limit;
            // Calls in the middle of their answer only hear that the connection is gone.
            let given_up = |text: String| {
                text.contains("keep-alive timed out") || text.contains("broken pipe") && quiet >= limit
            };
            if causes.any(|error| given_up(error.to_string())) {
                return format!("connection lost: no answer to pings for {}", words(limit));
            }
            if broken_off(status) {
                return "connection lost: the answer broke off".to_owned();
            }
        }
        describe(status)
    }
}

/// Whether the daemon gave no answer of its own.
///
/// A certificate that the daemon's gate refuses is the same trouble as one refused in the handshake (R3).
fn not_reached(status: &Status) -> bool {
    let as_lost = matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unauthenticated);
    as_lost || unanswered(status) || broken_off(status)
}

fn broken_off(status: &Status) -> bool {
    matches!(status.code(), Code::Unknown | Code::Internal)
        && BROKEN_OFF.iter().any(|text| status.message().contains(text))
}

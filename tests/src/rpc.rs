//! Calls to a daemon's unix socket, for programs and tests that are not async themselves.

use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// Why a call brought no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The socket could not be connected to.
    #[error("could not connect to {path}: {why}")]
    Connect {
        /// The socket.
        path: String,
        /// The cause in words.
        why: String,
    },
    /// The call was answered with an error.
    #[error("the call failed: {0}")]
    Status(#[from] Box<tonic::Status>),
    /// No answer within the limit.
    #[error("no answer within {0:?}")]
    Silent(Duration),
}

/// One call, connection included, must be over within this.
const CALL_LIMIT: Duration = Duration::from_secs(30);

/// Connects to the socket, makes one call and gives its answer, within [`CALL_LIMIT`].
///
/// # Errors
/// When the socket can't be connected to, the call fails or the limit passes.
pub fn call<T, F>(socket: &Path, limit: Duration, make: impl FnOnce(Channel) -> F) -> Result<T, RpcError>
where
    F: Future<Output = Result<T, tonic::Status>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a current-thread runtime needs no resource that is short");
    runtime.block_on(async {
        let whole = async {
            let channel = muster_proto::transport::connect_unix(socket).await.map_err(|error| {
                RpcError::Connect { path: socket.display().to_string(), why: error.to_string() }
            })?;
            make(channel).await.map_err(|status| RpcError::Status(Box::new(status)))
        };
        tokio::time::timeout(limit, whole).await.unwrap_or(Err(RpcError::Silent(limit)))
    })
}

/// [`call`] with the usual limit.
///
/// # Errors
/// As [`call`].
pub fn ask<T, F>(socket: &Path, make: impl FnOnce(Channel) -> F) -> Result<T, RpcError>
where
    F: Future<Output = Result<T, tonic::Status>>,
{
    call(socket, CALL_LIMIT, make)
}

/// Whether the daemon behind the socket says that it serves.
#[must_use]
pub fn serves(socket: &Path, limit: Duration) -> bool {
    let answer = call(socket, limit, |channel| async move {
        HealthClient::new(channel).check(HealthCheckRequest { service: String::new() }).await
    });
    answer.is_ok_and(|response| response.into_inner().status() == ServingStatus::Serving)
}

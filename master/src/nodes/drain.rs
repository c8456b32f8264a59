//! Reads an answer's stream to its end once its last event is there.
//!
//! A stream that is dropped before its end is reset. The library bears about a thousand resets that cross with what the
//! other side sends, and then gives up the whole connection, with every call that is going on it.

use std::time::Duration;

use tonic::Streaming;

/// How long the end of a stream may take after its last event: it follows at once.
const END_LIMIT: Duration = Duration::from_secs(5);

/// Reads the rest in the background: whoever has the last event does not wait for it.
pub(super) fn read_to_end<T: Send + 'static>(mut events: Streaming<T>) {
    tokio::spawn(async move {
        let rest = async { while let Ok(Some(_)) = events.message().await {} };
        // One that goes on is reset after all.
        let _goes_on = tokio::time::timeout(END_LIMIT, rest).await;
    });
}

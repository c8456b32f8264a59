//! How long the master waits for nodes.

use std::time::Duration;

use muster_proto::transport::{CONNECT_LIMIT, Keepalive, PROBE_LIMIT};

/// All limits of waiting for a node, in one place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Making a connection: TCP, TLS and HTTP/2 settings together; never more than the transport's own limit.
    pub connect: Duration,
    /// The greeting on a new connection. A node that has runs to end gives them 2 s first.
    pub hello: Duration,
    /// A ping before a call on an idle connection; also a whole probe, its connection included.
    pub probe: Duration,
    /// A connection that had an answer within this is not idle: a ping would tell nothing new.
    pub fresh: Duration,
    /// How an open call's connection is watched.
    pub keepalive: Keepalive,
    /// From the loss of a connection until no more reconnect is begun. A daemon that restarts refuses for a moment.
    pub reconnect: Duration,
    /// Facts before a hook call.
    pub facts: Duration,
    /// Every call that does not stream. The longest ends a job's runs: 2 s of grace, 5 s after the kill, and the journal,
    /// 12 s in all.
    pub unary: Duration,
    /// The end of a job's runs, with all connecting and one repeat: who waits for it has an answer within this.
    pub end_job: Duration,
    /// The shortest and longest pause of the watch between attempts to reach a node.
    pub watch_pause: (Duration, Duration),
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connect: CONNECT_LIMIT,
            hello: Duration::from_secs(5),
            probe: PROBE_LIMIT,
            fresh: Duration::from_secs(1),
            keepalive: Keepalive::default(),
            reconnect: Duration::from_secs(3),
            facts: Duration::from_secs(3),
            unary: Duration::from_secs(15),
            end_job: Duration::from_secs(20),
            watch_pause: (Duration::from_secs(1), Duration::from_secs(10)),
        }
    }
}

/// A duration in words: `3 s`, `250 ms`.
pub(super) fn words(duration: Duration) -> String {
    match duration.subsec_millis() {
        0 => format!("{} s", duration.as_secs()),
        _ => format!("{} ms", duration.as_millis()),
    }
}

//! Starting one daemon and waiting until it serves.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use super::error::DevclusterError;
use super::layout::{Daemon, Layout};
use super::process::{LOOK_EVERY, SIGNAL_LIMIT, dying, ended, log_tail, running, spawn, wait_until};
use crate::rpc;

/// A daemon serves within this; a master first hears its nodes, and a busy machine may be ten times slower than a free one.
const SERVE_LIMIT: Duration = Duration::from_secs(60);
/// One look at a daemon's health.
const LOOK_LIMIT: Duration = Duration::from_secs(3);

/// A daemon that was started and has not been seen to serve.
pub(super) struct Started {
    daemon: Daemon,
    child: Child,
}

/// Starts a daemon.
pub(super) fn start(layout: &Layout, daemon: Daemon, extra: &[String]) -> Result<Started, DevclusterError> {
    if running(layout, daemon).is_some() {
        return Err(DevclusterError::Running(daemon));
    }
    if let Some(pid) = dying(layout, daemon)
        && !wait_until(SIGNAL_LIMIT, || ended(pid))
    {
        let what = format!("threads of the {daemon} before are left");
        return Err(DevclusterError::StillThere { what, limit: SIGNAL_LIMIT });
    }
    // A socket left by a killed daemon would only tell that nobody listens, but a fresh start looks the same every time.
    let socket = layout.socket(daemon);
    if socket.exists() {
        fs::remove_file(&socket).map_err(DevclusterError::file("remove", socket))?;
    }
    let child = spawn(layout, daemon, &arguments(layout, daemon, extra))?;
    Ok(Started { daemon, child })
}

/// A second master waits in standby until it has a store of its own.
fn arguments(layout: &Layout, daemon: Daemon, extra: &[String]) -> Vec<String> {
    let waits = match daemon {
        Daemon::Master(number) => number > 1 && !layout.node(number).join("state/master/cluster.db").exists(),
        Daemon::Node(_) => false,
    };
    let standby = waits.then(|| "--standby".to_owned());
    standby.into_iter().chain(extra.iter().cloned()).collect()
}

/// Waits until a started daemon serves.
pub(super) fn wait(layout: &Layout, mut started: Started) -> Result<(), DevclusterError> {
    let daemon = started.daemon;
    let deadline = Instant::now() + SERVE_LIMIT;
    let socket = layout.socket(daemon);
    loop {
        if socket.exists() && rpc::serves(&socket, LOOK_LIMIT) {
            return Ok(());
        }
        if let Ok(Some(status)) = started.child.try_wait() {
            let (log, tail) = (layout.log(daemon), log_tail(layout, daemon));
            return Err(DevclusterError::Ended { daemon, status: status.to_string(), log, tail });
        }
        if Instant::now() >= deadline {
            let (log, tail) = (layout.log(daemon), log_tail(layout, daemon));
            return Err(DevclusterError::NotServing { daemon, limit: SERVE_LIMIT, log, tail });
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

//! The verbs that act on one daemon of a cluster that is there, and `status`.

use rustix::process::Signal;

use super::error::DevclusterError;
use super::layout::{Daemon, Layout};
use super::process::{SIGNAL_LIMIT, ended, running, signal, stopped, wait_until};
use super::start;

fn known(layout: &Layout, daemon: Daemon) -> Result<(), DevclusterError> {
    let found = layout.record()?.daemons().contains(&daemon);
    if found { Ok(()) } else { Err(DevclusterError::NoDaemon(daemon)) }
}

/// Kills a daemon (SIGKILL) and waits until it is gone.
pub(super) fn kill(layout: &Layout, daemon: Daemon) -> Result<(), DevclusterError> {
    known(layout, daemon)?;
    let pid = signal(layout, daemon, Signal::KILL)?;
    settle(daemon, "still runs", || ended(pid))
}

/// Stops a daemon (SIGSTOP): it keeps its connections and answers nothing.
pub(super) fn pause(layout: &Layout, daemon: Daemon) -> Result<(), DevclusterError> {
    known(layout, daemon)?;
    let pid = signal(layout, daemon, Signal::STOP)?;
    settle(daemon, "is not stopped", || stopped(pid) || ended(pid))
}

/// Lets a paused daemon go on.
pub(super) fn resume(layout: &Layout, daemon: Daemon) -> Result<(), DevclusterError> {
    known(layout, daemon)?;
    let pid = signal(layout, daemon, Signal::CONT)?;
    settle(daemon, "is still stopped", || !stopped(pid))
}

/// Starts a daemon that was killed; `extra` is added to its command line.
pub(super) fn start_again(layout: &Layout, daemon: Daemon, extra: &[String]) -> Result<(), DevclusterError> {
    known(layout, daemon)?;
    start::wait(layout, start::start(layout, daemon, extra)?)
}

/// A line for each daemon: name, process, state.
pub(super) fn status(layout: &Layout) -> Result<String, DevclusterError> {
    let record = layout.record()?;
    let lines = record.daemons().into_iter().map(|daemon| match running(layout, daemon) {
        Some(pid) if stopped(pid) => format!("{daemon}\t{}\tpaused\n", pid.as_raw_nonzero()),
        Some(pid) => format!("{daemon}\t{}\trunning\n", pid.as_raw_nonzero()),
        None => format!("{daemon}\t-\tdown\n"),
    });
    Ok(lines.collect())
}

fn settle(daemon: Daemon, what: &str, reached: impl FnMut() -> bool) -> Result<(), DevclusterError> {
    if wait_until(SIGNAL_LIMIT, reached) {
        return Ok(());
    }
    Err(DevclusterError::StillThere { what: format!("{daemon} {what}"), limit: SIGNAL_LIMIT })
}

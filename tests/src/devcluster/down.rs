//! `down`: ends everything that belongs to a cluster, paused daemons, scripts and guests too.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::error::DevclusterError;
use super::layout::{Layout, Record};
use super::process::{SIGNAL_LIMIT, ended, running, wait_until};
use super::{holder, leftovers};

/// Time for daemons to end by themselves before they are killed.
const TERM_LIMIT: Duration = Duration::from_secs(3);

/// Ends the cluster. One that is down already is fine.
pub(super) fn down(layout: &Layout) -> Result<(), DevclusterError> {
    let record = layout.record()?;
    let holder = holder::running(layout);
    end_all(layout, &record, holder)?;
    if let Some(pid) = holder {
        // The holder goes last: until here the addresses were ours.
        let _ = kill_process(pid, Signal::KILL);
        if !wait_until(SIGNAL_LIMIT, || ended(pid)) {
            let what = "the holder of the addresses is left".to_owned();
            return Err(DevclusterError::StillThere { what, limit: SIGNAL_LIMIT });
        }
    }
    Ok(())
}

/// Ends all of the cluster's processes but the caller and `spare`.
pub(super) fn end_all(layout: &Layout, record: &Record, spare: Option<Pid>) -> Result<(), DevclusterError> {
    let mut pids: Vec<Pid> =
        record.daemons().into_iter().filter_map(|daemon| running(layout, daemon)).collect();
    for pid in &pids {
        // Errors mean that it is gone. A stopped process sees TERM only once it goes on.
        let _ = kill_process(*pid, Signal::TERM);
        let _ = kill_process(*pid, Signal::CONT);
    }
    wait_until(TERM_LIMIT, || {
        pids.retain(|pid| !ended(*pid));
        pids.is_empty()
    });
    for pid in &pids {
        let _ = kill_process(*pid, Signal::KILL);
    }
    leftovers::kill_all(layout.dir(), spare)
}

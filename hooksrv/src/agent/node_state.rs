//! The node's state as the master hears of it: at once, at each change, and at least every 10 s.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use muster_proto::v1;
use time::OffsetDateTime;
use tokio::{sync::mpsc, time::sleep};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Agent, Context, Events, host};

/// The state is told at least this often.
const STATE_INTERVAL: Duration = Duration::from_secs(10);
/// Changes within this time are told as one.
const CHANGES_GATHERED: Duration = Duration::from_millis(100);

/// The wall clock, ms since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Gathers the state. Blocks.
fn gather(agent: &Agent) -> v1::NodeState {
    let mut state = v1::NodeState {
        // First of all: what happens from now on may be missing.
        number: agent.next_state(),
        now_ms: now_ms(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        hooks_only: agent.backends().hooks_only(),
        epoch_seen: agent.membership().map_or(0, |member| member.epoch_seen),
        facts_serial: agent.facts().serial(),
        hook_set: agent.hook_set(),
        ..v1::NodeState::default()
    };
    if let Some(tls) = agent.credentials().tls() {
        let now = OffsetDateTime::now_utc();
        state.certificate_days = tls.validity().days_left(now);
        state.data_certificate_due = !state.hooks_only && agent.credentials().data_is_due(now);
        state.certificate_fingerprint = tls.fingerprint().to_string();
    }
    host::report(&mut state);
    state.host = agent.host().told();
    agent.backends().report(&mut state);
    state
}

/// Tells the state until the caller goes away, the daemon stops, or a newer master has called.
pub(super) fn watch(agent: Arc<Agent>, context: Context, refresh_host: bool) -> Events<v1::NodeState> {
    // One on its way: a caller that is slow gets the newest state next, not all those between.
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = agent.stopping().cancelled() => {
                drop(sender.try_send(Err(Status::unavailable("the node daemon is stopping"))));
            }
            () = async {
                if refresh_host {
                    agent.host().refresh().await;
                }
                tell(&agent, &context, &sender).await;
            } => {}
        }
    });
    ReceiverStream::new(receiver)
}

async fn tell(agent: &Arc<Agent>, context: &Context, sender: &mpsc::Sender<Result<v1::NodeState, Status>>) {
    let mut changes = agent.changes();
    loop {
        if !agent.is_current(context) {
            drop(sender.send(Err(Status::failed_precondition("epoch: a newer master has called"))).await);
            return;
        }
        // Marked before gathering: a change in between is told next.
        changes.mark_unchanged();
        let gathering = Arc::clone(agent);
        let state = match tokio::task::spawn_blocking(move || gather(&gathering)).await {
            Ok(state) => Ok(state),
            Err(error) => Err(Status::internal(error.to_string())),
        };
        let failed = state.is_err();
        if sender.send(state).await.is_err() || failed {
            return;
        }
        sleep(CHANGES_GATHERED).await;
        tokio::select! {
            changed = changes.changed() => changed.expect("the agent holds the sender"),
            () = sleep(STATE_INTERVAL) => {}
        }
    }
}

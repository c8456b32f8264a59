//! A pending host waits for what is decided about it.

use std::{sync::Arc, time::Duration};

use futures::{Stream, stream};
use muster_proto::v1::{CollectEvent, Pending, collect_event::Event};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::timeout,
};
use tonic::Status;
use uuid::Uuid;

use super::{pending::PENDING_MAX, state::Enrolment};

/// A waiting host is told this often that nothing is decided, so that both sides know that the other one is there.
pub(super) const PENDING_REPEAT: Duration = Duration::from_secs(10);
/// Hosts that may wait at a time: each that can be pending, and as many that have not noticed that an earlier connection
/// of theirs is gone.
pub(super) const COLLECTS_MAX: usize = 2 * PENDING_MAX;

/// A host that waits.
struct Collect {
    enrolment: Arc<Enrolment>,
    uuid: Uuid,
    changes: watch::Receiver<u64>,
    _permit: OwnedSemaphorePermit,
}

enum Next {
    First(Collect),
    Later(Collect),
    Over,
}

/// The events for the host with this request: one at once, one at each change; after a certificate, or when there is no
/// such request, the stream ends.
pub(super) fn collect(
    enrolment: &Arc<Enrolment>,
    uuid: Uuid,
) -> Result<impl Stream<Item = Result<CollectEvent, Status>> + Send + use<>, Status> {
    let permit = enrolment.collects.clone().try_acquire_owned();
    let permit = permit
        .map_err(|_| Status::resource_exhausted(format!("{COLLECTS_MAX} hosts are waiting already")))?;
    let changes = enrolment.changes.subscribe();
    let collect = Collect { enrolment: enrolment.clone(), uuid, changes, _permit: permit };
    Ok(stream::unfold(Next::First(collect), |next| async move {
        let (collect, event) = match next {
            Next::First(mut collect) => {
                let event = collect.look();
                (collect, event)
            }
            Next::Later(mut collect) => {
                let event = collect.wait().await;
                (collect, event)
            }
            Next::Over => return None,
        };
        let next = match &event {
            Ok(Event::Pending(_)) => Next::Later(collect),
            Ok(Event::Issued(_) | Event::Gone(_)) | Err(_) => Next::Over,
        };
        Some((event.map(|event| CollectEvent { event: Some(event) }), next))
    }))
}

impl Collect {
    /// What is decided at the moment.
    fn look(&mut self) -> Result<Event, Status> {
        // Before the state is read: a change in between then ends the next wait at once.
        self.changes.borrow_and_update();
        // Without the office this master knows nothing of the request: the host asks elsewhere, or again.
        self.enrolment.office()?;
        let now_ms = self.enrolment.now_ms();
        let state = self.enrolment.state();
        let host = state.hosts.values().find(|host| host.enrolment == self.uuid).cloned();
        drop(state);
        Ok(match host {
            Some(host) if host.expired(now_ms) => {
                Event::Gone("the request is too old; join again".to_owned())
            }
            Some(host) => match self.enrolment.issued(&host) {
                Some(issued) => Event::Issued(issued),
                None => Event::Pending(Pending {}),
            },
            None => Event::Gone("there is no such request, or no longer; join again".to_owned()),
        })
    }

    /// Waits until something is decided, or for [`PENDING_REPEAT`].
    async fn wait(&mut self) -> Result<Event, Status> {
        let decided = async {
            loop {
                // The sender lives as long as the enrolment that is held here.
                if self.changes.changed().await.is_err() {
                    return self.look();
                }
                match self.look() {
                    Ok(Event::Pending(_)) => {}
                    event @ (Ok(Event::Issued(_) | Event::Gone(_)) | Err(_)) => return event,
                }
            }
        };
        match timeout(PENDING_REPEAT, decided).await {
            Ok(event) => event,
            Err(_) => self.look(),
        }
    }
}

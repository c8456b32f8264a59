//! `gnt-hooks sync` and `gnt-hooks diff`.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use muster_core::names::NodeName;
use muster_proto::{
    transport::Peer,
    v1::{self, hook_set_service_server::HookSetService, sync_hook_set_event::Event},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::{MissedTickBehavior, interval},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::{caller, waiting::turn};
use crate::{
    hookset::{Changes, SyncFailure, Wish, diff, sync},
    master::Master,
};

/// The caller hears of a sync at least this often.
const GOING_INTERVAL: Duration = Duration::from_secs(5);
/// Events that wait for the caller; a sync waits for one that does not read.
const EVENTS_WAITING_MAX: usize = 64;
/// A caller that reads nothing for so long is not told any more.
const TELL_LIMIT: Duration = Duration::from_secs(30);

/// Callers at once for whom nodes compare their sets; others wait.
static DIFFS: Semaphore = Semaphore::const_new(2);

/// The service of the cluster's own hook set.
pub struct HookSetsGrpc(pub Arc<Master>);

type Told = mpsc::Sender<Result<v1::SyncHookSetEvent, Status>>;

#[tonic::async_trait]
impl HookSetService for HookSetsGrpc {
    type SyncHookSetStream = ReceiverStream<Result<v1::SyncHookSetEvent, Status>>;

    async fn sync_hook_set(
        &self,
        request: Request<v1::SyncHookSetRequest>,
    ) -> Result<Response<Self::SyncHookSetStream>, Status> {
        let master = self.0.clone();
        master.in_office()?;
        let user = caller::user(&Peer::of(&request)?.clone(), |uuid| master.client_name(uuid));
        let request = request.into_inner();
        let nodes = node_names(&request.nodes)?;
        let wish =
            Wish { nodes: (!nodes.is_empty()).then_some(nodes), full: request.full, only_new: false, user };
        let dir = master.config.hooks_source.clone().ok_or_else(|| Status::from(SyncFailure::NoSource))?;
        let (events, receiver) = mpsc::channel(EVENTS_WAITING_MAX);
        tokio::spawn(async move {
            if request.on_change {
                let stop = master.stop.clone();
                tokio::select! {
                    () = events.closed() => {}
                    () = stop.cancelled() => {
                        drop(events.try_send(Err(Status::unavailable("the master is stopping"))));
                    }
                    () = go_on(&master, wish, dir, &events) => {}
                }
            } else {
                // Goes on to its end also when the caller does not wait for that.
                let last = one(&master, &wish, &events).await;
                tell(&events, last.map(Event::Done).map_err(Status::from)).await;
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn diff_hook_sets(
        &self,
        request: Request<v1::DiffHookSetsRequest>,
    ) -> Result<Response<v1::DiffHookSetsResponse>, Status> {
        let cluster = self.0.cluster()?;
        let named = node_names(&request.into_inner().nodes)?;
        if let Some(unknown) = named.iter().find(|name| !cluster.nodes.contains_key(name)) {
            return Err(Status::not_found(format!("there is no node {unknown}")));
        }
        let _turn = turn(&DIFFS).await?;
        Ok(Response::new(diff(&self.0, &cluster, &named).await))
    }
}

fn node_names(names: &[String]) -> Result<BTreeSet<NodeName>, Status> {
    let parsed = names.iter().map(|name| NodeName::parse(name)).collect::<Result<_, _>>();
    parsed.map_err(|error| Status::invalid_argument(error.to_string()))
}

async fn tell(events: &Told, event: Result<Event, Status>) {
    let event = event.map(|event| v1::SyncHookSetEvent { event: Some(event) });
    // A caller that is gone, or does not read, misses it.
    drop(events.send_timeout(event, TELL_LIMIT).await);
}

/// One sync, its events handed on, with signs of life between.
async fn one(master: &Arc<Master>, wish: &Wish, events: &Told) -> Result<v1::HookSetDone, SyncFailure> {
    let (told, mut heard) = mpsc::channel(EVENTS_WAITING_MAX);
    let hand_on = async {
        let mut signs = interval(GOING_INTERVAL);
        signs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = heard.recv() => match event {
                    Some(event) => tell(events, Ok(event)).await,
                    None => return,
                },
                _ = signs.tick() => tell(events, Ok(Event::Going(v1::HookSetGoing {}))).await,
            }
        }
    };
    let syncing = async {
        let told = told;
        sync(master, wish, &told).await
    };
    tokio::join!(syncing, hand_on).0
}

/// A sync now, and one after each change; one that fails is told, and the next change begins another, or time where it may
/// succeed then.
async fn go_on(master: &Arc<Master>, wish: Wish, dir: std::path::PathBuf, events: &Told) {
    loop {
        let mut changes = Changes::of(dir.clone()).await;
        let round = {
            let (master, wish, events) = (master.clone(), wish.clone(), events.clone());
            // What was begun goes on to its end when the caller goes away.
            tokio::spawn(async move { one(&master, &wish, &events).await })
        };
        let ended = round.await.unwrap_or_else(|error| Err(SyncFailure::Stopping(error.to_string())));
        match ended {
            Ok(done) => tell(events, Ok(Event::Done(done))).await,
            Err(error) => {
                changes.failed(&error);
                tell(events, Ok(Event::Failed(crate::chain(&error)))).await;
            }
        }
        let mut signs = interval(GOING_INTERVAL);
        let waiting = changes.wait();
        tokio::pin!(waiting);
        loop {
            tokio::select! {
                () = &mut waiting => break,
                _ = signs.tick() => tell(events, Ok(Event::Going(v1::HookSetGoing {}))).await,
            }
        }
    }
}

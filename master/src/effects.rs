//! What follows from a flush, performed as tasks whose answers come back as commands.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use muster_core::{
    calls::{Call, CallAnswer, MasterCall, MigrationCall, MirrorCall, NodeCall},
    engine::{CallId, END_STEP, ENDING_MAX, Effect, HooksCall, Input, Job},
    hooks::{NodeAnswer, NodeReport},
    names::NodeName,
};
use tokio::{runtime::Handle, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use crate::{
    master::Master,
    master_calls,
    nodes::{OnProgress, RunHooks},
    view::Progress,
};

/// How long the end of a killed call is waited for; a job whose call did not end by then is blocked.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// For how long an undo is tried again on a node that is not reached: a daemon that is restarted is back by then, and
/// what an undo leaves is work for an operator.
const UNDO_PATIENCE: Duration = Duration::from_secs(10);
/// Between two tries of an undo.
const UNDO_PAUSE: Duration = Duration::from_millis(500);

/// For how long the master's own node is tried at a job's end.
const END_PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const END_PAUSE: Duration = Duration::from_secs(2);

/// Performs effects.
pub(crate) struct Effects {
    master: Arc<Master>,
    runtime: Handle,
    /// Calls that the master carries out itself at the moment.
    own_calls: Arc<OwnCalls>,
    /// A permit for each job whose end scripts are told of at the moment.
    ends: Arc<Semaphore>,
}

/// One of these locks is held for the change of a map only.
const POISON: &str = "no holder of this lock panics";

#[derive(Default)]
struct OwnCalls(Mutex<BTreeMap<CallId, OwnCall>>);

/// A call that goes: it is asked to stop by the one token, and has left nothing going once the other is canceled.
#[derive(Clone, Default)]
struct OwnCall {
    stop: CancellationToken,
    ended: CancellationToken,
}

impl OwnCalls {
    fn begin(&self, id: &CallId) -> OwnCall {
        let call = OwnCall::default();
        self.0.lock().expect(POISON).insert(id.clone(), call.clone());
        call
    }

    fn end(&self, id: &CallId) {
        self.0.lock().expect(POISON).remove(id);
    }

    /// Ends a call, and waits for that.
    async fn stop(&self, id: &CallId) {
        let call = self.0.lock().expect(POISON).remove(id);
        if let Some(call) = call {
            call.stop.cancel();
            call.ended.cancelled().await;
        }
    }
}

impl Effects {
    pub(crate) fn new(master: Arc<Master>, runtime: Handle) -> Self {
        Effects { master, runtime, own_calls: Arc::default(), ends: Arc::new(Semaphore::new(ENDING_MAX)) }
    }

    pub(crate) fn perform(&self, effect: Effect) {
        let master = self.master.clone();
        let own_calls = self.own_calls.clone();
        match effect {
            Effect::RunHooks(call) => drop(self.runtime.spawn(run_hooks(master, self.ends.clone(), *call))),
            Effect::Execute { id, call } => drop(self.runtime.spawn(execute(master, own_calls, id, call))),
            Effect::ExecuteAfter { id, call, job, calls } => {
                drop(self.runtime.spawn(execute_after(master, own_calls, id, call, job, calls)));
            }
            Effect::StopCall { id, call } => drop(self.runtime.spawn(stop_call(master, own_calls, id, call))),
            Effect::EndJob { job, nodes, calls } => {
                let calls: Vec<String> = calls.iter().map(|id| wire_id(&master, id)).collect();
                for node in nodes {
                    let (master, calls) = (master.clone(), calls.clone());
                    self.runtime.spawn(async move {
                        if let Err(error) = master.nodes().end_job(&node, job, &calls).await {
                            tracing::warn!(%node, job, %error, "could not end the job's scripts");
                        }
                    });
                }
            }
        }
    }
}

/// A call's id on the wire. The job's uuid stands in it: a number can be given twice when a master takes its office back
/// or goes on from an older store, and a node would then repeat the answer to another job's call.
fn wire_id(master: &Master, id: &CallId) -> String {
    match master.view().job(id.job) {
        Some(view) => format!("{}-{}/{}/{}", id.job, view.job.submission.uuid.simple(), id.step, id.attempt),
        None => id.to_string(),
    }
}

async fn run_hooks(master: Arc<Master>, ends: Arc<Semaphore>, call: HooksCall) {
    let id = call.id.clone();
    let run = RunHooks {
        call_id: wire_id(&master, &id),
        job: id.job,
        phase: call.phase,
        prefix: call.prefix,
        env: call.env,
        policy: call.policy,
        probe: call.probe,
        global: call.global,
        files: call.files,
    };
    if id.step == END_STEP {
        let told = async {
            // Where many jobs end at once, as a canceled chain does, their scripts must not all run at once.
            let _permit = ends.acquire().await;
            tell_end(&master, &call.node, &run).await
        };
        return tokio::select! {
            report = told => master.answer(Input::HooksAnswered(id, report)).await,
            // It was killed: no script may begin any more, by a try that was still to be made.
            () = job_is(&master, id.job, Job::done) => {}
        };
    }
    tokio::select! {
        report = master.nodes().run_hooks(&call.node, &run, None) => {
            master.answer(Input::HooksAnswered(id, report)).await;
        }
        // Its nodes are told so: no script may begin afterwards, by a connection that was waited for until now.
        () = job_is(&master, id.job, |job| job.over() || job.is_ending()) => {}
    }
}

/// Tells a node of a job's end. The master's own is tried again: a host that starts may have its master ready before its
/// node daemon, and nobody's locks are held.
async fn tell_end(master: &Master, node: &NodeName, run: &RunHooks) -> NodeReport {
    let patience = if *node == master.config.name { END_PATIENCE } else { Duration::ZERO };
    let began = Instant::now();
    loop {
        let report = master.nodes().run_hooks(node, run, None).await;
        let is_reached = !matches!(report.answer, NodeAnswer::NotReached { .. });
        if is_reached || began.elapsed() + END_PAUSE > patience {
            return report;
        }
        tokio::time::sleep(END_PAUSE).await;
    }
}

async fn job_is(master: &Master, job: u64, so: impl Fn(&Job) -> bool) {
    match master.view().follow(job) {
        // One that is not known any more is archived.
        Some(mut job) => job.wait_for(|view| so(&view.job)).await.map(drop).unwrap_or_default(),
        None => std::future::pending().await,
    }
}

async fn execute(master: Arc<Master>, own_calls: Arc<OwnCalls>, id: CallId, call: Call) {
    let text = call.text();
    let progress: OnProgress = {
        let (master, job, node) = (master.clone(), id.job, call.node().cloned());
        Arc::new(move |progress| {
            let percent = progress.percent;
            master.view().progress(job, Progress { step: text.clone(), node: node.clone(), percent });
        })
    };
    let answer: CallAnswer = match call {
        Call::Node(node, call) => {
            let answer = execute_on(&master, &node, &id, &call, &progress).await;
            if changes_guests(&call) {
                // Whoever is told of the job's end sees its effect in the next list.
                master.nodes().refresh_live(std::slice::from_ref(&node)).await;
            }
            answer
        }
        Call::Master(call) => {
            let OwnCall { stop, ended } = own_calls.begin(&id);
            let _ended = ended.drop_guard();
            let answer = tokio::select! {
                answer = master_calls::run(&master, id.job, call, &progress) => answer,
                // Whoever stopped it answers.
                () = stop.cancelled() => return,
            };
            own_calls.end(&id);
            answer
        }
    };
    master.answer(Input::CallAnswered(id, answer)).await;
}

/// Whether guests, or their mirrors, are other ones after the call.
fn changes_guests(call: &NodeCall) -> bool {
    match call {
        NodeCall::GuestStart { .. }
        | NodeCall::GuestResume { .. }
        | NodeCall::GuestStop { .. }
        | NodeCall::GuestReboot { .. }
        | NodeCall::Migration(
            MigrationCall::Receive { .. }
            | MigrationCall::Send { .. }
            | MigrationCall::Finish { .. }
            | MigrationCall::Cancel { .. },
        )
        | NodeCall::Mirror(MirrorCall::Start { .. } | MirrorCall::Stop { .. }) => true,
        NodeCall::Mirror(
            MirrorCall::Serve { .. }
            | MirrorCall::Release { .. }
            | MirrorCall::Clean { .. }
            | MirrorCall::Trust { .. }
            | MirrorCall::Check { .. }
            | MirrorCall::Served { .. },
        )
        | NodeCall::Migration(MigrationCall::Machine { .. })
        | NodeCall::DiskCreate { .. }
        | NodeCall::DiskRemove { .. }
        | NodeCall::DiskAbsent { .. }
        | NodeCall::DiskResize { .. }
        | NodeCall::DisksSnapshot { .. }
        | NodeCall::OsCreate { .. }
        | NodeCall::OsRename { .. }
        | NodeCall::ExportStage { .. }
        | NodeCall::ExportPublish { .. }
        | NodeCall::ExportRemove { .. }
        | NodeCall::ExportCheck { .. } => false,
    }
}

async fn execute_on(
    master: &Master,
    node: &NodeName,
    id: &CallId,
    call: &NodeCall,
    progress: &OnProgress,
) -> CallAnswer {
    let wire = wire_id(master, id);
    let patience = if id.is_undo() { UNDO_PATIENCE } else { Duration::ZERO };
    let began = Instant::now();
    loop {
        let answer = master.nodes().execute(node, &wire, id.job, call, Some(progress)).await;
        if !matches!(answer, CallAnswer::NotReached(_)) || began.elapsed() + UNDO_PAUSE > patience {
            return answer;
        }
        tokio::time::sleep(UNDO_PAUSE).await;
    }
}

/// Carries a call out once its node has ended what another job left going there.
async fn execute_after(
    master: Arc<Master>,
    own_calls: Arc<OwnCalls>,
    id: CallId,
    call: Call,
    job: u64,
    calls: Vec<CallId>,
) {
    let calls: Vec<String> = calls.iter().map(|id| wire_id(&master, id)).collect();
    match end_on(&master, call.node(), job, &calls).await {
        Ok(()) => execute(master, own_calls, id, call).await,
        Err(why) => master.answer(Input::CallAnswered(id, CallAnswer::NotReached(why))).await,
    }
}

/// Ends a killed job's call, and answers how it ended.
async fn stop_call(master: Arc<Master>, own_calls: Arc<OwnCalls>, id: CallId, call: Call) {
    let wire = wire_id(&master, &id);
    let stop = async {
        match &call {
            Call::Node(node, node_call) => {
                end_on(&master, [node], id.job, std::slice::from_ref(&wire)).await?;
                // It has ended, or will never begin: this is its answer.
                Ok(master.nodes().execute(node, &wire, id.job, node_call, None).await)
            }
            Call::Master(own) => {
                own_calls.stop(&id).await;
                if let MasterCall::CopyImage { from_node, to_node, .. } = own {
                    end_on(&master, [from_node, to_node], id.job, &[]).await?;
                }
                Ok(CallAnswer::Failed("ended because its job was killed".to_owned()))
            }
        }
    };
    let answer = match tokio::time::timeout(STOP_LIMIT, stop).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(why)) => CallAnswer::NotReached(why),
        Err(_) => CallAnswer::NotReached(format!("no confirmation within {} s", STOP_LIMIT.as_secs())),
    };
    master.answer(Input::CallAnswered(id, answer)).await;
}

/// Ends what nodes do for a job; all must confirm it.
async fn end_on<'a>(
    master: &Master,
    nodes: impl IntoIterator<Item = &'a NodeName>,
    job: u64,
    calls: &[String],
) -> Result<(), String> {
    let ends = nodes.into_iter().map(|node| async move {
        let ended = master.nodes().end_job(node, job, calls).await;
        ended.map(drop).map_err(|error| format!("{node}: {error}"))
    });
    futures::future::join_all(ends).await.into_iter().collect()
}

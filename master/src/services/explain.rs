//! `gnt-hooks explain`: what hook scripts an operation would run now. Checked against the configuration as it is, made with
//! the engine's own functions, and shown with what each node says of its directory. No job, no lock, no change.

use std::collections::BTreeMap;

use muster_core::{
    calls::Call,
    explain::{Explained, Question, cluster_for, explain as explained},
    hooks::{Env, HookPolicy, OwnLimits, Phase, SCRIPT_PATH, VARIABLE_PREFIX},
    model::Cluster,
    names::NodeName,
    ops::{AFTER_VARIABLES, GLOBAL_PREFIX, Op, Refusal, Repair},
};
use muster_proto::{
    convert::{
        fields,
        hooks::version_to_wire,
        operation::{Submit, submit},
    },
    transport::Peer,
    v1,
};
use tonic::Status;

use super::{caller, query::node_hooks};
use crate::{host_facts::facts_for, master::Master, shell::wall_ms};

/// Stands for what only the job knows, when it is done.
const AFTER_PLACEHOLDER: &str = "<known after the operation>";

/// Answers from the present configuration, and asks each node of the operation's sets once, side by side.
pub(super) async fn explain(
    master: &Master,
    peer: &Peer,
    request: v1::ExplainRequest,
) -> Result<v1::ExplainResponse, Status> {
    master.in_office()?;
    let new_master = request.new_master.map(|name| fields::node("new_master", &name)).transpose()?;
    let local = new_master.clone().unwrap_or_else(|| master.config.name.clone());
    let (operation, reason, dry_run) = (request.operation, request.reason, request.dry_run);
    // Read as a submission is, so that what would be refused there is refused here in the same words.
    let submission = v1::SubmitRequest { operation, reason, dry_run, ..v1::SubmitRequest::default() };
    let Submit { op, reason, dry_run, .. } = submit(submission, &local)?;
    if new_master.is_some() && !matches!(op, Op::MasterFailover(_)) {
        return Err(Status::invalid_argument("only a master failover has a new master"));
    }
    let row = op.row();
    let mut answer = v1::ExplainResponse {
        op_id: row.op_id.to_owned(),
        target: op.target(),
        path: SCRIPT_PATH.to_owned(),
        ..v1::ExplainResponse::default()
    };
    let committed = master.view().cluster();
    let new_cluster = master.new_cluster(&op)?;
    let version = committed.as_deref().or(new_cluster.as_deref()).map(|cluster| cluster.hooks.version);
    let version = version.unwrap_or_default();
    answer.hooks_version = version_to_wire(version);
    let prefix = row.prefix_in(version);
    let pending = if let Op::NodeAdd(add) = &op { master.pending_node(&add.name) } else { None };
    let node_facts = facts_for(master, &op);
    let undone = undone(master);
    let repair = repair(master, &op);
    let question = Question {
        op: &op,
        cluster: committed.as_deref(),
        new_cluster: new_cluster.as_deref(),
        pending: pending.as_ref(),
        node_facts: node_facts.as_ref(),
        local: &local,
        undone: &undone,
        repair: repair.as_ref(),
        user: &caller::user(peer, |uuid| master.client_name(uuid)),
        reason: &reason,
        dry_run,
        now_ms: wall_ms(),
    };
    let cluster = cluster_for(question.cluster, question.new_cluster).map_err(refused)?;
    candidate_only(&op, cluster).map_err(refused)?;
    let found = explained(question).map_err(refused)?;
    let listings = listings(master, cluster, &found, &local).await;
    answer.prefix = prefix.map(str::to_owned);
    answer.placeholders = found.placeholders.iter().map(|name| format!("{VARIABLE_PREFIX}{name}")).collect();
    let phases = [Phase::Pre, Phase::Post].into_iter().filter(|phase| row.runs_in(version, *phase));
    let phases = phases.filter_map(|phase| Some(explained_phase(phase, prefix?, &found, &listings)));
    answer.phases = phases.collect();
    if let Some(own) = listings.get(&local) {
        add_global(&mut answer.phases, own, &found);
    }
    Ok(answer)
}

fn refused(why: Refusal) -> Status {
    Status::failed_precondition(format!("refused: {why}"))
}

/// The old master gives the office to a candidate alone, whatever the operation's own check says.
fn candidate_only(op: &Op, cluster: &Cluster) -> Result<(), Refusal> {
    let Op::MasterFailover(failover) = op else { return Ok(()) };
    let name = &failover.new_master;
    match cluster.nodes.get(name) {
        Some(node) if !node.master_candidate && *name != cluster.master => Err(Refusal(format!(
            "node {name} is no master candidate; an admin makes it one: gnt-node modify --master-candidate yes {name}"
        ))),
        Some(_) | None => Ok(()),
    }
}

/// Undos of ended jobs that could not be carried out and were not made good since.
fn undone(master: &Master) -> Vec<Call> {
    let jobs = master.view().jobs();
    let failed = jobs.iter().flat_map(|view| &view.job.failed_undos);
    failed.filter(|undo| !undo.made_good).map(|undo| undo.call.clone()).collect()
}

/// What the job that a repair names has left undone.
fn repair(master: &Master, op: &Op) -> Option<Repair> {
    let Op::JobRepair(repair) = op else { return None };
    let job = master.view().job(repair.job)?.job;
    let calls = job.failed_undos.iter().filter(|undo| !undo.made_good).map(|undo| undo.call.clone());
    let gave_up = job.blocked_call().is_some();
    Some(Repair { locks: job.submission.locks(), calls: calls.collect(), gave_up })
}

/// What each node of both sets says of its hooks, and the master's own, which has the global ones.
async fn listings(
    master: &Master,
    cluster: &Cluster,
    found: &Explained,
    local: &NodeName,
) -> BTreeMap<NodeName, v1::NodeHooks> {
    let nodes = &found.prepared.nodes;
    let mut names: Vec<&NodeName> = nodes.pre.iter().chain(&nodes.post).chain([local]).collect();
    names.sort();
    names.dedup();
    let asked = names.into_iter().map(|name| async move {
        let hooks = match cluster.nodes.get(name) {
            Some(node) => node_hooks(master, node).await,
            None => v1::NodeHooks {
                node: name.to_string(),
                not_reached: Some("it is not in the cluster yet, so that it can't be asked".to_owned()),
                ..v1::NodeHooks::default()
            },
        };
        (name.clone(), hooks)
    });
    futures::future::join_all(asked).await.into_iter().collect()
}

/// Adds what the global directories would run, where they have anything or nobody knows.
fn add_global(phases: &mut Vec<v1::ExplainedPhase>, own: &v1::NodeHooks, found: &Explained) {
    for phase in [Phase::Pre, Phase::Post] {
        let directory = phase.directory(GLOBAL_PREFIX);
        let mut env = env_of(phase, found, phase == Phase::Post).set("HOOKS_PATH", GLOBAL_PREFIX);
        if phase == Phase::Post {
            // It runs however the job ended; of a failed one it is told the error too.
            env = env.set("POST_STATUS", AFTER_PLACEHOLDER);
        }
        let node = explained_node(own, &directory, &env);
        let is_known = node.not_reached.is_none() && node.failure.is_none();
        if is_known && node.scripts.is_empty() && node.skipped.is_empty() {
            continue;
        }
        let phase_wire = v1::HookPhase::from(phase).into();
        let explained = v1::ExplainedPhase { phase: phase_wire, directory, nodes: vec![node] };
        match phase {
            Phase::Pre => phases.insert(0, explained),
            Phase::Post | Phase::Failed => phases.push(explained),
        }
    }
}

/// A phase's environment; what only the job knows when it is done has a placeholder.
fn env_of(phase: Phase, found: &Explained, tells_of_job: bool) -> Env {
    let mut env = found.prepared.env_in(phase);
    if tells_of_job {
        for (name, ..) in AFTER_VARIABLES.iter().filter(|(.., with_success)| *with_success) {
            env = env.set(name, AFTER_PLACEHOLDER);
        }
    }
    env
}

fn explained_phase(
    phase: Phase,
    prefix: &str,
    found: &Explained,
    listings: &BTreeMap<NodeName, v1::NodeHooks>,
) -> v1::ExplainedPhase {
    let prepared = &found.prepared;
    let set = match phase {
        Phase::Pre | Phase::Failed => &prepared.nodes.pre,
        Phase::Post => &prepared.nodes.post,
    };
    let directory = phase.directory(prefix);
    let env = env_of(phase, found, prepared.policy.version.tells_of_job(phase));
    let nodes = set.iter().filter_map(|name| listings.get(name));
    let nodes = nodes.map(|hooks| explained_node(hooks, &directory, &env)).collect();
    v1::ExplainedPhase { phase: v1::HookPhase::from(phase).into(), directory, nodes }
}

fn explained_node(hooks: &v1::NodeHooks, directory: &str, env: &Env) -> v1::ExplainedNode {
    let listed = hooks.hooks.clone().unwrap_or_default();
    let found = listed.directories.into_iter().find(|listed| listed.name == directory).unwrap_or_default();
    v1::ExplainedNode {
        node: hooks.node.clone(),
        not_reached: hooks.not_reached.clone(),
        hooks_dir: listed.hooks_dir,
        scripts: found.scripts.into_iter().map(explained_script).collect(),
        skipped: found.skipped,
        failure: listed.failure.or(found.failure),
        r#unsafe: found.r#unsafe,
        env: variables(&env.clone().on_node(&hooks.node, listed.data_dir.as_deref())),
    }
}

/// A node's listing with the limits that hold in the cluster: a node knows only what its scripts set themselves (X8).
pub(super) fn with_limits(mut listed: v1::ListHooksResponse, policy: &HookPolicy) -> v1::ListHooksResponse {
    for directory in &mut listed.directories {
        let bounds = policy.limit_bounds(&directory.name);
        for script in &mut directory.scripts {
            // A node of an older version names none: what it says is taken as the script's own.
            let own = script.own_limits.unwrap_or(v1::OwnLimits {
                warn_timeout_ms: Some(script.warn_timeout_ms),
                kill_timeout_ms: Some(script.kill_timeout_ms),
            });
            let own = OwnLimits { warn_ms: own.warn_timeout_ms, kill_ms: own.kill_timeout_ms };
            (script.warn_timeout_ms, script.kill_timeout_ms) = bounds.applied(own);
        }
    }
    listed
}

fn explained_script(script: v1::HookScript) -> v1::ExplainedScript {
    let env = variables(&Env::new().for_script(script.kill_timeout_ms));
    v1::ExplainedScript { script: Some(script), env }
}

fn variables(env: &Env) -> Vec<v1::EnvVariable> {
    let variable = |(name, value): (&str, &str)| v1::EnvVariable {
        name: format!("{VARIABLE_PREFIX}{name}"),
        value: value.to_owned(),
    };
    env.iter().map(variable).collect()
}

#[cfg(test)]
mod tests {
    use muster_core::hooks::DirectoryPolicy;

    use super::*;

    #[test]
    fn x8_a_limit_is_the_scripts_own_else_the_directorys_else_the_clusters() {
        let own = DirectoryPolicy { kill_ms: Some(5_000), ..DirectoryPolicy::default() };
        let policy = HookPolicy {
            timeout_max_ms: 60_000,
            warn_ms: 1_000,
            directories: [("node-add-pre.d".to_owned(), own)].into(),
            ..HookPolicy::default()
        };
        let script = |kill_timeout_ms| v1::HookScript {
            kill_timeout_ms: 300_000,
            warn_timeout_ms: 30_000,
            own_limits: Some(v1::OwnLimits { kill_timeout_ms, warn_timeout_ms: None }),
            ..v1::HookScript::default()
        };
        let directory = |name: &str, scripts| v1::HookDirectory {
            name: name.to_owned(),
            scripts,
            ..v1::HookDirectory::default()
        };
        let old = v1::HookScript { own_limits: None, ..script(None) };
        let scripts = vec![script(None), script(Some(20_000)), script(Some(120_000)), old];
        let directories =
            vec![directory("node-add-pre.d", scripts.clone()), directory("node-add-post.d", scripts)];
        let listed = v1::ListHooksResponse { directories, ..v1::ListHooksResponse::default() };
        let listed = with_limits(listed, &policy);
        let limits = |at: usize| -> Vec<(u64, u64)> {
            let scripts = listed.directories[at].scripts.iter();
            scripts.map(|script| (script.warn_timeout_ms, script.kill_timeout_ms)).collect()
        };
        assert_eq!(limits(0), [(1_000, 5_000), (1_000, 20_000), (1_000, 60_000), (30_000, 60_000)]);
        assert_eq!(limits(1), [(1_000, 60_000), (1_000, 20_000), (1_000, 60_000), (30_000, 60_000)]);
        let explained = explained_script(listed.directories[0].scripts[0].clone());
        assert_eq!(explained.env, variables(&Env::new().set("HOOK_KILL_TIMEOUT_S", "5")));
    }

    #[test]
    fn a_node_that_says_nothing_is_shown_with_what_is_known() {
        let hooks = v1::NodeHooks {
            node: "node4".to_owned(),
            not_reached: Some("connection refused".to_owned()),
            ..v1::NodeHooks::default()
        };
        let env = Env::new().set("MASTER", "node1");
        let node = explained_node(&hooks, "node-add-post.d", &env);
        assert_eq!(node.not_reached.as_deref(), Some("connection refused"));
        let names: Vec<&str> = node.env.iter().map(|variable| variable.name.as_str()).collect();
        assert_eq!(names, ["GANETI_HOST_NAME", "GANETI_HOST_TYPE", "GANETI_MASTER"]);
    }
}

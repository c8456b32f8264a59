//! The promises, each a function from what was seen to the findings against it.

use std::collections::{BTreeMap, BTreeSet};

use muster_proto::v1;

use super::clients::Submitted;
use super::witness::{POST_SCRIPTS, PRE_SCRIPTS, Run, is_denied};
use crate::ask::is_ended;

/// A run that its job does not wait for any more is told to end when the master next reaches its node; until then its keeper goes
/// on with the directory. A daemon of these tests is away for a moment only, and its start takes seconds on a slow machine.
const ENDING_US: u64 = 20_000_000;

/// All that was seen from outside, after everything healed.
pub(super) struct Seen {
    pub(super) submitted: Vec<Submitted>,
    /// With everything, by id.
    pub(super) jobs: BTreeMap<u64, v1::Job>,
    pub(super) runs: Vec<Run>,
    /// Whether node daemons were killed: only then may a run be lost, repeated or unheard.
    pub(super) nodes_died: bool,
}

impl Seen {
    fn runs_of(&self, job: u64) -> impl Iterator<Item = &Run> {
        self.runs.iter().filter(move |run| run.job == job)
    }
}

/// A job with what a finding needs of it.
pub(super) struct Brief<'a>(pub(super) &'a v1::Job);

impl std::fmt::Display for Brief<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let v1::Job { id, summary, submitted_ms, started_ms, ended_ms, error, dry_run, .. } = self.0;
        let status = self.0.status().as_str_name();
        write!(
            f,
            "job {id} {summary} {status}, dry run {dry_run}, submitted {submitted_ms}, started {started_ms:?}, ended {ended_ms:?}"
        )?;
        if let Some(error) = error {
            write!(f, "\n  {}: {}", error.kind().as_str_name(), error.message)?;
        }
        for (phase, reports) in [("pre", &self.0.pre), ("post", &self.0.post)] {
            for report in reports {
                let v1::NodeReport { node, not_reached, lost, duration_ms, .. } = report;
                write!(
                    f,
                    "\n  {phase} on {node}: not reached {not_reached:?}, lost {lost}, {duration_ms} ms"
                )?;
            }
        }
        for line in &self.0.log {
            write!(f, "\n  {} {}", line.time_ms, line.text)?;
        }
        Ok(())
    }
}

fn succeeded(job: &v1::Job) -> bool {
    job.status() == v1::JobStatus::Success
}

fn is_kind(job: &v1::Job, kind: v1::ErrorKind) -> bool {
    job.error.as_ref().is_some_and(|error| error.kind() == kind)
}

/// Whether a phase's report says that the node's scripts ended and how.
fn is_heard(reports: &[v1::NodeReport], node: &str) -> bool {
    reports.iter().any(|report| report.node == node && report.not_reached.is_none() && !report.lost)
}

/// Whether the run's phase ended with its node's answer. Otherwise the job went on without: its node was silent, or the phase was
/// given up and the run told to end.
fn is_waited_for(run: &Run, job: &v1::Job) -> bool {
    is_heard(if run.is_pre() { &job.pre } else { &job.post }, &run.node)
}

/// How many runs outlived the job that did not wait for them, and the longest of them.
pub(super) fn outlived(seen: &Seen) -> (usize, std::time::Duration) {
    let beyond = seen.runs.iter().filter_map(|run| {
        let job = seen.jobs.get(&run.job)?;
        run.last_us().checked_sub((job.ended_ms? + 1) * 1000).filter(|beyond_us| *beyond_us > 0)
    });
    let beyond: Vec<u64> = beyond.collect();
    (beyond.len(), std::time::Duration::from_micros(beyond.iter().copied().max().unwrap_or_default()))
}

/// Runs every check.
pub(super) fn all(seen: &Seen) -> Vec<String> {
    let checks = [
        acknowledged_jobs_are_there,
        one_job_a_request,
        results_stay,
        outcomes_have_reasons,
        success_means_allowed,
        no_post_without_success,
        no_run_after_the_end,
        one_job_at_a_time_on_an_instance,
        no_run_beside_its_repetition,
        one_environment,
    ];
    checks.iter().flat_map(|check| check(seen)).collect()
}

fn acknowledged_jobs_are_there(seen: &Seen) -> Vec<String> {
    let mut findings = Vec::new();
    for submitted in &seen.submitted {
        let Submitted { request_id, job: id, .. } = submitted;
        let Some(job) = seen.jobs.get(id) else {
            findings.push(format!("job {id} ({request_id}) was acknowledged and is lost"));
            continue;
        };
        let same = job.reason == *request_id && job.dry_run == submitted.dry_run;
        if !same || job.operation.as_ref() != Some(&submitted.operation) {
            findings.push(format!("job {id} is not what {request_id} asked for: {job:?}"));
        }
        if !is_ended(job) {
            findings.push(format!("not over: {}", Brief(job)));
        }
    }
    findings
}

fn one_job_a_request(seen: &Seen) -> Vec<String> {
    let mut ids: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for job in seen.jobs.values() {
        ids.entry(&job.reason).or_default().push(job.id);
    }
    let requests: BTreeSet<&str> = seen.submitted.iter().map(|one| one.request_id.as_str()).collect();
    let doubled = ids.iter().filter(|(_, ids)| ids.len() > 1);
    let doubled = doubled.map(|(request, ids)| format!("{request} made the jobs {ids:?}"));
    let strange = ids.keys().filter(|request| !requests.contains(*request));
    doubled.chain(strange.map(|request| format!("nobody was answered for {request}"))).collect()
}

/// Whether a job's end is the one that was seen. Only its failed undos may have been made good since, and who was told of it
/// before the scripts at its end were did not see what is logged of those.
fn is_the_end(first: &v1::Job, later: &v1::Job) -> bool {
    let result = |job: &v1::Job| {
        let mut job = job.clone();
        job.failed_undos.iter_mut().for_each(|undo| undo.made_good = false);
        job
    };
    let (first, mut later) = (result(first), result(later));
    if first.phase == "end-hooks" && later.log.starts_with(&first.log) {
        later.phase.clone_from(&first.phase);
        later.log.clone_from(&first.log);
    }
    first == later
}

/// What a client has seen as a job's end is the job's end.
fn results_stay(seen: &Seen) -> Vec<String> {
    let first = seen.submitted.iter().filter_map(|submitted| submitted.seen.as_ref());
    let changed = first.filter(|first| seen.jobs.get(&first.id).is_some_and(|job| !is_the_end(first, job)));
    changed
        .map(|first| format!("job {} was seen as {first:?} and is {:?}", first.id, seen.jobs[&first.id]))
        .collect()
}

/// Denied is what the rule of the scripts denies, canceled what was asked to be, and nothing fails while all nodes live.
fn outcomes_have_reasons(seen: &Seen) -> Vec<String> {
    let mut findings = Vec::new();
    let canceled: BTreeSet<u64> =
        seen.submitted.iter().filter(|one| one.canceled).map(|one| one.job).collect();
    for job in seen.jobs.values() {
        let instance = job.env.iter().find(|(name, _)| name.ends_with("INSTANCE_NAME"));
        let denied = instance.is_some_and(|(_, name)| is_denied(&job.op_id, name));
        let kind = job.error.as_ref().map(v1::JobError::kind);
        let fault = match job.status() {
            v1::JobStatus::Success => denied.then_some("succeeded though its scripts deny"),
            v1::JobStatus::Canceled => (!canceled.contains(&job.id)).then_some("was canceled by nobody"),
            v1::JobStatus::Error if kind == Some(v1::ErrorKind::Denied) => {
                (!denied && !seen.nodes_died).then_some("was denied by no rule")
            }
            v1::JobStatus::Error if kind == Some(v1::ErrorKind::Failed) => {
                (!seen.nodes_died).then_some("failed though nothing but the master died")
            }
            v1::JobStatus::Error => {
                (kind == Some(v1::ErrorKind::Unspecified)).then_some("has an error of no kind")
            }
            v1::JobStatus::Unspecified
            | v1::JobStatus::Queued
            | v1::JobStatus::Waiting
            | v1::JobStatus::Running
            | v1::JobStatus::Canceling => Some("is not over"),
        };
        findings.extend(fault.map(|fault| format!("{fault}: {}", Brief(job))));
    }
    findings
}

/// Whether the master died so often in the job's post phase that its scripts were ended.
fn post_was_given_up(job: &v1::Job) -> bool {
    job.log.iter().any(|line| line.text.starts_with("post hooks were interrupted too often"))
}

/// A successful job's scripts ran to their ends: all of pre before the first of post, all of post before the job's own end.
fn success_means_allowed(seen: &Seen) -> Vec<String> {
    let mut findings = Vec::new();
    for job in seen.jobs.values().filter(|job| succeeded(job)) {
        let end_us = (job.ended_ms.unwrap_or_default() + 1) * 1000;
        let post_us = seen.runs_of(job.id).filter(|run| !run.is_pre()).map(|run| run.begin_us).min();
        let pre_limit_us = post_us.unwrap_or(end_us);
        let phases = [
            (true, &job.pre, &job.pre_nodes, &PRE_SCRIPTS[..], pre_limit_us),
            (false, &job.post, &job.post_nodes, &POST_SCRIPTS[..], end_us),
        ];
        for (pre, reports, nodes, scripts, limit_us) in phases {
            if !pre && (job.dry_run || reports.is_empty() || post_was_given_up(job)) {
                continue;
            }
            for node in nodes.iter().filter(|node| !seen.nodes_died || is_heard(reports, node)) {
                for script in scripts {
                    let ended = seen.runs_of(job.id).any(|run| {
                        let this = run.node == *node && run.is_pre() == pre && run.name() == *script;
                        this && run.whole && run.last_us() <= limit_us
                    });
                    if !ended {
                        let phase = if pre { "pre" } else { "post" };
                        findings.push(format!("success without {phase} {script} on {node}: {}", Brief(job)));
                    }
                }
            }
        }
    }
    findings
}

fn no_post_without_success(seen: &Seen) -> Vec<String> {
    let mut findings = Vec::new();
    for run in &seen.runs {
        let Some(job) = seen.jobs.get(&run.job) else {
            findings.push(format!("{run}: no such job"));
            continue;
        };
        if !run.is_pre() && (!succeeded(job) || job.dry_run) {
            findings.push(format!("{run}: the job did not succeed: {}", Brief(job)));
        }
        if is_kind(job, v1::ErrorKind::Refused) {
            findings.push(format!("{run}: the job was refused: {}", Brief(job)));
        }
    }
    findings
}

/// No script begins or goes on when its job is over; one that the job did not wait for ends soon after.
fn no_run_after_the_end(seen: &Seen) -> Vec<String> {
    let mut findings = Vec::new();
    for run in &seen.runs {
        let Some(job) = seen.jobs.get(&run.job) else { continue };
        let end_us = (job.ended_ms.unwrap_or_default() + 1) * 1000;
        let heard = is_waited_for(run, job);
        let allowed_us = end_us + if heard { 0 } else { ENDING_US };
        if run.begin_us.max(run.last_us()) > allowed_us {
            findings.push(format!("{run}: the job was over at {end_us} us: {}", Brief(job)));
        }
    }
    findings
}

/// The scripts of two jobs on one instance never overlap; those that a job does not wait for are told to end, and have a limit.
fn one_job_at_a_time_on_an_instance(seen: &Seen) -> Vec<String> {
    let mut spans: BTreeMap<(&str, u64), (u64, u64)> = BTreeMap::new();
    for run in &seen.runs {
        let Some(job) = seen.jobs.get(&run.job) else { continue };
        if is_waited_for(run, job) {
            let span = spans.entry((run.instance(), run.job)).or_insert((run.begin_us, run.last_us()));
            *span = (span.0.min(run.begin_us), span.1.max(run.last_us()));
        }
    }
    let mut ordered: Vec<_> =
        spans.into_iter().map(|((instance, job), span)| (instance, span, job)).collect();
    ordered.sort();
    let overlap = ordered.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[1].1.0 < pair[0].1.1);
    overlap
        .map(|pair| {
            let (instance, (_, end_us), first) = pair[0];
            let (_, (begin_us, _), second) = pair[1];
            let (first, second) = (&seen.jobs[&first], &seen.jobs[&second]);
            format!(
                "on {instance}, scripts of job {} ran to {end_us} us and those of job {} from {begin_us} us:\n{}\n{}",
                first.id,
                second.id,
                Brief(first),
                Brief(second)
            )
        })
        .collect()
}

/// A run is repeated only after its daemon died, and only when it is gone.
fn no_run_beside_its_repetition(seen: &Seen) -> Vec<String> {
    let mut last: BTreeMap<(&str, u64, &str), &Run> = BTreeMap::new();
    let mut findings = Vec::new();
    for run in &seen.runs {
        let Some(before) = last.insert((&run.node, run.job, &run.script), run) else { continue };
        if !seen.nodes_died {
            findings.push(format!("{before} was repeated by {run} though the node's daemon lived"));
        } else if run.beside || before.last_us() > run.begin_us {
            findings.push(format!("{before} ran beside its repetition {run}"));
        } else if !run.is_pre() {
            findings.push(format!("{before} is post and was repeated by {run}"));
        }
    }
    findings
}

/// Variables that differ between nodes.
const OF_THE_NODE: [&str; 3] = ["GANETI_HOST_NAME", "GANETI_HOST_TYPE", "GANETI_DATA_DIR"];
/// All scripts of a job have one environment, also in repetitions; between the phases only its name differs.
fn one_environment(seen: &Seen) -> Vec<String> {
    let mut first: BTreeMap<u64, (&Run, BTreeMap<&str, &str>)> = BTreeMap::new();
    let mut findings = Vec::new();
    for run in &seen.runs {
        let entries = run.env.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let shared = entries.filter(|(name, _)| !OF_THE_NODE.contains(name) && *name != "GANETI_HOOKS_PHASE");
        let shared: BTreeMap<&str, &str> = shared.collect();
        match first.get(&run.job) {
            None => drop(first.insert(run.job, (run, shared))),
            Some((_, env)) if *env == shared => {}
            Some((other, env)) => {
                findings.push(format!("{run} has another environment than {other}:\n{shared:?}\n{env:?}"));
            }
        }
        let phase = if run.is_pre() { "PRE" } else { "POST" };
        if run.env["GANETI_HOOKS_PHASE"] != phase || run.env["GANETI_HOST_NAME"] != run.node {
            findings.push(format!("{run} has a wrong phase or node: {:?}", run.env));
        }
    }
    findings
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;

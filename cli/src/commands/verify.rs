//! `gnt-cluster verify`: what the master finds, and in interface version 2 what the site's own scripts find.

use muster_proto::v1::{
    ClusterInfo, ClusterVerify, ErrorKind, Job, Objection, VerifyFinding, VerifyRequest, operation::Operation,
};

use super::{cluster, operation};
use crate::{
    args::{ConnectionFlags, OperationFlags},
    client::{Master, answer},
    exit::Failure,
    output::{
        cluster as render,
        denial::{script_text, succeeded},
        print, print_json,
    },
};

/// Findings of scripts have the code of findings about hooks.
const CODE: &str = "ENODEHOOKS";

/// Checks the cluster.
pub(super) async fn run(connection: &ConnectionFlags, as_json: bool) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let info = cluster::get(&master).await?;
    let own = if scripts_are_asked(&info) { site_findings(&master, &info.name).await? } else { Vec::new() };
    let mut check = answer(master.queries().verify(VerifyRequest {})).await?;
    check.findings.extend(own);
    let printed =
        if as_json { print_json(&render::verify_json(&check)) } else { print(&render::verify_text(&check)) };
    if render::has_errors(&check) { Err(Failure::Told) } else { printed }
}

/// Interface version 1 has no hooks of a verification.
fn scripts_are_asked(info: &ClusterInfo) -> bool {
    info.hooks.as_ref().and_then(|hooks| hooks.version) == Some(2)
}

/// Runs the site's scripts on all nodes, by a job; one that is not taken is a warning: the rest is worth knowing.
async fn site_findings(master: &Master, cluster: &str) -> Result<Vec<VerifyFinding>, Failure> {
    let flags = OperationFlags::default();
    let verify = Operation::ClusterVerify(ClusterVerify {});
    let id = match operation::submit(master, verify, &flags).await {
        Ok(id) => id,
        Err(failure) if failure.code() == 1 => {
            let why = failure.text().unwrap_or_default();
            let text = format!("the site's own checks were not run: {why}");
            return Ok(vec![finding(false, "cluster", cluster, text)]);
        }
        Err(failure) => return Err(failure),
    };
    let job = operation::follow_or_leave(master, id).await?;
    Ok(findings(&job, cluster))
}

fn findings(job: &Job, cluster: &str) -> Vec<VerifyFinding> {
    if succeeded(job) {
        return Vec::new();
    }
    let error = job.error.clone().unwrap_or_default();
    if error.objections.is_empty() {
        let why = if error.message.is_empty() { "it was canceled" } else { &error.message };
        let text = format!("the site's own checks (job {}) came to no end: {why}", job.id);
        return vec![finding(true, "cluster", cluster, text)];
    }
    // A script in global-pre.d may have kept the site's own checks from running.
    let folder = if error.kind() == ErrorKind::Denied { "before them" } else { "cluster-verify-post.d" };
    error.objections.iter().map(|objection| objection_finding(objection, folder)).collect()
}

fn objection_finding(objection: &Objection, folder: &str) -> VerifyFinding {
    let reason = objection.reason.clone().unwrap_or_default();
    let text = match &objection.script {
        Some(script) => {
            let remark = if reason.is_empty() { reason } else { format!("    {reason}\n") };
            // One of the global directory has the directory before its name.
            let place = if script.name.contains('/') { String::new() } else { format!("{folder}/") };
            format!("{place}{}{remark}", script_text(script, &objection.node))
        }
        None => format!("{folder}: {reason}"),
    };
    finding(true, "node", &objection.node, text.trim_end().to_owned())
}

fn finding(error: bool, object_type: &str, object: &str, text: String) -> VerifyFinding {
    VerifyFinding {
        error,
        object_type: object_type.to_owned(),
        object: object.to_owned(),
        code: CODE.to_owned(),
        text,
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::{Captured, JobError, JobStatus, ScriptResult};

    use super::*;

    #[test]
    fn a_scripts_failure_is_a_finding_with_node_script_and_lines() {
        let stdout = Captured { head: b"md0 is degraded\n".to_vec(), total_bytes: 16, ..Captured::default() };
        let script =
            ScriptResult { name: "10-raid".to_owned(), stdout: Some(stdout), ..ScriptResult::default() };
        let objection = Objection { node: "node2".to_owned(), script: Some(script), reason: None };
        let job = Job {
            id: 7,
            status: JobStatus::Error.into(),
            error: Some(JobError { objections: vec![objection], ..JobError::default() }),
            ..Job::default()
        };
        let [found] = &findings(&job, "dev")[..] else { panic!("one finding") };
        assert_eq!((found.error, found.object.as_str(), found.code.as_str()), (true, "node2", CODE));
        assert!(found.text.starts_with("cluster-verify-post.d/10-raid: "), "{}", found.text);
        assert!(found.text.contains("md0 is degraded"), "{}", found.text);
        let canceled = Job { status: JobStatus::Canceled.into(), id: 8, ..Job::default() };
        assert!(findings(&canceled, "dev")[0].text.contains("(job 8) came to no end: it was canceled"));
        let done = Job { status: JobStatus::Success.into(), ..Job::default() };
        assert_eq!(findings(&done, "dev"), []);
    }
}

//! What hooks an operation would run if it were submitted now: the same check, node sets and environment as a job's, with
//! examples in the place of what is drawn at submission.

use std::collections::BTreeSet;

use uuid::Uuid;

use crate::{
    calls::Call,
    facts::NodeFacts,
    hooks::Env,
    model::Cluster,
    names::NodeName,
    ops::{FRESH_UUIDS, Fresh, Given, JobFacts, Op, PendingNode, Prepared, Refusal, Repair, job_env},
};

/// Stands for `JOB_ID`.
pub const JOB_ID_PLACEHOLDER: &str = "<the job's number>";
/// Stands for every other value that is drawn at submission.
pub const DRAWN_PLACEHOLDER: &str = "<drawn at submission>";

/// An operation and what a submission would add to it.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// The operation.
    pub op: &'a Op,
    /// The configuration, where there is one.
    pub cluster: Option<&'a Cluster>,
    /// The cluster that an init would make.
    pub new_cluster: Option<&'a Cluster>,
    /// The host that a node add names, where it is pending.
    pub pending: Option<&'a PendingNode>,
    /// What the node that the operation is about says of its host.
    pub node_facts: Option<&'a NodeFacts>,
    /// The node whose master daemon would execute the job.
    pub local: &'a NodeName,
    /// Undos of ended jobs that could not be carried out.
    pub undone: &'a [Call],
    /// What the job that a repair names has left undone.
    pub repair: Option<&'a Repair>,
    /// Who asks.
    pub user: &'a str,
    /// Why.
    pub reason: &'a str,
    /// Checks and pre scripts only.
    pub dry_run: bool,
    /// Wall clock, ms since 1970.
    pub now_ms: u64,
}

/// What a job would have prepared.
#[derive(Debug, Clone, PartialEq)]
pub struct Explained {
    /// Node sets and environment; the plan is one of example values.
    pub prepared: Prepared,
    /// Variables, without prefix, whose value is a placeholder.
    pub placeholders: BTreeSet<String>,
}

/// The configuration that an operation is checked against: that of the cluster, or the one that an init would make.
///
/// # Errors
/// When there is none, or one too many.
pub fn cluster_for<'a>(
    cluster: Option<&'a Cluster>,
    new_cluster: Option<&'a Cluster>,
) -> Result<&'a Cluster, Refusal> {
    match (cluster, new_cluster) {
        (Some(cluster), None) => Ok(cluster),
        (None, Some(new)) => Ok(new),
        (Some(cluster), Some(_)) => {
            Err(Refusal(format!("this host is the master of cluster {} already", cluster.name)))
        }
        (None, None) => Err(Refusal("there is no cluster here: run `gnt-cluster init`".to_owned())),
    }
}

/// Prepares an operation twice, with different examples of what is drawn: a variable that differs depends on the drawing.
///
/// # Errors
/// When the operation would be refused.
pub fn explain(question: Question<'_>) -> Result<Explained, Refusal> {
    let mut prepared = prepare(question, 0)?;
    let other = prepare(question, 1)?;
    let mut placeholders = BTreeSet::new();
    let envs = [(&mut prepared.env, &other.env), (&mut prepared.env_post, &other.env_post)];
    for (env, other) in envs {
        let drawn = env.iter().filter(|(name, value)| other.get(name) != Some(value));
        let drawn: Vec<String> = drawn.map(|(name, _)| name.to_owned()).collect();
        for name in drawn {
            let text = if name == "JOB_ID" { JOB_ID_PLACEHOLDER } else { DRAWN_PLACEHOLDER };
            *env = std::mem::take(env).set(&name, text);
            placeholders.insert(name);
        }
    }
    Ok(Explained { prepared, placeholders })
}

fn prepare(question: Question<'_>, drawing: u8) -> Result<Prepared, Refusal> {
    let cluster = cluster_for(question.cluster, question.new_cluster)?;
    let base = u128::MAX - u128::from(drawing) * 0xffff;
    let fresh = Fresh {
        uuids: (0..FRESH_UUIDS)
            .scan(base, |next, _| Some(Uuid::from_u128(std::mem::replace(next, *next - 1))))
            .collect(),
        // Drawn addresses begin otherwise, so that no instance has these.
        mac: format!("00:00:00:00:00:{drawing:02x}"),
        pending: question.pending.cloned(),
        new_cluster: question.new_cluster.cloned().map(Box::new),
        now_ms: question.now_ms.saturating_add(u64::from(drawing)),
        repair: question.repair.cloned(),
        node_facts: question.node_facts.cloned(),
    };
    let given = Given { cluster, fresh: &fresh, local: question.local, undone: question.undone };
    let (user, reason, dry_run) = (question.user, question.reason, question.dry_run);
    let job = JobFacts { id: 1 + u64::from(drawing), user, reason, dry_run };
    let mut prepared = question.op.prepare(given, &job)?;
    if prepared.hook_prefix.is_none() {
        // The global directories are told what is known of any job.
        prepared.env = job_env(question.op, Some(cluster), &job);
        prepared.env_post = Env::new();
    }
    Ok(prepared)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        hooks::HooksVersion,
        ops::{all_examples, examples},
    };

    fn question<'a>(op: &'a Op, cluster: &'a Cluster, fresh: &'a Fresh, local: &'a NodeName) -> Question<'a> {
        let new_cluster = fresh.new_cluster.as_deref();
        Question {
            op,
            cluster: Some(cluster).filter(|_| new_cluster.is_none()),
            new_cluster,
            pending: fresh.pending.as_ref(),
            node_facts: fresh.node_facts.as_ref(),
            local,
            undone: &[],
            repair: fresh.repair.as_ref(),
            user: "root",
            reason: "because",
            dry_run: false,
            now_ms: 5,
        }
    }

    #[test]
    fn e4_an_explanation_is_what_a_job_gets_but_for_what_is_drawn() {
        let versions = HooksVersion::ALL.into_iter();
        let all =
            versions.flat_map(|version| all_examples().into_iter().map(move |example| (version, example)));
        for (version, (mut cluster, mut fresh, op)) in all {
            cluster.hooks.version = version;
            if let Some(new) = &mut fresh.new_cluster {
                new.hooks.version = version;
            }
            let local =
                if let Op::MasterFailover(failover) = &op { &failover.new_master } else { &cluster.master };
            let explained = explain(question(&op, &cluster, &fresh, local)).unwrap();
            let given = Given { cluster: &cluster, fresh: &fresh, local, undone: &[] };
            let job = JobFacts { id: 17, user: "root", reason: "because", dry_run: false };
            let mut right = op.prepare(given, &job).unwrap();
            if op.row().prefix_in(version).is_none() {
                // As the engine does for the global directories.
                right.env = job_env(&op, Some(&cluster), &job);
                right.env_post = Env::new();
            }
            assert_eq!(explained.prepared.nodes, right.nodes, "{op:?}");
            assert_eq!(explained.prepared.master_post, right.master_post);
            // What is new has a drawn uuid, and a card a drawn address.
            let is_drawn = |name: &str| name.ends_with("_UUID") || name.ends_with("_MAC");
            let fits =
                |name: &String| name == "JOB_ID" || version == HooksVersion::V2 && is_drawn(name.as_str());
            assert!(explained.placeholders.iter().all(fits), "{op:?}: {:?}", explained.placeholders);
            let pairs =
                [(&explained.prepared.env, &right.env), (&explained.prepared.env_post, &right.env_post)];
            for (explained_env, right) in pairs {
                let put_back = |env: Env, name: &String| match right.get(name) {
                    Some(value) => env.set(name, value),
                    None => env,
                };
                assert_eq!(
                    explained.placeholders.iter().fold(explained_env.clone(), put_back),
                    *right,
                    "{op:?}"
                );
            }
            assert_eq!(explained.prepared.env.get("JOB_ID"), Some(JOB_ID_PLACEHOLDER));
        }
    }

    #[test]
    fn a_refusal_is_that_of_the_operation() {
        let (cluster, fresh) = (examples::cluster(), examples::fresh());
        let op = Op::InstanceStart(crate::ops::InstanceStart {
            instance: examples::instance_name("web9"),
            force: false,
        });
        let refusal = explain(question(&op, &cluster, &fresh, &cluster.master)).unwrap_err();
        assert_eq!(refusal.0, "there is no instance web9; the nearest name is web1");
        let none = Question { cluster: None, ..question(&op, &cluster, &fresh, &cluster.master) };
        assert!(explain(none).unwrap_err().0.contains("there is no cluster here"));
        let both =
            Question { new_cluster: Some(&cluster), ..question(&op, &cluster, &fresh, &cluster.master) };
        assert!(explain(both).unwrap_err().0.contains("master of cluster dev already"));
    }
}

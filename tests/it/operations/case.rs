//! One run of an operation, and what HOOKS.md says its scripts get.

use std::collections::BTreeMap;

use muster_proto::v1;
use muster_proto::v1::script_outcome::Kind;

use crate::cluster::{Cluster, Output};
use crate::dumps::Dump;

/// A row of the operations table in HOOKS.md.
pub(super) struct Row {
    pub(super) op_id: &'static str,
    pub(super) op_code: &'static str,
    pub(super) prefix: &'static str,
    pub(super) object: &'static str,
}

/// Every prefix: dumps are put everywhere, so that a script run where none should be is seen.
pub(super) const PREFIXES: [&str; 14] = [
    "cluster-init",
    "master-failover",
    "node-add",
    "node-remove",
    "instance-add",
    "instance-export",
    "instance-start",
    "instance-shutdown",
    "instance-modify",
    "instance-failover",
    "instance-remove",
    "mirror-add",
    "mirror-remove",
    "mirror-replace",
];

/// One run of an operation.
pub(super) struct Case<'a> {
    pub(super) row: &'a Row,
    /// `gnt` arguments.
    pub(super) command: &'a str,
    pub(super) target: &'a str,
    pub(super) pre: &'a [u32],
    pub(super) post: &'a [u32],
    /// The operation's own variables, without prefix.
    pub(super) own: Vec<(&'static str, String)>,
}

/// Text that each run gives as its reason.
const REASON: &str = "ticket-4711";
/// What a denying script says, on stdout and on stderr.
const WORDS: [&str; 2] = ["no room in this rack", "ask the planner"];
const DENY: &str = "50-deny";

/// For own variables.
pub(super) fn own(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// Takes out what every node operation tells of the node's host. It differs from host to host, and is always set.
fn take_node_facts(env: &mut BTreeMap<String, String>) {
    for name in ["NODE_OS_NAME", "NODE_OS_VERSION", "NODE_OS_SP", "NODE_OS_STRING", "NODE_IPS"] {
        let value = env.remove(&format!("GANETI_{name}")).unwrap_or_else(|| panic!("{name} is set"));
        assert!(value != "None" && !value.contains('\n'), "{name}={value}");
    }
}

impl Case<'_> {
    fn run(&self, cluster: &Cluster) -> Output {
        cluster.gnt(&format!("{} --reason {REASON}", self.command))
    }

    /// Denies on each node of the pre set in turn; each time the operation fails, says why, and nothing has changed.
    #[track_caller]
    pub(super) fn denied_on_each_node(&self, cluster: &Cluster) {
        let before = cluster.snapshot();
        for node in self.pre {
            let directory = format!("{}-pre.d", self.row.prefix);
            cluster.script(
                *node,
                &directory,
                DENY,
                &format!("echo '{}'; echo '{}' >&2; exit 7", WORDS[0], WORDS[1]),
            );
            let name = format!("node{node}");
            self.run(cluster).exits(1).says(&[&name, DENY, "7", WORDS[0], WORDS[1]]);
            assert_eq!(cluster.snapshot(), before, "denied on {name}, and yet something changed");
            check_denied_job(&cluster.last_job(), &name);
            let phases: Vec<String> = cluster.take_dumps().into_iter().map(|dump| dump.directory).collect();
            assert_eq!(phases, vec![directory.clone(); self.pre.len()], "only pre scripts run, all of them");
            cluster.unscript(*node, &directory, DENY);
        }
    }

    /// Runs the operation and compares what all scripts got.
    #[track_caller]
    pub(super) fn allowed(&self, cluster: &Cluster) {
        cluster.take_dumps();
        self.run(cluster).exits(0);
        let job_id = cluster.last_job().id;
        self.check_dumps(&cluster.take_dumps(), job_id, cluster, "node1", "node1");
    }

    /// Compares dumps with what HOOKS.md says.
    #[track_caller]
    pub(super) fn check_dumps(
        &self,
        dumps: &[Dump],
        job_id: u64,
        cluster: &Cluster,
        master_pre: &str,
        master_post: &str,
    ) {
        let mut expected = Vec::new();
        for (phase, nodes, master) in [("post", self.post, master_post), ("pre", self.pre, master_pre)] {
            for node in nodes {
                expected.push((
                    format!("{}-{phase}.d", self.row.prefix),
                    format!("node{node}"),
                    phase,
                    master,
                ));
            }
        }
        let ran: Vec<_> = dumps.iter().map(|dump| (dump.directory.clone(), dump.node.clone())).collect();
        let should: Vec<_> =
            expected.iter().map(|(directory, node, ..)| (directory.clone(), node.clone())).collect();
        assert_eq!(ran, should, "{}: where scripts ran", self.command);
        for (dump, (_, node, phase, master)) in dumps.iter().zip(&expected) {
            assert_eq!(dump.args, Vec::<String>::new(), "scripts get no arguments");
            let mut env = dump.env.clone();
            let user = env.remove("GANETI_JOB_USER").expect("JOB_USER is set");
            assert!(!user.is_empty());
            if self.row.object == "NODE" {
                take_node_facts(&mut env);
            }
            let data_dir = cluster.dir().join(node).join("state/data").display().to_string();
            let mut wanted = self.environment(phase, node, master);
            wanted.insert("GANETI_DATA_DIR".to_owned(), data_dir);
            wanted.insert("GANETI_JOB_ID".to_owned(), job_id.to_string());
            assert_eq!(env, wanted, "{}: environment of {phase} on {node}", self.command);
        }
    }

    fn environment(&self, phase: &str, node: &str, master: &str) -> BTreeMap<String, String> {
        let phase = phase.to_uppercase();
        let host_type = if node == master { "MASTER" } else { "NODE" };
        let common = [
            ("HOOKS_VERSION", "1"),
            ("HOOKS_PHASE", &phase),
            ("CLUSTER", "dev"),
            ("MASTER", master),
            ("OP_ID", self.row.op_id),
            ("OP_CODE", self.row.op_code),
            ("OBJECT_TYPE", self.row.object),
            ("OP_TARGET", self.target),
            ("HOOKS_PATH", self.row.prefix),
            ("HOST_NAME", node),
            ("HOST_TYPE", host_type),
            ("JOB_REASON", REASON),
            ("HOOK_KILL_TIMEOUT_S", "300"),
        ];
        let common = common.into_iter().map(|(name, value)| (name, value.to_owned()));
        let ganeti =
            common.chain(self.own.iter().cloned()).map(|(name, value)| (format!("GANETI_{name}"), value));
        ganeti.chain([("PATH".to_owned(), "/sbin:/bin:/usr/sbin:/usr/bin".to_owned())]).collect()
    }
}

/// The denial as programs see it.
#[track_caller]
fn check_denied_job(job: &v1::Job, node: &str) {
    assert_eq!(job.status(), v1::JobStatus::Error);
    let error = job.error.as_ref().expect("a denied job has an error");
    assert_eq!(error.kind(), v1::ErrorKind::Denied, "{error:?}");
    let [objection] = error.objections.as_slice() else { panic!("one script objected: {error:?}") };
    assert_eq!(objection.node, node);
    let script = objection.script.as_ref().expect("a script objected");
    assert_eq!(script.name, DENY);
    let outcome = script.outcome.as_ref().and_then(|outcome| outcome.kind.clone());
    assert_eq!(outcome, Some(Kind::FailedCode(7)));
    let text = |captured: &Option<v1::Captured>| {
        String::from_utf8(captured.clone().expect("output is captured").head).unwrap()
    };
    assert_eq!(text(&script.stdout), format!("{}\n", WORDS[0]));
    assert_eq!(text(&script.stderr), format!("{}\n", WORDS[1]));
}

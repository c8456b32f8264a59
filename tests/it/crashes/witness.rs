//! The witness: every hook script of these tests appends a line to a log on its node when it begins and when it ends.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use crate::cluster::Cluster;

/// Directory prefixes of the operations that the clients use.
const PREFIXES: [&str; 10] = [
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

/// The scripts of a pre directory: two, so that a daemon can die between them.
pub(super) const PRE_SCRIPTS: [&str; 2] = ["10-witness", "20-witness"];
/// The scripts of a post directory.
pub(super) const POST_SCRIPTS: [&str; 1] = ["10-witness"];

/// What a denied instance's name ends in.
pub(super) const DENIED_SUFFIX: &str = "-no";

/// Operations that are denied on an instance with such a name; the others make and remove it.
pub(super) fn is_denied(op_id: &str, instance: &str) -> bool {
    instance.ends_with(DENIED_SUFFIX) && op_id != "OP_INSTANCE_ADD" && op_id != "OP_INSTANCE_REMOVE"
}

/// A line is one write of a shell's builtin: whole, or not there. Some runs take a while, a few so long that daemons die meanwhile;
/// which ones follows from the job and the seed. A run that finds its own predecessor alive says so.
fn body(seed: u64) -> String {
    format!(
        r#"#!/bin/bash
node="${{0%/hooks/*}}"
script="${{0#*/hooks/}}"
say() {{ printf '%s\n' "$EPOCHREALTIME	$1	$$	$GANETI_JOB_ID	$script$2" >> "$node/witness.log"; }}
for name in "${{!GANETI_@}}"; do env+="	$name=${{!name}}"; done
say begin "$env"
trap 'say ended; exit 143' TERM
mine="$node/run-of-$GANETI_JOB_ID-${{script//\//-}}"
if [[ -r "$mine" ]]; then
    read -r old < "$mine"
    if read -r _ _ state _ < "/proc/$old/stat" && [[ "$state" != [ZX] ]]; then say beside; fi
fi 2> /dev/null
echo "$$" > "$mine"
draw=$(( (GANETI_JOB_ID * 7919 + ${{GANETI_HOST_NAME#node}} * 104729 + ${{script:(-10):2}} * 31 + {seed} * 17) % 100 ))
if (( draw < 4 )); then sleep "1.$draw"; elif (( draw < 25 )); then sleep "0.$(( 100 + draw * 8 ))"; fi
code=0
if [[ "$GANETI_HOOKS_PHASE" == PRE && "$GANETI_INSTANCE_NAME" == *{DENIED_SUFFIX} ]]; then
    case "$GANETI_OP_ID" in OP_INSTANCE_ADD | OP_INSTANCE_REMOVE) ;; *) code=1 ;; esac
fi
say end
exit "$code"
"#
    )
}

/// Puts the script into every directory of nodes 1 to `nodes`.
pub(super) fn install(cluster: &Cluster, nodes: u32, seed: u64) {
    let script = cluster.dir().join("witness");
    fs::write(&script, body(seed)).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for node in 1..=nodes {
        for prefix in PREFIXES {
            for (phase, names) in [("pre", &PRE_SCRIPTS[..]), ("post", &POST_SCRIPTS[..])] {
                let dir = cluster.node_dir(node).join(format!("hooks/{prefix}-{phase}.d"));
                fs::create_dir_all(&dir).unwrap();
                for name in names {
                    symlink(&script, dir.join(name)).unwrap();
                }
            }
        }
    }
}

/// One run of a script.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) node: String,
    pub(super) job: u64,
    /// For example `instance-add-pre.d/10-witness`.
    pub(super) script: String,
    pub(super) pid: u32,
    pub(super) begin_us: u64,
    /// None when the script was killed.
    pub(super) end_us: Option<u64>,
    /// Whether it came to its own end, rather than being told to end.
    pub(super) whole: bool,
    /// Whether an earlier run for the same call was alive when it began.
    pub(super) beside: bool,
    /// All `GANETI_` variables.
    pub(super) env: BTreeMap<String, String>,
}

impl Run {
    pub(super) fn is_pre(&self) -> bool {
        self.script.contains("-pre.d/")
    }

    pub(super) fn name(&self) -> &str {
        self.script.rsplit_once('/').map_or(&self.script, |(_, name)| name)
    }

    /// The last moment at which the run is known to have been alive.
    pub(super) fn last_us(&self) -> u64 {
        self.end_us.unwrap_or(self.begin_us)
    }

    pub(super) fn instance(&self) -> &str {
        &self.env["GANETI_INSTANCE_NAME"]
    }
}

impl std::fmt::Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Run { node, job, script, pid, begin_us, end_us, whole, .. } = self;
        let end = end_us.map_or("?".to_owned(), |end| format!("{end}"));
        let how = if *whole { "to its end at" } else { "until ended at" };
        write!(f, "job {job} {script} on {node} (process {pid}, from {begin_us} us {how} {end} us)")
    }
}

/// All runs, ordered by their begin.
pub(super) fn runs(cluster: &Cluster, nodes: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    for node in 1..=nodes {
        let path = cluster.node_dir(node).join("witness.log");
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut of_node: Vec<Run> = Vec::new();
        for line in text.lines() {
            read_line(&format!("node{node}"), line, &mut of_node)
                .unwrap_or_else(|| panic!("{}: no line of a witness: {line:?}", path.display()));
        }
        runs.extend(of_node);
    }
    runs.sort_by_key(|run| run.begin_us);
    runs
}

fn read_line(node: &str, line: &str, runs: &mut Vec<Run>) -> Option<()> {
    let mut parts = line.split('\t');
    let (seconds, micros) = parts.next()?.split_once('.')?;
    let time_us = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let word = parts.next()?;
    let (pid, job, script) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?);
    if word != "begin" {
        let same = |run: &&mut Run| run.pid == pid && run.job == job && run.script == script;
        let run = runs.iter_mut().rev().find(same)?;
        match word {
            "end" => (run.end_us, run.whole) = (Some(time_us), true),
            "ended" => run.end_us = Some(time_us),
            "beside" => run.beside = true,
            _ => return None,
        }
        return Some(());
    }
    let env = parts.map(|entry| entry.split_once('='));
    let env: Option<BTreeMap<String, String>> =
        env.map(|entry| entry.map(|(name, value)| (name.to_owned(), value.to_owned()))).collect();
    let script = script.to_owned();
    let node = node.to_owned();
    let (begin_us, end_us) = (time_us, None);
    runs.push(Run { node, job, script, pid, begin_us, end_us, whole: false, beside: false, env: env? });
    Some(())
}

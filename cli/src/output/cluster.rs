//! The cluster, its clients and the findings of a check.

use muster_proto::v1::{ClientInfo, ClusterInfo, HookPolicy, QueueInfo, VerifyFinding, VerifyResponse};
use serde_json::{Value as Json, json};

use super::{
    fields::{Field, Value, field, whole_object, whole_text},
    hook_policy,
    text::{counted, duration, rfc3339, visible_line},
    words,
};

/// What is told of the queue.
const QUEUE_FIELDS: &[Field<QueueInfo>] = &[
    field("drained", "Drained", |queue: &QueueInfo| Value::Bool(queue.drained)),
    field("paused", "Paused", |queue: &QueueInfo| Value::Bool(queue.paused)),
    field("waiting", "Waiting", |queue: &QueueInfo| Value::number(queue.waiting)),
    field("waiting_max", "WaitingMax", |queue: &QueueInfo| Value::number(queue.waiting_max)),
    field("running", "Running", |queue: &QueueInfo| Value::number(queue.running)),
    field("running_max", "RunningMax", |queue: &QueueInfo| Value::number(queue.running_max)),
    field("blocked", "Blocked", |queue: &QueueInfo| Value::number(queue.blocked)),
    field("ended", "Ended", |queue: &QueueInfo| Value::number(queue.ended)),
    field("archived", "Archived", |queue: &QueueInfo| Value::number(queue.archived)),
];

/// The queue as JSON.
pub(crate) fn queue_json(queue: &QueueInfo) -> Json {
    Json::Object(whole_object(QUEUE_FIELDS, queue))
}

/// The queue for people.
pub(crate) fn queue_text(queue: &QueueInfo) -> String {
    let mut text = format!("Queue\n{}", whole_text(QUEUE_FIELDS, queue));
    if queue.drained {
        text += "No job is taken: gnt-cluster queue undrain ends that.\n";
    }
    if queue.paused {
        text += "No job that waits is started: gnt-cluster queue resume ends that.\n";
    }
    text
}

/// The cluster as JSON.
pub(crate) fn cluster_json(cluster: &ClusterInfo) -> Json {
    json!({
        "name": cluster.name,
        "uuid": cluster.uuid,
        "master": cluster.master,
        "epoch": cluster.epoch,
        "serial": cluster.serial,
        "version": cluster.version,
        "nodes": cluster.nodes,
        "instances": cluster.instances,
        "groups": cluster.groups,
        "networks": cluster.networks,
        "tags": cluster.tags,
        "ca_digest": cluster.ca_digest,
        "ca_days": cluster.ca_days,
        "successor": cluster.successor,
        "data_dir": cluster.data_dir,
        "hypervisor": cluster.hypervisor,
        "accel": cluster.accel,
        "nic": cluster.nic,
        "fence_command": cluster.fence_command,
        "allowed_commands": cluster.allowed_commands,
        "allowed_files": cluster.allowed_files,
        "hooks_version": cluster.hooks.as_ref().and_then(|policy| policy.version),
        "hooks": policy_json(&cluster.hooks.clone().unwrap_or_default()),
        "clients": cluster.clients.iter().map(|client| json!({
            "name": client.name,
            "role": client.role,
            "fingerprint": client.fingerprint,
            "ctime": rfc3339(client.created_ms),
        })).collect::<Vec<_>>(),
    })
}

fn policy_json(policy: &HookPolicy) -> Json {
    json!({
        "exit_codes": words::exit_codes(policy.exit_codes()),
        "hook_on_error": words::on_error(policy.on_error()),
        "hook_unreachable": words::allow_deny(policy.unreachable()),
        "hook_timeout": words::allow_deny(policy.timeout()),
        "hook_master_required": policy.master_required,
        "hook_timeout_max_ms": policy.timeout_max_ms,
        "hook_warn_limit_ms": policy.warn_ms,
        "hook_kill_limit_ms": policy.kill_ms,
        "hook_phase_budget_ms": policy.budget_ms,
        "hook_policy": hook_policy::by_directory(policy.clone()),
    })
}

/// The cluster for people.
pub(crate) fn cluster_text(cluster: &ClusterInfo) -> String {
    let policy = cluster.hooks.clone().unwrap_or_default();
    let mut lines = vec![
        ("name", cluster.name.clone()),
        ("uuid", cluster.uuid.clone()),
        ("master", cluster.master.clone()),
        ("epoch", cluster.epoch.to_string()),
        ("serial", cluster.serial.to_string()),
        ("version", cluster.version.clone()),
        ("nodes", cluster.nodes.to_string()),
        ("instances", cluster.instances.to_string()),
        ("groups", cluster.groups.to_string()),
        ("networks", cluster.networks.to_string()),
        (
            "tags",
            Some(cluster.tags.join(",")).filter(|tags| !tags.is_empty()).unwrap_or_else(|| "-".to_owned()),
        ),
        ("clients", cluster.clients.len().to_string()),
        ("CA digest", cluster.ca_digest.clone()),
        ("CA valid for", format!("{} days", cluster.ca_days)),
        ("data directory", cluster.data_dir.clone()),
        ("hypervisor", cluster.hypervisor.clone()),
        ("accel", cluster.accel.clone()),
        ("nic", cluster.nic.clone()),
        ("fence_command", cluster.fence_command.clone().unwrap_or_else(|| "none".to_owned())),
        ("hooks_version", policy.version.map_or_else(|| "?".to_owned(), |version| version.to_string())),
        ("exit_codes", words::exit_codes(policy.exit_codes()).to_owned()),
        ("hook_on_error", words::on_error(policy.on_error()).to_owned()),
        ("hook_unreachable", words::allow_deny(policy.unreachable()).to_owned()),
        ("hook_timeout", words::allow_deny(policy.timeout()).to_owned()),
        ("hook_master_required", policy.master_required.map_or("?", words::yes_no).to_owned()),
        ("hook_timeout_max", policy.timeout_max_ms.map_or_else(|| "?".to_owned(), duration)),
        ("hook_warn_limit", policy.warn_ms.map_or_else(|| "?".to_owned(), duration)),
        ("hook_kill_limit", policy.kill_ms.map_or_else(|| "?".to_owned(), duration)),
        ("hook_phase_budget", policy.budget_ms.map_or_else(|| "none".to_owned(), duration)),
        ("hook_policy", hook_policy::directories(policy)),
    ];
    for (name, allowed) in
        [("allowed command", &cluster.allowed_commands), ("allowed file", &cluster.allowed_files)]
    {
        lines.extend(allowed.iter().map(|allowed| (name, allowed.clone())));
    }
    if let Some(successor) = &cluster.successor {
        lines.push(("retired, successor", successor.clone()));
    }
    lines.iter().map(|(name, value)| format!("{:<22}{}\n", format!("{name}:"), visible_line(value))).collect()
}

/// The fields of `gnt-cluster client-cert list` without `-o`.
pub(crate) const CLIENT_DEFAULT: &[&str] = &["name", "role", "ctime", "fingerprint"];

/// All fields of a client.
pub(crate) const CLIENT_FIELDS: &[Field<ClientInfo>] = &[
    field("name", "Name", |client: &ClientInfo| Value::text(&client.name)),
    field("role", "Role", |client: &ClientInfo| Value::text(&client.role)),
    field("ctime", "CTime", |client: &ClientInfo| Value::Time(client.created_ms)),
    field("fingerprint", "Fingerprint", |client: &ClientInfo| Value::text(&client.fingerprint)),
];

/// Whether a check found an error.
pub(crate) fn has_errors(check: &VerifyResponse) -> bool {
    check.findings.iter().any(|finding| finding.error)
}

/// A check's findings for people, and a line that sums them up.
pub(crate) fn verify_text(check: &VerifyResponse) -> String {
    let errors = check.findings.iter().filter(|finding| finding.error).count();
    let warnings = check.findings.len() - errors;
    let count = |count: usize, noun| counted(u64::try_from(count).unwrap_or(u64::MAX), noun);
    let findings: String = check.findings.iter().map(finding_line).collect();
    format!(
        "{findings}checked {} and {}: {}, {}\n",
        counted(check.nodes_checked, "node"),
        counted(check.instances_checked, "instance"),
        count(errors, "error"),
        count(warnings, "warning"),
    )
}

/// A line; what a script wrote follows in lines of its own.
fn finding_line(finding: &VerifyFinding) -> String {
    let text: Vec<String> = finding.text.lines().map(visible_line).collect();
    format!(
        "{}: {} {}: {}: {}\n",
        if finding.error { "error" } else { "warning" },
        finding.object_type,
        visible_line(&finding.object),
        finding.code,
        text.join("\n"),
    )
}

/// A check's findings as JSON.
pub(crate) fn verify_json(check: &VerifyResponse) -> Json {
    let findings = check.findings.iter().map(|finding| {
        json!({
            "error": finding.error,
            "object_type": finding.object_type,
            "object": finding.object,
            "code": finding.code,
            "text": finding.text,
        })
    });
    json!({
        "findings": findings.collect::<Vec<_>>(),
        "nodes_checked": check.nodes_checked,
        "instances_checked": check.instances_checked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_told_and_summed_up() {
        let finding = |error, code: &str| VerifyFinding {
            error,
            object_type: "node".into(),
            object: "node3".into(),
            code: code.into(),
            text: "connection refused".into(),
        };
        let check = VerifyResponse {
            findings: vec![finding(true, "ENODEREACH"), finding(false, "WSKEW")],
            nodes_checked: 3,
            instances_checked: 1,
        };
        let expected = "\
error: node node3: ENODEREACH: connection refused
warning: node node3: WSKEW: connection refused
checked 3 nodes and 1 instance: 1 error, 1 warning
";
        assert_eq!(verify_text(&check), expected);
        assert!(has_errors(&check));
        assert!(!has_errors(&VerifyResponse { findings: vec![finding(false, "WSKEW")], ..check.clone() }));
        assert_eq!(verify_json(&check)["findings"][0]["code"], json!("ENODEREACH"));
    }

    #[test]
    fn the_clusters_parameters_are_shown() {
        let cluster = ClusterInfo {
            name: "dev".into(),
            hooks: Some(HookPolicy {
                exit_codes: 2,
                on_error: 0,
                unreachable: 1,
                timeout: 2,
                master_required: Some(true),
                timeout_max_ms: Some(86_400_000),
                kill_ms: Some(5_000),
                ..HookPolicy::default()
            }),
            ..ClusterInfo::default()
        };
        let text = cluster_text(&cluster);
        for line in [
            "exit_codes:           graded\n",
            "hook_on_error:        default\n",
            "hook_unreachable:     allow\n",
            "hook_timeout:         deny\n",
            "hook_master_required: yes\n",
            "hook_timeout_max:     24 h\n",
            "hook_kill_limit:      5.0 s\n",
            "hook_phase_budget:    none\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
        assert_eq!(cluster_json(&cluster)["hooks"]["hook_master_required"], json!(true));
        assert_eq!(cluster_json(&cluster)["hooks"]["exit_codes"], json!("graded"));
    }
}

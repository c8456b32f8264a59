//! `gnt-hooks`.

use std::time::Duration;

use muster_core::hooks::HooksVersion;
use muster_proto::{
    convert::hooks::version_from_wire,
    v1::{self, ExplainRequest, GetClusterRequest, ListNodeHooksRequest},
};

use super::{
    backup, cluster, group, hook_policy, hook_runs, hooks_host::Host, hooks_init, hooks_lint, hooks_sync,
    instance, network, node, operation::Asked, tag_files,
};
use crate::{
    args::{
        CommandLine, ConnectionFlags, ExplainFlags, Group, HooksVerb, HostFlags, VersionFlag, parse_explained,
    },
    client::{Master, answer},
    exit::Failure,
    output::{
        explain::{explain_json, explain_text},
        fields::select,
        hooks as render, note, one_or_array, print, print_json,
    },
};

/// Carries out a verb.
pub(super) async fn run(connection: &ConnectionFlags, verb: HooksVerb) -> Result<(), Failure> {
    match verb {
        HooksVerb::List { nodes, list } => {
            let selection = select(render::FIELDS, render::DEFAULT, &list)?;
            let master = Master::connect(connection).await?;
            let found = answer(master.queries().list_node_hooks(ListNodeHooksRequest { nodes })).await?.nodes;
            print(&selection.render(&found.iter().flat_map(render::rows).collect::<Vec<_>>())?)
        }
        HooksVerb::Sync(flags) => hooks_sync::sync(connection, flags).await,
        HooksVerb::Diff { nodes, list } => hooks_sync::diff(connection, nodes, &list).await,
        HooksVerb::Policy(verb) => hook_policy::run(connection, verb).await,
        HooksVerb::Explain(flags) => explain(connection, flags).await,
        HooksVerb::Run(flags) => hook_runs::run(connection, flags).await,
        HooksVerb::History(flags) => hook_runs::history(connection, flags).await,
        HooksVerb::Init { dir, version, host, json } => {
            let version = version_of(connection, version, &host).await;
            hooks_init::run(dir, version, &host, json.json)
        }
        HooksVerb::Lint { dir, daemon_user, version, host, json } => {
            let version = version_of(connection, version, &host).await;
            hooks_lint::run(dir, daemon_user, version, &host, json.json)
        }
    }
}

/// How long a master is asked for its cluster's version before it counts as not there: the verbs need none.
const VERSION_WAIT: Duration = Duration::from_secs(3);

/// The version that was named, else the cluster's: as its master says, else as this host's node was told last; else the
/// default one. Which it is and why is told, unless it was named.
async fn version_of(connection: &ConnectionFlags, flag: VersionFlag, host: &HostFlags) -> HooksVersion {
    if let Some(version) = flag.hooks_version {
        return version;
    }
    let asked = async {
        let master = Master::connect(connection).await.ok()?;
        let cluster = answer(master.queries().get_cluster(GetClusterRequest {})).await.ok()?;
        version_from_wire(cluster.hooks?.version?)
    };
    let asked = tokio::time::timeout(VERSION_WAIT, asked).await.ok().flatten();
    let told = || Host::load(host).ok()?.hooks_version();
    let (version, why) = match (asked, asked.is_none().then(told).flatten()) {
        (Some(version), _) => (version, "the cluster's".to_owned()),
        (None, Some((version, file))) => {
            let file = file.display();
            (
                version,
                format!("the cluster's when this node heard of it last ({file}): no master could be asked"),
            )
        }
        (None, None) => (
            HooksVersion::default(),
            "no master could be asked and this node was told nothing; --hooks-version names another"
                .to_owned(),
        ),
    };
    note(&format!("version {version} of the hook interface: {why}"));
    version
}

/// What the words ask for, parsed by the very definitions of the verb that they name.
fn asked(words: &[String]) -> Result<(ConnectionFlags, Asked), Failure> {
    let CommandLine { connection, mut group } = match parse_explained(words) {
        Ok(line) => line,
        // The help of the verb that is to be explained.
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            let text = error.render().to_string();
            return Err(Failure::Usage(text.strip_prefix("error: ").unwrap_or(&text).trim_end().to_owned()));
        }
    };
    tag_files::read(&mut group)?;
    let asked = match group {
        Group::Hooks(HooksVerb::Policy(verb)) => hook_policy::asked(verb),
        Group::Cluster(verb) => cluster::asked(verb)?,
        Group::Node(verb) => node::asked(verb),
        Group::Instance(verb) => instance::asked(verb),
        Group::Backup(verb) => backup::asked(verb),
        Group::Group(verb) => group::asked(verb),
        Group::Network(verb) => network::asked(verb),
        Group::Job(_) | Group::Os(_) | Group::Hooks(_) => None,
    };
    let asked = asked.ok_or_else(|| {
        Failure::Usage(format!(
            "`{}` is no operation; for example: gnt-hooks explain instance start web1",
            words.join(" ")
        ))
    })?;
    Ok((connection, asked))
}

async fn explain(outer: &ConnectionFlags, flags: ExplainFlags) -> Result<(), Failure> {
    let (inner, asked) = asked(&flags.operation)?;
    let master = Master::connect(&inner.or(outer)).await?;
    let mut explained = Vec::new();
    for operation in asked.operations {
        let request = ExplainRequest {
            operation: Some(v1::Operation { operation: Some(operation) }),
            reason: asked.flags.reason.clone().unwrap_or_default(),
            dry_run: asked.flags.dry_run,
            new_master: flags.new_master.clone(),
        };
        explained.push(answer(master.queries().explain(request)).await?);
    }
    if flags.json.json || asked.flags.json {
        let named = explained.len();
        print_json(&one_or_array(explained.iter().map(explain_json).collect(), named))
    } else {
        print(&explained.iter().map(explain_text).collect::<Vec<_>>().join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use muster_proto::v1::operation::Operation;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn all_fourteen_operations_are_taken_in_each_form() {
        for line in [
            "cluster init dev",
            "cluster master-failover",
            "node add node4 -s 192.0.2.4",
            "node remove node4",
            "instance add -t file -n node1 -s 64M -o none web1",
            "backup export -n node2 web1",
            "instance start web1",
            "instance stop web1",
            "instance modify -m 1G web1",
            "instance failover web1",
            "instance remove web1",
            "instance add-mirror -b sda -n node3 web1",
            "instance remove-mirror -b sda -p 1 web1",
            "instance replace-disks web1",
        ] {
            let kind = |line: &str| {
                let (_, asked) = asked(&words(line)).unwrap_or_else(|failure| panic!("{line}: {failure}"));
                format!("{:?}", asked.operations)
            };
            assert_eq!(kind(line), kind(&format!("gnt {line}")));
            assert_eq!(kind(line), kind(&format!("gnt-{line} --submit")));
        }
    }

    #[test]
    fn flags_of_the_operation_count() {
        let line = words("instance start --force --reason x --dry-run --json web1 web2 --master h:1");
        let (connection, asked) = asked(&line).unwrap();
        assert_eq!(connection.master.as_deref(), Some("h:1"));
        assert_eq!((asked.flags.dry_run, asked.flags.json), (true, true));
        assert_eq!(asked.flags.reason.as_deref(), Some("x"));
        let [Operation::InstanceStart(first), Operation::InstanceStart(_)] = asked.operations.as_slice()
        else {
            panic!("{:?}", asked.operations)
        };
        assert!(first.force);
        let (_, asked) = super::asked(&words("hooks policy set instance-add-pre.d kill_limit=5s")).unwrap();
        assert!(matches!(asked.operations.as_slice(), [Operation::ClusterModify(_)]), "{asked:?}");
    }

    #[test]
    fn what_is_no_operation_is_wrong_usage() {
        for (line, part) in [
            ("instance list", "`instance list` is no operation"),
            ("hooks explain instance start web1", "is no operation"),
            ("job info 1", "is no operation"),
            ("cluster client-cert sign --role reader ci", "is no operation"),
            ("instance strat web1", "unrecognized subcommand 'strat'"),
            ("instance add web1", "--disk-template"),
        ] {
            let failure = asked(&words(line)).unwrap_err();
            assert_eq!(failure.code(), 2, "{line}");
            assert!(failure.to_string().contains(part), "{line}: {failure}");
        }
    }
}

//! The cluster's own hook set through the service: who may bring one, and what a node does with it.

use muster_core::hooks::{HookSet, HooksVersion, SetEntry};
use muster_proto::{
    convert::hookset::entry,
    hookset::{digest_of, set_digest},
    v1::{self, sync_hooks_event::Event, sync_hooks_input::Input},
};
use tonic::{Code, Status, Streaming};

use super::daemon::{Daemon, context, hello, new_ca};

const GOOD: &[u8] = b"#!/bin/sh\nexit 0\n";
const NO: &[u8] = b"#!/bin/sh\necho \"not this one\"; exit 1\n";

fn set(entries: &[(&str, &[u8])]) -> HookSet {
    let file = |bytes: &[u8]| SetEntry::File {
        digest: digest_of(bytes),
        mode: 0o755,
        size: u64::try_from(bytes.len()).unwrap(),
    };
    let entries: Vec<_> = entries.iter().map(|(path, bytes)| ((*path).to_owned(), file(bytes))).collect();
    HookSet::try_from(entries).unwrap()
}

fn begin(epoch: u64, set: &HookSet) -> Input {
    begin_in(HooksVersion::V1, epoch, set)
}

/// As the master of a cluster with a version of the interface.
fn begin_in(version: HooksVersion, epoch: u64, set: &HookSet) -> Input {
    begin_with(&[("GANETI_HOOKS_VERSION", version.value())], epoch, set)
}

fn begin_with(env: &[(&str, &str)], epoch: u64, set: &HookSet) -> Input {
    let variable = |(name, value): &(&str, &str)| v1::HookSetVariable {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    Input::Begin(v1::SyncHooksBegin {
        context: context(epoch, 1),
        env: env.iter().map(variable).collect(),
        digest: set_digest(set).to_string(),
        ..v1::SyncHooksBegin::default()
    })
}

fn list(set: &HookSet) -> Input {
    Input::Entries(v1::HookSetEntries { entries: set.entries().map(entry).collect() })
}

fn piece(bytes: &[u8]) -> Input {
    let sha256 = digest_of(bytes).as_bytes().to_vec();
    Input::Piece(v1::HookFilePiece { sha256, data: bytes.to_vec(), last: true })
}

async fn open(daemon: &Daemon, inputs: Vec<Input>) -> Result<Streaming<v1::SyncHooksEvent>, Status> {
    let inputs = inputs.into_iter().map(|input| v1::SyncHooksInput { input: Some(input) });
    Ok(daemon.hooks_client().await.sync_hooks(tokio_stream::iter(inputs)).await?.into_inner())
}

/// The last event, and what the node wanted.
async fn end(mut events: Streaming<v1::SyncHooksEvent>) -> Result<(Event, usize), Status> {
    let mut wanted = 0;
    loop {
        let event = events.message().await?.expect("a last event comes").event.expect("it is known");
        match event {
            Event::Wanted(files) => wanted = files.sha256.len(),
            Event::Going(_) => {}
            last @ (Event::Used(_) | Event::Refused(_)) => return Ok((last, wanted)),
        }
    }
}

async fn sync(daemon: &Daemon, epoch: u64, set: &HookSet, files: &[&[u8]]) -> Result<(Event, usize), Status> {
    let mut inputs = vec![begin(epoch, set), list(set), Input::Listed(v1::HookSetListed {})];
    inputs.extend(files.iter().map(|file| piece(file)));
    inputs.push(Input::Sent(v1::HookFilesSent {}));
    end(open(daemon, inputs).await?).await
}

async fn used(daemon: &Daemon) -> Option<String> {
    daemon.agent_client().await.hello(hello(2, 1, &[])).await.unwrap().into_inner().hook_set
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_is_brought_once_and_its_own_guard_speaks_of_the_next() {
    let mut daemon = Daemon::start().await;
    daemon.make_member(&new_ca()).await;
    let first = set(&[("a-pre.d/10-x", GOOD), ("b-pre.d/10-x", GOOD), ("hooks-sync-pre.d/10-no", NO)]);
    let (last, wanted) = sync(&daemon, 2, &first, &[GOOD, NO]).await.unwrap();
    assert!(matches!(&last, Event::Used(used) if used.switched), "{last:?}");
    assert_eq!((wanted, used(&daemon).await), (2, Some(set_digest(&first).to_string())));
    let (last, wanted) = sync(&daemon, 2, &first, &[]).await.unwrap();
    assert!(matches!(&last, Event::Used(used) if !used.switched) && wanted == 0, "{last:?}");

    let second = set(&[("a-pre.d/10-x", GOOD)]);
    let (last, _) = sync(&daemon, 2, &second, &[]).await.unwrap();
    let Event::Refused(refused) = last else { panic!("{last:?}") };
    assert!(refused.reason.contains("10-no") && refused.reason.contains("not this one"), "{refused:?}");
    assert_eq!(used(&daemon).await, Some(set_digest(&first).to_string()));

    let crlf = b"#!/bin/sh\r\n".as_slice();
    let (last, wanted) = sync(&daemon, 2, &set(&[("node-add-pre.d/10-x", crlf)]), &[crlf]).await.unwrap();
    let Event::Refused(refused) = last else { panic!("{last:?}") };
    assert!(refused.reason.contains("node-add-pre.d/10-x:1: [carriage-return]"), "{refused:?}");
    assert_eq!(wanted, 1);
    let request = v1::CheckHookSetRequest { context: context(2, 1) };
    let checked = daemon.hooks_client().await.check_hook_set(request).await.unwrap().into_inner();
    assert_eq!(checked.changed, Vec::<String>::new());

    // Nothing is left of what was refused but the list and the files of the last one, which need not travel again.
    let kept = |daemon: &Daemon| {
        ["sets", "lists", "files"]
            .map(|name| std::fs::read_dir(daemon.path("state/node/hooks").join(name)).unwrap().count())
    };
    assert_eq!(kept(&daemon), [1, 2, 3]);
    let (last, wanted) = sync(&daemon, 2, &set(&[("node-add-pre.d/10-x", crlf)]), &[]).await.unwrap();
    assert!(matches!(last, Event::Refused(_)) && wanted == 0, "{last:?}");
    assert_eq!(kept(&daemon), [1, 2, 3]);
    daemon.restart().await;
    assert_eq!(kept(&daemon), [1, 1, 2]);
    assert_eq!(used(&daemon).await, Some(set_digest(&first).to_string()));
    // A file that is not as long as the list says makes no set.
    let entry = SetEntry::File { digest: digest_of(GOOD), mode: 0o755, size: 1 };
    let wrong = HookSet::try_from(vec![("a-pre.d/10-x".to_owned(), entry)]).unwrap();
    let status = sync(&daemon, 2, &wrong, &[]).await.unwrap_err();
    assert_eq!((status.code(), kept(&daemon)[0]), (Code::InvalidArgument, 1), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_master_of_the_present_epoch_brings_what_it_said() {
    let daemon = Daemon::start().await;
    let good = set(&[("a-pre.d/10-x", GOOD)]);
    let code = |end: Result<(Event, usize), Status>| end.unwrap_err().code();
    assert_eq!(code(sync(&daemon, 2, &good, &[GOOD]).await), Code::FailedPrecondition, "in no cluster");
    daemon.make_member(&new_ca()).await;
    assert_eq!(used(&daemon).await, None);
    assert_eq!(code(sync(&daemon, 1, &good, &[GOOD]).await), Code::FailedPrecondition, "an older epoch");
    assert_eq!(code(sync(&daemon, 2, &good, &[NO]).await), Code::InvalidArgument, "not asked for");
    let other = set(&[("a-pre.d/20-y", GOOD)]);
    let inputs = vec![begin(2, &good), list(&other), Input::Listed(v1::HookSetListed {})];
    assert_eq!(code(end(open(&daemon, inputs).await.unwrap()).await), Code::InvalidArgument, "another list");
    let first = open(&daemon, vec![list(&good)]).await.map(drop);
    assert_eq!(first.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(used(&daemon).await, None);
    assert!(matches!(sync(&daemon, 2, &good, &[GOOD]).await.unwrap().0, Event::Used(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_masters_node_needs_the_interpreters_of_what_the_master_runs() {
    let daemon = Daemon::start().await;
    daemon.make_member(&new_ca()).await;
    for (directory, master, is_taken) in [
        ("global-post.d", "node2", true),
        ("node-facts-post.d", "node2", true),
        ("global-post.d", "node1", false),
        ("node-facts-post.d", "node1", false),
        ("hooks-sync-pre.d", "node2", false),
        ("instance-add-pre.d", "node2", false),
    ] {
        let file = format!("#!/nonexistent/of-{master}\n# {directory}\n");
        let set = set(&[(&format!("{directory}/10-x"), file.as_bytes())]);
        let begin = begin_with(&[("GANETI_MASTER", master)], 2, &set);
        let mut inputs = vec![begin, list(&set), Input::Listed(v1::HookSetListed {})];
        inputs.extend([piece(file.as_bytes()), Input::Sent(v1::HookFilesSent {})]);
        let last = end(open(&daemon, inputs).await.unwrap()).await.unwrap().0;
        assert_eq!(matches!(last, Event::Used(_)), is_taken, "{directory}, the master is {master}: {last:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_is_checked_as_the_clusters_version_has_it() {
    let daemon = Daemon::start().await;
    daemon.make_member(&new_ca()).await;
    for (version, directory, other) in [
        (HooksVersion::V1, "instance-shutdown-pre.d", "instance-stop-pre.d"),
        (HooksVersion::V2, "instance-stop-pre.d", "instance-shutdown-pre.d"),
    ] {
        let bring = async |directory: &str, first_line: &str| {
            // No node has it: it is always asked for.
            let file = format!("{first_line}# {directory} of {version}\n");
            let set = set(&[(&format!("{directory}/10-x"), file.as_bytes())]);
            let mut inputs =
                vec![begin_in(version, 2, &set), list(&set), Input::Listed(v1::HookSetListed {})];
            inputs.extend([piece(file.as_bytes()), Input::Sent(v1::HookFilesSent {})]);
            end(open(&daemon, inputs).await.unwrap()).await.unwrap().0
        };
        for directory in [directory, "global-pre.d", "config-update-post.d", "hooks-sync-pre.d"] {
            let last = bring(directory, "#!/bin/sh\r\n").await;
            let Event::Refused(refused) = last else { panic!("version {version}, {directory}: {last:?}") };
            let place = format!("{directory}/10-x:1: [carriage-return]");
            assert!(refused.reason.contains(&place), "{refused:?}");
        }
        let last = bring(directory, "#!/bin/sh\n").await;
        assert!(matches!(&last, Event::Used(used) if used.warnings.is_empty()), "{last:?}");
        let last = bring(other, "#!/bin/sh\n").await;
        let Event::Used(used) = last else { panic!("{last:?}") };
        assert!(used.warnings[0].contains(&format!("{other}: [unused-directory]")), "{used:?}");
        assert!(used.warnings[0].contains(&format!("probably {directory}")), "{used:?}");
    }
}

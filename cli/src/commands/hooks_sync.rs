//! `gnt-hooks sync` and `gnt-hooks diff`: the cluster's own hook set.

use muster_proto::v1::{DiffHookSetsRequest, SyncHookSetRequest, sync_hook_set_event::Event};
use serde_json::json;

use crate::{
    args::{ConnectionFlags, ListFlags, SyncFlags},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, hook_sets as render, note, print, print_json, text::visible_line},
};

/// Reads the directory on the master and brings it to the nodes; a node that does not have it then is a failure.
pub(super) async fn sync(connection: &ConnectionFlags, flags: SyncFlags) -> Result<(), Failure> {
    let SyncFlags { nodes, full, on_change, json } = flags;
    let master = Master::connect(connection).await?;
    let request = SyncHookSetRequest { nodes, full, on_change };
    let mut events = master.hook_sets().sync_hook_set(request).await?.into_inner();
    let mut report = json!({ "digest": null, "entries": 0, "bytes": 0, "nodes": [] });
    loop {
        let event = events.message().await?;
        let Some(event) = event.map(|event| event.event) else {
            return Err(Failure::Unreachable("the master ended the sync without a result".to_owned()));
        };
        match event {
            Some(Event::Read(read)) => {
                read.warnings.iter().for_each(|warning| note(&format!("warning: {}", visible_line(warning))));
                if json.json {
                    report = json!({
                        "digest": read.digest, "entries": read.entries, "bytes": read.bytes,
                        "warnings": read.warnings, "nodes": [],
                    });
                } else {
                    print(&render::read_text(&read))?;
                }
            }
            Some(Event::Node(node)) => {
                for warning in &node.warnings {
                    note(&format!("warning: {}: {}", node.node, visible_line(warning)));
                }
                match (json.json, report["nodes"].as_array_mut()) {
                    (true, Some(nodes)) => nodes.push(render::node_json(&node)),
                    (true, None) | (false, _) => print(&render::node_text(&node))?,
                }
            }
            Some(Event::Done(done)) => {
                if json.json {
                    print_json(&report)?;
                }
                if !on_change {
                    return if done.behind == 0 { Ok(()) } else { Err(Failure::Told) };
                }
            }
            Some(Event::Failed(why)) => note(&format!("not synced: {}", visible_line(&why))),
            Some(Event::Going(_)) | None => {}
        }
    }
}

/// Shows which nodes do not have what they should; one is a failure.
pub(super) async fn diff(
    connection: &ConnectionFlags,
    nodes: Vec<String>,
    list: &ListFlags,
) -> Result<(), Failure> {
    let selection = select(render::FIELDS, render::DEFAULT, list)?;
    let master = Master::connect(connection).await?;
    let found = answer(master.hook_sets().diff_hook_sets(DiffHookSetsRequest { nodes })).await?;
    print(&selection.render(&found.nodes)?)?;
    if let Some(problem) = &found.problem {
        let problem = visible_line(problem);
        note(&format!("the master can't bring the cluster's set to a node: {problem}; run gnt-hooks sync"));
    }
    match found.problem.is_none() && found.nodes.iter().all(render::is_right) {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}

//! `gnt-hooks run` and `gnt-hooks history`.

use muster_proto::v1::{ListHookRunsRequest, RunAgainRequest, run_again_event::Event};
use tonic::Status;

use crate::{
    args::{ConnectionFlags, HistoryFlags, RunFlags, Since},
    client::{Master, answer},
    exit::Failure,
    output::{fields::select, hook_runs as render, note, print, print_json, text::visible_line},
};

/// Runs one script again; what it means is the exit code.
pub(super) async fn run(connection: &ConnectionFlags, flags: RunFlags) -> Result<(), Failure> {
    let master = Master::connect(connection).await?;
    let request = RunAgainRequest {
        node: flags.node.clone(),
        directory: flags.script.directory.clone(),
        script: flags.script.script.clone(),
        job_id: flags.from_job,
    };
    let mut events = answer(master.hook_runs().run_again(request)).await?;
    let mut notes = Vec::new();
    while let Some(event) = events.message().await? {
        match event.event {
            Some(Event::Begun(begun)) => {
                for text in &begun.notes {
                    note(&format!("note: {}", visible_line(text)));
                }
                notes = begun.notes;
            }
            Some(Event::Done(done)) => {
                if flags.json.json {
                    print_json(&render::done_json(&flags, &notes, &done))?;
                } else {
                    print(&render::done_text(&flags, &done))?;
                }
                return if render::is_error(&done) { Err(Failure::Told) } else { Ok(()) };
            }
            Some(Event::Going(_)) | None => {}
        }
    }
    Err(Status::unavailable("the master closed the stream before the script's end").into())
}

/// Lists what scripts did.
pub(super) async fn history(connection: &ConnectionFlags, flags: HistoryFlags) -> Result<(), Failure> {
    let selection = select(render::FIELDS, render::DEFAULT, &flags.list)?;
    let master = Master::connect(connection).await?;
    let request = ListHookRunsRequest {
        node: flags.node,
        script: flags.script,
        failed: flags.failed,
        since_ms: flags.since.map(Since::ms),
        limit: flags.limit,
    };
    let found = answer(master.hook_runs().list_hook_runs(request)).await?;
    print(&selection.render(&found.runs)?)?;
    for text in found.stopped.iter().chain(&found.notes) {
        note(&format!("note: {}", visible_line(text)));
    }
    Ok(())
}

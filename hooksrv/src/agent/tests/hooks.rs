//! Hook runs through the service.

use std::fs;

use muster_proto::v1::{self, run_hooks_event::Event, script_outcome::Kind};
use tonic::{Code, Status, Streaming};

use super::daemon::{Daemon, context, hello, wait_for};

fn request(call_id: &str, job_id: u64, epoch: u64) -> v1::RunHooksRequest {
    let variable =
        |name: &str, value: &str| v1::EnvVariable { name: name.to_owned(), value: value.to_owned() };
    v1::RunHooksRequest {
        context: context(epoch, epoch),
        call_id: call_id.to_owned(),
        job_id,
        phase: v1::HookPhase::Pre.into(),
        prefix: "node-add".to_owned(),
        env: vec![variable("GANETI_MASTER", "node1"), variable("GANETI_OP_ID", "OP_ADD_NODE")],
        policy: None,
        ..v1::RunHooksRequest::default()
    }
}

async fn run(daemon: &Daemon, request: v1::RunHooksRequest) -> Result<Streaming<v1::RunHooksEvent>, Status> {
    Ok(daemon.hooks_client().await.run_hooks(request).await?.into_inner())
}

async fn events(mut stream: Streaming<v1::RunHooksEvent>) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(event) = stream.message().await.unwrap() {
        events.push(event.event.unwrap());
    }
    events
}

fn result(events: &[Event]) -> &v1::HookResult {
    match events.last() {
        Some(Event::Result(result)) => result,
        other => panic!("the last event is {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_runs_once_however_often_it_is_asked_for() {
    let daemon = Daemon::start().await;
    let ran = daemon.path("ran");
    daemon.script("node-add-pre.d", "10-env", &format!("env | sort\necho x >>{}", ran.display()));
    daemon.script("node-add-pre.d", "20-no", "echo objection >&2; exit 3");
    daemon.script("node-add-pre.d", "30.sh", "exit 0");
    let mut client = daemon.agent_client().await;
    let answer = client.hello(hello(1, 1, &[17])).await.unwrap().into_inner();
    assert!(answer.hooks_only && answer.now_ms > 0);

    let first = events(run(&daemon, request("17/pre/1", 17, 1)).await.unwrap()).await;
    assert!(matches!(first[0], Event::Going(_)), "the caller hears at once that the node was reached");
    let scripts = first.iter().filter(|event| matches!(event, Event::Script(_))).count();
    assert_eq!(scripts, 2, "results travel script by script");
    let whole = result(&first);
    let outcome = |script: &v1::ScriptResult| script.outcome.clone().unwrap().kind.unwrap();
    assert!(matches!(outcome(&whole.scripts[0]), Kind::Passed(_)));
    assert_eq!(outcome(&whole.scripts[1]), Kind::FailedCode(3));
    assert_eq!(whole.scripts[1].stderr.as_ref().unwrap().head, b"objection\n");
    assert_eq!(whole.skipped[0].name, "30.sh");
    let stdout = String::from_utf8(whole.scripts[0].stdout.clone().unwrap().head).unwrap();
    for line in [
        "GANETI_HOST_NAME=node1".to_owned(),
        "GANETI_HOST_TYPE=MASTER".to_owned(),
        "GANETI_OP_ID=OP_ADD_NODE".to_owned(),
        format!("GANETI_DATA_DIR={}", daemon.config.data_dir().display()),
        "PATH=/sbin:/bin:/usr/sbin:/usr/bin".to_owned(),
    ] {
        assert!(stdout.lines().any(|found| found == line), "{line} is not in {stdout}");
    }

    // A newer master repeats the call: the same answer, and nothing runs.
    let repeated = events(run(&daemon, request("17/pre/1", 17, 2)).await.unwrap()).await;
    assert_eq!(result(&repeated), whole);
    assert_eq!(fs::read_to_string(&ran).unwrap(), "x\n");

    let mut other = request("17/pre/1", 17, 2);
    other.env.pop();
    assert_eq!(run(&daemon, other).await.unwrap_err().code(), Code::AlreadyExists);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_does_not_end_with_its_connection() {
    let daemon = Daemon::start().await;
    let (ran, go) = (daemon.path("ran"), daemon.path("go"));
    let text = format!("echo x >>{}\nwhile ! [ -e {} ]; do sleep 0.01; done", ran.display(), go.display());
    daemon.script("node-add-pre.d", "10-wait", &text);
    let mut stream = run(&daemon, request("1/pre/1", 1, 1)).await.unwrap();
    assert!(matches!(stream.message().await.unwrap().unwrap().event, Some(Event::Going(_))));
    wait_for(async || ran.exists().then_some(())).await;
    drop(stream);
    let rejoined = run(&daemon, request("1/pre/1", 1, 1)).await.unwrap();
    fs::write(&go, "").unwrap();
    let events = events(rejoined).await;
    assert_eq!(result(&events).scripts.len(), 1);
    assert_eq!(fs::read_to_string(&ran).unwrap(), "x\n", "it ran once");
}

/// The end of a job overtakes the request for its scripts.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_was_withdrawn_never_begins() {
    let daemon = Daemon::start().await;
    let ran = daemon.path("ran");
    daemon.script("node-add-pre.d", "10-mark", &format!("echo x >> {}", ran.display()));
    let mut client = daemon.agent_client().await;
    client.hello(hello(1, 1, &[1])).await.unwrap();
    let end = v1::EndJobRequest { context: context(1, 1), job_id: 1, call_ids: vec!["1/pre/1".to_owned()] };
    assert_eq!(client.end_job(end).await.unwrap().into_inner().ended, 0);
    let late = run(&daemon, request("1/pre/1", 1, 1)).await.map(drop).unwrap_err();
    assert_eq!(late.code(), tonic::Code::NotFound, "{late}");
    assert!(!ran.exists(), "the script ran");
    run(&daemon, request("1/pre/2", 1, 1)).await.map(drop).unwrap();
}

/// With a full disk, for example; here the name of the record is taken.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_ends_also_where_nothing_can_be_withdrawn() {
    let daemon = Daemon::start().await;
    let ran = daemon.path("ran");
    daemon.script("node-add-pre.d", "10-long", &format!("echo x >{}\nexec sleep 1000", ran.display()));
    let mut client = daemon.agent_client().await;
    client.hello(hello(1, 1, &[1])).await.unwrap();
    let stream = run(&daemon, request("1/pre/1", 1, 1)).await.unwrap();
    wait_for(async || ran.exists().then_some(())).await;
    fs::create_dir_all(daemon.config.node_dir().join("calls/hooks/1.pre.2.call")).unwrap();
    let call_ids = vec!["1/pre/2".to_owned()];
    client.end_job(v1::EndJobRequest { context: context(1, 1), job_id: 1, call_ids }).await.unwrap_err();
    let outcome = result(&events(stream).await).scripts[0].outcome.clone().unwrap().kind;
    assert!(matches!(outcome, Some(Kind::Ended(_))), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runs_of_jobs_that_are_not_alive_end() {
    let daemon = Daemon::start().await;
    let ran = daemon.path("ran");
    daemon.script("node-add-pre.d", "10-long", &format!("echo x >>{}\nexec sleep 1000", ran.display()));
    let mut client = daemon.agent_client().await;
    client.hello(hello(1, 1, &[1, 2, 3])).await.unwrap();
    let mut streams = Vec::new();
    for job in 1..=3 {
        streams.push(run(&daemon, request(&format!("{job}/pre/1"), job, 1)).await.unwrap());
    }
    let all_run = async || fs::read_to_string(&ran).is_ok_and(|text| text.len() == 6).then_some(());
    wait_for(all_run).await;
    let ended = v1::EndJobRequest { context: context(1, 1), job_id: 1, call_ids: Vec::new() };
    assert_eq!(client.end_job(ended).await.unwrap().into_inner().ended, 1);
    client.hello(hello(2, 1, &[3])).await.unwrap();
    let third = streams.pop().unwrap();
    for stream in streams {
        let events = events(stream).await;
        let outcome = result(&events).scripts[0].outcome.clone().unwrap().kind;
        assert!(matches!(outcome, Some(Kind::Ended(_))), "{outcome:?}");
    }
    client.hello(hello(2, 1, &[])).await.unwrap();
    assert_eq!(result(&events(third).await).scripts.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn e3_d1_what_is_no_call_is_refused() {
    let daemon = Daemon::start().await;
    type Spoil = fn(&mut v1::RunHooksRequest);
    let spoils: [Spoil; 7] = [
        |request| request.context = None,
        |request| request.context = context(0, 1),
        |request| request.call_id = "../1".to_owned(),
        |request| request.prefix = "../node-add".to_owned(),
        |request| request.prefix.clear(),
        |request| request.phase = 0,
        |request| request.env[0].name = "PATH".to_owned(),
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let mut request = request("1/pre/1", 1, 1);
        spoil(&mut request);
        assert_eq!(run(&daemon, request).await.unwrap_err().code(), Code::InvalidArgument, "{number}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn x8_hooks_are_listed_with_their_limits() {
    let daemon = Daemon::start().await;
    daemon.script("node-add-post.d", "10-x", "# HOOK_KILL_TIMEOUT = 7 s");
    let request = v1::ListHooksRequest { context: context(1, 1) };
    let listing = daemon.hooks_client().await.list_hooks(request).await.unwrap().into_inner();
    assert_eq!(listing.hooks_dir, daemon.config.hooks_dir.display().to_string());
    assert_eq!(listing.directories[0].name, "node-add-post.d");
    assert_eq!(listing.directories[0].scripts[0].kill_timeout_ms, 7000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_init_leaves_no_answer_for_the_next_one() {
    let daemon = Daemon::start().await;
    daemon.script("node-add-pre.d", "10-no", "exit 1");
    let first = events(run(&daemon, request("1/pre/1", 1, 1)).await.unwrap()).await;
    assert_eq!(result(&first).scripts.len(), 1);
    // Calls of real jobs have the job's uuid in their id: no two have one directory.
    wait_for(async || daemon.has_no_keepers().then_some(())).await;
    daemon.script("node-add-pre.d", "10-no", "exit 0");
    let mut next = request("1/pre/1", 1, 1);
    next.context.as_mut().unwrap().cluster_uuid = uuid::Uuid::from_u128(77).to_string();
    let second = events(run(&daemon, next).await.unwrap()).await;
    let outcome = result(&second).scripts[0].outcome.clone().unwrap().kind;
    assert!(matches!(outcome, Some(Kind::Passed(_))), "{outcome:?}");
    assert!(!daemon.node_files().contains(&"node.json".to_owned()));
}

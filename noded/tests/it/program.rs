//! A node daemon's process in a directory of its own, and the master's side of its calls.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use muster_proto::{
    transport::connect_unix,
    v1::{
        self, agent_service_client::AgentServiceClient, execute_event::Event, node_call::Call,
        node_service_client::NodeServiceClient,
    },
};
use tonic::{Status, Streaming, transport::Channel};
use uuid::Uuid;

/// Whatever a test waits for comes within this.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);

/// A daemon that is killed when the test ends.
pub(crate) struct Program {
    pub(crate) folder: tempfile::TempDir,
    /// By which the cluster knows it.
    pub(crate) name: String,
    child: Option<Child>,
}

impl Program {
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let keys = ["state_dir", "run_dir", "hooks_dir", "storage_dir", "os_dir", "export_dir"];
        let lines = keys.map(|key| format!("{key} = {:?}\n", folder.path().join(key).display().to_string()));
        let log = folder.path().join("log").display().to_string();
        let text = format!("name = \"node1\"\nlog = {log:?}\n{}", lines.concat());
        fs::write(folder.path().join("noded.toml"), text).expect("the configuration is written");
        let mut program = Program { folder, name: "node1".to_owned(), child: None };
        program.begin().await;
        program
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster-noded"));
        command.arg("--config").arg(self.path("noded.toml")).args(arguments).stdin(Stdio::null());
        command
    }

    /// Starts the daemon, and greets it as a master does.
    pub(crate) async fn begin(&mut self) {
        self.begin_ungreeted().await;
        self.hello(context(), Vec::new()).await.expect("it takes the greeting");
    }

    /// Greets the daemon; the instances that have files there, with their generations.
    pub(crate) async fn hello(
        &self,
        context: Option<v1::CallContext>,
        guests: Vec<v1::InstanceGeneration>,
    ) -> Result<v1::HelloResponse, Status> {
        let request = v1::HelloRequest {
            context,
            version: "0.0.0".to_owned(),
            // No test has more.
            alive_jobs: (1..1000).collect(),
            now_ms: 1,
            node_name: self.name.clone(),
            guests,
            ending_jobs: Vec::new(),
        };
        Ok(self.agent().await.hello(request).await?.into_inner())
    }

    pub(crate) async fn begin_ungreeted(&mut self) {
        self.child = Some(self.command(&[]).spawn().expect("the program starts"));
        wait_for(async || connect_unix(&self.socket()).await.ok()).await;
    }

    /// Ends it as a crash does.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("it can be killed");
        child.wait().expect("it can be waited for");
    }

    /// The process id, of which the caller takes over the end.
    pub(crate) fn take(&mut self) -> Child {
        self.child.take().expect("it runs")
    }

    /// The number of the daemon's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("run_dir/node.sock")
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(self.path("log")).expect("there is a log")
    }

    pub(crate) fn faults(&self, text: &str) {
        fs::write(self.path("state_dir/node/faults.toml"), text).expect("the faults are written");
    }

    pub(crate) async fn node(&self) -> NodeServiceClient<Channel> {
        NodeServiceClient::new(connect_unix(&self.socket()).await.expect("it serves"))
    }

    pub(crate) async fn agent(&self) -> AgentServiceClient<Channel> {
        AgentServiceClient::new(connect_unix(&self.socket()).await.expect("it serves"))
    }

    pub(crate) async fn execute(&self, id: &str, call: Call) -> Result<Streaming<v1::ExecuteEvent>, Status> {
        let job_id = id.split('/').next().and_then(|job| job.parse().ok()).expect("ids start with a job");
        let call = Some(v1::NodeCall { call: Some(call) });
        let request = v1::ExecuteRequest { context: context(), call_id: id.to_owned(), job_id, call };
        Ok(self.node().await.execute(request).await?.into_inner())
    }

    /// Carries a call out; the path of its answer, or why it failed.
    pub(crate) async fn call(&self, id: &str, call: Call) -> Result<String, String> {
        Ok(self.output(id, call).await?.path)
    }

    /// The same, with the whole answer.
    pub(crate) async fn output(&self, id: &str, call: Call) -> Result<v1::Output, String> {
        let stream = self.execute(id, call).await.map_err(|status| status.to_string())?;
        output(stream).await
    }

    /// The state as it is told first.
    pub(crate) async fn state(&self) -> v1::NodeState {
        let request = v1::WatchRequest { context: context(), ..v1::WatchRequest::default() };
        let mut states = self.agent().await.watch(request).await.expect("it serves").into_inner();
        states.message().await.expect("a state").expect("the stream goes on")
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // One that has ended already is no trouble.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Waits for a call's answer; its path.
pub(crate) async fn answer(stream: Streaming<v1::ExecuteEvent>) -> Result<String, String> {
    Ok(output(stream).await?.path)
}

/// Waits for a call's answer.
async fn output(mut stream: Streaming<v1::ExecuteEvent>) -> Result<v1::Output, String> {
    use v1::answer::Answer;
    while let Some(event) = stream.message().await.map_err(|status| status.to_string())? {
        if let Some(Event::Answer(answer)) = event.event {
            return match answer.answer.expect("an answer") {
                Answer::Done(output) => Ok(output),
                Answer::Failed(words) => Err(words),
                Answer::Lost(_) => Err("lost".to_owned()),
            };
        }
    }
    Err("no answer".to_owned())
}

pub(crate) fn context() -> Option<v1::CallContext> {
    Some(v1::CallContext { cluster_uuid: Uuid::from_u128(0xc1).to_string(), epoch: 1, serial: 1 })
}

pub(crate) fn uuid(number: u128) -> String {
    Uuid::from_u128(number).to_string()
}

/// Asks again until there is an answer.
pub(crate) async fn wait_for<T>(ask: impl AsyncFn() -> Option<T>) -> T {
    wait_within(LIMIT, ask).await
}

/// The same, with another limit.
pub(crate) async fn wait_within<T>(limit: Duration, ask: impl AsyncFn() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(limit, asking).await.expect("what the test waits for comes")
}

/// The names in a directory, in order.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the directory is there");
    let name = |entry: std::io::Result<fs::DirEntry>| {
        entry.expect("an entry").file_name().into_string().expect("names are UTF-8")
    };
    let mut names: Vec<String> = entries.map(name).collect();
    names.sort();
    names
}

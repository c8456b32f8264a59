//! Real guests of a node daemon: the small guest of `tests/guest`, its console, its process.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    time::Duration,
};

use futures::{StreamExt, channel::mpsc};
use muster_proto::v1::{
    ConsoleInput, ConsoleOutput, ConsoleStart, Guest, GuestDisk, GuestReboot, GuestStart, GuestStop, Output,
    RunState, console_input::Input, node_call::Call,
};
use rustix::process::{Pid, Signal, kill_process};
use tonic::{Status, Streaming};

use crate::program::{Program, context, uuid, wait_for, wait_within};

/// A boot under the translator takes seconds, and much longer on a busy machine.
pub(crate) const BOOT_LIMIT: Duration = Duration::from_secs(120);

/// A daemon whose guests end with the test.
pub(crate) struct Bench {
    pub(crate) program: Program,
    calls: std::cell::Cell<u32>,
}

/// The small guest's directory, an OS definition; made once.
fn small_guest() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").join("tests");
        let made = Command::new(tests.join("guest/build.sh")).output().expect("the script runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        tests.join(".cache/guest")
    })
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::on(Program::start().await)
    }

    pub(crate) fn on(program: Program) -> Self {
        let bench = Bench { program, calls: std::cell::Cell::new(0) };
        fs::create_dir_all(bench.program.path("os_dir")).expect("the folder can be made");
        std::os::unix::fs::symlink(small_guest(), bench.program.path("os_dir/small"))
            .expect("the link can be made");
        bench
    }

    /// Carries a call out, each in a job of its own.
    pub(crate) async fn call(&self, call: Call) -> Result<String, String> {
        Ok(self.output(call).await?.path)
    }

    /// The same, with the whole answer.
    pub(crate) async fn output(&self, call: Call) -> Result<Output, String> {
        self.calls.set(self.calls.get() + 1);
        self.program.output(&format!("{}/1/1", self.calls.get()), call).await
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.program.path("state_dir/node/qemu").join(uuid(1))
    }

    /// The number of the guest's process, as QEMU itself wrote it.
    pub(crate) async fn pid(&self) -> i32 {
        let read = async || fs::read_to_string(self.folder().join("pid")).ok()?.trim().parse().ok();
        wait_for(read).await
    }

    /// How often the guest has said that it is up.
    fn boots(&self) -> usize {
        let said = fs::read(self.folder().join("console.log")).unwrap_or_default();
        String::from_utf8_lossy(&said).matches("GUEST READY name=web1 ").count()
    }

    pub(crate) async fn booted(&self, times: usize) {
        wait_within(BOOT_LIMIT, async || (self.boots() >= times).then_some(())).await;
        assert_eq!(self.boots(), times);
    }

    /// Waits until the only guest has this state.
    pub(crate) async fn is(&self, state: RunState) {
        let same = async || (self.program.state().await.guests.pop()?.state() == state).then_some(());
        wait_for(same).await;
    }

    /// QEMU's processes that belong to this bench.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let folder = self.program.path("").display().to_string();
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").expect("/proc is there") {
            let Ok(number) = entry.expect("an entry").file_name().to_string_lossy().parse() else { continue };
            let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            if line.starts_with("/usr/bin/qemu-system") && line.contains(&folder) {
                found.push(number);
            }
        }
        found
    }

    /// Asserts that nothing of any guest is left, no process, no file, no child that nobody has fetched.
    pub(crate) async fn nothing_is_left(&self) {
        assert_eq!(self.processes(), Vec::<i32>::new());
        assert_eq!(crate::program::names(&self.program.path("run_dir")), ["node.sock"]);
        assert_eq!(crate::program::names(&self.program.path("state_dir/node/qemu")), Vec::<String>::new());
        assert!(self.program.state().await.guests.is_empty());
        let parent = format!(" Z {} ", self.program.pid());
        let dead = async || {
            let is_dead = |entry: std::io::Result<fs::DirEntry>| {
                let stat =
                    fs::read_to_string(entry.expect("an entry").path().join("stat")).unwrap_or_default();
                stat.contains(&parent)
            };
            (!fs::read_dir("/proc").expect("/proc is there").any(is_dead)).then_some(())
        };
        wait_for(dead).await;
    }

    /// Opens the guest's console.
    pub(crate) async fn console(&self) -> Result<Console, Status> {
        let (typed, input) = mpsc::channel(16);
        let mut console = Console { typed, said: None, text: String::new() };
        let start = ConsoleStart { context: context(), instance_uuid: uuid(1) };
        console.send(Input::Start(start));
        console.said = Some(self.program.node().await.console(input).await?.into_inner());
        Ok(console)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for pid in self.processes().into_iter().filter_map(Pid::from_raw) {
            let _ended_already_is_fine = kill_process(pid, Signal::KILL);
        }
    }
}

/// A console in use.
pub(crate) struct Console {
    typed: mpsc::Sender<ConsoleInput>,
    said: Option<Streaming<ConsoleOutput>>,
    text: String,
}

impl Console {
    fn send(&mut self, input: Input) {
        self.typed.try_send(ConsoleInput { input: Some(input) }).expect("few are on their way");
    }

    pub(crate) fn enter(&mut self, line: &str) {
        self.send(Input::Data(format!("{line}\n").into_bytes()));
    }

    /// Reads until the guest has said this.
    pub(crate) async fn says(&mut self, part: &str) {
        let reading = async {
            while !self.text.contains(part) {
                let said = self.said.as_mut().expect("it is open").next().await;
                let data = said.expect("the guest goes on").expect("the console goes on").data;
                self.text.push_str(&String::from_utf8_lossy(&data));
            }
        };
        let read = tokio::time::timeout(BOOT_LIMIT, reading).await;
        read.unwrap_or_else(|_| panic!("{part} is not said: {}", self.text));
        // What follows may have come with it.
        let end = self.text.find(part).expect("just read") + part.len();
        self.text.drain(..end);
    }

    /// Reads to the end; gives what was said.
    pub(crate) async fn rest(mut self) -> Result<String, Status> {
        let reading = async {
            while let Some(said) = self.said.as_mut().expect("it is open").next().await {
                self.text.push_str(&String::from_utf8_lossy(&said?.data));
            }
            Ok(self.text)
        };
        tokio::time::timeout(BOOT_LIMIT, reading).await.expect("the console ends")
    }
}

/// The instance: one disk, one processor.
pub(crate) fn guest(os: &str) -> Guest {
    Guest {
        instance_uuid: uuid(1),
        name: "web1".to_owned(),
        memory_mib: 96,
        vcpus: 1,
        disks: vec![GuestDisk { name: "sda".to_owned(), disk_uuid: uuid(2), size_mib: 16 }],
        ip: None,
        mac: "aa:00:00:00:00:01".to_owned(),
        os: os.to_owned(),
        hypervisor: "qemu".to_owned(),
        accel: "tcg".to_owned(),
        nic: "user".to_owned(),
        generation: 0,
    }
}

pub(crate) fn start(guest: Guest) -> Call {
    Call::GuestStart(GuestStart { guest: Some(guest), force: false, paused: false })
}

pub(crate) fn stop(timeout_ms: u64) -> Call {
    Call::GuestStop(GuestStop { instance_uuid: uuid(1), timeout_ms, name: "web1".to_owned() })
}

pub(crate) fn reboot(timeout_ms: u64) -> Call {
    Call::GuestReboot(GuestReboot { instance_uuid: uuid(1), timeout_ms, name: "web1".to_owned() })
}

//! Runs one command that an admin asked for: no shell, a cleared environment, a session of its own that is ended at the time
//! limit, and an output of which the beginning is kept.
//!
//! The output is a regular file, so that a process which is left behind holds nothing up; a daemon that starts knows by it
//! what an earlier one left running, and ends that.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
    time::Duration,
};

use muster_proto::v1::{CommandResult, command_result::End};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Detached, Exit, Tool, end_writers};

/// Of an output so much is kept.
const OUTPUT_KEPT_BYTES_MAX: u64 = 256 * 1024;
/// A command that says more is ended: nobody reads it, and it fills the disk.
const OUTPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// How often the output's size is looked at.
const SIZE_INTERVAL: Duration = Duration::from_millis(200);
/// The longest that a command may run.
pub(super) const COMMAND_LIMIT_MAX: Duration = Duration::from_secs(3600);
/// Arguments of a command, its program included, and their bytes in all: what the kernel takes of one string.
const ARGUMENTS_MAX: usize = 1024;
const ARGUMENTS_BYTES_MAX: usize = 128 * 1024;

/// A command line that can be run.
#[derive(Debug, Clone)]
pub(super) struct CommandLine(Vec<String>);

impl CommandLine {
    /// Checks what came from the wire; why it is none, in words.
    pub(super) fn parse(argv: Vec<String>) -> Result<Self, String> {
        let bytes: usize = argv.iter().map(|argument| argument.len() + 1).sum();
        if argv.len() > ARGUMENTS_MAX || bytes > ARGUMENTS_BYTES_MAX {
            return Err("the command line is too long".to_owned());
        }
        if argv.iter().any(|argument| argument.contains('\0')) {
            return Err("an argument holds a NUL byte".to_owned());
        }
        match argv.first() {
            Some(program) if program.starts_with('/') => Ok(CommandLine(argv)),
            Some(program) => Err(format!("the program {program:?} is not named by an absolute path")),
            None => Err("there is no program".to_owned()),
        }
    }

    /// The program and its arguments.
    pub(super) fn argv(&self) -> &[String] {
        &self.0
    }
}

/// Ends what commands of an earlier daemon left running, and removes their outputs. Blocks, for some seconds where something
/// must be ended.
pub(super) fn clean(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        end_writers(dir).map_err(io::Error::other)?;
        fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// How the waiting for a command ended.
enum Ended {
    Itself,
    TimedOut,
    OutputLimit,
    Given,
}

/// The command's output, deleted with this.
struct Output {
    path: PathBuf,
    file: File,
}

impl Output {
    fn make(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let path = dir.join(Uuid::new_v4().to_string());
        let file = File::options().append(true).create_new(true).open(&path)?;
        Ok(Output { path, file })
    }

    fn bytes(&self) -> u64 {
        self.file.metadata().map_or(0, |metadata| metadata.len())
    }

    fn beginning(&self) -> Vec<u8> {
        let mut kept = Vec::new();
        if let Ok(file) = File::open(&self.path) {
            // What was read before an error is shown.
            file.take(OUTPUT_KEPT_BYTES_MAX).read_to_end(&mut kept).unwrap_or_default();
        }
        kept
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        fs::remove_file(&self.path).unwrap_or_default();
    }
}

/// Runs a command until it ends, its limit passes, or nobody wants it any more (`given_up`).
pub(super) async fn run(
    dir: PathBuf,
    line: CommandLine,
    limit: Duration,
    given_up: CancellationToken,
) -> CommandResult {
    let deadline = Instant::now() + limit.min(COMMAND_LIMIT_MAX);
    let started = tokio::task::spawn_blocking(move || start(&dir, &line)).await;
    let (output, mut command) = match started {
        Ok(Ok(started)) => started,
        Ok(Err(error)) => return not_started(&error.to_string()),
        Err(error) => return not_started(&error.to_string()),
    };
    let ended = until_end(&command, &output, deadline, &given_up).await;
    let finished = tokio::task::spawn_blocking(move || {
        if !matches!(ended, Ended::Itself) {
            // What outlives this is found when the daemon starts again.
            if let Err(error) = command.end() {
                tracing::error!(%error, "a command could not be ended");
            }
        }
        let end = match (ended, command.exit()) {
            (Ended::TimedOut, _) => End::TimedOut(true),
            (Ended::OutputLimit, _) => End::OutputLimit(true),
            (Ended::Itself | Ended::Given, Ok(Exit::Code(code))) => End::ExitCode(u32::from(code)),
            (Ended::Itself | Ended::Given, Ok(Exit::Signal(signal))) => End::Signal(signal),
            (Ended::Itself | Ended::Given, Err(error)) => End::NotStarted(error.to_string()),
        };
        CommandResult { output: output.beginning(), output_bytes: output.bytes(), end: Some(end) }
    });
    finished.await.unwrap_or_else(|error| not_started(&error.to_string()))
}

fn not_started(why: &str) -> CommandResult {
    CommandResult { end: Some(End::NotStarted(why.to_owned())), ..CommandResult::default() }
}

fn start(dir: &Path, line: &CommandLine) -> io::Result<(Output, Detached)> {
    let output = Output::make(dir)?;
    let (program, arguments) = line.0.split_first().expect("a command line has a program");
    let tool = Tool {
        program: Path::new(program),
        arguments,
        env: &[],
        directory: Path::new("/"),
        log: &output.file,
    };
    let command = tool.spawn()?;
    Ok((output, command))
}

async fn until_end(
    command: &Detached,
    output: &Output,
    deadline: Instant,
    given_up: &CancellationToken,
) -> Ended {
    let too_much = async {
        while output.bytes() <= OUTPUT_BYTES_MAX {
            sleep(SIZE_INTERVAL).await;
        }
    };
    tokio::select! {
        biased;
        _ = command.exited() => Ended::Itself,
        () = given_up.cancelled() => Ended::Given,
        () = too_much => Ended::OutputLimit,
        () = sleep_until(deadline) => Ended::TimedOut,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No command of a test takes longer.
    const LONG: Duration = Duration::from_secs(30);

    async fn shell(dir: &Path, text: &str, limit: Duration) -> CommandResult {
        let argv = ["/bin/sh", "-c", text].map(str::to_owned).to_vec();
        run(dir.to_owned(), CommandLine::parse(argv).unwrap(), limit, CancellationToken::new()).await
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[tokio::test]
    async fn a_command_has_a_cleared_environment_and_its_output_is_kept() {
        let folder = folder();
        let text = "echo out; echo err >&2; env | cut -d= -f1; pwd; cat; exit 7";
        let result = shell(folder.path(), text, LONG).await;
        assert_eq!(result.end, Some(End::ExitCode(7)));
        let output = String::from_utf8(result.output).unwrap();
        assert!(output.starts_with("out\nerr\n") && output.ends_with("/\n"), "{output}");
        assert!(output.contains("PATH") && !output.contains("HOME"), "{output}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "the output's file is gone");
        assert_eq!(shell(folder.path(), "kill -9 $$", LONG).await.end, Some(End::Signal(9)));
    }

    #[tokio::test]
    async fn of_a_long_output_the_beginning_is_kept_and_the_rest_counted() {
        let folder = folder();
        let result = shell(folder.path(), "head -c 1000000 /dev/zero", LONG).await;
        assert_eq!((result.output.len(), result.output_bytes), (256 * 1024, 1_000_000));
        let result = shell(folder.path(), "exec cat /dev/zero", LONG).await;
        assert_eq!(result.end, Some(End::OutputLimit(true)));
    }

    #[tokio::test]
    async fn a_hanging_command_is_ended_with_all_of_its_session() {
        let folder = folder();
        let pid = folder.path().join("pid");
        let text = format!("echo begun; sleep 1000 & echo $! >{}; wait", pid.display());
        let result = shell(folder.path(), &text, Duration::from_secs(5)).await;
        assert_eq!((result.end, result.output.as_slice()), (Some(End::TimedOut(true)), &b"begun\n"[..]));
        let stat = format!("/proc/{}/stat", fs::read_to_string(pid).unwrap().trim());
        let alive = fs::read_to_string(stat).is_ok_and(|stat| !stat.contains(") Z"));
        assert!(!alive);
    }

    #[tokio::test]
    async fn a_command_that_nobody_waits_for_is_ended() {
        let folder = folder();
        let given_up = CancellationToken::new();
        given_up.cancel();
        let line = CommandLine::parse(vec!["/bin/sleep".to_owned(), "1000".to_owned()]).unwrap();
        let result = run(folder.path().to_owned(), line, LONG, given_up).await;
        assert_eq!(result.end, Some(End::Signal(15)));
    }

    #[tokio::test]
    async fn what_an_earlier_daemon_left_running_is_ended() {
        let folder = folder();
        let line = CommandLine::parse(vec!["/bin/sleep".to_owned(), "1000".to_owned()]).unwrap();
        let (output, mut command) = start(folder.path(), &line).unwrap();
        let cleaned = {
            let dir = folder.path().to_owned();
            tokio::task::spawn_blocking(move || clean(&dir))
        };
        cleaned.await.unwrap().unwrap();
        command.exited().await.unwrap();
        assert!(matches!(command.exit().unwrap(), Exit::Signal(_)));
        drop(output);
    }

    #[tokio::test]
    async fn what_is_no_program_is_told() {
        let folder = folder();
        let line = CommandLine::parse(vec!["/nonexistent/program".to_owned()]).unwrap();
        let result = run(folder.path().to_owned(), line, LONG, CancellationToken::new()).await;
        assert!(matches!(result.end, Some(End::NotStarted(_))), "{result:?}");
        for wrong in [vec![], vec!["echo".to_owned()], vec!["/bin/echo".to_owned(), "a\0b".to_owned()]] {
            assert!(CommandLine::parse(wrong).is_err());
        }
        assert!(CommandLine::parse(vec![format!("/{}", "x".repeat(ARGUMENTS_BYTES_MAX))]).is_err());
    }
}

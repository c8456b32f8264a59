//! Programs that are no hook scripts: guests, which outlive the daemon, and tools, which are waited for. Each is the leader
//! of a session of its own, has no descriptor but its log, and is reaped.

use std::{
    ffi::{CString, OsStr},
    fs::File,
    io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    thread,
};

use crate::{
    processes::{self, StillThere},
    script::{BUSY_RETRIES_MAX, BUSY_RETRY, is_busy},
    spawn::{self, Child, Exit, Program},
    unexecutable,
};

/// Where programs are looked for, and what they get as `PATH`.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program that is to be started.
#[derive(Debug, Clone, Copy)]
pub struct Tool<'a> {
    /// Its file; a bare name is looked for in the usual directories.
    pub program: &'a Path,
    /// What follows its name.
    pub arguments: &'a [String],
    /// Its environment, to which `PATH` is added.
    pub env: &'a [(String, String)],
    /// Where it starts.
    pub directory: &'a Path,
    /// Gets its standard output and standard error.
    pub log: &'a File,
}

/// A started program. Dropped, it runs on.
#[derive(Debug)]
pub struct Detached(Child);

impl Detached {
    /// The process, which is also the number of its session.
    pub fn pid(&self) -> i32 {
        self.0.pid().as_raw_pid()
    }

    /// Waits until the program has ended. What it left in its session may still run.
    ///
    /// # Errors
    /// When the process can't be watched.
    pub async fn exited(&self) -> io::Result<()> {
        self.0.exited().await
    }

    /// How the program ended; to be asked for when it has.
    ///
    /// # Errors
    /// When it has not.
    pub fn exit(&mut self) -> io::Result<Exit> {
        self.0.reap()?.ok_or_else(|| io::Error::other("the process has not ended"))
    }

    /// Ends the program and all of its session: TERM, a grace of 2 s, KILL. Blocks. To be called before
    /// [`Detached::exit`], which sets the session's number free.
    ///
    /// # Errors
    /// When some process outlives KILL.
    pub fn end(&self) -> Result<(), StillThere> {
        processes::end_session(self.0.pid())
    }
}

/// Starts a program that needs nothing but its arguments. Blocks until it is executed.
///
/// # Errors
/// When it is not found or can't be executed.
pub fn spawn_detached(program: &str, arguments: &[String], log: &File) -> io::Result<Detached> {
    Tool { program: Path::new(program), arguments, env: &[], directory: Path::new("/"), log }.spawn()
}

impl Tool<'_> {
    /// Starts it. Blocks until it is executed; a file that is being written is waited for, for a moment.
    ///
    /// # Errors
    /// When it is not found, or can't be executed: then why, in words.
    pub fn spawn(&self) -> io::Result<Detached> {
        let file = self.file()?;
        let mut env = vec![c_string(OsStr::new(&format!("PATH={PATH}")))?];
        for (name, value) in self.env {
            env.push(c_string(OsStr::new(&format!("{name}={value}")))?);
        }
        let arguments = self.arguments.iter().map(|argument| c_string(OsStr::new(argument)));
        let arguments = arguments.collect::<io::Result<Vec<CString>>>()?;
        let (path, directory) = (c_string(file.as_os_str())?, c_string(self.directory.as_os_str())?);
        let program = Program {
            path: &path,
            arguments: &arguments,
            env: &env,
            directory: &directory,
            stdout: self.log,
            stderr: self.log,
        };
        let mut started = spawn::spawn(&program);
        for _ in 0..BUSY_RETRIES_MAX {
            if !started.as_ref().is_err_and(is_busy) {
                break;
            }
            thread::sleep(BUSY_RETRY);
            started = spawn::spawn(&program);
        }
        let why = |error: io::Error| io::Error::new(error.kind(), unexecutable::reason(&file, &error));
        started.map(Detached).map_err(why)
    }

    fn file(&self) -> io::Result<PathBuf> {
        if self.program.components().count() > 1 {
            return Ok(self.program.to_owned());
        }
        let places = PATH.split(':').map(|folder| Path::new(folder).join(self.program));
        let missing = || io::Error::new(io::ErrorKind::NotFound, format!("it is in no directory of {PATH}"));
        places.into_iter().find(|place| place.is_file()).ok_or_else(missing)
    }
}

fn c_string(text: &OsStr) -> io::Result<CString> {
    CString::new(text.as_bytes()).map_err(io::Error::other)
}

/// Ends every session that writes to a file in the directory: what programs of an earlier daemon are known by. Blocks.
///
/// # Errors
/// When some process outlives KILL.
pub fn end_writers(directory: &Path) -> Result<(), StillThere> {
    processes::end_remains(None, Some(directory))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn shell<'a>(
        arguments: &'a [String],
        env: &'a [(String, String)],
        place: &'a Path,
        log: &'a File,
    ) -> Tool<'a> {
        Tool { program: Path::new("sh"), arguments, env, directory: place, log }
    }

    fn script(text: &str) -> Vec<String> {
        vec!["-c".to_owned(), text.to_owned()]
    }

    #[tokio::test]
    async fn a_tool_gets_its_arguments_environment_and_place_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let text = "echo $A; pwd; env | sort | cut -d= -f1; echo /proc/self/fd/*; exit 7";
        let (arguments, env) = (script(text), vec![("A".to_owned(), "b c".to_owned())]);
        let mut tool = shell(&arguments, &env, folder.path(), &log).spawn().unwrap();
        tool.exited().await.unwrap();
        assert_eq!(tool.exit().unwrap(), Exit::Code(7));
        let said = fs::read_to_string(folder.path().join("log")).unwrap();
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[..2], ["b c", folder.path().to_str().unwrap()]);
        assert!(lines.contains(&"PATH") && !lines.contains(&"HOME"), "{said}");
        // The shell itself opens one more for the directory that it lists.
        assert!(!said.contains("/proc/self/fd/4"), "{said}");
    }

    #[tokio::test]
    async fn a_tool_ends_with_all_of_its_session() {
        let folder = tempfile::tempdir().unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let arguments = script("sleep 1000 & echo $!; wait");
        let mut tool = shell(&arguments, &[], Path::new("/"), &log).spawn().unwrap();
        let ended = tokio::task::spawn_blocking({
            let folder = folder.path().to_owned();
            move || end_writers(&folder)
        });
        ended.await.unwrap().unwrap();
        tool.exited().await.unwrap();
        tool.end().unwrap();
        assert!(matches!(tool.exit().unwrap(), Exit::Signal(_)));
        assert!(processes::members(rustix::process::Pid::from_raw(tool.pid()).unwrap()).is_empty());
    }

    #[tokio::test]
    async fn a_program_that_is_being_written_is_waited_for() {
        use std::{io::Read, process};

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        fs::write(&path, "#!/bin/sh\nexit 7\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        // Keeps it open for a while, and says when it has it.
        let mut writer = process::Command::new("sh")
            .args(["-c", "exec 3>>\"$0\"; echo open; exec sleep 0.3"])
            .arg(&path)
            .stdout(process::Stdio::piped())
            .spawn()
            .unwrap();
        writer.stdout.as_mut().unwrap().read_exact(&mut [0; 5]).unwrap();
        let log = tempfile::tempfile().unwrap();
        let tool = Tool { program: &path, arguments: &[], env: &[], directory: Path::new("/"), log: &log };
        let mut tool = tool.spawn().unwrap();
        tool.exited().await.unwrap();
        assert_eq!(tool.exit().unwrap(), Exit::Code(7));
        writer.wait().unwrap();
    }

    #[test]
    fn what_is_no_program_is_told() {
        let log = tempfile::tempfile().unwrap();
        let error = spawn_detached("no-such-program", &[], &log).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        fs::write(&path, "#!/nonexistent/sh\n").unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let error =
            Tool { program: &path, arguments: &[], env: &[], directory: Path::new("/"), log: &log }.spawn();
        assert!(error.unwrap_err().to_string().contains("/nonexistent/sh"));
    }
}

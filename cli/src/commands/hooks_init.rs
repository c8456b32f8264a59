//! `gnt-hooks init`: makes every hook directory of an interface version with a README and a disabled example. What is there
//! already stays as it is, so that it can be run again.

use std::{
    fs::{self, OpenOptions, Permissions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use muster_core::{
    hooks::{HooksVersion, KILL_DEFAULT_MS, Phase, WARN_DEFAULT_MS},
    ops::AFTER_VARIABLES,
    reference::{OperationHooks, Presence, Reference, common_variables, is_one_of_many},
};
use serde_json::json;

use super::{hook_points, hooks_host::Host};
use crate::{
    args::HostFlags,
    exit::Failure,
    output::{
        print, print_json,
        text::{counted, duration},
    },
};

/// No script: a name with a dot is skipped, and so it can't be run by mistake, whatever its mode.
const README: &str = "README.md";
/// A name that ends in `.disabled` is skipped without a remark.
const EXAMPLE: &str = "10-example.disabled";
/// Others must not be able to write what root runs, whatever the umask is.
const DIRECTORY_MODE: u32 = 0o755;
const README_MODE: u32 = 0o644;
const EXAMPLE_MODE: u32 = 0o755;

/// What was made and what was there.
#[derive(Debug, Default, PartialEq, Eq)]
struct Made {
    made: Vec<PathBuf>,
    kept: Vec<PathBuf>,
}

/// Makes the directories.
pub(super) fn run(
    dir: Option<PathBuf>,
    version: HooksVersion,
    flags: &HostFlags,
    as_json: bool,
) -> Result<(), Failure> {
    let dir = match dir {
        Some(dir) => dir,
        None => Host::load(flags)?.hooks_dir,
    };
    let made = init(&dir, version)?;
    let shown = |paths: &[PathBuf]| paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>();
    if as_json {
        let hooks_dir = dir.display().to_string();
        return print_json(
            &json!({ "hooks_dir": hooks_dir, "made": shown(&made.made), "kept": shown(&made.kept) }),
        );
    }
    let mut text: String = shown(&made.made).iter().map(|path| format!("made {path}\n")).collect();
    let count = |paths: &[PathBuf]| u64::try_from(paths.len()).unwrap_or(u64::MAX);
    text += &format!(
        "{} made in {}; {} there before and left alone\n",
        counted(count(&made.made), "thing"),
        dir.display(),
        match count(&made.kept) {
            1 => "1 was".to_owned(),
            kept => format!("{kept} were"),
        }
    );
    print(&text)
}

fn init(dir: &Path, version: HooksVersion) -> Result<Made, Failure> {
    let mut made = Made::default();
    if !dir.is_dir() {
        let failed = |error| cannot("make", dir, &error);
        fs::create_dir_all(dir).map_err(failed)?;
        fs::set_permissions(dir, Permissions::from_mode(DIRECTORY_MODE)).map_err(failed)?;
        made.made.push(dir.to_owned());
    }
    let reference = Reference::new(version);
    for operation in &reference.operations {
        for phase in operation.phases() {
            let path = dir.join(phase.directory(operation.prefix));
            made.directory(&path)?;
            made.file(&path.join(README), README_MODE, &readme(version, operation, phase))?;
            made.file(&path.join(EXAMPLE), EXAMPLE_MODE, &example(version, operation, phase))?;
        }
    }
    for (name, text) in hook_points::directories(&reference) {
        let path = dir.join(name);
        made.directory(&path)?;
        made.file(&path.join(README), README_MODE, &text)?;
        made.file(&path.join(EXAMPLE), EXAMPLE_MODE, hook_points::EXAMPLE_TEXT)?;
    }
    Ok(made)
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::Refused(format!("could not {what} {}: {error}", path.display()))
}

impl Made {
    fn directory(&mut self, path: &Path) -> Result<(), Failure> {
        match fs::create_dir(path) {
            Ok(()) => {
                let mode = Permissions::from_mode(DIRECTORY_MODE);
                fs::set_permissions(path, mode).map_err(|error| cannot("set the mode of", path, &error))?;
                self.made.push(path.to_owned());
                Ok(())
            }
            Err(_) if path.is_dir() => {
                self.kept.push(path.to_owned());
                Ok(())
            }
            Err(error) => Err(cannot("make", path, &error)),
        }
    }

    /// A file that could not be written wholly is taken away again: the next run would leave it alone.
    fn file(&mut self, path: &Path, mode: u32, text: &str) -> Result<(), Failure> {
        let mut file = match OpenOptions::new().write(true).create_new(true).mode(mode).open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                self.kept.push(path.to_owned());
                return Ok(());
            }
            Err(error) => return Err(cannot("make", path, &error)),
        };
        let written =
            file.write_all(text.as_bytes()).and_then(|()| file.set_permissions(Permissions::from_mode(mode)));
        if let Err(error) = written {
            fs::remove_file(path).ok();
            return Err(cannot("write", path, &error));
        }
        self.made.push(path.to_owned());
        Ok(())
    }
}

/// The operation's commands, as code.
fn commands(operation: &OperationHooks) -> String {
    let quoted: Vec<String> = operation.commands.split(", ").map(|command| format!("`{command}`")).collect();
    quoted.join(" or ")
}

fn when(phase: Phase) -> &'static str {
    match phase {
        Phase::Pre => "before",
        Phase::Post | Phase::Failed => "after",
    }
}

fn exit_codes(phase: Phase) -> &'static str {
    match phase {
        Phase::Pre => {
            "Exit code 0 allows the operation. Any other denies it: nothing is changed, and the operator is shown the\n\
             script, its exit code and what it printed. If the cluster's parameter `hook_exit_codes` is `graded`, 32 to 63\n\
             are warnings that deny nothing. A script may be run again for the same operation, so what it does must bear that."
        }
        Phase::Post | Phase::Failed => {
            "The operation is done. Exit codes are written to the job's log and change nothing. Do not rely on the scripts\n\
             of the pre directory having run."
        }
    }
}

fn readme(version: HooksVersion, operation: &OperationHooks, phase: Phase) -> String {
    let mut text = format!(
        "# {}\n\nScripts here run {} {} ({}), on {}.\n\n{}\n\n",
        phase.directory(operation.prefix),
        when(phase),
        commands(operation),
        operation.op_id,
        operation.nodes_of(phase),
        exit_codes(phase),
    );
    text += &format!(
        "A script is an executable file whose name has letters, digits, `_` and `-` only, for example `10-check`; all else is\n\
         skipped. Scripts run in the order of their names, without arguments, without a terminal, in `/`. One that takes\n\
         longer than {} is remarked on, and ended after {} unless it sets a limit itself, in its first lines:\n\
         `# HOOK_KILL_TIMEOUT = 20 minutes`.\n\n",
        duration(WARN_DEFAULT_MS),
        duration(KILL_DEFAULT_MS),
    );
    text += "`gnt-hooks explain` shows what an operation would run and with which values, `gnt-hooks lint` what will surprise.\n\n";
    text += "## Variables\n\nEach has the prefix `GANETI_`.\n\n| variable | set | meaning |\n|---|---|---|\n";
    let own = operation.own.iter().map(|variable| (variable.name, variable.presence, variable.meaning));
    for (name, presence, meaning) in own.chain(common_variables()) {
        text += &format!("| {name} | {} | {meaning} |\n", presence.words(name));
    }
    if version.tells_of_job(phase) {
        for (name, meaning, _) in AFTER_VARIABLES.iter().filter(|(.., with_success)| *with_success) {
            text += &format!("| {name} | always | {meaning} |\n");
        }
    }
    if phase == Phase::Post && operation.own.iter().any(|variable| variable.restated) {
        text += "\nThe operation's own variables are there once more with the prefix `GANETI_POST_`: as the operation left them.\n";
    }
    text
}

fn example(version: HooksVersion, operation: &OperationHooks, phase: Phase) -> String {
    let directory = phase.directory(operation.prefix);
    let mut text = format!(
        "#!/bin/sh\n\
         # {directory}: run {} {} on {}.\n\
         # To use it, give it a name that is not skipped: mv {EXAMPLE} 10-example\n\
         #\n\
         # HOOK_KILL_TIMEOUT = 5 minutes\n\
         set -eu\n\n\
         # Made for version {version} of the hook interface; another version is none of its business.\n\
         [ \"${{GANETI_HOOKS_VERSION-}}\" = {version} ] || exit 0\n\n\
         # README.md says what each variable is. Those of this operation:\n",
        when(phase),
        commands(operation),
        operation.nodes_of(phase),
    );
    for variable in &operation.own {
        text += &match variable.presence {
            Presence::Sometimes if is_one_of_many(variable.name) => format!("#   GANETI_{}\n", variable.name),
            Presence::Always => format!("#   \"$GANETI_{}\"\n", variable.name),
            Presence::Sometimes => {
                format!("#   \"${{GANETI_{}-}}\"    (absent unless given)\n", variable.name)
            }
        };
    }
    if operation.own.is_empty() {
        text += "#   none but those of every operation\n";
    }
    text += "echo \"$GANETI_OP_ID of $GANETI_OP_TARGET, job $GANETI_JOB_ID, seen on $GANETI_HOST_NAME\"\n";
    text += match phase {
        Phase::Pre => {
            "\n# To deny: say why, for the operator to read, and exit with something else than 0.\n# echo \"not today\" >&2\n# exit 1\nexit 0\n"
        }
        Phase::Post | Phase::Failed => "exit 0\n",
    };
    text
}

#[cfg(test)]
mod tests {
    use muster_core::ops::hook_directories;

    use super::*;

    #[test]
    fn every_used_directory_is_made_once_and_what_is_there_stays() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a/hooks");
        let made = init(&dir, HooksVersion::V1).unwrap();
        let used: Vec<String> = hook_directories(HooksVersion::V1).collect();
        assert_eq!((made.made.len(), made.kept.len()), (1 + 3 * used.len(), 0));
        for name in &used {
            let path = dir.join(name);
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
            assert_eq!((mode(&path), mode(&path.join(README))), (DIRECTORY_MODE, README_MODE), "{name}");
            assert_eq!(mode(&path.join(EXAMPLE)), EXAMPLE_MODE, "{name}");
        }
        let changed = dir.join(&used[0]).join(README);
        fs::write(&changed, "mine").unwrap();
        fs::remove_file(dir.join(&used[1]).join(EXAMPLE)).unwrap();
        let again = init(&dir, HooksVersion::V1).unwrap();
        assert_eq!(again.made, [dir.join(&used[1]).join(EXAMPLE)]);
        assert_eq!(again.kept.len(), 3 * used.len() - 1);
        assert_eq!(fs::read_to_string(&changed).unwrap(), "mine");
    }

    #[test]
    fn a_file_in_the_place_of_a_directory_is_told() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("node-add-pre.d"), "").unwrap();
        let failure = init(folder.path(), HooksVersion::V1).unwrap_err();
        assert_eq!(failure.code(), 1);
        assert!(failure.to_string().contains("node-add-pre.d"), "{failure}");
        assert_eq!(init(&folder.path().join("node-add-pre.d"), HooksVersion::V1).unwrap_err().code(), 1);
    }

    #[test]
    fn e1_a_readme_names_nodes_commands_and_variables() {
        let reference = Reference::new(HooksVersion::V1);
        let (operation, phase) = reference.of_directory("instance-add-pre.d").unwrap();
        let text = readme(HooksVersion::V1, operation, phase);
        for part in [
            "# instance-add-pre.d",
            "run before `gnt-instance add` or `gnt-backup import`",
            "on the master, the instance's primary node",
            "| INSTANCE_IP | when given |",
            "| JOB_ID | always |",
            "ended after 5 min",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn e4_what_only_the_job_knows_is_named_where_scripts_are_told_of_it() {
        for (version, is_told) in [(HooksVersion::V1, false), (HooksVersion::V2, true)] {
            let reference = Reference::new(version);
            let (operation, phase) = reference.of_directory("instance-add-post.d").unwrap();
            let text = readme(version, operation, phase);
            assert_eq!(text.contains("| POST_NODES_PATH | always |"), is_told, "{text}");
            assert!(!text.contains("ERROR_MESSAGE_PATH"), "{text}");
        }
    }
}

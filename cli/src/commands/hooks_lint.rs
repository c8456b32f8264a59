//! `gnt-hooks lint`: looks at the files of a hooks directory and hands what it sees to core's rules.

use std::{
    ffi::OsStr,
    fs::{self, Metadata},
    io::{self, Read},
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
};

use muster_core::hooks::{
    HooksVersion, SCRIPT_PATH,
    lint::{Access, Entry, File, Finding, Interpreter, Kind, Linter, Rule},
};
use rustix::fs::StatVfsMountFlags;

use super::hooks_host::Host;
use crate::{
    args::HostFlags,
    exit::Failure,
    output::{
        lint::{Located, Report, report_json, report_text},
        print, print_json,
    },
};

/// A script that is longer is not read: it is a program with data in it.
const CONTENT_BYTES_MAX: u64 = 1024 * 1024;
/// The write bits of group and others.
const OTHERS_WRITE: u32 = 0o022;
/// The execute bits.
const ANY_EXECUTE: u32 = 0o111;

/// Checks a directory; what is found is a failure.
pub(super) fn run(
    dir: Option<PathBuf>,
    daemon_user: Option<u32>,
    version: HooksVersion,
    flags: &HostFlags,
    as_json: bool,
) -> Result<(), Failure> {
    let host = Host::load(flags)?;
    // What runs on this host is its own, and the cluster's set beside it: each is told with its place.
    let dirs = match dir {
        Some(dir) => vec![dir],
        None => std::iter::once(host.hooks_dir.clone()).chain(host.hook_set()).collect(),
    };
    let owners = host.owners(daemon_user);
    let reports = dirs.iter().map(|dir| lint(dir, owners, version)).collect::<Result<Vec<_>, _>>()?;
    let told = || dirs.iter().zip(&reports);
    if as_json {
        let findings = told().flat_map(|(dir, report)| report_json(dir, report));
        print_json(&serde_json::Value::Array(findings.collect()))?
    } else {
        print(&told().map(|(dir, report)| report_text(dir, report)).collect::<String>())?
    }
    match reports.iter().all(|report| report.findings.is_empty()) {
        true => Ok(()),
        false => Err(Failure::Told),
    }
}

/// A directory and what is needed to judge it.
struct Walk {
    /// Without links.
    root: PathBuf,
    owners: [u32; 2],
    linter: Linter,
    report: Report,
}

/// Checks a hooks directory.
fn lint(dir: &Path, owners: [u32; 2], version: HooksVersion) -> Result<Report, Failure> {
    let shown = dir.display();
    let cannot = |error| Failure::Refused(format!("{shown} can't be looked at: {error}"));
    let root = match fs::canonicalize(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(Failure::Usage(format!("there is no directory {shown} (gnt-hooks init makes it)")));
        }
        found => found.map_err(cannot)?,
    };
    let metadata = fs::metadata(&root)
        .map_err(|error| Failure::Refused(format!("{shown} can't be looked at: {error}")))?;
    if !metadata.is_dir() {
        return Err(Failure::Usage(format!("{shown} is no directory")));
    }
    let names =
        names_in(&root).map_err(|error| Failure::Refused(format!("{shown} can't be read: {error}")))?;
    let mut walk = Walk { root, owners, linter: Linter::of(version), report: Report::default() };
    let access = walk.access(&metadata, None);
    walk.add(Path::new(""), Linter::directory_access(access));
    for name in names {
        walk.top(Path::new(&name));
    }
    Ok(walk.report)
}

/// By name.
fn names_in(dir: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    let mut names = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

impl Walk {
    fn add(&mut self, path: &Path, findings: Vec<Finding>) {
        let located = findings.into_iter().map(|finding| Located { path: path.to_owned(), finding });
        self.report.findings.extend(located);
    }

    /// Where a link leads, if that is out of the hooks directory.
    fn leads_outside(&self, path: &Path) -> Option<String> {
        let is_link = fs::symlink_metadata(path).is_ok_and(|own| own.is_symlink());
        let target = is_link.then(|| fs::canonicalize(path).ok()).flatten()?;
        (!target.starts_with(&self.root)).then(|| target.display().to_string())
    }

    fn foreign(&self, metadata: &Metadata) -> Option<u32> {
        Some(metadata.uid()).filter(|owner| !self.owners.contains(owner))
    }

    /// `link` is the path, where that may be a link: who can write where its target lies can exchange the target.
    fn access(&self, metadata: &Metadata, link: Option<&Path>) -> Access {
        let is_open = |metadata: &Metadata| metadata.mode() & OTHERS_WRITE != 0;
        let real = link
            .filter(|path| fs::symlink_metadata(path).is_ok_and(|own| own.is_symlink()))
            .and_then(|path| fs::canonicalize(path).ok());
        let parent = real.as_deref().and_then(Path::parent).and_then(|parent| fs::metadata(parent).ok());
        let through_link = parent.is_some_and(|parent| is_open(&parent) || self.foreign(&parent).is_some());
        Access { writable: is_open(metadata) || through_link, foreign_owner: self.foreign(metadata) }
    }

    /// An entry of the hooks directory: only directories matter, and what has a directory's name.
    fn top(&mut self, name: &Path) {
        let path = self.root.join(name);
        let name_text = name.to_string_lossy().into_owned();
        let is_used = self.linter.is_used(&name_text);
        match fs::metadata(&path) {
            Ok(metadata) if metadata.is_dir() => {
                self.report.directories += u32::from(is_used);
                let mut findings: Vec<Finding> = self.linter.directory(&name_text).into_iter().collect();
                if is_used {
                    findings.extend(Linter::directory_access(self.access(&metadata, Some(&path))));
                    findings.extend(self.leads_outside(&path).map(|target| {
                        let surprise =
                            format!("the directory is a link out of the hooks directory, to {target}");
                        Finding::new(Rule::LinkOutside, surprise, "a directory of its own")
                    }));
                }
                self.add(name, findings);
                if is_used {
                    self.directory(name, &name_text);
                }
            }
            Ok(_) if is_used => {
                let surprise = "it has a hook directory's name and is no directory: nothing is run";
                self.add(name, vec![Finding::new(Rule::NotAFile, surprise, "a directory of this name")]);
            }
            Err(_) if is_used => {
                let surprise = "it is a link to a directory that is not there: nothing is run";
                self.add(name, vec![Finding::new(Rule::DanglingLink, surprise, "a directory of this name")]);
            }
            Ok(_) | Err(_) => {}
        }
    }

    fn directory(&mut self, name: &Path, name_text: &str) {
        let path = self.root.join(name);
        let names = match names_in(&path) {
            Ok(names) => names,
            Err(error) => {
                let surprise = format!("it can't be read: {error}");
                return self.add(name, vec![Finding::new(Rule::Unreadable, surprise, "let root read it")]);
            }
        };
        for entry_name in names {
            let Some(entry) = self.entry(&path.join(&entry_name), &entry_name) else { continue };
            self.report.entries = self.report.entries.saturating_add(1);
            let findings = self.linter.entry(name_text, &entry, &is_there);
            self.add(&name.join(&entry_name), findings);
        }
    }

    /// `None` for what went away meanwhile.
    fn entry(&self, path: &Path, name: &OsStr) -> Option<Entry> {
        let own = fs::symlink_metadata(path).ok()?;
        let kind = match fs::metadata(path) {
            Ok(target) if target.is_file() => self.file(path, &target),
            Ok(target) if target.is_dir() => Kind::Directory,
            Ok(_) => Kind::Special,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                Kind::Unreadable(error.to_string())
            }
            Err(_) if own.is_symlink() => {
                Kind::Dangling(fs::read_link(path).map(|to| to.display().to_string()).unwrap_or_default())
            }
            Err(_) => return None,
        };
        Some(Entry { name: name.as_bytes().to_vec(), kind, leads_outside: self.leads_outside(path) })
    }

    fn file(&self, path: &Path, metadata: &Metadata) -> Kind {
        let content = match content(path, metadata.len()) {
            Ok(content) => content,
            Err(error) => return Kind::Unreadable(error.to_string()),
        };
        let no_exec_mount =
            rustix::fs::statvfs(path).is_ok_and(|mount| mount.f_flag.contains(StatVfsMountFlags::NOEXEC));
        Kind::File(File {
            executable: metadata.mode() & ANY_EXECUTE != 0,
            no_exec_mount,
            access: self.access(metadata, Some(path)),
            content,
        })
    }
}

/// A file's content, where it is short enough to be a script.
fn content(path: &Path, length: u64) -> io::Result<Option<Vec<u8>>> {
    if length > CONTENT_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(CONTENT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn is_program(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.mode() & ANY_EXECUTE != 0)
}

/// Whether this host has an interpreter.
fn is_there(interpreter: Interpreter<'_>) -> bool {
    match interpreter {
        Interpreter::Path(path) => is_program(Path::new(OsStr::from_bytes(path))),
        Interpreter::Searched(name) if name.contains(&b'/') => is_program(Path::new(OsStr::from_bytes(name))),
        Interpreter::Searched(name) => {
            SCRIPT_PATH.split(':').any(|folder| is_program(&Path::new(folder).join(OsStr::from_bytes(name))))
        }
    }
}

#[cfg(test)]
mod tests;

//! Writes a file that an admin copies to this node: where it stands in the path, no link is followed, nothing of Muster's
//! own is touched, and who reads the file sees the old or the new content.

use std::{
    fs, io,
    io::Write,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

use muster_core::allowed::FilePath;
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Mode, OFlags, Stat, Timespec, Timestamps, UTIME_OMIT, fchmod, fstat, fsync,
        futimens, linkat, openat, renameat, statat, unlinkat,
    },
    io::Errno,
};
use uuid::Uuid;

use super::Config;

/// The largest file.
pub(super) const COPY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Muster's own directory of configurations, wherever this daemon's is.
const CONFIG_DIR: &str = "/etc/muster";
/// The master's configuration, beside the node daemon's or in the usual place: it names what is brought to all nodes.
const MASTER_CONFIG: &str = "masterd.toml";
/// What the names of Muster's daemons begin with.
const DAEMONS: &[u8] = b"muster-";
/// The program that all `gnt-*` commands are links to: a file is known by what it is, by whatever name.
const COMMANDS: &str = "gnt";
/// Levels of a directory of scripts that are looked through for what lies elsewhere: its directories, and what is in them.
const SCRIPT_LEVELS: usize = 2;
/// Entries of such a directory that are looked at; a hook set has at most as many.
const SCRIPT_ENTRIES_MAX: usize = 10_000;
/// The permissions that a copy may have: no set-user-id and no set-group-id, which would give away this daemon's user.
const MODE_MASK: u32 = 0o777;

/// Why a file was not written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum PutError {
    /// A part of the path is a link.
    #[error("{} is a link, which is not followed", .0.display())]
    Link(PathBuf),
    /// A part of the path is no directory, or the file is none.
    #[error("{} is {what}", .path.display())]
    Kind {
        /// The part.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
    /// It would be in a directory that is Muster's own, or that holds hooks.
    #[error("{} is not written by copies: it belongs to {}", .path.display(), .owner.display())]
    Protected {
        /// The file.
        path: PathBuf,
        /// The directory or file that is protected.
        owner: PathBuf,
    },
    /// A file or directory can't be used.
    #[error("could not {doing} {}", .path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> PutError {
    let path = path.to_owned();
    move |error| PutError::File { doing, path, source: error.into() }
}

/// A file as it is to be.
#[derive(Debug, Clone)]
pub(super) struct NewFile {
    pub(super) path: FilePath,
    pub(super) mode: u32,
    pub(super) mtime_ms: u64,
    pub(super) content: Vec<u8>,
}

/// Names a file or directory whatever path leads to it: device and number.
type Identity = (u64, u64);

/// What copies may not touch, by what is there now, so that links and bind mounts make no difference.
#[derive(Debug, Default)]
pub(super) struct Protected {
    there: Vec<(PathBuf, Identity)>,
    /// What is named and not there, by the directory that it would be in.
    absent: Vec<(PathBuf, Identity)>,
}

impl Protected {
    /// Muster's own directories, files and programs, and the node's hook directory.
    pub(super) fn of(config: &Config) -> Self {
        let beside = config.file.with_file_name(MASTER_CONFIG);
        let usual = Path::new(CONFIG_DIR).join(MASTER_CONFIG);
        let programs = std::env::current_exe().map(|own| programs(&own)).unwrap_or_default();
        let own = [
            &config.state_dir,
            &config.run_dir,
            &config.storage_dir,
            &config.export_dir,
            &config.file,
            &beside,
            Path::new(CONFIG_DIR),
        ];
        let own = own.into_iter().chain(config.log.as_deref()).chain(programs.iter().map(PathBuf::as_path));
        let sources: Vec<PathBuf> =
            [&beside, &usual].into_iter().filter_map(|file| hooks_source(file)).collect();
        let scripts = [config.hooks_dir.as_path(), config.os_dir.as_path()];
        let scripts: Vec<&Path> = scripts.into_iter().chain(sources.iter().map(PathBuf::as_path)).collect();
        Self::new(&own.collect::<Vec<_>>(), &scripts)
    }

    /// `own` are files and directories, `scripts` directories whose programs run as this daemon's user.
    fn new(own: &[&Path], scripts: &[&Path]) -> Self {
        let mut protected = Protected::default();
        for path in own.iter().chain(scripts) {
            protected.add(path);
        }
        for dir in scripts {
            let mut left = SCRIPT_ENTRIES_MAX;
            protected.add_below(dir, SCRIPT_LEVELS, &mut left);
        }
        protected
    }

    /// Adds a directory or file, or what a link leads to; what is not there is not to be made either.
    fn add(&mut self, path: &Path) -> Option<fs::Metadata> {
        let identity = |found: &fs::Metadata| (found.dev(), found.ino());
        let Ok(found) = fs::metadata(path) else {
            let dir = path.parent().and_then(|dir| fs::metadata(dir).ok());
            self.absent.extend(dir.map(|dir| (path.to_owned(), identity(&dir))));
            return None;
        };
        self.there.push((path.to_owned(), identity(&found)));
        Some(found)
    }

    /// Adds what is in a directory: links, and what is mounted there, may lie elsewhere under another path.
    fn add_below(&mut self, dir: &Path, levels: usize, left: &mut usize) {
        let Some(deeper) = levels.checked_sub(1) else { return };
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            let Some(fewer) = left.checked_sub(1) else { return };
            *left = fewer;
            if self.add(&entry.path()).is_some_and(|found| found.is_dir()) {
                self.add_below(&entry.path(), deeper, left);
            }
        }
    }

    fn check(&self, found: &Stat, target: &Path) -> Result<(), PutError> {
        let identity = (found.st_dev, found.st_ino);
        refuse(self.there.iter().find(|(_, protected)| *protected == identity), target)
    }

    /// Of a file that is to be made in a directory.
    fn check_new(&self, dir: &Stat, name: &str, target: &Path) -> Result<(), PutError> {
        let identity = (dir.st_dev, dir.st_ino);
        let is_it = |(path, dir): &&(PathBuf, Identity)| {
            *dir == identity && path.file_name().is_some_and(|own| own == name)
        };
        refuse(self.absent.iter().find(is_it), target)
    }
}

fn refuse(owner: Option<&(PathBuf, Identity)>, target: &Path) -> Result<(), PutError> {
    match owner {
        None => Ok(()),
        Some((owner, _)) => Err(PutError::Protected { path: target.to_owned(), owner: owner.clone() }),
    }
}

/// A daemon's program, and those of Muster that lie beside it.
fn programs(own: &Path) -> Vec<PathBuf> {
    let beside = own.parent().and_then(|dir| fs::read_dir(dir).ok());
    let is_ours = |entry: &fs::DirEntry| {
        let name = entry.file_name();
        name == COMMANDS || name.as_encoded_bytes().starts_with(DAEMONS)
    };
    let beside = beside.into_iter().flatten().flatten().filter(is_ours).map(|entry| entry.path());
    beside.chain([own.to_owned()]).collect()
}

/// The directory that a master's configuration names as the source of hooks, where there is one.
fn hooks_source(file: &Path) -> Option<PathBuf> {
    let table: toml::Table = fs::read_to_string(file).ok()?.parse().ok()?;
    table.get("hooks_source")?.as_str().map(PathBuf::from)
}

/// Writes the file. Blocks.
pub(super) fn put(protected: &Protected, file: &NewFile) -> Result<(), PutError> {
    let target = Path::new(file.path.as_str());
    let (dir, name) = open_parent(protected, target)?;
    match statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => {
            protected.check_new(&fstat(&dir).map_err(failed("look at", target))?, name, target)?;
        }
        Err(error) => return Err(failed("look at", target)(error)),
        Ok(found) => {
            check_kind(&found, FileType::RegularFile, target, "no regular file")?;
            protected.check(&found, target)?;
        }
    }
    let new = format!(".muster-copy-{}", Uuid::new_v4());
    let written = write_new(&dir, &new, file, target).and_then(|()| {
        renameat(&dir, new.as_str(), &dir, name).map_err(failed("replace", target))?;
        let dir = openat(&dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
        let synced = dir.and_then(|dir| fsync(&dir));
        synced.map_err(failed("sync the directory of", target))
    });
    if written.is_err() {
        // It may not have been made, or be in its place already.
        unlinkat(&dir, new.as_str(), AtFlags::empty()).unwrap_or_default();
    }
    written
}

/// Goes to the file's directory, part by part from the root.
fn open_parent<'a>(protected: &Protected, target: &'a Path) -> Result<(OwnedFd, &'a str), PutError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let text = target.to_str().expect("the path was made of text");
    let (parents, name) = text.rsplit_once('/').expect("the path starts with /");
    let mut here = PathBuf::from("/");
    let mut dir = rustix::fs::open("/", flags, Mode::empty()).map_err(failed("open", &here))?;
    for part in parents.split('/').filter(|part| !part.is_empty()) {
        here.push(part);
        let found = statat(&dir, part, AtFlags::SYMLINK_NOFOLLOW).map_err(failed("look at", &here))?;
        check_kind(&found, FileType::Directory, &here, "no directory")?;
        dir = openat(&dir, part, flags, Mode::empty()).map_err(failed("open", &here))?;
        // Of what was opened, whatever the name meant a moment ago.
        protected.check(&fstat(&dir).map_err(failed("look at", &here))?, target)?;
    }
    Ok((dir, name))
}

fn check_kind(found: &Stat, wanted: FileType, path: &Path, what: &'static str) -> Result<(), PutError> {
    let kind = FileType::from_raw_mode(found.st_mode);
    if kind == FileType::Symlink {
        return Err(PutError::Link(path.to_owned()));
    }
    if kind != wanted {
        return Err(PutError::Kind { path: path.to_owned(), what });
    }
    Ok(())
}

/// Makes a file without a name, so that a crash leaves nothing behind; with one where the filesystem has no such files.
/// Whether it has none.
fn make_new(dir: &OwnedFd, name: &str) -> Result<(OwnedFd, bool), Errno> {
    let (mode, write) = (Mode::RUSR | Mode::WUSR, OFlags::WRONLY | OFlags::CLOEXEC);
    match openat(dir, ".", write | OFlags::TMPFILE, mode) {
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {
            let flags = write | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            openat(dir, name, flags, mode).map(|new| (new, false))
        }
        made => made.map(|new| (new, true)),
    }
}

fn write_new(dir: &OwnedFd, name: &str, file: &NewFile, target: &Path) -> Result<(), PutError> {
    let (opened, is_nameless) = make_new(dir, name).map_err(failed("make a file for", target))?;
    let mut new = fs::File::from(opened);
    new.write_all(&file.content).map_err(|source| PutError::File {
        doing: "write",
        path: target.to_owned(),
        source,
    })?;
    fchmod(&new, Mode::from_raw_mode(file.mode & MODE_MASK)).map_err(failed("set the mode of", target))?;
    let seconds = i64::try_from(file.mtime_ms / 1000).unwrap_or(i64::MAX);
    let nanos = i64::try_from(file.mtime_ms % 1000).unwrap_or(0) * 1_000_000;
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: seconds, tv_nsec: nanos },
    };
    futimens(&new, &times).map_err(failed("set the time of", target))?;
    fsync(&new).map_err(failed("sync", target))?;
    if is_nameless {
        let opened = format!("/proc/self/fd/{}", new.as_fd().as_raw_fd());
        let linked = linkat(CWD, opened, dir, name, AtFlags::SYMLINK_FOLLOW);
        linked.map_err(failed("make a file for", target))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};

    use super::*;

    fn file(path: &Path, content: &str) -> NewFile {
        NewFile {
            path: path.to_str().unwrap().parse().unwrap(),
            mode: 0o104_755,
            mtime_ms: 1_700_000_000_500,
            content: content.as_bytes().to_vec(),
        }
    }

    /// Without links on the way, as the paths of copies must be.
    fn folder() -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().canonicalize().unwrap();
        (folder, path)
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_copy_has_content_mode_and_time() {
        let (_folder, dir) = folder();
        let path = dir.join("motd");
        let protected = Protected::new(&[&dir.join("state")], &[]);
        put(&protected, &file(&path, "one")).unwrap();
        put(&protected, &file(&path, "two")).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o755, "without its set-user-id bit");
        assert_eq!((metadata.mtime(), metadata.mtime_nsec()), (1_700_000_000, 500_000_000));
        assert_eq!(names(&dir), ["motd"]);
    }

    #[test]
    fn links_are_not_followed_and_stay() {
        let (_folder, dir) = folder();
        fs::create_dir(dir.join("real")).unwrap();
        fs::write(dir.join("real/file"), "old").unwrap();
        symlink(dir.join("real"), dir.join("dir-link")).unwrap();
        symlink(dir.join("real/file"), dir.join("file-link")).unwrap();
        symlink("/nonexistent", dir.join("dangling")).unwrap();
        let protected = Protected::new(&[], &[]);
        for (target, link) in
            [("dir-link/file", "dir-link"), ("file-link", "file-link"), ("dangling", "dangling")]
        {
            let error = put(&protected, &file(&dir.join(target), "new")).unwrap_err();
            assert!(matches!(&error, PutError::Link(path) if *path == dir.join(link)), "{target}: {error}");
        }
        assert_eq!(fs::read_to_string(dir.join("real/file")).unwrap(), "old");
        assert_eq!(names(&dir), ["dangling", "dir-link", "file-link", "real"]);
    }

    #[test]
    fn what_belongs_to_muster_is_refused_whatever_leads_there() {
        let (_folder, dir) = folder();
        fs::create_dir_all(dir.join("real/hooks/node-add-pre.d")).unwrap();
        fs::write(dir.join("noded.toml"), "old").unwrap();
        symlink(dir.join("real/hooks"), dir.join("hooks")).unwrap();
        // The configuration names the link, the copy the real directory.
        // Scripts that lie elsewhere.
        fs::create_dir_all(dir.join("elsewhere/deep")).unwrap();
        symlink(dir.join("elsewhere"), dir.join("real/hooks/node-remove-pre.d")).unwrap();
        fs::write(dir.join("guard"), "old").unwrap();
        symlink(dir.join("guard"), dir.join("real/hooks/node-add-pre.d/20-guard")).unwrap();
        let own = [dir.join("noded.toml"), dir.join("missing")];
        let protected = Protected::new(&own.each_ref().map(PathBuf::as_path), &[&dir.join("hooks")]);
        for target in [
            "real/hooks/node-add-pre.d/10-x",
            "real/hooks/x",
            "noded.toml",
            "missing",
            "elsewhere/10-x",
            "elsewhere/deep/x",
            "guard",
        ] {
            let error = put(&protected, &file(&dir.join(target), "new")).unwrap_err();
            assert!(matches!(error, PutError::Protected { .. }), "{target}: {error}");
        }
        put(&protected, &file(&dir.join("real/beside"), "new")).unwrap();
    }

    #[test]
    fn what_the_configurations_name_is_protected() {
        let (_folder, dir) = folder();
        for name in ["source", "os", "log", "etc"] {
            fs::create_dir(dir.join(name)).unwrap();
        }
        fs::write(dir.join("log/noded"), "line\n").unwrap();
        let source = format!("hooks_source = '{}'\n", dir.join("source").display());
        fs::write(dir.join("etc/masterd.toml"), source).unwrap();
        let config = dir.join("etc/noded.toml");
        let place = |name: &str| dir.join(name).display().to_string();
        let text = format!("name = 'node1'\nos_dir = '{}'\nlog = '{}'\n", place("os"), place("log/noded"));
        fs::write(&config, text).unwrap();
        let protected = Protected::of(&Config::load(Some(&config)).unwrap());
        for target in ["source/x", "os/create", "log/noded", "etc/noded.toml", "etc/masterd.toml"] {
            let error = put(&protected, &file(&dir.join(target), "new")).unwrap_err();
            assert!(matches!(error, PutError::Protected { .. }), "{target}: {error}");
        }
        put(&protected, &file(&dir.join("log/other"), "new")).unwrap();
    }

    #[test]
    fn programs_are_protected_and_what_lies_beside_them_is_not() {
        let (_folder, dir) = folder();
        for name in ["muster-noded", "muster-masterd", "gnt", "gnt-report-of-the-site", "other"] {
            fs::write(dir.join(name), "old").unwrap();
        }
        fs::hard_link(dir.join("gnt"), dir.join("gnt-node")).unwrap();
        let found = programs(&dir.join("muster-noded"));
        let protected = Protected::new(&found.iter().map(PathBuf::as_path).collect::<Vec<_>>(), &[]);
        for name in ["muster-noded", "muster-masterd", "gnt", "gnt-node"] {
            let error = put(&protected, &file(&dir.join(name), "new")).unwrap_err();
            assert!(matches!(error, PutError::Protected { .. }), "{name}: {error}");
        }
        for name in ["other", "gnt-report-of-the-site"] {
            put(&protected, &file(&dir.join(name), "new")).unwrap();
        }
    }

    #[test]
    fn only_regular_files_are_replaced_and_no_directory_is_made() {
        let (_folder, dir) = folder();
        fs::create_dir(dir.join("dir")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, dir.join("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        fs::write(dir.join("file"), "").unwrap();
        for (target, says) in [
            ("dir", "no regular file"),
            ("pipe", "no regular file"),
            ("file/x", "no directory"),
            ("none/x", "look at"),
        ] {
            let error =
                put(&Protected::new(&[], &[]), &file(&dir.join(target), "new")).unwrap_err().to_string();
            assert!(error.contains(says), "{target}: {error}");
        }
        assert_eq!(names(&dir), ["dir", "file", "pipe"]);
    }
}

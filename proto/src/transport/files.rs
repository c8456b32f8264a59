//! Writes small files (keys, certificates) so that a crash leaves the old or the new content, never half of it.
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// Mode of files that hold a private key.
pub const MODE_PRIVATE: u32 = 0o600;
/// Mode of files that everybody on the host may read.
pub const MODE_PUBLIC: u32 = 0o644;

/// Why a file could not be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// The file could not be written; the old content is still there.
    #[error("could not write {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The file could not be read.
    #[error("could not read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

/// Replaces `path` by `content` with the given mode: durable, and whole or not at all.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    let failed = |source| FileError::Write { path: path.to_owned(), source };
    replace(path, content, mode, |file| file.sync_all()).map_err(failed)?;
    File::open(folder_of(path)).and_then(|folder| folder.sync_all()).map_err(failed)
}

/// Replaces `path` by `content` with the given mode: whole or not at all for every reader, but a loss of power may take
/// it away or empty it. For what is sent again when it is missing.
pub fn write_whole(path: &Path, content: &[u8], mode: u32) -> Result<(), FileError> {
    let failed = |source| FileError::Write { path: path.to_owned(), source };
    replace(path, content, mode, |_| Ok(())).map_err(failed)
}

/// Reads a small text file.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    fs::read_to_string(path).map_err(|source| FileError::Read { path: path.to_owned(), source })
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    }
}

fn replace(path: &Path, content: &[u8], mode: u32, keep: fn(&File) -> io::Result<()>) -> io::Result<()> {
    let folder = folder_of(path);
    let mut name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    name.push(".new");
    let temporary = folder.join(name);
    // A file left by a crash may have another mode: start from nothing.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    // The umask may have taken bits away.
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(content)?;
    keep(&file)?;
    fs::rename(&temporary, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_and_mode_are_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key.pem");
        write_atomic(&path, b"old", MODE_PUBLIC).unwrap();
        fs::write(folder.path().join("key.pem.new"), b"left by a crash").unwrap();
        write_atomic(&path, b"new", MODE_PRIVATE).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}

//! Small helpers for the daemon's files and for errors in words.

use std::{
    error::Error,
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::Path,
};

/// Removes a file; one that is gone is fine. The removal is durable.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    match path.parent() {
        Some(folder) if folder.exists() => fs::File::open(folder)?.sync_all(),
        Some(_) | None => Ok(()),
    }
}

/// Makes a directory, where it is missing, with a mode that the umask does not narrow.
pub(super) fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        // Its mode is the operator's choice.
        return Ok(());
    }
    fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// An error and its causes: `a: b: c`.
pub fn words(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}

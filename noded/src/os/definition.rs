//! What a definition's directory says, and whether it is whole.

use std::{
    collections::BTreeSet,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::Deserialize;

use crate::hypervisor::Boot;

/// The file of the simple form.
const TOML: &str = "os.toml";
/// The file that lists the versions of the interface that a definition's scripts follow.
const VERSIONS: &str = "ganeti_api_version";
/// The versions that are served, the newest first. Newer ones add to older ones.
const VERSIONS_SERVED: [u32; 4] = [20, 15, 10, 5];
/// What every definition of this form has.
const SCRIPTS: [&str; 4] = ["create", "import", "export", "rename"];

/// A valid definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Definition {
    /// Executables do the work.
    Scripts(Scripts),
    /// `os.toml` tells it all.
    Image(Image),
}

/// Executables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scripts {
    pub(super) folder: PathBuf,
    /// Of those that both sides know the newest.
    pub(super) version: u32,
}

/// What `os.toml` names, each from the root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Image {
    /// Becomes the content of the first disk.
    pub(super) image: Option<PathBuf>,
    /// What guests boot.
    pub(super) boot: Option<Boot>,
}

/// Why a definition is not valid.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Problem {
    /// A file can't be read.
    #[error("could not read {name}")]
    Read {
        /// The file.
        name: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// `os.toml` is not valid.
    #[error("os.toml is not valid")]
    Toml(#[source] Box<toml::de::Error>),
    /// `os.toml` names nothing.
    #[error("os.toml names neither an image nor a kernel")]
    Nothing,
    /// There is an `initrd` or `append` without a kernel.
    #[error("os.toml has an initrd or append, and no kernel that they are for")]
    NoKernel,
    /// A file that `os.toml` names can't be read.
    #[error("could not read {what} {}", .path.display())]
    Named {
        /// `image`, `kernel` or `initrd`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Not a number in the list of versions.
    #[error("ganeti_api_version holds {0:?}, which is no number")]
    NoVersion(String),
    /// All versions are unknown here.
    #[error("its scripts follow versions {0} of the interface, and 5, 10, 15 and 20 are known here")]
    OtherVersions(String),
    /// A script can't be found.
    #[error("could not look at script {name}")]
    Script {
        /// The script.
        name: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A script can't be executed.
    #[error("script {0} may not be executed")]
    NotExecutable(&'static str),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OsToml {
    image: Option<PathBuf>,
    kernel: Option<PathBuf>,
    initrd: Option<PathBuf>,
    append: Option<String>,
}

/// `image` where there is an `os.toml`, `scripts` otherwise.
pub(super) fn kind(folder: &Path) -> &'static str {
    if folder.join(TOML).exists() { "image" } else { "scripts" }
}

/// Reads a definition; what can't be used is a problem.
pub(super) fn read(folder: &Path) -> Result<Definition, Problem> {
    match fs::read_to_string(folder.join(TOML)) {
        Ok(text) => read_image(folder, &text).map(Definition::Image),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            read_scripts(folder).map(Definition::Scripts)
        }
        Err(source) => Err(Problem::Read { name: TOML, source }),
    }
}

fn read_image(folder: &Path, text: &str) -> Result<Image, Problem> {
    let OsToml { image, kernel, initrd, append } =
        toml::from_str(text).map_err(|error| Problem::Toml(Box::new(error)))?;
    let find = |what: &'static str, named: Option<PathBuf>| match named {
        Some(named) => {
            // One from the root stays as it is.
            let path = folder.join(named);
            match fs::File::open(&path).and_then(|file| file.metadata()) {
                Ok(metadata) if metadata.is_dir() => {
                    Err(Problem::Named { what, path, source: io::ErrorKind::IsADirectory.into() })
                }
                Ok(_) => Ok(Some(path)),
                Err(source) => Err(Problem::Named { what, path, source }),
            }
        }
        None => Ok(None),
    };
    if image.is_none() && kernel.is_none() {
        return Err(Problem::Nothing);
    }
    if kernel.is_none() && (initrd.is_some() || append.is_some()) {
        return Err(Problem::NoKernel);
    }
    let (image, initrd) = (find("image", image)?, find("initrd", initrd)?);
    let boot = find("kernel", kernel)?;
    let boot = boot.map(|kernel| Boot { kernel, initrd, append: append.unwrap_or_default() });
    Ok(Image { image, boot })
}

fn read_scripts(folder: &Path) -> Result<Scripts, Problem> {
    let text = fs::read_to_string(folder.join(VERSIONS));
    let version = version(&text.map_err(|source| Problem::Read { name: VERSIONS, source })?)?;
    for name in SCRIPTS {
        let metadata = fs::metadata(folder.join(name)).map_err(|source| Problem::Script { name, source })?;
        if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
            return Err(Problem::NotExecutable(name));
        }
    }
    Ok(Scripts { folder: folder.to_owned(), version })
}

/// The newest version that both sides know.
fn version(text: &str) -> Result<u32, Problem> {
    let mut listed = BTreeSet::new();
    for word in text.split_ascii_whitespace() {
        listed.insert(word.parse().map_err(|_| Problem::NoVersion(word.chars().take(40).collect()))?);
    }
    let shown = || listed.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let common = VERSIONS_SERVED.into_iter().find(|version| listed.contains(version));
    common.ok_or_else(|| Problem::OtherVersions(shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_counts() {
        assert_eq!(version("5\n").unwrap(), 5);
        assert_eq!(version("10\n20\n15\n").unwrap(), 20);
        assert_eq!(version("30\n15\n").unwrap(), 15);
        assert!(matches!(version("30\n2\n"), Err(Problem::OtherVersions(shown)) if shown == "2, 30"));
        assert!(matches!(version(""), Err(Problem::OtherVersions(_))));
        assert!(matches!(version("20a"), Err(Problem::NoVersion(_))));
    }
}

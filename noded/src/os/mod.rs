//! OS definitions: directories below `os_dir` that say how a system comes onto an instance's disks and how it boots.
//!
//! Two kinds: executables (`create` and others, the interface of Ganeti's OS definitions, so that existing ones work), and
//! `os.toml`, which names a disk image and a kernel.

mod definition;
mod environment;
mod install;
mod script;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use muster_core::names::{OsName, nearest};
use muster_hooksrv::{StillThere, end_writers};
use tokio::runtime::Handle;

use self::definition::{Definition, Problem};
use crate::{
    cancel::ENDED,
    hypervisor::Boot,
    image::ImageError,
    storage::{StorageError, names},
};

/// How many known names an error tells.
const KNOWN_MAX: usize = 20;

/// The OS definitions of this node.
pub(crate) struct Oses {
    /// Holds a directory for each definition.
    folder: PathBuf,
    /// Holds what scripts say, a directory for each instance.
    work: PathBuf,
    runtime: Handle,
}

/// A definition as it is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OsReport {
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// `scripts` or `image`.
    pub(crate) kind: &'static str,
    /// Why it can't be used.
    pub(crate) problem: Option<String>,
}

/// Why an OS definition could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum OsError {
    /// There is no such definition.
    #[error("this node has no OS definition {name}: {hint}")]
    Unknown {
        /// The name.
        name: OsName,
        /// What there is.
        hint: String,
    },
    /// The definition is not valid.
    #[error("OS definition {name} can't be used")]
    Broken {
        /// The name.
        name: OsName,
        /// Why.
        #[source]
        source: Problem,
    },
    /// A file could not be used.
    #[error("could not {doing} {}", .path.display())]
    File {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The guest is up.
    #[error("instance {0} runs: its disks are in use")]
    Runs(String),
    /// An image has nowhere to go.
    #[error("OS definition {name} holds a disk image, and instance {instance} has no disk")]
    NoDisk {
        /// The definition.
        name: OsName,
        /// The instance.
        instance: String,
    },
    /// A disk can't be used.
    #[error("could not use a disk of the instance")]
    Disk(#[from] StorageError),
    /// The image could not be copied.
    #[error("could not copy the image of OS definition {name}")]
    Image {
        /// The definition.
        name: OsName,
        /// The cause.
        #[source]
        source: ImageError,
    },
    /// A script did not succeed.
    #[error("{script} of OS definition {name} {ended}{said}")]
    Script {
        /// `create` or `rename`.
        script: &'static str,
        /// The definition.
        name: OsName,
        /// How it ended.
        ended: String,
        /// What it said last, after a colon; empty where it said nothing.
        said: String,
    },
    /// A script's processes can't be ended.
    #[error("could not end {script} of OS definition {name}")]
    StillThere {
        /// The script.
        script: &'static str,
        /// The definition.
        name: OsName,
        /// The cause.
        #[source]
        source: StillThere,
    },
    /// The call was told to end.
    #[error("{ENDED}")]
    Cancelled,
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> OsError {
    let path = path.to_owned();
    move |source| OsError::File { doing, path, source }
}

impl Oses {
    /// The definitions below `folder`; scripts that an earlier daemon began are ended, since their calls are carried out
    /// again or undone. Blocks, some seconds where there are such. Must be called within a runtime.
    pub(crate) fn open(folder: PathBuf, work: PathBuf) -> Result<Self, OsError> {
        fs::create_dir_all(&work).map_err(failed("make", &work))?;
        if let Err(error) = end_writers(&work) {
            tracing::error!(%error, "a script of an OS definition goes on although its daemon has ended");
        }
        Ok(Oses { folder, work, runtime: Handle::current() })
    }

    /// All definitions, the broken ones too, by name.
    pub(crate) fn list(&self) -> Result<Vec<OsReport>, OsError> {
        let mut reports = Vec::new();
        for name in self.names()? {
            let path = self.folder.join(&name);
            let read = definition::read(&path);
            let kind = definition::kind(&path);
            let problem = match (OsName::parse(&name), read) {
                (Err(error), _) => Some(error.to_string()),
                (Ok(_), Err(problem)) => Some(muster_hooksrv::agent::words(&problem)),
                (Ok(_), Ok(_)) => None,
            };
            reports.push(OsReport { name, path, kind, problem });
        }
        Ok(reports)
    }

    /// What a guest of this definition boots where that is not what is on its first disk. Who forces a start gets along
    /// without a definition.
    pub(crate) fn boot(&self, name: &OsName, force: bool) -> Result<Option<Boot>, OsError> {
        if name.is_none() {
            return Ok(None);
        }
        match self.definition(name) {
            Ok(Definition::Image(image)) => Ok(image.boot),
            Ok(Definition::Scripts(_)) => Ok(None),
            Err(error) if force => {
                tracing::warn!(
                    error = muster_hooksrv::agent::words(&error),
                    "a guest boots from its first disk"
                );
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn definition(&self, name: &OsName) -> Result<Definition, OsError> {
        let path = self.folder.join(name.as_str());
        if !path.is_dir() {
            return Err(OsError::Unknown { name: name.clone(), hint: self.hint(name)? });
        }
        definition::read(&path).map_err(|source| OsError::Broken { name: name.clone(), source })
    }

    /// What was meant instead of a name that is not known.
    fn hint(&self, name: &OsName) -> Result<String, OsError> {
        let known = self.names()?;
        if let Some(near) = nearest(name.as_str(), known.iter().map(String::as_str)) {
            return Ok(format!("did you mean {near}?"));
        }
        let shown = known.iter().take(KNOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        Ok(match known.len() {
            0 => format!("there is none in {}", self.folder.display()),
            count if count > KNOWN_MAX => format!("it has {shown} and {} more", count - KNOWN_MAX),
            _ => format!("it has {shown}"),
        })
    }

    /// The names of all directories; hidden ones are left out.
    fn names(&self) -> Result<Vec<String>, OsError> {
        match names(&self.folder) {
            Ok(mut names) => {
                names.retain(|name| !name.starts_with('.') && self.folder.join(name).is_dir());
                Ok(names)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(failed("list", &self.folder)(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn name(text: &str) -> OsName {
        OsName::parse(text).unwrap()
    }

    struct Bench(tempfile::TempDir);

    impl Bench {
        fn new() -> Self {
            Bench(tempfile::tempdir().unwrap())
        }

        fn write(&self, path: &str, text: &str, mode: u32) {
            let path = self.0.path().join("os").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        }

        fn scripts(&self, os: &str) {
            for script in ["create", "import", "export", "rename"] {
                self.write(&format!("{os}/{script}"), "#!/bin/sh\n", 0o755);
            }
            self.write(&format!("{os}/ganeti_api_version"), "15\n20\n", 0o644);
        }

        fn oses(&self) -> Oses {
            Oses::open(self.0.path().join("os"), self.0.path().join("work")).unwrap()
        }
    }

    #[tokio::test]
    async fn all_definitions_are_told_and_what_is_wrong_with_them() {
        let bench = Bench::new();
        assert_eq!(bench.oses().list().unwrap(), vec![], "no directory is no definition");
        bench.scripts("good");
        bench.scripts("lame");
        bench.write("lame/create", "#!/bin/sh\n", 0o644);
        bench.scripts("old");
        bench.write("old/ganeti_api_version", "3\n", 0o644);
        bench.write("part/create", "#!/bin/sh\n", 0o755);
        bench.write("part/ganeti_api_version", "20\n", 0o644);
        bench.write("empty/README", "", 0o644);
        bench.write("Upper/os.toml", "image = \"i\"\n", 0o644);
        bench.write("disk/os.toml", "image = \"i.raw\"\n", 0o644);
        bench.write("disk/i.raw", "x", 0o644);
        bench.write("typo/os.toml", "imgae = \"i.raw\"\n", 0o644);
        bench.write("void/os.toml", "append = \"quiet\"\n", 0o644);
        bench.write("away/os.toml", "kernel = \"/nonexistent/vmlinuz\"\n", 0o644);
        bench.write(".hidden/os.toml", "", 0o644);
        bench.write("file", "", 0o644);
        let told: Vec<String> = (bench.oses().list().unwrap().into_iter())
            .map(|os| format!("{} {} {}", os.name, os.kind, os.problem.unwrap_or_else(|| "good".to_owned())))
            .collect();
        let expected = [
            ("Upper image ", "Upper"),
            ("away image ", "kernel /nonexistent/vmlinuz"),
            ("disk image ", "good"),
            ("empty scripts ", "ganeti_api_version"),
            ("good scripts ", "good"),
            ("lame scripts ", "create may not be executed"),
            ("old scripts ", "versions 3"),
            ("part scripts ", "import"),
            ("typo image ", "imgae"),
            ("void image ", "neither an image nor a kernel"),
        ];
        assert_eq!(told.len(), expected.len(), "{told:#?}");
        for (told, (begin, part)) in told.iter().zip(expected) {
            assert!(told.starts_with(begin) && told.contains(part), "{told}: {part}");
        }
    }

    #[tokio::test]
    async fn an_unknown_definition_is_told_with_what_was_meant() {
        let bench = Bench::new();
        let unknown = |os: &str| bench.oses().boot(&name(os), false).unwrap_err().to_string();
        assert!(unknown("debian").contains("there is none in"));
        bench.scripts("debian-12");
        bench.scripts("alpine");
        assert!(unknown("debian-13").ends_with("did you mean debian-12?"), "{}", unknown("debian-13"));
        assert!(unknown("windows").ends_with("it has alpine, debian-12"));
        assert_eq!(bench.oses().boot(&name("windows"), true).unwrap(), None);
        assert_eq!(bench.oses().boot(&name("none"), false).unwrap(), None);
        assert_eq!(bench.oses().boot(&name("alpine"), false).unwrap(), None);
    }

    #[tokio::test]
    async fn a_kernel_is_found_beside_its_definition() {
        let bench = Bench::new();
        bench.write("tiny/os.toml", "kernel = \"vmlinuz\"\ninitrd = \"i.gz\"\nappend = \"quiet\"\n", 0o644);
        bench.write("tiny/vmlinuz", "", 0o644);
        let broken = bench.oses().boot(&name("tiny"), false).unwrap_err();
        assert!(muster_hooksrv::agent::words(&broken).contains("initrd"), "{broken:?}");
        bench.write("tiny/i.gz", "", 0o644);
        let place = bench.0.path().join("os/tiny");
        let (initrd, append) = (Some(place.join("i.gz")), "quiet".to_owned());
        let expected = Boot { kernel: place.join("vmlinuz"), initrd, append };
        assert_eq!(bench.oses().boot(&name("tiny"), false).unwrap(), Some(expected));
    }
}

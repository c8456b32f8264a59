//! Faults that tests and demonstrations inject: `faults.toml`, read at each call, in force while the file is there.
//!
//! ```toml
//! [guest_start]
//! fail = "no memory left"
//! delay_ms = 5000
//! ```

use std::{collections::BTreeMap, fs, io, path::PathBuf, time::Duration};

use serde::Deserialize;

/// The calls that can be made to fail; their names are the tables of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FaultPoint {
    /// A disk is made.
    DiskCreate,
    /// A disk is removed.
    DiskRemove,
    /// A disk must not be there.
    DiskAbsent,
    /// A guest is started.
    GuestStart,
    /// A guest that was started paused goes on.
    GuestResume,
    /// A guest is stopped.
    GuestStop,
    /// A guest is made to start anew.
    GuestReboot,
    /// An OS definition is installed.
    OsCreate,
    /// An OS definition hears of another name.
    OsRename,
    /// A disk gets another size.
    DiskResize,
    /// An export's staging area is made.
    ExportStage,
    /// An export is published.
    ExportPublish,
    /// An export is removed.
    ExportRemove,
    /// An export's images are compared with their checksums.
    ExportCheck,
    /// A running guest's disks are copied.
    DisksSnapshot,
    /// Copies are served, or not any more.
    Serving,
    /// Mirrors begin, end, or are asked for.
    Mirror,
    /// A guest moves.
    Migration,
    /// An image is written.
    WriteImage,
    /// An image is read.
    ReadImage,
}

/// What happens at one call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct FaultTable {
    fail: Option<String>,
    #[serde(default)]
    delay_ms: u64,
}

/// What is to happen at a call before it is carried out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    /// The call waits this long first.
    pub delay: Duration,
    /// Then it fails with these words instead of being carried out.
    pub fail: Option<String>,
}

/// The file that says which calls fail.
#[derive(Debug, Clone)]
pub(crate) struct Faults {
    path: PathBuf,
}

impl Faults {
    /// Faults are read from `path`; where there is no such file there are none.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// The fault at a call. A file that can't be read or understood fails every call, and says so: a test that
    /// misspells a fault must not pass for want of it.
    pub(crate) fn at(&self, point: FaultPoint) -> Fault {
        let text = match fs::read_to_string(&self.path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Fault::default(),
            Err(error) => return self.broken(&error),
        };
        match toml::from_str::<BTreeMap<FaultPoint, FaultTable>>(&text) {
            Ok(mut tables) => {
                let FaultTable { fail, delay_ms } = tables.remove(&point).unwrap_or_default();
                Fault { delay: Duration::from_millis(delay_ms), fail }
            }
            Err(error) => self.broken(&error),
        }
    }

    fn broken(&self, error: &dyn std::error::Error) -> Fault {
        let fail = format!("fault file {} can't be used: {error}", self.path.display());
        Fault { delay: Duration::ZERO, fail: Some(fail) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, point: FaultPoint, delay_ms: u64, fail: Option<&str>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("faults.toml");
        fs::write(&path, text).unwrap();
        let fault = Faults::new(path).at(point);
        assert_eq!(fault.delay, Duration::from_millis(delay_ms), "{text}");
        match (fault.fail, fail) {
            (None, None) => {}
            (Some(is), Some(part)) => assert!(is.contains(part), "{is}"),
            (is, expected) => panic!("{text}: {is:?}, not {expected:?}"),
        }
    }

    #[test]
    fn faults_name_calls() {
        use FaultPoint as P;
        check("", P::DiskCreate, 0, None);
        check("[disk_create]\nfail = \"no space\"\n", P::DiskCreate, 0, Some("no space"));
        check("[disk_create]\nfail = \"no space\"\n", P::DiskRemove, 0, None);
        check("[guest_stop]\ndelay_ms = 5000\n", P::GuestStop, 5000, None);
        check("[guest_stopp]\ndelay_ms = 5000\n", P::GuestStop, 0, Some("can't be used"));
        check("[guest_stop]\ndelay = 5000\n", P::GuestStart, 0, Some("can't be used"));
        let nowhere = Faults::new(PathBuf::from("/nonexistent/faults.toml"));
        assert_eq!(nowhere.at(P::WriteImage), Fault::default());
    }
}

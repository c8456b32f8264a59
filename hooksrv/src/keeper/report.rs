//! What a keeper tells of its run: records, one a line, in one file that only grows. A line without its end does not count.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::PathBuf;

use muster_core::hooks::{ScriptResult, Skipped};
use serde::{Deserialize, Serialize};

use super::place::{KeeperError, Place, VERSION, failed};
use crate::processes::ProcessId;

/// A record of the report.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Record {
    /// No script was started before this.
    Begun { version: u32 },
    /// A script's process, so that what is left of it can be ended should the keeper die.
    Started(ProcessId),
    /// A script's result.
    Ended(ScriptResult),
    /// The run has ended; with the results before it this is the whole answer.
    Done {
        skipped: Vec<Skipped>,
        failure: Option<String>,
        #[serde(default)]
        global_post_absent: bool,
    },
}

/// The keeper's end.
#[derive(Debug)]
pub(super) struct ReportWriter {
    path: PathBuf,
    file: File,
    wake: File,
    /// Length of the whole records.
    whole_bytes: u64,
}

impl ReportWriter {
    pub(super) fn open(place: &Place) -> Result<Self, KeeperError> {
        let path = place.report_path();
        let file = OpenOptions::new().append(true).open(&path).map_err(failed("open", &path))?;
        Ok(ReportWriter { path, file, wake: place.wake_sender()?, whole_bytes: 0 })
    }

    /// Adds a record, and wakes the daemon where that is a result. After an error the report is as it was before.
    pub(super) fn write(&mut self, record: &Record) -> Result<(), KeeperError> {
        let mut line = serde_json::to_vec(record)
            .map_err(|source| KeeperError::Record { path: self.path.clone(), source })?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line) {
            // Else the next record would continue the broken line.
            self.file.set_len(self.whole_bytes).map_err(failed("shorten", &self.path))?;
            return Err(failed("write", &self.path)(error));
        }
        self.whole_bytes += u64::try_from(line.len()).expect("a line fits into memory");
        match record {
            // Of use only when this process is gone.
            Record::Begun { .. } | Record::Started(_) => {}
            Record::Ended(_) | Record::Done { .. } => {
                // Where the pipe is full the daemon has been woken often enough.
                let _may_be_full = self.wake.write(b"\n");
            }
        }
        Ok(())
    }

    /// Makes the report durable.
    pub(super) fn sync(&self) -> Result<(), KeeperError> {
        self.file.sync_all().map_err(failed("sync", &self.path))
    }
}

/// The daemon's end: gives each record once.
#[derive(Debug)]
pub(super) struct ReportReader {
    path: PathBuf,
    file: File,
    /// What was read of a line that had no end yet.
    begun: Vec<u8>,
}

impl ReportReader {
    pub(super) fn open(place: &Place) -> Result<Self, KeeperError> {
        let path = place.report_path();
        let file = File::open(&path).map_err(failed("open", &path))?;
        Ok(ReportReader { path, file, begun: Vec::new() })
    }

    /// The records that were written since the last time.
    pub(super) fn read(&mut self) -> Result<Vec<Record>, KeeperError> {
        self.file.read_to_end(&mut self.begun).map_err(failed("read", &self.path))?;
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.begun.drain(..whole).collect();
        let lines = lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let records = lines.map(|line| self.record(line));
        records.collect()
    }

    fn record(&self, line: &[u8]) -> Result<Record, KeeperError> {
        let record = serde_json::from_slice(line)
            .map_err(|source| KeeperError::Record { path: self.path.clone(), source })?;
        match record {
            Record::Begun { version } if version != VERSION => {
                Err(KeeperError::Version { path: self.path.clone(), version })
            }
            Record::Begun { .. } | Record::Started(_) | Record::Ended(_) | Record::Done { .. } => Ok(record),
        }
    }
}

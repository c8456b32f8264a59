//! The archive read backwards while the driver writes: by a connection of its own, a few records at a time.

use std::path::{Path, PathBuf};

use muster_core::engine::Job;
use rusqlite::{Connection, OpenFlags, params};

use super::{
    batch::StoreError,
    keys,
    sqlite::check_magic,
    tables::{self, read_error},
    value::decode,
};

/// Records read at once: each may hold megabytes of output.
const PAGE: i64 = 8;

/// Archived jobs, the highest number first.
pub struct ArchivedJobs {
    path: PathBuf,
    connection: Option<Connection>,
    /// Read, and not given out yet; the next one last.
    page: Vec<Job>,
    /// Keys below this are still to be read.
    below: String,
    passed_over: u64,
}

impl ArchivedJobs {
    /// Those of a running master's store; none where there is no file.
    ///
    /// # Errors
    /// When the file can't be opened.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let there = path.try_exists();
        let there =
            there.map_err(|source| StoreError::File { what: "look for", path: path.to_owned(), source })?;
        let connection = if there { Some(connect(path)?) } else { None };
        // Behind all keys of jobs.
        let below = format!("{}~", keys::JOB);
        Ok(ArchivedJobs { path: path.to_owned(), connection, page: Vec::new(), below, passed_over: 0 })
    }

    /// The next one. A record that is not what was written is passed over: it must not hide all that are older.
    ///
    /// # Errors
    /// When the store can't be read.
    pub fn next_job(&mut self) -> Result<Option<Job>, StoreError> {
        while self.page.is_empty() && self.read_page()? {}
        Ok(self.page.pop())
    }

    /// How many records could not be read so far.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Reads the next records; false where there are none.
    fn read_page(&mut self) -> Result<bool, StoreError> {
        let Some(connection) = &self.connection else { return Ok(false) };
        let sql = "SELECT key, value, checksum FROM archive WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3";
        let mut records = Vec::new();
        let parameters = params![keys::JOB, self.below, PAGE];
        tables::each_row(connection, &self.path, sql, parameters, |read| {
            records.push(match read {
                Ok((key, value, _)) => (key, Some(value)),
                Err(key) => (key, None),
            });
            Ok(())
        })?;
        let Some((last, _)) = records.last() else { return Ok(false) };
        if *last >= self.below {
            // A key that is no text: what follows it would be read for ever.
            return Err(StoreError::DamagedRecord { path: self.path.clone(), key: last.clone() });
        }
        self.below = last.clone();
        for (key, value) in records.iter().rev() {
            match value.as_ref().and_then(|value| decode(key, value).ok()) {
                Some(job) => self.page.push(job),
                None => {
                    self.passed_over += 1;
                    tracing::warn!(key, "an archived job can't be read and is left out of a search");
                }
            }
        }
        Ok(true)
    }
}

fn connect(path: &Path) -> Result<Connection, StoreError> {
    check_magic(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let error = |source| read_error(path, source);
    let connection = Connection::open_with_flags(path, flags).map_err(error)?;
    connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF").map_err(error)?;
    Ok(connection)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use muster_core::{
        names::ClusterName,
        ops::{ClusterDestroy, Op, examples},
    };

    use super::*;
    use crate::store::{Batch, SqliteStore, Store, encode};

    fn job(id: u64) -> Job {
        Job::new(examples::submission(
            id,
            Op::ClusterDestroy(ClusterDestroy { name: ClusterName::parse("dev").unwrap() }),
        ))
    }

    fn rest(jobs: &mut ArchivedJobs) -> Vec<u64> {
        let mut ids = Vec::new();
        while let Some(job) = jobs.next_job().unwrap() {
            ids.push(job.id());
        }
        ids
    }

    #[test]
    fn archived_jobs_come_backwards_by_pages_while_the_store_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.db");
        assert_eq!(rest(&mut ArchivedJobs::open(&path).unwrap()), [0_u64; 0], "there is no file");
        let mut store = SqliteStore::create(&path, &BTreeMap::new()).unwrap();
        assert_eq!(rest(&mut ArchivedJobs::open(&path).unwrap()), [0_u64; 0], "nothing is archived");
        let records = |ids: std::ops::RangeInclusive<u64>| {
            ids.map(|id| (keys::job(id), encode(&job(id)))).collect::<Vec<_>>()
        };
        store.commit(&Batch::archiving(records(1..=21))).unwrap();
        store.commit(&Batch::archiving(vec![("zone/1".to_owned(), "other".to_owned())])).unwrap();
        let mut jobs = ArchivedJobs::open(&path).unwrap();
        assert_eq!(jobs.next_job().unwrap().unwrap().id(), 21);
        // What comes later is newer than what was read.
        store.commit(&Batch::archiving(records(22..=30))).unwrap();
        assert_eq!(rest(&mut jobs), (1..=20).rev().collect::<Vec<_>>());
        assert_eq!(rest(&mut ArchivedJobs::open(&path).unwrap()).len(), 30);
    }

    #[test]
    fn records_that_can_not_be_read_do_not_hide_what_is_older() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cluster.db");
        let mut store = SqliteStore::create(&path, &BTreeMap::new()).unwrap();
        let records = (1..=20).map(|id| (keys::job(id), encode(&job(id)))).collect();
        store.commit(&Batch::archiving(records)).unwrap();
        let other = (21..=30).map(|id| (keys::job(id), "{\"of\":\"another version\"}".to_owned())).collect();
        store.commit(&Batch::archiving(other)).unwrap();
        drop(store);
        let damage = "UPDATE archive SET value = value || ' ' WHERE key = ?1";
        assert_eq!(Connection::open(&path).unwrap().execute(damage, [keys::job(7)]).unwrap(), 1);
        let mut jobs = ArchivedJobs::open(&path).unwrap();
        assert_eq!(rest(&mut jobs), (1..=20).rev().filter(|id| *id != 7).collect::<Vec<_>>());
        assert_eq!(jobs.passed_over(), 11);
    }
}

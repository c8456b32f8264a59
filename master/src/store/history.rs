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
        Ok(ArchivedJobs { path: path.to_owned(), connection, page: Vec::new(), below })
    }

    /// The next one.
    ///
    /// # Errors
    /// When the store can't be read, or what it holds is not what was written.
    pub fn next_job(&mut self) -> Result<Option<Job>, StoreError> {
        if self.page.is_empty() {
            self.read_page()?;
        }
        Ok(self.page.pop())
    }

    fn read_page(&mut self) -> Result<(), StoreError> {
        let Some(connection) = &self.connection else { return Ok(()) };
        let sql = "SELECT key, value, checksum FROM archive WHERE key >= ?1 AND key < ?2 ORDER BY key DESC LIMIT ?3";
        let mut records = Vec::new();
        let parameters = params![keys::JOB, self.below, PAGE];
        tables::each(connection, &self.path, sql, parameters, |key, value, _| records.push((key, value)))?;
        if let Some((last, _)) = records.last() {
            self.below = last.clone();
        }
        for (key, value) in records.iter().rev() {
            self.page.push(decode(key, value)?);
        }
        Ok(())
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
        engine::{Priority, Submission},
        names::ClusterName,
        ops::{ClusterDestroy, Op, examples},
    };

    use super::*;
    use crate::store::{Batch, SqliteStore, Store, encode};

    fn job(id: u64) -> Job {
        Job::new(Submission {
            id,
            uuid: uuid::Uuid::from_u128(u128::from(id)),
            op: Op::ClusterDestroy(ClusterDestroy { name: ClusterName::parse("dev").unwrap() }),
            user: "root".to_owned(),
            reason: String::new(),
            dry_run: false,
            request_id: String::new(),
            fresh: examples::fresh(),
            depends: Vec::new(),
            priority: Priority::default(),
            parent: None,
        })
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
}

//! A store in one SQLite file: an operator can look into it, and copy it, with tools that he knows.

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, OptionalExtension, TransactionBehavior, config::DbConfig, params};

use super::{
    batch::{Batch, Records, Store, StoreError, check_epoch},
    files::{beside, make_private, publish, remove_companions, remove_database},
    format::{FORMAT, Format, Meta},
    keys, snapshot,
    tables::{self, archive, delete, put, put_meta, read_error, read_meta, sqlite_error},
    witness::Witness,
};

/// How long another process (an operator's shell on the file) is waited for; two masters don't get this far.
const BUSY_LIMIT: Duration = Duration::from_secs(3);
/// `PRAGMA synchronous` as SQLite gives it back: FULL.
const SYNCHRONOUS_FULL: i64 = 2;
/// Up to this many archived records the whole file's structure is checked at each opening; beyond, only the live
/// records' part, so that the archive costs a start nothing.
const ARCHIVE_CHECKED_MAX: u64 = 256;
/// What every SQLite file begins with.
const MAGIC: &[u8] = b"SQLite format 3\0";

/// Records in a file. Durable when a commit returns.
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    meta: Meta,
    witness: Witness,
}

impl SqliteStore {
    /// Makes a file with these records: after a crash it is there as a whole, or not at all.
    pub fn create(path: &Path, records: &Records) -> Result<Self, StoreError> {
        let new = beside(path, ".new");
        remove_database(&new)?;
        make_private(&new)?;
        let error = |source| sqlite_error("make", &new, source);
        let mut connection = Connection::open_with_flags(&new, open_flags()).map_err(error)?;
        connection.execute_batch("PRAGMA synchronous = FULL").map_err(error)?;
        let transaction = connection.transaction().map_err(error)?;
        transaction.execute_batch(tables::RECORDS).map_err(error)?;
        transaction.execute_batch(tables::ARCHIVE).map_err(error)?;
        let mut meta = Meta::new(FORMAT.version);
        for (key, value) in records {
            put(&transaction, &mut meta, key, value).map_err(error)?;
        }
        put_meta(&transaction, &meta).map_err(error)?;
        transaction.commit().map_err(error)?;
        connection.close().map_err(|(_, source)| error(source))?;
        // The log of an earlier file of this name must not be taken for this one's.
        remove_companions(path)?;
        publish(&new, path)?;
        Self::open(path)
    }

    /// Opens a file.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        Self::open_as(path, &FORMAT)
    }

    /// Opens a file as a program that knows this format does.
    pub(super) fn open_as(path: &Path, format: &Format) -> Result<Self, StoreError> {
        check_magic(path)?;
        let error = |source| read_error(path, source);
        let connection = Connection::open_with_flags(path, open_flags()).map_err(error)?;
        // A refused file stays as it is: closing would merge what can be read of the log, and remove the rest.
        let keep_log = |on| connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, on);
        keep_log(true).map_err(error)?;
        configure(&connection, path)?;
        let meta = read_meta(&connection, path)?;
        quick_check(&connection, path, "PRAGMA quick_check(records)")?;
        if meta.archived <= ARCHIVE_CHECKED_MAX {
            quick_check(&connection, path, "PRAGMA quick_check(1)")?;
        }
        let witness = Witness::of(path);
        if let Some(noted) = witness.noted().filter(|noted| *noted > meta.commits) {
            let what = format!("it ends with commit {}, and commit {noted} was answered", meta.commits);
            return Err(StoreError::Damaged { path: path.to_owned(), what });
        }
        keep_log(false).map_err(error)?;
        let mut store = Self { path: path.to_owned(), connection, meta, witness };
        store.bring_to(format)?;
        Ok(store)
    }

    /// Refuses a newer file; upgrades an older one, after a copy of it was made.
    fn bring_to(&mut self, format: &Format) -> Result<(), StoreError> {
        let found = self.meta.format;
        if found > format.version {
            return Err(StoreError::Newer { path: self.path.clone(), found, known: format.version });
        }
        if found == format.version {
            return Ok(());
        }
        let copy = beside(&self.path, &format!(".format-{found}.backup"));
        self.backup(&copy)?;
        tracing::info!(from = found, to = format.version, backup = %copy.display(), "the store is being upgraded");
        let old = self.load()?;
        let new = format.upgrades_from(found).fold(old.clone(), |records, upgrade| upgrade(records));
        let made = self.connection.execute_batch(tables::ARCHIVE);
        made.map_err(|source| sqlite_error("upgrade", &self.path, source))?;
        self.meta.format = format.version;
        self.commit(&Batch::replacing(&old, new))
    }

    /// Writes a copy of the file as it is now, to be opened like the file itself; what was there is replaced.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        snapshot::copy(&self.connection, &self.path, to)
    }

    /// Closes the file; its log is merged into it and removed.
    pub(super) fn close(self) -> Result<(), StoreError> {
        let Self { path, connection, meta: _, witness: _ } = self;
        connection.close().map_err(|(_, source)| sqlite_error("close", &path, source))
    }
}

impl Store for SqliteStore {
    fn load(&self) -> Result<Records, StoreError> {
        tables::load(&self.connection, &self.path, &self.meta)
    }

    fn commit(&mut self, batch: &Batch) -> Result<(), StoreError> {
        let path = &self.path;
        let error = |source| sqlite_error("write", path, source);
        let transaction =
            self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error)?;
        if batch.epoch.is_some() {
            let value = "SELECT value FROM records WHERE key = ?1";
            let record = transaction.query_row(value, [keys::EPOCH], |row| row.get::<_, String>(0));
            check_epoch(batch, record.optional().map_err(error)?.as_deref())?;
        }
        let mut meta = self.meta.clone();
        meta.commits += 1;
        for key in &batch.deletes {
            delete(&transaction, &mut meta, key).map_err(error)?;
        }
        for (key, value) in &batch.puts {
            put(&transaction, &mut meta, key, value).map_err(error)?;
        }
        for key in &batch.archives {
            archive(&transaction, &mut meta, key).map_err(error)?;
        }
        put_meta(&transaction, &meta).map_err(error)?;
        transaction.commit().map_err(error)?;
        self.meta = meta;
        self.witness.note(self.meta.commits);
        Ok(())
    }

    fn commits(&self) -> u64 {
        self.meta.commits
    }

    fn archived_count(&self) -> u64 {
        self.meta.archived
    }

    fn archived(&self, key: &str) -> Result<Option<String>, StoreError> {
        let mut found = None;
        let sql = "SELECT key, value, checksum FROM archive WHERE key = ?1";
        tables::each(&self.connection, &self.path, sql, [key], |_, value, _| found = Some(value))?;
        Ok(found)
    }

    fn archived_keys(&self, limit: usize) -> Result<Vec<String>, StoreError> {
        let mut keys = Vec::new();
        let sql = "SELECT key, value, checksum FROM archive ORDER BY key DESC LIMIT ?1";
        tables::each(&self.connection, &self.path, sql, [bound(limit)], |key, _, _| keys.push(key))?;
        Ok(keys)
    }

    fn archived_after(&self, key: &str, limit: usize) -> Result<Vec<(String, String)>, StoreError> {
        let mut page = Vec::new();
        let sql = "SELECT key, value, checksum FROM archive WHERE key > ?1 ORDER BY key LIMIT ?2";
        let parameters = params![key, bound(limit)];
        tables::each(&self.connection, &self.path, sql, parameters, |key, value, _| page.push((key, value)))?;
        Ok(page)
    }
}

fn bound(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn open_flags() -> OpenFlags {
    // Never made by opening: a file that is missing is not an empty store.
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Looks at a file before SQLite does, which takes an empty one for a new database and removes its log.
pub(super) fn check_magic(path: &Path) -> Result<(), StoreError> {
    let error = |source| StoreError::File { what: "open", path: path.to_owned(), source };
    let mut start = Vec::new();
    let file = File::open(path).map_err(error)?;
    file.take(u64::try_from(MAGIC.len()).unwrap_or(u64::MAX)).read_to_end(&mut start).map_err(error)?;
    if start == MAGIC { Ok(()) } else { Err(StoreError::NotAStore { path: path.to_owned() }) }
}

/// Lets SQLite check the file's structure.
pub(super) fn quick_check(connection: &Connection, path: &Path, sql: &str) -> Result<(), StoreError> {
    let found = connection.query_row(sql, [], |row| row.get::<_, String>(0));
    let found = found.map_err(|source| read_error(path, source))?;
    if found == "ok" {
        return Ok(());
    }
    // The lines before only say which database it is.
    let what = found.lines().last().unwrap_or_default().to_owned();
    Err(StoreError::Damaged { path: path.to_owned(), what })
}

/// Sets what durability rests on, and looks whether it is so.
fn configure(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let error = |source| read_error(path, source);
    connection.busy_timeout(BUSY_LIMIT).map_err(error)?;
    connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF").map_err(error)?;
    let journal: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(error)?;
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(error)?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(error)?;
    if (journal.as_str(), synchronous) == ("wal", SYNCHRONOUS_FULL) {
        return Ok(());
    }
    let what = format!("it opens in journal mode {journal}, in which commits would not be durable");
    Err(StoreError::Damaged { path: path.to_owned(), what })
}

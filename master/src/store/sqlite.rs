//! A store in one SQLite file: an operator can look into it, and copy it, with tools that he knows.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{
    Connection, ErrorCode, OpenFlags, OptionalExtension, Transaction, TransactionBehavior, params,
};

use super::{
    batch::{Batch, Records, Store, StoreError, check_epoch},
    files::{beside, make_private, publish, remove_companions, remove_database},
    format::{Checksum, FORMAT, Format, Meta, checksum},
    keys,
    value::{decode, encode},
};

/// How long another process (an operator's shell on the file) is waited for; two masters don't get this far.
const BUSY_LIMIT: Duration = Duration::from_secs(3);
/// `PRAGMA synchronous` as SQLite gives it back: FULL.
const SYNCHRONOUS_FULL: i64 = 2;

const TABLE: &str = "CREATE TABLE records (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) \
                     WITHOUT ROWID";

/// Records in a file. Durable when a commit returns.
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    meta: Meta,
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
        transaction.execute_batch(TABLE).map_err(error)?;
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
        let error = |source| sqlite_error("open", path, source);
        let connection = Connection::open_with_flags(path, open_flags()).map_err(error)?;
        configure(&connection, path)?;
        let found: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(error)?;
        if found != "ok" {
            return Err(StoreError::Damaged { path: path.to_owned(), what: found });
        }
        let tables = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = 'records'";
        let tables: i64 = connection.query_row(tables, [], |row| row.get(0)).map_err(error)?;
        if tables == 0 {
            return Err(StoreError::NotAStore { path: path.to_owned() });
        }
        let meta = read_meta(&connection, path)?;
        let mut store = Self { path: path.to_owned(), connection, meta };
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
        self.meta.format = format.version;
        self.commit(&Batch::replacing(&old, new))
    }

    /// Writes a copy of the file as it is now, to be opened like the file itself; what was there is replaced.
    pub fn backup(&self, to: &Path) -> Result<(), StoreError> {
        let new = beside(to, ".new");
        remove_database(&new)?;
        make_private(&new)?;
        let source = std::io::ErrorKind::InvalidFilename;
        let text = new.to_str().ok_or_else(|| StoreError::File {
            what: "write",
            path: to.to_owned(),
            source: source.into(),
        })?;
        // Into an empty file: that one has the right mode already.
        let copied = self.connection.execute("VACUUM INTO ?1", [text]);
        copied.map_err(|source| sqlite_error("copy", &self.path, source))?;
        publish(&new, to)
    }

    /// Closes the file; its log is merged into it and removed.
    pub(super) fn close(self) -> Result<(), StoreError> {
        let Self { path, connection, meta: _ } = self;
        connection.close().map_err(|(_, source)| sqlite_error("close", &path, source))
    }
}

impl Store for SqliteStore {
    fn load(&self) -> Result<Records, StoreError> {
        let error = |source| sqlite_error("read", &self.path, source);
        let mut records = Records::new();
        let mut counted = Meta::new(self.meta.format);
        let mut all = self.connection.prepare("SELECT key, value, checksum FROM records").map_err(error)?;
        let mut rows = all.query([]).map_err(error)?;
        while let Some(row) = rows.next().map_err(error)? {
            let (key, value, sum) = read_row(row).map_err(|key| self.damaged(key))?;
            if key != keys::META {
                counted.add(&sum);
                records.insert(key, value);
            }
        }
        let what = self.meta.check(&counted);
        what.map_err(|what| StoreError::Damaged { path: self.path.clone(), what })?;
        Ok(records)
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
        put_meta(&transaction, &meta).map_err(error)?;
        transaction.commit().map_err(error)?;
        self.meta = meta;
        Ok(())
    }

    fn commits(&self) -> u64 {
        self.meta.commits
    }
}

impl SqliteStore {
    fn damaged(&self, key: String) -> StoreError {
        StoreError::DamagedRecord { path: self.path.clone(), key }
    }
}

fn open_flags() -> OpenFlags {
    // Never made by opening: a file that is missing is not an empty store.
    OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX
}

/// Sets what durability rests on, and looks whether it is so.
fn configure(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let error = |source| sqlite_error("open", path, source);
    connection.busy_timeout(BUSY_LIMIT).map_err(error)?;
    connection.execute_batch("PRAGMA cell_size_check = ON; PRAGMA trusted_schema = OFF").map_err(error)?;
    let journal: String =
        connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0)).map_err(error)?;
    connection.execute_batch("PRAGMA synchronous = FULL").map_err(error)?;
    let synchronous: i64 = connection.query_row("PRAGMA synchronous", [], |row| row.get(0)).map_err(error)?;
    assert_eq!((journal.as_str(), synchronous), ("wal", SYNCHRONOUS_FULL), "commits would not be durable");
    Ok(())
}

fn put(transaction: &Transaction<'_>, meta: &mut Meta, key: &str, value: &str) -> rusqlite::Result<()> {
    assert_ne!(key, keys::META, "the store writes its record of itself");
    remember_gone(transaction, meta, key)?;
    meta.add(&checksum(key, value));
    put_row(transaction, key, value)
}

fn delete(transaction: &Transaction<'_>, meta: &mut Meta, key: &str) -> rusqlite::Result<()> {
    remember_gone(transaction, meta, key)?;
    transaction.prepare_cached("DELETE FROM records WHERE key = ?1")?.execute([key])?;
    Ok(())
}

/// Takes the record that is about to be replaced or deleted out of the sum.
fn remember_gone(transaction: &Transaction<'_>, meta: &mut Meta, key: &str) -> rusqlite::Result<()> {
    let mut old = transaction.prepare_cached("SELECT checksum FROM records WHERE key = ?1")?;
    if let Some(old) = old.query_row([key], |row| row.get::<_, Checksum>(0)).optional()? {
        meta.remove(&old);
    }
    Ok(())
}

fn put_meta(transaction: &Transaction<'_>, meta: &Meta) -> rusqlite::Result<()> {
    put_row(transaction, keys::META, &encode(meta))
}

fn put_row(transaction: &Transaction<'_>, key: &str, value: &str) -> rusqlite::Result<()> {
    let put = "INSERT INTO records (key, value, checksum) VALUES (?1, ?2, ?3) \
               ON CONFLICT (key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum";
    transaction.prepare_cached(put)?.execute(params![key, value, checksum(key, value)])?;
    Ok(())
}

fn read_meta(connection: &Connection, path: &Path) -> Result<Meta, StoreError> {
    let meta = "SELECT key, value, checksum FROM records WHERE key = ?1";
    let read = connection.query_row(meta, [keys::META], |row| Ok(read_row(row)));
    let read = read.optional().map_err(|source| sqlite_error("read", path, source))?;
    let damaged = |key| StoreError::DamagedRecord { path: path.to_owned(), key };
    let (key, value, _) = read.ok_or_else(|| damaged(keys::META.to_owned()))?.map_err(damaged)?;
    Ok(decode(&key, &value)?)
}

/// A row's key, value and checksum; the key alone where they don't fit together.
fn read_row(row: &rusqlite::Row<'_>) -> Result<(String, String, Checksum), String> {
    let bytes = |index| row.get_ref(index).ok().and_then(|cell| cell.as_bytes().ok()).unwrap_or_default();
    let key = String::from_utf8_lossy(bytes(0)).into_owned();
    let Ok(value) = str::from_utf8(bytes(1)) else { return Err(key) };
    let sum = checksum(&key, value);
    match bytes(2) == sum {
        true => Ok((key, value.to_owned(), sum)),
        false => Err(key),
    }
}

fn sqlite_error(what: &'static str, path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path },
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, what: source.to_string() },
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path },
        Some(_) | None => StoreError::Sqlite { what, path, source },
    }
}

//! The two tables of a store's file, live records and the archive, and the SQL that reads and writes them.

use std::path::Path;

use rusqlite::{Connection, ErrorCode, OptionalExtension, Row, Transaction, params};

use super::{
    batch::{Records, StoreError},
    format::{Checksum, Meta, checksum},
    keys,
    value::{decode, encode},
};

/// Live records.
pub(super) const RECORDS: &str = "CREATE TABLE records (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) \
     WITHOUT ROWID";
/// The archive: a table of its own, so that reading all live records touches none of its pages.
pub(super) const ARCHIVE: &str = "CREATE TABLE IF NOT EXISTS archive (key TEXT PRIMARY KEY, value TEXT NOT NULL, checksum BLOB NOT NULL) \
     WITHOUT ROWID";
/// The format that came with the archive.
const ARCHIVE_FORMAT: u32 = 2;

pub(super) fn put(
    transaction: &Transaction<'_>,
    meta: &mut Meta,
    key: &str,
    value: &str,
) -> rusqlite::Result<()> {
    assert_ne!(key, keys::META, "the store writes its record of itself");
    remember_gone(transaction, meta, key)?;
    meta.add(&checksum(key, value));
    put_row(transaction, key, value)
}

pub(super) fn delete(transaction: &Transaction<'_>, meta: &mut Meta, key: &str) -> rusqlite::Result<()> {
    remember_gone(transaction, meta, key)?;
    delete_row(transaction, key)
}

/// Moves a live record to the archive, with the checksum that it has, so that damage can't hide behind a new one.
pub(super) fn archive(transaction: &Transaction<'_>, meta: &mut Meta, key: &str) -> rusqlite::Result<()> {
    let Some(moved) = checksum_in(transaction, "records", key)? else { return Ok(()) };
    if let Some(old) = checksum_in(transaction, "archive", key)? {
        meta.remove_archived(&old);
    }
    let copy = "INSERT OR REPLACE INTO archive SELECT key, value, checksum FROM records WHERE key = ?1";
    transaction.prepare_cached(copy)?.execute([key])?;
    meta.add_archived(&moved);
    meta.remove(&moved);
    delete_row(transaction, key)
}

/// Takes the record that is about to be replaced or deleted out of the sum.
fn remember_gone(transaction: &Transaction<'_>, meta: &mut Meta, key: &str) -> rusqlite::Result<()> {
    if let Some(old) = checksum_in(transaction, "records", key)? {
        meta.remove(&old);
    }
    Ok(())
}

fn checksum_in(transaction: &Transaction<'_>, table: &str, key: &str) -> rusqlite::Result<Option<Checksum>> {
    let sql = format!("SELECT checksum FROM {table} WHERE key = ?1");
    let mut old = transaction.prepare_cached(&sql)?;
    old.query_row([key], |row| row.get::<_, Checksum>(0)).optional()
}

fn delete_row(transaction: &Transaction<'_>, key: &str) -> rusqlite::Result<()> {
    transaction.prepare_cached("DELETE FROM records WHERE key = ?1")?.execute([key]).map(drop)
}

pub(super) fn put_meta(transaction: &Transaction<'_>, meta: &Meta) -> rusqlite::Result<()> {
    put_row(transaction, keys::META, &encode(meta))
}

fn put_row(transaction: &Transaction<'_>, key: &str, value: &str) -> rusqlite::Result<()> {
    let put = "INSERT INTO records (key, value, checksum) VALUES (?1, ?2, ?3) \
               ON CONFLICT (key) DO UPDATE SET value = excluded.value, checksum = excluded.checksum";
    transaction.prepare_cached(put)?.execute(params![key, value, checksum(key, value)])?;
    Ok(())
}

/// Finds the tables and reads the store's record of itself.
pub(super) fn read_meta(connection: &Connection, path: &Path) -> Result<Meta, StoreError> {
    let error = |source| read_error(path, source);
    let has = |table: &str| {
        let sql = "SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name = ?1";
        connection.query_row(sql, [table], |row| row.get::<_, i64>(0)).map(|count| count == 1)
    };
    if !has("records").map_err(error)? {
        return Err(StoreError::NotAStore { path: path.to_owned() });
    }
    let damaged = |key| StoreError::DamagedRecord { path: path.to_owned(), key };
    let sql = "SELECT key, value, checksum FROM records WHERE key = ?1";
    let read = connection.query_row(sql, [keys::META], |row| Ok(read_row(row))).optional().map_err(error)?;
    let (key, value, _) = read.ok_or_else(|| damaged(keys::META.to_owned()))?.map_err(damaged)?;
    let meta: Meta = decode(&key, &value)?;
    if meta.format >= ARCHIVE_FORMAT && !has("archive").map_err(error)? {
        let what = "its archive is missing".to_owned();
        return Err(StoreError::Damaged { path: path.to_owned(), what });
    }
    Ok(meta)
}

/// All live records, each checked, and all of them against the store's record of itself.
pub(super) fn load(connection: &Connection, path: &Path, meta: &Meta) -> Result<Records, StoreError> {
    let mut records = Records::new();
    let mut counted = Meta::new(meta.format);
    each(connection, path, "SELECT key, value, checksum FROM records", [], |key, value, sum| {
        if key != keys::META {
            counted.add(&sum);
            records.insert(key, value);
        }
    })?;
    meta.check(&counted).map_err(|what| StoreError::Damaged { path: path.to_owned(), what })?;
    Ok(records)
}

/// Reads the whole archive: each record is checked, and all of them against the store's record of itself.
pub(super) fn check_archive(connection: &Connection, path: &Path, meta: &Meta) -> Result<(), StoreError> {
    if meta.format < ARCHIVE_FORMAT {
        return Ok(());
    }
    let mut counted = Meta::new(meta.format);
    let sql = "SELECT key, value, checksum FROM archive";
    each(connection, path, sql, [], |_, _, sum| counted.add_archived(&sum))?;
    meta.check_archive(&counted).map_err(|what| StoreError::Damaged { path: path.to_owned(), what })
}

/// Goes over the rows that a statement gives, each checked.
pub(super) fn each(
    connection: &Connection,
    path: &Path,
    sql: &str,
    parameters: impl rusqlite::Params,
    mut take: impl FnMut(String, String, Checksum),
) -> Result<(), StoreError> {
    each_row(connection, path, sql, parameters, |read| {
        let (key, value, sum) =
            read.map_err(|key| StoreError::DamagedRecord { path: path.to_owned(), key })?;
        take(key, value, sum);
        Ok(())
    })
}

/// Goes over the rows that a statement gives; of one that does not fit its checksum the key.
pub(super) fn each_row(
    connection: &Connection,
    path: &Path,
    sql: &str,
    parameters: impl rusqlite::Params,
    mut take: impl FnMut(Result<(String, String, Checksum), String>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    let error = |source| read_error(path, source);
    let mut statement = connection.prepare_cached(sql).map_err(error)?;
    let mut rows = statement.query(parameters).map_err(error)?;
    while let Some(row) = rows.next().map_err(error)? {
        take(read_row(row))?;
    }
    Ok(())
}

/// A row's key, value and checksum; the key alone where they don't fit together.
fn read_row(row: &Row<'_>) -> Result<(String, String, Checksum), String> {
    let bytes = |index| row.get_ref(index).ok().and_then(|cell| cell.as_bytes().ok()).unwrap_or_default();
    let key = String::from_utf8_lossy(bytes(0)).into_owned();
    let Ok(value) = str::from_utf8(bytes(1)) else { return Err(key) };
    let sum = checksum(&key, value);
    match bytes(2) == sum {
        true => Ok((key, value.to_owned(), sum)),
        false => Err(key),
    }
}

/// An error of opening or reading: any cause but a busy file may be damage.
pub(super) fn read_error(path: &Path, source: rusqlite::Error) -> StoreError {
    let error = sqlite_error("read", path, source);
    if let StoreError::Sqlite { path, source, .. } = error {
        StoreError::Open { path, source }
    } else {
        error
    }
}

pub(super) fn sqlite_error(what: &'static str, path: &Path, source: rusqlite::Error) -> StoreError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::InUse { path },
        Some(ErrorCode::DatabaseCorrupt) => StoreError::Damaged { path, what: source.to_string() },
        Some(ErrorCode::NotADatabase) => StoreError::NotAStore { path },
        Some(_) | None => StoreError::Sqlite { what, path, source },
    }
}

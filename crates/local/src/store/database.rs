//! The SQLite file: what is on disk and how it gets there.
//!
//! SQLite is asked for one thing, that a batch of rows is on disk as a whole or not at all. All lookups happen
//! in memory, so the table has no index, and a row is addressed by the revision that created its object.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params};

use super::Read;
use super::error::{OpenError, StorageError};
use super::key::Key;
use super::object::{Entry, Event, EventKind, Record};
use super::snapshot::{Objects, Snapshot};

/// The layout of the tables below. A change of it comes with a migration from every older number.
const FORMAT: i32 = 1;

/// "SBAR", in the field of the SQLite header that tells programs' files apart.
const APPLICATION_ID: i32 = 0x5342_4152;

/// An empty store is at 1, as etcd is: 0 means "any" in the Kubernetes API.
const SCHEMA: &str = "
    CREATE TABLE objects (
        created INTEGER PRIMARY KEY,
        revision INTEGER NOT NULL,
        resource TEXT NOT NULL,
        namespace TEXT NOT NULL,
        name TEXT NOT NULL,
        value BLOB NOT NULL
    ) STRICT;
    CREATE TABLE latest (revision INTEGER NOT NULL) STRICT;
    INSERT INTO latest VALUES (1);
";

const INSERT: &str = "INSERT INTO objects VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
const UPDATE: &str = "UPDATE objects SET revision = ?2, value = ?3 WHERE created = ?1";
const DELETE: &str = "DELETE FROM objects WHERE created = ?1";

/// As `SCHEMA` has it.
pub(super) const FIRST_REVISION: u64 = 1;

/// An open database. There is one connection, and only the writer thread uses it.
pub(super) struct Database {
    connection: Connection,
    path: PathBuf,
    /// Let go after the connection, which is declared before it.
    _lock: Lock,
}

/// The right to use a directory.
struct Lock(File);

impl Drop for Lock {
    /// Closing would not do: a process that another thread is just starting has the file open, too, until it has
    /// become its program.
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

impl Database {
    /// Opens or creates the database in `directory` and reads all of it.
    pub(super) fn open(directory: &Path, read: Read) -> Result<(Database, Snapshot), OpenError> {
        let lock = lock(directory)?;
        let path = directory.join("objects.db");
        make_private(&path)?;
        let connection = connect(&path).map_err(|source| open_error(&path, source))?;
        check_origin(&connection, &path)?;
        use_log(&connection, &path)?;
        create(&connection).map_err(|source| open_error(&path, source))?;
        let database = Database {
            connection,
            path,
            _lock: lock,
        };
        let snapshot = database.load(read)?;
        Ok((database, snapshot))
    }

    /// When this returns without error, all of `events` and `revision` survive a loss of power; with an error,
    /// the next call finds the database as before this one.
    pub(super) fn commit(&mut self, events: &[&Event], revision: u64) -> Result<(), StorageError> {
        self.try_commit(events, revision)
            .map_err(|source| StorageError {
                path: self.path.clone(),
                source,
            })
    }

    fn try_commit(&mut self, events: &[&Event], revision: u64) -> rusqlite::Result<()> {
        // dropped without commit, it rolls back
        let transaction = self.connection.transaction()?;
        for event in events {
            let entry = &event.entry;
            let id = integer(entry.created)?;
            let rows = match event.kind {
                EventKind::Added => {
                    let (key, revision) = (&entry.key, integer(entry.revision)?);
                    let (resource, namespace, name) = (key.resource(), key.namespace(), key.name());
                    transaction.prepare_cached(INSERT)?.execute(params![
                        id,
                        revision,
                        resource,
                        namespace,
                        name,
                        &*entry.value.bytes()
                    ])?
                }
                EventKind::Modified => {
                    let values = params![id, integer(entry.revision)?, &*entry.value.bytes()];
                    transaction.prepare_cached(UPDATE)?.execute(values)?
                }
                EventKind::Deleted => transaction.prepare_cached(DELETE)?.execute(params![id])?,
            };
            if rows != 1 {
                return Err(rusqlite::Error::StatementChangedRows(rows));
            }
        }
        transaction
            .prepare_cached("UPDATE latest SET revision = ?1")?
            .execute(params![integer(revision)?])?;
        transaction.commit()
    }

    fn load(&self, read: Read) -> Result<Snapshot, OpenError> {
        let damaged = |detail: String| OpenError::Damaged {
            path: self.path.clone(),
            detail,
        };
        let database_error = |source| open_error(&self.path, source);
        let revision = self
            .connection
            .query_row("SELECT revision FROM latest", [], |row| unsigned(row, 0))
            .map_err(database_error)?;
        let mut objects = Objects::new();
        let mut statement = self
            .connection
            .prepare("SELECT created, revision, resource, namespace, name, value FROM objects")
            .map_err(database_error)?;
        let mut rows = statement.query([]).map_err(database_error)?;
        while let Some(row) = rows.next().map_err(database_error)? {
            let entry = entry(row, read).map_err(database_error)?;
            if entry.created > entry.revision || entry.revision > revision {
                return Err(damaged(format!(
                    "{entry:?} is later than the last write, {revision}"
                )));
            }
            if let Some(twin) = objects.insert(Record(entry.into())) {
                return Err(damaged(format!("{} is there twice", twin.0.key)));
            }
        }
        Ok(Snapshot { objects, revision })
    }
}

fn entry(row: &Row<'_>, read: Read) -> rusqlite::Result<Entry> {
    let text = |column: usize| Ok::<_, rusqlite::Error>(row.get_ref(column)?.as_str()?);
    Ok(Entry {
        key: Key::new(text(2)?, text(3)?, text(4)?),
        revision: unsigned(row, 1)?,
        value: read(row.get_ref(5)?.as_blob()?),
        created: unsigned(row, 0)?,
    })
}

/// The lock says who owns the directory, and says so also where SQLite's own would only answer "busy".
fn lock(directory: &Path) -> Result<Lock, OpenError> {
    let cannot = |source| OpenError::Directory {
        path: directory.to_owned(),
        source,
    };
    fs::create_dir_all(directory).map_err(cannot)?;
    // a directory just made must outlive a loss of power, as what is acknowledged in it does
    if let Some(parent) = directory.canonicalize().map_err(cannot)?.parent() {
        File::open(parent)
            .and_then(|parent| parent.sync_all())
            .map_err(cannot)?;
    }
    let path = directory.join("lock");
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .map_err(cannot)?;
    match file.try_lock() {
        Ok(()) => Ok(Lock(file)),
        Err(TryLockError::WouldBlock) => Err(OpenError::InUse {
            path: directory.to_owned(),
        }),
        Err(TryLockError::Error(source)) => Err(cannot(source)),
    }
}

/// Secrets are in it: nobody else reads it. What SQLite puts beside the file gets the file's mode.
fn make_private(path: &Path) -> Result<(), OpenError> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(path);
    file.map(drop).map_err(|source| OpenError::Directory {
        path: path.to_owned(),
        source,
    })
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // alone with the file: SQLite keeps the index of its log in memory and takes locks once
    connection.pragma_update(None, "locking_mode", "EXCLUSIVE")?;
    Ok(connection)
}

/// Refuses what is not ours or not yet ours, before anything is written to it.
fn check_origin(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    let number = |pragma: &str| {
        connection
            .pragma_query_value(None, pragma, |row| row.get::<_, i32>(0))
            .map_err(|source| open_error(path, source))
    };
    let (found, application_id) = (number("user_version")?, number("application_id")?);
    // a process that died while it created the file leaves it without tables and without an id
    let tables = "SELECT count(*) FROM sqlite_schema";
    let tables: i64 = connection
        .query_row(tables, [], |row| row.get(0))
        .map_err(|source| open_error(path, source))?;
    let is_new = tables == 0 && found == 0 && application_id == 0;
    let path = path.to_owned();
    if application_id != APPLICATION_ID && !is_new {
        return Err(OpenError::Foreign {
            path,
            application_id,
        });
    }
    if found > FORMAT {
        return Err(OpenError::Newer {
            path,
            found,
            supported: FORMAT,
        });
    }
    Ok(())
}

fn use_log(connection: &Connection, path: &Path) -> Result<(), OpenError> {
    // to the end, unlike rusqlite's own helper: the change is made, and may fail, after the row that tells of it
    let run = || {
        let mut statement = connection.prepare("PRAGMA journal_mode = WAL")?;
        let mut rows = statement.query([])?;
        let mut mode = String::new();
        while let Some(row) = rows.next()? {
            mode = row.get(0)?;
        }
        Ok(mode)
    };
    let mode = run().map_err(|source| open_error(path, source))?;
    if mode != "wal" {
        let path = path.to_owned();
        return Err(OpenError::NoLog { path, mode });
    }
    Ok(())
}

fn create(connection: &Connection) -> rusqlite::Result<()> {
    // an answer to a writer means that the log has been synced, not only written
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT)?;
    let found: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found == 0 {
        let transaction = connection.unchecked_transaction()?;
        transaction.execute_batch(SCHEMA)?;
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", FORMAT)?;
        transaction.commit()?;
    }
    Ok(())
}

/// A log that a burst made larger than this is cut back to it, in bytes.
const LOG_KEPT: i64 = 64 << 20;

fn open_error(path: &Path, source: rusqlite::Error) -> OpenError {
    let path = path.to_owned();
    match source.sqlite_error_code() {
        // `Unknown` is SQLITE_ERROR: the statements here are right for the tables that should be there
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase | ErrorCode::Unknown) => {
            OpenError::Damaged {
                path,
                detail: source.to_string(),
            }
        }
        Some(ErrorCode::DatabaseBusy) => OpenError::InUse { path },
        _ if is_content(&source) => OpenError::Damaged {
            path,
            detail: source.to_string(),
        },
        _ => OpenError::Database { path, source },
    }
}

/// The file could be read but does not hold what it should: a missing table, a text where a number belongs.
fn is_content(error: &rusqlite::Error) -> bool {
    use rusqlite::Error as E;
    matches!(
        error,
        E::FromSqlConversionFailure(..)
            | E::IntegralValueOutOfRange(..)
            | E::InvalidColumnType(..)
            | E::QueryReturnedNoRows
            | E::SqlInputError { .. }
            | E::Utf8Error(..)
    )
}

fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let value: i64 = row.get(column)?;
    u64::try_from(value).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, value))
}

fn integer(revision: u64) -> rusqlite::Result<i64> {
    i64::try_from(revision).map_err(|e| rusqlite::Error::ToSqlConversionFailure(e.into()))
}

//! Group commit: many requests share one transaction and its cost, and still succeed or fail one by one.

use rusqlite::Connection;

use crate::error::{Result, StoreError};
use crate::sqlite::error::{SqlError, SqlResult};

/// One write request. It may be applied more than once (a group that failed is tried again request by
/// request), but only the application that commits counts.
pub(crate) trait Job: Send {
    fn apply(&mut self, connection: &Connection) -> Result<()>;
    /// Called exactly once, after the commit or the failure.
    fn finish(self: Box<Self>, result: Result<()>);
}

/// Runs the requests as one transaction and finishes each of them.
///
/// The usual way has no savepoints. If one request is at fault, the group runs again with a savepoint
/// around each, so only the bad ones fail; if the database is at fault (full, I/O), all fail alike.
/// Returns the error that concerned everyone, if there was one.
pub(crate) fn run_group(connection: &Connection, mut jobs: Vec<Box<dyn Job>>) -> Option<StoreError> {
    let Err(error) = in_transaction(connection, || jobs.iter_mut().try_for_each(|job| job.apply(connection)))
    else {
        finish_all(jobs, &Ok(()));
        return None;
    };
    if !error.is_refusal() {
        finish_all(jobs, &Err(error.clone()));
        return Some(error);
    }
    if jobs.len() == 1 {
        finish_all(jobs, &Err(error));
        return None;
    }
    run_apart(connection, jobs)
}

fn run_apart(connection: &Connection, mut jobs: Vec<Box<dyn Job>>) -> Option<StoreError> {
    let mut results = Vec::with_capacity(jobs.len());
    let outcome = in_transaction(connection, || {
        for job in &mut jobs {
            match in_savepoint(connection, || job.apply(connection)) {
                Err(error) if !error.is_refusal() => return Err(error),
                result => results.push(result),
            }
        }
        Ok(())
    });
    // A request that had its own fault keeps that error even when the commit of the others failed.
    results.resize_with(jobs.len(), || Ok(()));
    for (job, result) in jobs.into_iter().zip(results) {
        job.finish(result.and_then(|()| outcome.clone()));
    }
    outcome.err()
}

/// Runs `work` between BEGIN and COMMIT. Whatever fails, no transaction is left open.
pub(crate) fn in_transaction<T, E: From<SqlError>>(
    connection: &Connection,
    work: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    execute(connection, "BEGIN IMMEDIATE")?;
    let result = work().and_then(|value| {
        execute(connection, "COMMIT")?;
        Ok(value)
    });
    // A full disk makes SQLite roll back by itself; then there is nothing left to undo.
    if result.is_err()
        && !connection.is_autocommit()
        && let Err(error) = execute(connection, "ROLLBACK")
    {
        tracing::error!(%error, "rolling back a failed transaction failed too");
    }
    result
}

fn in_savepoint(connection: &Connection, work: impl FnOnce() -> Result<()>) -> Result<()> {
    execute(connection, "SAVEPOINT request")?;
    let result = work();
    if result.is_err() && !connection.is_autocommit() {
        execute(connection, "ROLLBACK TO request")?;
    }
    if !connection.is_autocommit() {
        execute(connection, "RELEASE request")?;
    }
    result
}

fn execute(connection: &Connection, sql: &str) -> SqlResult<()> {
    connection.prepare_cached(sql)?.execute([])?;
    Ok(())
}

fn finish_all(jobs: Vec<Box<dyn Job>>, result: &Result<()>) {
    for job in jobs {
        job.finish(result.clone());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    /// Inserts its number, then fails as told; reports how it was finished.
    struct Insert {
        number: i64,
        failure: Option<StoreError>,
        finished: Sender<(i64, Result<()>)>,
    }

    impl Job for Insert {
        fn apply(&mut self, connection: &Connection) -> Result<()> {
            connection
                .execute("INSERT INTO numbers (number) VALUES (?1)", [self.number])
                .map_err(SqlError::from)?;
            self.failure.clone().map_or(Ok(()), Err)
        }

        fn finish(self: Box<Self>, result: Result<()>) {
            self.finished.send((self.number, result)).expect("the test listens");
        }
    }

    /// Runs one group of jobs with these failures; checks what is told to each ("" is success) and what is stored.
    fn check(failures: Vec<Option<StoreError>>, told: &[&str], stored: &[i64]) {
        let connection = Connection::open_in_memory().expect("memory opens");
        connection.execute_batch("CREATE TABLE numbers (number INTEGER UNIQUE)").expect("the table is new");
        let (finished, results) = channel();
        let job = |(number, failure)| Box::new(Insert { number, failure, finished: finished.clone() }) as _;
        run_group(&connection, (1..).zip(failures).map(job).collect());
        drop(finished);
        let results: Vec<_> = results.iter().map(|(_, result)| result.err().map(|e| e.to_string())).collect();
        let matches = |(result, word): (&Option<String>, &&str)| match result {
            None => word.is_empty(),
            Some(text) => !word.is_empty() && text.contains(word),
        };
        assert!(results.len() == told.len() && results.iter().zip(told).all(matches), "{results:?}");
        let mut select =
            connection.prepare("SELECT number FROM numbers ORDER BY number").expect("it is there");
        let rows = select.query_map([], |row| row.get(0)).expect("it reads");
        assert_eq!(rows.collect::<rusqlite::Result<Vec<i64>>>().expect("integers"), stored);
        assert!(connection.is_autocommit(), "no transaction is left open");
    }

    #[test]
    fn one_fault_fails_one_request_and_a_full_disk_all() {
        let bad = || Some(StoreError::Invalid("odd".into()));
        let full = || Some(StoreError::Full);
        check(vec![None, None], &["", ""], &[1, 2]);
        check(vec![bad()], &["odd"], &[]);
        check(vec![None, bad(), None, bad()], &["", "odd", "", "odd"], &[1, 3]);
        check(vec![None, full(), None], &["full", "full", "full"], &[]);
        check(vec![None, bad(), full(), None], &["full", "odd", "full", "full"], &[]);
    }
}

//! The few ways in which requests talk to a connection. Statements are prepared once and kept.

use std::sync::Arc;

use bytes::Bytes;
use qd_wire::people::HostTrust;
use rusqlite::types::{FromSql, Null, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Params, Row};

use crate::error::StoreError;
use crate::sqlite::error::SqlResult;
use crate::sqlite::key::counter;

/// Changes rows; tells how many.
pub(crate) fn run(connection: &Connection, sql: &str, values: impl Params) -> SqlResult<usize> {
    Ok(connection.prepare_cached(sql)?.execute(values)?)
}

/// Changes rows; tells whether there were any.
pub(crate) fn changes(connection: &Connection, sql: &str, values: impl Params) -> SqlResult<bool> {
    Ok(run(connection, sql, values)? > 0)
}

/// All rows of an answer.
pub(crate) fn rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> SqlResult<T>,
) -> SqlResult<Vec<T>> {
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(values)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(read(row)?);
    }
    Ok(found)
}

/// The first row, if there is one.
pub(crate) fn first<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl Fn(&Row<'_>) -> SqlResult<T>,
) -> SqlResult<Option<T>> {
    let mut select = connection.prepare_cached(sql)?;
    let mut rows = select.query(values)?;
    rows.next()?.map(read).transpose()
}

/// The one value of an answer that always has one.
pub(crate) fn value<T: FromSql>(connection: &Connection, sql: &str, values: impl Params) -> SqlResult<T> {
    Ok(connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?)
}

/// A type whose fields are the columns of a table, in one order for reading and binding.
pub(crate) trait StoredRow: Sized {
    fn from_row(row: &Row<'_>) -> SqlResult<Self>;
    fn values(&self) -> SqlResult<Vec<ToSqlOutput<'_>>>;
}

/// Declares the columns of a row: `COLUMNS` is their list in SQL. A row of several tables has none, because its query
/// names them itself.
macro_rules! stored_row {
    ($row:ident: $first:ident $(, $field:ident)*) => {
        const COLUMNS: &str = concat!(stringify!($first) $(, ", ", stringify!($field))*);
        stored_row!($row of several tables: $first $(, $field)*);
    };
    ($row:ident of several tables: $first:ident $(, $field:ident)*) => {
        impl $crate::sqlite::statements::StoredRow for $row {
            fn from_row(row: &rusqlite::Row<'_>) -> $crate::sqlite::error::SqlResult<Self> {
                let mut columns = $crate::sqlite::statements::ColumnReader::new(row);
                Ok(Self { $first: columns.next()? $(, $field: columns.next()?)* })
            }

            fn values(&self) -> $crate::sqlite::error::SqlResult<Vec<rusqlite::types::ToSqlOutput<'_>>> {
                use $crate::sqlite::statements::Column;
                Ok(vec![self.$first.bind(stringify!($first))? $(, self.$field.bind(stringify!($field))?)*])
            }
        }
    };
}
pub(crate) use stored_row;

/// Reads one column after the other.
pub(crate) struct ColumnReader<'row> {
    row: &'row Row<'row>,
    index: usize,
}

impl<'row> ColumnReader<'row> {
    pub(crate) fn new(row: &'row Row<'row>) -> Self {
        Self { row, index: 0 }
    }

    pub(crate) fn next<T: Column>(&mut self) -> SqlResult<T> {
        self.index += 1;
        T::read(self.row, self.index - 1)
    }
}

/// A field that is stored in a column.
pub(crate) trait Column: Sized {
    fn read(row: &Row<'_>, index: usize) -> SqlResult<Self>;
    /// The name is for the error of a value that no column can have.
    fn bind(&self, name: &str) -> SqlResult<ToSqlOutput<'_>>;
}

macro_rules! plain_columns {
    ($($type:ty),*) => {
        $( impl Column for $type {
            fn read(row: &Row<'_>, index: usize) -> SqlResult<Self> {
                Ok(row.get(index)?)
            }

            fn bind(&self, _: &str) -> SqlResult<ToSqlOutput<'_>> {
                Ok(self.to_sql()?)
            }
        } )*
    };
}
plain_columns!(String, Arc<str>, Vec<u8>, [u8; 32], i64, f64, bool);

impl<T: Column> Column for Option<T> {
    fn read(row: &Row<'_>, index: usize) -> SqlResult<Self> {
        if row.get_ref(index)? == ValueRef::Null { Ok(None) } else { T::read(row, index).map(Some) }
    }

    fn bind(&self, name: &str) -> SqlResult<ToSqlOutput<'_>> {
        self.as_ref().map_or(Ok(ToSqlOutput::from(Null)), |value| value.bind(name))
    }
}

impl Column for u64 {
    fn read(row: &Row<'_>, index: usize) -> SqlResult<Self> {
        Ok(row.get::<_, i64>(index)?.cast_unsigned())
    }

    fn bind(&self, name: &str) -> SqlResult<ToSqlOutput<'_>> {
        Ok(counter(name, *self)?.into())
    }
}

impl Column for Bytes {
    fn read(row: &Row<'_>, index: usize) -> SqlResult<Self> {
        Ok(row.get::<_, Vec<u8>>(index)?.into())
    }

    fn bind(&self, _: &str) -> SqlResult<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(&self[..]))
    }
}

impl Column for HostTrust {
    fn read(row: &Row<'_>, index: usize) -> SqlResult<Self> {
        let word: String = row.get(index)?;
        let trust = HostTrust::parse(&word);
        Ok(trust.ok_or(StoreError::Unknown { column: "hosts.trust", value: word })?)
    }

    fn bind(&self, _: &str) -> SqlResult<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::from(self.as_str()))
    }
}

//! Requests of the hub: which function does the work, on which connection.

use std::sync::Arc;

use qd_wire::people::{AuditEntry, HostTrust};

use crate::RecordRewrite;
use crate::hub::{
    AccessTokenRow, AuditQuery, HistoryQuery, HostRow, LoginRow, PersonChange, PersonRow, PushChange,
    PushRow, RunnerNote, RunnerRow, SearchQuery, UsageQuery,
};

/// Makes of each line a method of the store, which has the function done by a reader or by the writer. The arguments
/// travel to the thread that does the work, and the function gets them lent, because a write may be done twice.
macro_rules! requests {
    ($( $work:ident $name:ident($($argument:ident: $type:ty),*) -> $output:ty = $function:expr; )*) => {
        impl $crate::sqlite::hub::SqliteHub {
            $( pub(crate) async fn $name(&self $(, $argument: $type)*) -> $crate::error::Result<$output> {
                $( let $argument = $crate::sqlite::hub::requests::Argument::own($argument); )*
                let work = move |connection: &rusqlite::Connection| {
                    let function = $function;
                    function(
                        connection
                        $(, <$type as $crate::sqlite::hub::requests::Argument>::lend(&$argument))*
                    )
                };
                self.engine.$work(work).await
            } )*
        }
    };
}
pub(super) use requests;

/// What a request is given.
pub(super) trait Argument {
    type Owned: Send + 'static;
    type Lent<'owned>;

    fn own(self) -> Self::Owned;
    fn lend(owned: &Self::Owned) -> Self::Lent<'_>;
}

macro_rules! arguments {
    (copied: $($copied:ty),*; lent: $($lent:ty),*; borrowed: $($borrowed:ty as $owned:ty),*;) => {
        $( impl Argument for $copied {
            type Owned = Self;
            type Lent<'owned> = Self;

            fn own(self) -> Self {
                self
            }

            fn lend(owned: &Self) -> Self {
                *owned
            }
        } )*
        $( impl Argument for $lent {
            type Owned = Self;
            type Lent<'owned> = &'owned Self;

            fn own(self) -> Self {
                self
            }

            fn lend(owned: &Self) -> &Self {
                owned
            }
        } )*
        $( impl Argument for &$borrowed {
            type Owned = $owned;
            type Lent<'owned> = &'owned $borrowed;

            fn own(self) -> $owned {
                self.to_owned()
            }

            fn lend(owned: &$owned) -> &$borrowed {
                owned
            }
        } )*
    };
}
arguments! {
    copied: i64, u64, usize, Option<i64>, HostTrust, RecordRewrite, &'static [&'static str];
    lent: Option<String>, Vec<Arc<str>>, AccessTokenRow, AuditEntry, AuditQuery, HistoryQuery, HostRow, LoginRow,
        PersonChange, PersonRow, PushChange, PushRow, RunnerNote, RunnerRow, SearchQuery, UsageQuery;
    borrowed: str as String, [u8] as Vec<u8>;
}

impl Argument for Option<&str> {
    type Owned = Option<String>;
    type Lent<'owned> = Option<&'owned str>;

    fn own(self) -> Option<String> {
        self.map(str::to_owned)
    }

    fn lend(owned: &Option<String>) -> Option<&str> {
        owned.as_deref()
    }
}

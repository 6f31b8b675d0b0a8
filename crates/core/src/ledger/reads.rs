//! Names of commands that were answered the moment they came. They never wait and never fail, so of each only its name
//! is kept, as a number: what is read a hundred thousand times a second must not cost an entry in every table.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};

use super::{IdName, Token};

/// The latest of them, oldest first.
#[derive(Debug, Default)]
pub(super) struct AnsweredReads {
    reads: VecDeque<Read>,
    /// With a key of its own, so that nobody can choose two names with one number.
    hasher: RandomState,
}

#[derive(Debug)]
struct Read {
    own: u64,
    /// The name shared by all connections of its principal.
    shared: u64,
    token: Token,
}

impl AnsweredReads {
    pub(super) fn add(&mut self, token: Token, principal: &str, connection: &str, id: &str, max: usize) {
        let read = Read {
            own: self.hasher.hash_one((principal, connection, id)),
            shared: self.hasher.hash_one((principal, "", id)),
            token,
        };
        self.reads.push_back(read);
        if self.reads.len() > max {
            self.reads.pop_front();
        }
    }

    /// The newest of a name.
    pub(super) fn find(&self, name: &IdName) -> Option<Token> {
        let IdName { principal, connection, id } = name;
        let hash = self.hasher.hash_one((principal.as_str(), connection.as_str(), id.as_str()));
        let is_it = |read: &&Read| (if connection.is_empty() { read.shared } else { read.own }) == hash;
        self.reads.iter().rev().find(is_it).map(|read| read.token)
    }
}

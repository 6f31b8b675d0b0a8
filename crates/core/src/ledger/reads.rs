//! Names of commands that were answered the moment they came. They never wait and never fail, so of each only its name
//! is kept, as a number: what is read a hundred thousand times a second must not cost an entry in every table.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;

use super::{CommandId, SubmissionToken};

/// The latest of them.
#[derive(Debug, Default)]
pub(super) struct AnsweredReads {
    /// Oldest first.
    reads: VecDeque<AnsweredRead>,
    /// The newest of each name. The numbers come from the map's own key, so nobody can choose two names with one number.
    newest: HashMap<u64, SubmissionToken>,
}

#[derive(Debug)]
struct AnsweredRead {
    own: u64,
    /// The name shared by all connections of its principal.
    shared: u64,
    token: SubmissionToken,
}

impl AnsweredReads {
    pub(super) fn add(
        &mut self,
        token: SubmissionToken,
        principal: &str,
        connection: &str,
        id: &str,
        max: usize,
    ) {
        let (own, shared) = (self.number(principal, connection, id), self.number(principal, "", id));
        self.newest.insert(own, token);
        self.newest.insert(shared, token);
        self.reads.push_back(AnsweredRead { own, shared, token });
        if self.reads.len() > max
            && let Some(oldest) = self.reads.pop_front()
        {
            for name in [oldest.own, oldest.shared] {
                if self.newest.get(&name) == Some(&oldest.token) {
                    self.newest.remove(&name);
                }
            }
        }
    }

    /// The newest of a name.
    pub(super) fn find(&self, name: &CommandId) -> Option<SubmissionToken> {
        let CommandId { principal, connection, id } = name;
        self.newest.get(&self.number(principal, connection, id)).copied()
    }

    fn number(&self, principal: &str, connection: &str, id: &str) -> u64 {
        self.newest.hasher().hash_one((principal, connection, id))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MAX: usize = 5;

    proptest! {
        #[test]
        fn the_newest_of_a_name_is_found_for_as_long_as_it_is_kept(
            added in prop::collection::vec((0..2_u8, 0..3_u8, 0..3_u8), 0..30),
        ) {
            let mut reads = AnsweredReads::default();
            let text = |number: u8| number.to_string();
            for (token, (principal, connection, id)) in (1..).zip(&added) {
                reads.add(token, &text(*principal), &text(*connection), &text(*id), MAX);
            }
            let kept = added.len().saturating_sub(MAX);
            for (principal, id) in (0..2).flat_map(|principal| (0..3).map(move |id| (principal, id))) {
                for connection in (0..3).map(Some).chain([None]) {
                    let is_it = |added: &(u8, u8, u8)| {
                        added.0 == principal && added.2 == id && connection.is_none_or(|number| number == added.1)
                    };
                    let expected = (1..).zip(&added).skip(kept).filter(|(_, added)| is_it(added)).last();
                    let connection = connection.map_or_else(String::new, text);
                    let name = CommandId { principal: text(principal), connection, id: text(id) };
                    prop_assert_eq!(reads.find(&name), expected.map(|(token, _)| token));
                }
            }
        }
    }
}

//! The contract of both stores, as cases that take a place. A place opens stores on the same data again and again;
//! another backend runs the same cases with a place of its own, which is one line: see `hub_contract!`.
#![allow(unused_macros, dead_code)] // A backend of one of the stores runs the cases of that one.

pub(crate) mod audit;
pub(crate) mod fleet;
pub(crate) mod hub;
pub(crate) mod people;
pub(crate) mod push;
pub(crate) mod runner;
pub(crate) mod search;
pub(crate) mod submissions;
pub(crate) mod tail;
pub(crate) mod tokens;
pub(crate) mod usage;

use qd_store::{HubStore, RunnerStore};

/// Data of a hub that can be opened more than once, one store after the other.
pub(crate) trait HubFiles {
    async fn hub(&self) -> HubStore;
}

/// The same of a runner.
pub(crate) trait RunnerFiles {
    async fn runner(&self) -> RunnerStore;
}

/// Every case of a contract as a test: the module they are in, the attribute of each, and a new place for each.
macro_rules! contract {
    ($module:ident, #[$test:meta], $place:expr, $($area:ident: $($case:ident)*;)*) => {
        mod $module { $($(
            #[$test]
            async fn $case() {
                crate::suite::$area::$case(&$place).await;
            }
        )*)* }
    };
}

/// What every backend of the hub's store does.
macro_rules! hub_contract {
    ($module:ident, #[$test:meta], $place:expr) => {
        crate::suite::contract! { $module, #[$test], $place,
            hub: records_come_back_in_order records_are_found_by_their_event repeated_records_change_nothing
                an_earlier_record_is_rewritten
                how_far_a_session_is_does_not_depend_on_its_row sessions_are_listed_patched_and_deleted
                messages_are_paged_and_replaced a_bad_request_fails_alone logins_are_kept
                close_finishes_what_is_queued great_and_short_requests_keep_their_order
                lists_are_kept_with_the_session errors_say_whose_fault_it_is;
            fleet: runners_are_kept_rotated_and_revoked sessions_are_buried_until_their_runner_knows
                the_oldest_tombstones_go;
            search: search_follows_every_change search_takes_words_as_words search_filters_ranks_and_pages;
            submissions: submissions_are_kept_and_finished submissions_go_and_names_are_free_again
                history_is_ones_own_and_newest_first;
            tokens: access_tokens_are_kept_and_checked access_tokens_are_bounded;
            usage: usage_adds_up odd_usage_does_no_harm a_conversation_is_read_from_its_beginning;
            people: people_are_kept_and_changed a_change_of_a_person_ends_their_accesses
                names_of_principals_are_unique tokens_end_and_keep_their_scopes
                logins_of_people_are_bounded_each people_are_bounded hosts_are_kept_and_trusted;
            push: push_subscriptions_are_kept_and_changed push_subscriptions_go_with_logins_and_people
                push_subscriptions_are_bounded_each;
            audit: the_audit_of_a_record_is_written_with_it_once the_audit_is_filtered_paged_and_pruned;
        }
    };
}

/// What every backend of a runner's store does.
macro_rules! runner_contract {
    ($module:ident, #[$test:meta], $place:expr) => {
        crate::suite::contract! { $module, #[$test], $place,
            runner: spool_keeps_until_acked sessions_are_kept_and_deleted inputs_are_taken_once a_unit_is_atomic
                outcomes_are_found_and_updated outcomes_are_pruned_oldest_first;
            tail: the_newest_lines_stay_after_their_ack great_lines_shorten_the_tail
                a_line_is_rewritten_where_it_is an_ack_reaches_no_further_than_the_lines
                the_next_number_follows_from_the_lines;
        }
    };
}

pub(crate) use {contract, hub_contract, runner_contract};

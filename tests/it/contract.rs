//! The store contract, as cases that every store must pass. A store needs a fixture (a
//! constructor) and one line at the end of this file.

use std::future::Future;
use std::sync::Arc;

use dqhost::store::Store;
use dqhost::store::sqlite::{SqliteOptions, SqliteStore};
use tempfile::TempDir;

use crate::support::RedisServer;

mod audit;
mod deliver;
mod discover;
mod ended;
mod expiry;
pub(crate) mod fair;
mod hosts;
mod inspect;
mod keyed;
mod limits;
mod manage;
mod repeats;
mod send;
pub(crate) mod settle;
mod ticks;
pub(crate) mod tools;
mod topics;
mod transfer;

use settle::outbox;

/// A store to test, empty, with whatever it needs to live.
pub(crate) trait Fixture: Sized {
    fn new() -> impl Future<Output = Self>;
    fn store(&self) -> Arc<dyn Store>;
}

pub(crate) struct RedisFixture {
    _server: RedisServer,
    store: Arc<dyn Store>,
}

impl Fixture for RedisFixture {
    async fn new() -> Self {
        let server = RedisServer::start();
        let store = server.store().await;
        Self {
            _server: server,
            store,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }
}

pub(crate) struct SqliteFixture {
    _folder: TempDir,
    store: Arc<dyn Store>,
}

impl Fixture for SqliteFixture {
    async fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let options = SqliteOptions::file(folder.path().join("dqhost.db"));
        let store = Arc::new(SqliteStore::open(&options).await.unwrap());
        Self {
            _folder: folder,
            store,
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }
}

pub(crate) struct MemoryFixture(Arc<dyn Store>);

impl Fixture for MemoryFixture {
    async fn new() -> Self {
        let store = SqliteStore::open(&SqliteOptions::memory()).await.unwrap();
        Self(Arc::new(store))
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }
}

/// All cases, for each store.
macro_rules! contract {
    ($($store:ident: $fixture:ident,)*) => {
        $(mod $store {
            contract! { @cases $fixture
                send: a_message_that_is_due_goes_to_ready,
                send: a_message_with_a_delay_waits_in_pending,
                send: a_time_that_has_passed_means_now,
                send: the_same_id_is_accepted_once,
                send: a_repeat_within_its_window_writes_nothing,
                send: a_window_lasts_from_the_due_time_and_then_ends,
                send: payloads_and_headers_come_back_as_they_were_sent,
                send: a_large_batch_is_accepted_whole,
                repeats: a_repeat_takes_the_place_of_what_waits,
                repeats: what_is_in_line_is_put_off_and_comes_back,
                repeats: a_repeat_moves_the_time_of_what_waits_and_nothing_else,
                repeats: what_is_replaced_after_a_failure_begins_anew,
                repeats: what_is_extended_after_a_failure_goes_on,
                repeats: repeats_put_it_off_no_longer_than_the_longest_wait,
                repeats: a_repeat_during_a_run_is_run_once_afterwards,
                repeats: a_time_that_is_moved_during_a_run_is_that_of_one_run_more,
                repeats: a_wait_during_a_run_counts_from_the_first_repeat,
                repeats: a_repeat_during_a_run_that_fails_changes_what_is_tried_again,
                repeats: a_repeat_waits_no_longer_for_what_is_released_or_lost,
                repeats: a_late_result_is_not_that_of_a_message_sent_anew,
                repeats: a_late_result_is_not_that_of_an_id_that_was_killed_and_sent_again,
                repeats: a_repeat_of_a_dead_letter_begins_anew,
                repeats: what_is_gone_is_sent_whatever_the_window,
                repeats: in_a_batch_each_message_sees_those_before_it,
                repeats: what_moves_to_another_store_is_left_alone,
                repeats: a_wait_ends_when_a_repeat_makes_it_due,
                deliver: messages_are_promoted_when_due_and_never_before,
                deliver: the_store_tells_when_there_is_something_to_do,
                deliver: messages_are_reserved_oldest_first,
                deliver: retries_can_be_reserved_first,
                deliver: nothing_is_reserved_twice,
                deliver: a_lease_that_ended_costs_an_attempt,
                deliver: a_message_whose_leases_keep_ending_dies,
                deliver: an_extended_lease_does_not_end,
                deliver: a_release_gives_the_attempt_back_and_goes_first,
                deliver: one_step_moves_a_bounded_number,
                deliver: a_wait_ends_with_a_send,
                expiry: a_message_that_was_not_begun_in_time_is_said_to_be_expired,
                expiry: a_time_from_now_is_one_of_the_store_however_it_was_sent,
                expiry: a_retry_has_to_begin_in_time_too,
                expiry: a_redriven_message_need_not_begin_by_any_time,
                limits: a_rate_lets_its_burst_go_and_holds_the_rest_in_line,
                limits: a_rate_goes_on_by_the_clock_of_the_store,
                limits: what_is_killed_runs_no_more,
                limits: so_many_run_at_a_time_whoever_has_them,
                limits: a_lease_that_expires_makes_room_for_another,
                limits: both_limits_hold_at_once,
                limits: limits_that_are_not_reached_change_nothing,
                limits: a_paused_queue_uses_nothing_of_its_rate,
                keyed: a_key_keeps_its_order_through_retries,
                keyed: a_key_goes_on_after_a_dead_letter_and_after_a_crash,
                keyed: so_many_of_a_key_run_at_a_time,
                keyed: each_key_has_its_rate,
                keyed: the_rate_of_a_key_goes_on_by_the_clock_of_the_store,
                keyed: what_is_set_aside_is_found_cancelled_and_rescheduled,
                keyed: what_is_set_aside_is_replaced_and_put_off,
                keyed: a_key_with_many_messages_keeps_no_other_waiting,
                keyed: whoever_reserves_without_limits_takes_what_is_in_line,
                keyed: an_id_that_comes_again_keeps_no_key_that_it_has_left,
                fair: who_comes_behind_a_thousand_is_next,
                fair: keys_that_wait_share_and_one_alone_has_all,
                fair: weights_are_turns_while_others_wait_and_cost_nobody_else_order,
                fair: who_was_idle_has_no_credit,
                fair: one_key_alone_goes_in_order_and_shares_as_soon_as_another_comes,
                fair: who_comes_back_at_once_has_its_turn_and_no_more,
                fair: new_keys_without_end_do_not_stop_an_old_one,
                fair: a_crash_costs_an_attempt_and_no_turn,
                fair: a_paused_queue_sorts_nothing_and_goes_on_in_turn,
                fair: what_waits_for_its_turn_is_found_cancelled_and_rescheduled,
                fair: limits_of_the_queue_hold_for_all_that_take_turns,
                fair: whoever_reserves_without_turns_takes_what_is_in_line,
                fair: what_is_cancelled_hides_nobody_behind_the_one_that_has_most,
                fair: another_header_is_taken_over_in_bounded_steps,
                settle: an_ack_leaves_nothing,
                settle: a_nack_without_delay_waits_in_retry,
                settle: a_nack_with_a_delay_waits_in_pending_and_comes_back_as_a_retry,
                settle: a_message_runs_as_often_as_its_retries_and_once_more,
                settle: a_stale_claim_changes_nothing,
                settle: a_claim_is_settled_once,
                settle: a_stale_claim_in_a_batch_hides_no_current_one,
                settle: a_mixed_batch_is_answered_in_order,
                settle: a_reject_is_final,
                settle: the_history_is_bounded,
                outbox: an_ack_takes_messages_to_its_own_and_to_other_queues,
                outbox: only_an_ack_that_is_done_sends,
                outbox: an_id_that_lives_is_not_sent_along_again,
                outbox: a_full_outbox_is_accepted_whole,
                outbox: a_batch_with_outboxes_is_answered_in_order,
                outbox: a_wait_ends_with_what_an_ack_sends,
                ended: the_latest_are_told_and_the_oldest_forgotten,
                ended: what_ended_is_told_as_it_was_and_when_by_the_clock_of_the_store,
                ended: nothing_is_kept_where_nothing_is_to_be_kept,
                ended: the_latest_results_are_kept_within_so_many_bytes,
                hosts: hosts_are_seen_until_they_leave,
                hosts: hosts_tell_how_long_ago_they_were_seen,
                inspect: an_overview_tells_how_a_queue_stands,
                inspect: due_times_are_counted_by_span,
                inspect: what_was_due_at_once_is_as_old_as_its_id,
                inspect: of_many_that_have_failed_a_part_is_looked_at,
                inspect: an_empty_payload_is_listed_as_empty,
                inspect: what_is_no_dead_letter_yet_is_listed_in_pages,
                inspect: dead_letters_are_listed_latest_first_in_pages,
                inspect: a_dead_letter_keeps_what_is_known,
                discover: the_queue_is_listed_once_it_was_used,
                manage: what_waits_can_be_cancelled_and_nothing_else,
                manage: what_is_in_flight_can_be_killed_and_its_result_is_refused,
                manage: whoever_listens_is_told_of_a_kill,
                manage: a_paused_queue_gives_nothing_and_goes_on_with_the_rest,
                manage: a_queue_can_be_paused_before_its_first_message,
                manage: a_wait_ends_when_a_queue_is_resumed,
                manage: what_waits_can_be_made_due_now,
                manage: what_waits_can_be_put_off_and_brought_forward,
                manage: a_wait_ends_when_a_message_is_brought_forward,
                manage: a_redrive_is_a_new_message_with_the_whole_budget,
                manage: a_redrive_can_set_the_retries,
                manage: redrives_are_counted_and_refused_over_a_number,
                manage: an_edited_redrive_is_a_new_message_and_keeps_the_dead_letter,
                manage: a_deleted_dead_letter_is_gone,
                manage: dead_letters_past_their_retention_are_named,
                ticks: a_tick_is_one_message_whoever_sends_it,
                ticks: nothing_is_sent_of_a_paused_schedule,
                ticks: a_tick_is_skipped_until_the_last_one_has_ended,
                topics: a_queue_subscribes_once_and_until_it_ends_that,
                topics: each_queue_of_a_topic_has_a_copy_and_no_other_queue,
                topics: a_topic_without_queues_takes_nothing,
                topics: a_repeat_to_a_topic_goes_where_it_is_missing,
                topics: many_messages_to_many_queues_are_accepted_in_order,
                topics: a_topic_has_so_many_queues_and_no_more,
                topics: a_message_to_a_topic_changes_no_other,
                audit: an_audit_of_what_is_right_finds_nothing_and_changes_nothing,
                transfer: what_leaves_is_out_of_reach_until_it_has_gone,
                transfer: what_arrives_is_out_of_reach_until_it_has_come,
            }
        })*
    };
    (@cases $fixture:ident $($area:ident: $case:ident,)*) => {
        $(#[tokio::test]
        async fn $case() {
            let fixture = <super::$fixture as super::Fixture>::new().await;
            super::$area::$case(&*super::Fixture::store(&fixture)).await;
        })*
    };
}

contract! {
    redis: RedisFixture,
    sqlite: SqliteFixture,
    memory: MemoryFixture,
}

//! The suite that defines what an implementation of the store ports must do.
//!
//! A store is done when it passes. Each case is a plain async function over a [`Fixture`], named as the promise it
//! checks; [`store_conformance!`](crate::store_conformance) makes a test of each. The memory store passes the same
//! suite, so every test above it stands on firm ground.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    missing_docs,
    reason = "a suite of tests: to fail is its purpose, and a case's name is its promise"
)]

mod acts;
mod appends;
mod asks;
mod budgets;
mod bus;
mod dashboard;
mod directory;
mod feedback;
mod governance;
mod handoffs;
mod inbox;
mod keys;
mod leases;
mod maintenance;
mod races;
mod runs;
mod schedules;
mod sweeps;
mod values;
mod webhooks;
pub mod world;

pub use acts::*;
pub use appends::*;
pub use asks::*;
pub use budgets::*;
pub use bus::*;
pub use dashboard::*;
pub use directory::*;
pub use feedback::*;
pub use governance::*;
pub use handoffs::*;
pub use inbox::*;
pub use keys::*;
pub use leases::*;
pub use maintenance::*;
pub use races::*;
pub use runs::*;
pub use schedules::*;
pub use sweeps::*;
pub use values::*;
pub use webhooks::*;
pub use world::Fixture;

/// One `#[tokio::test]` for each case of the suite. `$open` is an async function that opens an empty store as a
/// [`Fixture`]; the crate that uses this needs `tokio` with its macros.
#[macro_export]
macro_rules! store_conformance {
    ($open:path) => {
        $crate::store_conformance! { @each $open;
            an_unknown_run_reads_as_no_events,
            live_runs_of_all_tenants_are_listed_in_pages,
            an_incarnation_that_is_begun_is_another_and_keeps_the_epoch,
            creating_a_run_twice_returns_the_first,
            two_tenants_may_use_one_run_id_and_never_meet,
            a_run_is_born_owned_by_the_node_that_took_it,
            a_run_whose_first_event_is_not_its_submission_is_refused,
            a_snapshot_is_kept_until_a_newer_one_and_only_for_its_fold,
            of_two_writers_at_one_sequence_exactly_one_wins,
            the_same_entry_twice_in_one_batch_conflicts,
            a_writer_with_a_stale_lease_is_fenced,
            an_entry_for_an_unknown_run_is_refused,
            a_poison_entry_among_five_hundred_takes_no_other_with_it,
            an_entry_with_too_many_events_is_refused,
            an_event_that_could_not_be_read_back_is_refused,
            entries_of_one_run_in_one_batch_follow_each_other,
            the_chain_verifies_and_time_never_goes_back,
            bodies_come_back_byte_for_byte,
            a_long_journal_is_read_in_pages,
            facts_commit_when_the_ask_is_refused,
            an_admission_is_the_record_as_it_was_written,
            only_a_matching_change_makes_an_ask_stale,
            a_writer_ahead_of_the_store_is_stale,
            a_command_in_between_refuses_the_ask,
            a_refusal_by_the_gate_is_recorded,
            an_exceeded_budget_refuses_the_ask_with_its_readings,
            one_exceeded_ask_leaves_the_others_of_its_batch_alone,
            concurrent_asks_never_overspend_a_hard_budget,
            settling_releases_the_reservation_once,
            a_poison_entry_holds_nothing_on_a_meter,
            a_budget_that_comes_into_force_makes_calls_in_the_making_stale,
            a_budget_put_again_keeps_its_figures,
            a_retired_budget_is_neither_listed_nor_asked_and_keeps_its_figures,
            an_unsound_budget_is_refused,
            a_foreign_tenants_meter_cannot_be_reached_by_its_name,
            figures_roll_with_the_window,
            epochs_have_no_gaps_however_many_change_at_once,
            changes_come_back_as_they_were_made,
            a_run_with_commands_cannot_be_parked,
            a_parked_run_is_claimed_when_a_command_arrives,
            a_parked_run_is_claimed_when_it_is_due,
            a_claim_fences_the_owner_before,
            a_run_that_was_given_up_is_claimed_before_it_is_written_to,
            a_released_node_cannot_renew_and_its_runs_can_be_claimed,
            a_lease_that_ran_out_is_given_up_when_another_node_claims,
            a_late_renewal_that_nobody_noticed_is_accepted,
            a_closed_run_is_never_claimed,
            a_live_owner_keeps_its_run_and_may_ask_for_it_again,
            a_node_without_a_lease_claims_nothing,
            a_claim_takes_no_more_than_its_limit,
            a_lease_that_was_given_up_is_forgotten_after_a_day,
            a_node_is_told_which_of_its_runs_have_commands_waiting,
            each_live_node_says_since_when_it_has_swept,
            an_armed_switch_wakes_the_parked_runs_it_reaches_and_no_others,
            a_switch_on_calls_wakes_no_parked_run,
            a_sweep_goes_on_where_it_was_and_ends_with_its_last_page,
            no_two_take_the_same_page_of_a_sweep,
            a_run_that_a_node_holds_or_that_is_closed_is_passed_over,
            disarming_or_expiry_stops_an_unfinished_sweep,
            a_switch_armed_again_sweeps_again,
            a_run_is_not_parked_under_switches_its_owner_has_not_read,
            a_command_is_delivered_once_under_its_id,
            an_answer_is_kept_for_a_day,
            control_commands_come_first_and_are_counted,
            a_command_for_an_unknown_run_is_turned_away,
            an_inbox_has_bounds_that_control_passes,
            a_command_that_is_too_big_is_refused,
            only_a_waiting_command_can_be_answered,
            runs_are_listed_newest_first_in_pages,
            runs_are_listed_by_status_and_pipeline,
            runs_are_listed_by_whoever_submitted_them,
            an_open_approval_is_listed_until_it_is_decided,
            the_run_of_an_approval_is_found_by_its_tenant_also_after_it_was_decided,
            a_list_shows_what_the_last_append_said,
            every_filter_finds_what_the_rule_finds,
            each_field_of_a_filter_finds_its_rows_in_the_store,
            a_filter_cannot_reach_beyond_its_scope,
            a_run_that_is_over_keeps_the_instant_of_its_end,
            words_are_found_as_bytes_whatever_is_in_them,
            runs_are_counted_by_bucket_tenant_and_window,
            a_cursor_is_a_place_also_where_no_run_is,
            of_twenty_calls_at_once_of_thirty_on_a_hundred_three_are_admitted,
            two_settlements_of_one_call_at_once_free_nobody_elses_reservation,
            an_ask_that_meets_a_change_is_admitted_before_it_or_not_at_all,
            whatever_is_done_at_once_comes_through_and_the_figures_add_up,
            of_nodes_that_claim_at_once_each_run_gets_one,
            a_value_has_the_same_digest_after_storing_as_before,
            millionths_add_up_to_exactly_one_and_print_so,
            a_clock_that_steps_back_refills_no_budget,
            an_act_and_its_record_are_written_together_and_chained,
            an_act_decided_on_what_is_no_longer_so_writes_nothing,
            of_operators_who_act_at_once_each_act_is_recorded_once,
            an_act_that_is_refused_leaves_neither_change_nor_record,
            a_budget_is_put_and_retired_by_acts_and_only_its_coming_into_force_moves_the_epoch,
            acts_are_read_by_cursor_subject_and_tenant,
            a_switch_knows_how_many_runs_it_has_ended_and_how_many_it_reaches,
            paused_runs_are_found_by_tenant_in_pages,
            windows_in_which_something_was_spent_are_kept_when_they_are_over,
            a_key_comes_back_as_it_was_made,
            keys_are_listed_by_tenant_the_newest_first,
            a_key_is_taken_back_once_and_by_its_own_tenant,
            the_last_use_of_a_key_never_goes_back,
            a_tenant_has_only_so_many_live_keys,
            a_delivery_is_written_with_what_it_tells_and_only_for_those_who_want_it,
            deliveries_of_one_run_are_due_in_their_order,
            one_node_sends_for_a_webhook_and_an_older_claim_notes_nothing,
            a_webhook_that_is_disabled_or_removed_leaves_nothing_waiting,
            what_arrived_or_was_given_up_is_sent_again_when_asked,
            a_warning_of_a_budget_is_told_once_in_a_window,
            old_deliveries_are_forgotten_and_those_that_wait_for_ever_given_up,
            of_several_that_move_a_schedule_on_at_once_exactly_one_does,
            a_due_fire_is_held_by_one_and_is_free_again_after_a_while,
            a_started_fire_is_open_as_long_as_its_run_is_not_over,
            what_waits_is_released_or_overtaken_with_the_advance,
            an_act_lets_fires_begin_anew_but_not_those_that_have_their_run,
            of_a_schedule_that_is_removed_nothing_begins_and_what_became_is_kept,
            outcomes_are_those_of_the_runs_that_are_over_each_once,
            what_is_said_of_a_run_is_kept_once_for_each_actor,
            what_works_unseen_is_in_nobodys_list,
            a_gold_sets_entries_come_back_as_they_were_put_in,
            an_input_is_in_a_gold_set_once_and_a_refusal_leaves_no_record,
            a_sub_run_begins_with_its_parents_append_or_not_at_all,
            nobody_begins_the_child_of_another_or_one_whose_id_is_in_use,
            what_a_run_tells_another_lies_in_its_inbox_once,
            a_command_reaches_every_live_run_below_once,
            the_end_of_a_run_is_told_to_every_live_run_below,
            a_child_that_is_being_begun_while_its_parent_is_killed_is_told_or_does_not_begin,
        }
    };
    (@each $open:path; $($case:ident),+ $(,)?) => { $(
        #[tokio::test]
        async fn $case() {
            $crate::conformance::$case(&$open().await).await;
        }
    )+ };
}

//! Each fuzz target over its corpus and over the same few thousand mutations of it (`make fuzz` goes further).

#![allow(clippy::unwrap_used, reason = "tests")]

use signalbox_tests::fuzz::{TARGETS, drive};

fn target(name: &str) {
    drive(*TARGETS.iter().find(|target| target.name == name).unwrap());
}

#[test]
fn strict_json_means_the_same_to_every_reader() {
    target("json");
}

#[test]
fn a_submission_that_is_accepted_survives_the_journal() {
    target("submission");
}

#[test]
fn no_binding_panics_or_grows_without_bound() {
    target("binding");
}

#[test]
fn versions_and_ranges_of_any_bytes_are_read() {
    target("version");
}

#[test]
fn no_url_or_redirect_that_passes_the_guard_leads_inside() {
    target("egress");
}

#[test]
fn claims_that_are_believed_say_what_any_reader_reads() {
    target("claims");
}

#[test]
fn what_was_masked_once_is_masked_for_good() {
    target("redact");
}

#[test]
fn an_event_that_decodes_survives_the_journal() {
    target("event");
}

#[test]
fn a_well_chained_journal_of_nonsense_is_read_without_a_panic() {
    target("journal");
}

#[test]
fn no_source_puts_words_into_a_briefing_that_it_does_not_hold() {
    target("briefing");
}

#[test]
fn any_request_to_execute_is_answered() {
    target("execute-request");
}

#[test]
fn no_result_is_kept_or_charged_beyond_its_bounds() {
    target("tool-result");
}

#[test]
fn no_description_binds_what_the_catalog_does_not_have() {
    target("describe-response");
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let folder = signalbox_tests::root().join("tests/corpus");
    let mut kept: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    let mut named: Vec<String> = TARGETS.iter().map(|target| target.name.to_owned()).collect();
    kept.sort();
    named.sort();
    assert_eq!(kept, named);
}

#[test]
fn no_pdf_and_no_book_gives_more_text_than_is_bounded() {
    target("material");
}

#[test]
fn no_calendar_gives_more_entries_than_are_bounded() {
    target("calendar");
}

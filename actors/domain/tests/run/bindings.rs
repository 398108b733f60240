//! Arguments take values from inputs and earlier outputs, once, and nothing a tool gave can bind anything by itself.

use serde_json::{Value, json};
use signalbox_domain::ids::StepId;
use signalbox_domain::run::binding::{
    BOUND_BYTES_MAX, BindingError, DEPTH_MAX, Sources, bind, names_secret, steps_bound,
};
use signalbox_domain::run::event::StoredValue;

use crate::given::{Story, answered, fork_in_the_road, optional, step_id, tool, when};

/// A run whose first step is done, whose second was left out and whose third has not begun.
fn story(output: Value) -> Story {
    let mut story =
        Story::started(vec![tool("done", &[]), optional(tool("skipped", &[])), tool("later", &["skipped"])]);
    story.does("done", answered(output));
    story.denies("skipped", "no-matching-grant");
    story
}

fn bound(args: Value, output: Value) -> Result<Value, BindingError> {
    let story = story(output);
    let loaded = |step: &StepId| match story.run.output_of(step) {
        Some(StoredValue::Inline(value)) => Some(value.clone()),
        Some(StoredValue::Blob { .. }) | None => None,
    };
    let sources = Sources { run: &story.run, inputs: &story.run.inputs, output: &loaded };
    bind(&args, sources).map(|bound| bound.value)
}

fn refused(args: Value) -> &'static str {
    bound(args, json!({"items": []})).map_or_else(|error| error.code(), |_| "ok")
}

#[test]
fn a_binding_takes_a_value_out_of_an_earlier_output() {
    let args =
        json!({"list": {"$from": "/steps/done/output/items"}, "first": [{"$from": "/steps/done/output/items/0"}]});
    let wanted = json!({"list": ["x", "y"], "first": ["x"]});
    assert_eq!(bound(args, json!({"items": ["x", "y"]})).unwrap(), wanted);
    assert_eq!(bound(json!({"$from": "/steps/done/output"}), json!(7)).unwrap(), 7);
}

#[test]
fn a_binding_takes_a_value_out_of_the_inputs() {
    assert_eq!(bound(json!({"$from": "/inputs/topic"}), json!(0)).unwrap(), "tides");
    assert_eq!(bound(json!({"$from": "/inputs/list/1"}), json!(0)).unwrap(), 2);
    assert_eq!(bound(json!({"$from": "/inputs"}), json!(0)).unwrap(), json!({"topic": "tides", "list": [1, 2]}));
}

#[test]
fn what_a_tool_gave_binds_nothing_by_itself() {
    let hostile = json!({"$from": "/inputs/topic", "deep": [{"$from": "/inputs"}], "$$from": 1});
    assert_eq!(bound(json!([{"$from": "/steps/done/output"}]), hostile.clone()).unwrap(), json!([hostile]));
}

#[test]
fn a_literal_key_from_is_written_with_two_dollars_and_loses_one() {
    let args = json!({"$$from": "/inputs/topic", "$$$x": {"$$from": 1}, "$ok": 2});
    assert_eq!(bound(args, json!(0)).unwrap(), json!({"$from": "/inputs/topic", "$$x": {"$from": 1}, "$ok": 2}));
}

#[test]
fn pointers_know_their_escapes() {
    let output = json!({"a/b": {"m~n": 1}, "": 2, "0": 3});
    assert_eq!(bound(json!({"$from": "/steps/done/output/a~1b/m~0n"}), output.clone()).unwrap(), 1);
    assert_eq!(bound(json!({"$from": "/steps/done/output/"}), output.clone()).unwrap(), 2);
    assert_eq!(bound(json!({"$from": "/steps/done/output/0"}), output).unwrap(), 3);
}

#[test]
fn a_skipped_step_gives_null_wherever_the_pointer_leads() {
    for pointer in ["/steps/skipped/output", "/steps/skipped/output/documents/0"] {
        assert_eq!(bound(json!({"x": {"$from": pointer}}), json!(0)).unwrap(), json!({"x": null}));
    }
}

#[test]
fn a_step_on_a_branch_that_was_not_taken_gives_null() {
    let way = fork_in_the_road("way", &["left", "right"], &[]);
    let mut story = Story::started(vec![way, when(tool("left", &[]), "way", "left"), tool("end", &["left"])]);
    story.command(crate::given::choose("right")).unwrap();
    let args = json!({"$from": "/steps/left/output/x"});
    assert_eq!(
        bind(&args, Sources { run: &story.run, inputs: &story.run.inputs, output: &|_| None }).unwrap().value,
        Value::Null
    );
}

#[test]
fn a_pointer_that_leads_nowhere_is_refused() {
    let nowhere = [
        "/steps/done/output/missing",
        "/steps/done/output/items/0",
        "/steps/done/state",
        "/steps/done/outputs",
        "/steps/done",
        "/steps/later/output",
        "/steps/ghost/output",
        "/steps/no such id/output",
        "/steps/",
        "/steps",
        "/inputs/missing",
        "/inputsX",
        "/secrets/key",
        "inputs/topic",
        "",
    ];
    for pointer in nowhere {
        assert_eq!(refused(json!({"a": {"$from": pointer}})), "binding-not-found", "{pointer}");
    }
}

#[test]
fn a_binding_of_another_form_is_refused() {
    for args in [json!({"$from": 7}), json!({"$from": null}), json!({"$from": "/inputs", "or": 1})] {
        assert_eq!(refused(args.clone()), "binding-malformed", "{args}");
    }
}

fn nested(levels: usize, core: Value) -> Value {
    (0..levels).fold(core, |value, _| json!([value]))
}

#[test]
fn arguments_are_no_deeper_than_sixty_four_levels_bound_values_included() {
    assert_eq!(refused(nested(DEPTH_MAX, json!(1))), "ok");
    assert_eq!(refused(nested(DEPTH_MAX + 1, json!(1))), "json-too-deep");

    let deep_output = nested(40, json!(1));
    let around = |levels| bound(nested(levels, json!({"$from": "/steps/done/output"})), deep_output.clone());
    assert!(around(DEPTH_MAX - 40).is_ok());
    assert_eq!(around(DEPTH_MAX - 39).unwrap_err().code(), "json-too-deep");
}

#[test]
fn a_large_output_cannot_be_multiplied_by_naming_it_often() {
    let output = json!("x".repeat(1_024 * 1_024));
    let times = |count: usize| {
        let args = Value::Array(vec![json!({"$from": "/steps/done/output"}); count]);
        bound(args, output.clone()).map_or_else(|error| error.code(), |_| "ok")
    };
    assert_eq!(times(BOUND_BYTES_MAX / (1_024 * 1_024) - 1), "ok");
    assert_eq!(times(BOUND_BYTES_MAX / (1_024 * 1_024)), "json-too-large");
}

#[test]
fn the_steps_that_arguments_need_are_known_beforehand() {
    let args = json!({
        "a": {"$from": "/steps/one/output/x"}, "b": [{"$from": "/steps/two/output"}, {"$from": "/inputs/x"}],
        "c": {"$$from": "/steps/three/output"}, "d": {"$from": "/steps/bad id/output"},
    });
    assert_eq!(steps_bound(&args).into_iter().collect::<Vec<_>>(), ["one", "two"].map(step_id));
}

#[test]
fn a_handle_stays_as_it_is_and_its_place_is_noted() {
    let args = json!({
        "auth": [{"$secret": "mail"}], "a/b~c": {"$secret": "pay"}, "data": {"$from": "/steps/done/output"},
        "literal": {"$$secret": "mail"},
    });
    assert!(names_secret(&args) && !names_secret(&args["literal"]) && !names_secret(&args["data"]));
    let hostile = json!({"$secret": "mail", "deep": [{"$secret": "pay"}]});
    let story = story(hostile.clone());
    let loaded = |_: &StepId| Some(hostile.clone());
    let inputs = json!({"$secret": "mail"});
    let bound = bind(&args, Sources { run: &story.run, inputs: &inputs, output: &loaded }).unwrap();
    let places: Vec<_> = bound.secrets.iter().map(|(place, id)| (place.as_str(), id.as_str())).collect();
    assert_eq!(places, [("/auth/0", "mail"), ("/a~1b~0c", "pay")]);
    for (place, id) in places {
        assert_eq!(bound.value.pointer(place), Some(&json!({"$secret": id})));
    }
    assert_eq!(bound.value["data"], hostile, "what a tool gave is data");
    assert_eq!(bound.value["literal"], json!({"$secret": "mail"}), "and so is what is written with two dollars");
    let whole =
        bind(&json!({"$from": "/inputs"}), Sources { run: &story.run, inputs: &inputs, output: &loaded }).unwrap();
    assert!(whole.secrets.is_empty());
}

#[test]
fn a_handle_that_is_not_written_as_one_is_refused() {
    for args in [json!({"$secret": 1}), json!({"$secret": "mail", "also": 1}), json!({"x": [{"$secret": "not an id"}]})]
    {
        assert_eq!(refused(args), "secret-handle-malformed");
    }
}

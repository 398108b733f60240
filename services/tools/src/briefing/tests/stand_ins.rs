//! What a rehearsal answers for these tools is what they once gave: recorded from one small source, and checked here.
//!
//! `UPDATE_STAND_INS=1` writes the recording anew after a tool has changed what it gives.

use serde_json::{Value, json};
use signalbox_domain::ids::ToolId;
use signalbox_domain::mode::recorded;

use super::{document, walk};

const TEXT: &str =
    "# A source of a rehearsal\n\nLarkspur counted 300 users in this spring alone. The shed is still green.\n";
const FILE: &str = "../../actors/domain/src/mode/stand_ins.json";

fn source() -> Value {
    let mut source = document("rehearsal.md", TEXT);
    source["uri"] = json!("https://rehearsal.invalid/rehearsal.md");
    source
}

/// Tool, the way it works, and what it gives over the one source.
async fn given() -> Vec<(&'static str, &'static str, Value)> {
    let walked = walk(&[source()], None).await;
    let output = |step: &str| walked.outputs[step].clone();
    vec![
        ("source.fetch", "", json!({ "documents": [source()], "failures": [] })),
        ("composition.suggest", "draft", output("draft_pack")),
        ("composition.suggest", "render", output("assemble.render")),
        ("persona.invoke", "", output("edit")),
    ]
}

#[tokio::test]
async fn the_recorded_stand_ins_are_what_the_bundled_tools_give() {
    let given = given().await;
    if std::env::var_os("UPDATE_STAND_INS").is_some() {
        let mut file = json!({});
        for (tool, way, output) in &given {
            file[*tool][*way] = output.clone();
        }
        std::fs::write(FILE, serde_json::to_string_pretty(&file).unwrap() + "\n").unwrap();
        return;
    }
    for (tool, way, output) in given {
        let args = if way.is_empty() { json!({}) } else { json!({ "mode": way }) };
        let kept = recorded(&ToolId::new(tool).unwrap(), &args);
        assert_eq!(kept, Some(&output), "{tool} {way}: record it with UPDATE_STAND_INS=1");
    }
}

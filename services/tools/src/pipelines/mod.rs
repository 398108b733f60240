//! The pipelines' tools in the order in which their plans call them, over the samples; what they give is kept as snapshots.
//!
//! `SHOW=folder` writes the files there, to be opened and read.

mod hostile;
mod plans;
mod sky;
mod story;
mod study;
mod week;

use std::path::Path;

use serde_json::{Value, json};

use crate::briefing::tools::{CompositionSuggest, PersonaInvoke, SophiaFactCheck, SophiaGround};
use crate::bundled::source::SourceFetch;
use crate::bundled::testing::{call, run};
use crate::bundled::web::testing::fetcher;
use crate::tool::{Failure, Tool, ToolOutcome};
use crate::week::tools::CalendarRead;

/// The folder of the samples.
pub(super) fn samples(inside: &str) -> String {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../samples").join(inside);
    here.canonicalize().unwrap().to_str().unwrap().to_owned()
}

/// Calls a tool that may read the samples; an answer that is whole or partial.
pub(super) async fn ask(tool: &str, args: Value) -> Value {
    match outcome(tool, args).await {
        ToolOutcome::Ok(answer) | ToolOutcome::Partial(answer) => answer.output,
        other @ (ToolOutcome::Error(_) | ToolOutcome::Cancelled) => panic!("{tool}: {other:?}"),
    }
}

/// Calls a tool that must refuse.
pub(super) async fn refused(tool: &str, args: Value) -> Failure {
    match outcome(tool, args).await {
        ToolOutcome::Error(failure) => failure,
        other @ (ToolOutcome::Ok(_) | ToolOutcome::Partial(_) | ToolOutcome::Cancelled) => panic!("{tool}: {other:?}"),
    }
}

async fn outcome(tool: &str, args: Value) -> ToolOutcome {
    match tool {
        "source.fetch" => over(&SourceFetch(fetcher()), args).await,
        "sophia.ground" => over(&SophiaGround, args).await,
        "sophia.fact_check" => over(&SophiaFactCheck, args).await,
        "composition.suggest" => over(&CompositionSuggest, args).await,
        "persona.invoke" => over(&PersonaInvoke, args).await,
        "calendar.read" => over(&CalendarRead, args).await,
        other => panic!("{other} is no tool of a pipeline"),
    }
}

async fn over(tool: &impl Tool, args: Value) -> ToolOutcome {
    let mut order = call(tool, args);
    order.constraints.paths = Some(["material", "story", "week"].map(samples).into());
    run(tool, order).await
}

/// The edited work, as `edit` gives it.
pub(super) async fn edited(work: Value) -> Value {
    let given = ask("persona.invoke", json!({ "mode": "work", "persona": "lilith.scribe", "work": work })).await;
    given["work"].clone()
}

/// Checks the digests of rendered files, shows the files if somebody wants to read them, and gives one of them.
pub(super) fn file<'r>(rendered: &'r Value, pipeline: &str, name: &str) -> &'r str {
    let files = rendered["files"].as_object().unwrap();
    for (name, text) in files {
        let digest = signalbox_domain::canonical::sha256_hex(text.as_str().unwrap().as_bytes());
        assert_eq!(rendered["summary"]["sha256"][name], json!(digest), "{name}");
        if let Some(folder) = std::env::var_os("SHOW") {
            let folder = Path::new(&folder).join(pipeline);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join(name), text.as_str().unwrap()).unwrap();
        }
    }
    files[name].as_str().unwrap()
}

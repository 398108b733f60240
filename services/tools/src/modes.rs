//! The further modes of the tools that serve several pipelines. Which there are stands in `docs/pipeline-tools.md`.
//!
//! A tool looks here first: what its `mode` names is done by the module of that subject; anything else is the briefing's.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::briefing::persona::{self, Change};
use crate::briefing::safe::{clean, cut};
use crate::bundled::shared::{args, refusal};
use crate::editorial::walk::rewrite;
use crate::editorial::{self, tone};
use crate::tool::Failure;
use crate::{sky, study, week};
use signalbox_domain::run::event::Evidence;

/// Longest title that can be asked for, in bytes.
const TITLE_BYTES_MAX: usize = 200;

/// What a mode gives: the output, how well it is backed, and whether it is whole.
pub(crate) type Given = Result<(Value, Option<Evidence>, bool), Failure>;

/// A whole output that needs no backing.
pub(crate) fn given(value: &impl serde::Serialize) -> Given {
    let value = serde_json::to_value(value)
        .map_err(|error| refusal("output-not-json", format!("the output is no JSON: {error}")))?;
    Ok((value, None, true))
}

/// A title that was asked for, fit to be shown.
pub(crate) fn titled(title: Option<String>) -> Result<Option<String>, Failure> {
    match title {
        Some(title) if title.len() > TITLE_BYTES_MAX || title.trim().is_empty() => {
            Err(refusal("args-invalid", format!("a title has 1 to {TITLE_BYTES_MAX} bytes")))
        }
        title => Ok(title.map(|title| clean(cut(&title, TITLE_BYTES_MAX)))),
    }
}

/// The mode of a call and its other arguments; `None` if it names no mode.
fn split(asked: &Value) -> Option<(String, Value)> {
    let mode = asked.get("mode")?.as_str()?.to_owned();
    let mut rest = asked.clone();
    rest.as_object_mut()?.remove("mode");
    Some((mode, rest))
}

/// Refuses a mode that nobody has.
pub(crate) fn known(asked: &Value, modes: &[&str]) -> Result<(), Failure> {
    match asked.get("mode").and_then(Value::as_str) {
        Some(mode) if !modes.contains(&mode) => {
            let mode = clean(cut(mode, 60));
            Err(refusal(
                "args-invalid",
                format!("there is no mode `{mode}`; `docs/pipeline-tools.md` lists the modes of each tool"),
            ))
        }
        _ => Ok(()),
    }
}

/// `composition.suggest`.
pub(crate) fn compose(asked: &Value) -> Option<Given> {
    let mode = asked.get("mode")?.as_str()?;
    if matches!(mode, "draft" | "render") {
        return None;
    }
    let (mode, rest) = split(asked)?;
    let found = sky::tools::compose(&mode, &rest);
    let found = found.or_else(|| study::tools::compose(&mode, &rest));
    let found = found.or_else(|| editorial::tools::compose(&mode, &rest));
    found.or_else(|| week::tools::compose(&mode, &rest))
}

/// `sophia.ground`.
pub(crate) fn ground(asked: &Value) -> Option<Given> {
    let (mode, rest) = split(asked)?;
    study::tools::ground(&mode, &rest)
}

/// `sophia.fact_check`.
pub(crate) fn check(asked: &Value) -> Option<Given> {
    match asked.get("mode")?.as_str()? {
        "sky" => split(asked).map(|(_, rest)| sky::tools::check(&rest)),
        "quotes" => split(asked).map(|(_, rest)| editorial::tools::quotes(&rest)),
        "contradictions" => split(asked).map(|(_, rest)| editorial::tools::contradictions(&rest)),
        _ => None,
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkArgs {
    persona: String,
    work: Value,
}

/// `persona.invoke`.
pub(crate) fn persona(asked: &Value) -> Option<Given> {
    let (mode, rest) = split(asked)?;
    let work = || -> Result<Value, Failure> {
        let WorkArgs { persona, work } = args(&rest)?;
        if persona != persona::PERSONA {
            let known = persona::PERSONA;
            return Err(refusal("persona-not-available", format!("only the persona `{known}` is available")));
        }
        Ok(work)
    };
    match mode.as_str() {
        "work" => Some(work().and_then(|mut work| {
            let mut changes: Vec<Change> = Vec::new();
            rewrite(&mut work, &mut |place, text| persona::edit(place, text, &mut changes));
            given(&json!({ "work": work, "changes": changes }))
        })),
        "tone-review" => Some(work().and_then(|work| given(&tone::review(&work)))),
        _ => None,
    }
}

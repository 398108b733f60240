//! `web.fetch`: one page.

use std::sync::Arc;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::json;
use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::quantity::BudgetCategory;

use super::WebFetcher;
use crate::bundled::shared::{args, base_usage, ceiling_units, check_price, descriptor, outcome, refusal};
use crate::tool::{Answer, Descriptor, Failure, Measured, ProgressSink, Tool, ToolCall, ToolOutcome};

/// Fetches one page as text.
pub(crate) struct WebFetch(pub(crate) Arc<WebFetcher>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Args {
    url: String,
    #[serde(default = "get")]
    method: String,
}

fn get() -> String {
    "GET".to_owned()
}

impl WebFetch {
    async fn fetch(&self, call: ToolCall) -> Result<ToolOutcome, Failure> {
        let Args { url, method } = args(&call.args)?;
        check_price(&call)?;
        if ceiling_units(&call, BudgetCategory::ExternalCalls) == 0 {
            return Err(refusal("ceiling-too-low", "no external call is reserved for this call"));
        }
        let mut used = base_usage(&call.tool_id);
        used.insert(BudgetCategory::ExternalCalls, 1.0);
        let page = match self.0.fetch(&url, &method, &call.constraints, call.deadline).await {
            Ok(page) => page,
            Err(failure) => {
                // What never left is not charged.
                let measured = Some(if failure.left { used } else { Measured::new() });
                return Err(Failure { code: failure.code.to_owned(), message: failure.message, measured });
            }
        };
        let Ok(text) = String::from_utf8(page.body) else {
            return Ok(ToolOutcome::failed("body-not-text", "the page is not UTF-8 text", used));
        };
        let output = json!({
            "url": page.url,
            "status": page.status,
            "mediaType": page.media_type,
            "sha256": sha256_hex(text.as_bytes()),
            "size": text.len(),
            "text": text,
        });
        Ok(ToolOutcome::Ok(Answer::new(output, used)))
    }
}

#[async_trait]
impl Tool for WebFetch {
    fn descriptor(&self) -> Descriptor {
        descriptor("web.fetch", false)
    }
    async fn run(&self, call: ToolCall, _: ProgressSink) -> ToolOutcome {
        outcome(self.fetch(call).await)
    }
}

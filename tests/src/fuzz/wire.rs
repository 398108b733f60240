//! Messages of the executor protocol: any bytes are decoded as the message, and what decodes is converted.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a target panics to say what is wrong")]

use std::cell::RefCell;
use std::sync::Arc;

use async_trait::async_trait;
use prost::Message as _;
use serde_json::json;
use signalbox_domain::catalog::{self, Recovery};
use signalbox_domain::quantity::{BudgetCategory, Micros, Usage};
use signalbox_domain::run::settle::charge;
use signalbox_domain::run::step::CallEnding;
use signalbox_proto::v1;
use signalbox_proto::v1::tool_executor_server::ToolExecutor as _;
use signalbox_tools::ToolServer;
use signalbox_tools::client::{taken_for, tools_described};
use signalbox_tools::tool::{Answer, Descriptor, Measured, ProgressSink, Tool, ToolCall, ToolOutcome};
use tokio::runtime::{Builder, Runtime};

/// Answers with its arguments.
struct Echo;

#[async_trait]
impl Tool for Echo {
    fn descriptor(&self) -> Descriptor {
        Descriptor {
            tool_id: "memory.read".to_owned(),
            semver: "1.0.0".to_owned(),
            input_schema: json!({}),
            output_schema: json!({}),
            ceiling: Usage::none(),
            has_side_effects: false,
            recovery: Recovery::Idempotent,
        }
    }
    async fn run(&self, call: ToolCall, _: ProgressSink) -> ToolOutcome {
        ToolOutcome::Ok(Answer::new(call.args, Measured::new()))
    }
}

thread_local! {
    static RUNTIME: RefCell<Runtime> = RefCell::new(Builder::new_current_thread().enable_time().build().unwrap());
}

/// A request to execute, taken by the server as from the network.
pub(super) fn execute_request(bytes: &[u8]) {
    let Ok(request) = v1::ExecuteRequest::decode(bytes) else { return };
    let server = ToolServer::new([Arc::new(Echo) as Arc<dyn Tool>]);
    RUNTIME.with_borrow(|runtime| {
        runtime.block_on(async {
            let answers = server.execute(tonic::Request::new(request)).await;
            assert!(answers.is_ok(), "a request that makes no sense is answered, not dropped");
        });
    });
}

/// A result: whatever it says, it is kept within bounds and charged within the reservation.
pub(super) fn tool_result(bytes: &[u8]) {
    let Ok(result) = v1::ToolResult::decode(bytes) else { return };
    let taken = taken_for(result);
    match &taken.ending {
        CallEnding::Failed { code, message } | CallEnding::NotStarted { code, message } => {
            assert!(!code.is_empty() && code.len() <= 100 && code.is_ascii(), "{code:?}");
            assert!(message.chars().count() <= 2_000);
        }
        CallEnding::Answered { artifacts, .. } => {
            for artifact in artifacts {
                let escapes =
                    artifact.name.split(['/', '\\']).any(|part| part == "..") || artifact.name.starts_with('/');
                assert!(!escapes && !artifact.name.contains(char::is_control), "{artifact:?}");
            }
        }
        CallEnding::Unknown { .. } | CallEnding::Cancelled => {}
    }
    let ceiling = Usage::of(BudgetCategory::CostUnits, Micros::units(2));
    for (category, amount) in charge(&ceiling, &taken).charged.iter() {
        assert!(amount >= Micros::ZERO && amount <= ceiling.get(category), "{amount} of {}", category.as_str());
    }
}

/// A description: nothing is bound that the catalog does not have.
pub(super) fn describe_response(bytes: &[u8]) {
    let Ok(described) = v1::DescribeResponse::decode(bytes) else { return };
    match tools_described(&described) {
        Ok(tools) => assert!(tools.iter().all(|(tool, _, _)| catalog::entry(tool).is_some())),
        Err(problem) => assert!(problem.len() < 1_000, "{problem}"),
    }
}

//! The cost ledger: a fold that never falls (LED).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{RunId, StageId, ToolId};
use crate::quantity::{BudgetCategory, Micros, Usage};

/// What a run has cost so far (LED-001, LED-003). Each counter is the twin of one budget category (LED-002).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schemas", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RunCostLedger {
    /// Cost units in all.
    pub total_cost_units: Micros,
    /// Cost units by stage.
    pub per_stage_cost_units: BTreeMap<StageId, Micros>,
    /// Cost units by tool.
    pub per_tool_cost_units: BTreeMap<ToolId, Micros>,
    /// Tokens read.
    pub input_token_count: Micros,
    /// Tokens written.
    pub output_token_count: Micros,
    /// Minutes of a graphics processor.
    pub gpu_minutes: Micros,
    /// Seconds of voice.
    pub voice_seconds: Micros,
    /// Seconds of video.
    pub avatar_seconds: Micros,
    /// Look-ups.
    pub retrieval_count: Micros,
    /// Calls that left the installation.
    pub external_call_count: Micros,
    /// Bytes written to artifacts.
    pub storage_bytes: Micros,
}

impl RunCostLedger {
    /// Books one charge under its stage and tool; the sums of LED-005 hold before and after.
    pub fn post(&mut self, stage: &StageId, tool: &ToolId, charge: &Usage) {
        let cost = charge.get(BudgetCategory::CostUnits);
        let add = |counter: &mut Micros, amount: Micros| *counter = counter.plus(amount);
        add(self.per_stage_cost_units.entry(stage.clone()).or_default(), cost);
        add(self.per_tool_cost_units.entry(tool.clone()).or_default(), cost);
        for (category, amount) in charge.iter() {
            add(self.counter_mut(category), amount);
        }
    }

    /// Adds what a sub-run has cost in all, once, under `handoff:<childRunId>` (LED-011).
    pub fn absorb(&mut self, child: RunId, of_child: &Self) {
        // Letters, digits, a colon and hyphens: an id may be made of those.
        let stage = StageId::new(format!("handoff:{child}")).unwrap_or_else(|_| StageId::constant("handoff"));
        let add = |counter: &mut Micros, amount: Micros| *counter = counter.plus(amount);
        add(self.per_stage_cost_units.entry(stage).or_default(), of_child.total_cost_units);
        for (tool, amount) in &of_child.per_tool_cost_units {
            add(self.per_tool_cost_units.entry(tool.clone()).or_default(), *amount);
        }
        for category in BudgetCategory::ALL {
            add(self.counter_mut(category), of_child.counter(category));
        }
    }

    /// The counter that is kept in this category.
    pub const fn counter(&self, category: BudgetCategory) -> Micros {
        match category {
            BudgetCategory::CostUnits => self.total_cost_units,
            BudgetCategory::InputTokens => self.input_token_count,
            BudgetCategory::OutputTokens => self.output_token_count,
            BudgetCategory::GpuMinutes => self.gpu_minutes,
            BudgetCategory::VoiceSeconds => self.voice_seconds,
            BudgetCategory::AvatarSeconds => self.avatar_seconds,
            BudgetCategory::Retrievals => self.retrieval_count,
            BudgetCategory::ExternalCalls => self.external_call_count,
            BudgetCategory::StorageBytes => self.storage_bytes,
        }
    }

    const fn counter_mut(&mut self, category: BudgetCategory) -> &mut Micros {
        match category {
            BudgetCategory::CostUnits => &mut self.total_cost_units,
            BudgetCategory::InputTokens => &mut self.input_token_count,
            BudgetCategory::OutputTokens => &mut self.output_token_count,
            BudgetCategory::GpuMinutes => &mut self.gpu_minutes,
            BudgetCategory::VoiceSeconds => &mut self.voice_seconds,
            BudgetCategory::AvatarSeconds => &mut self.avatar_seconds,
            BudgetCategory::Retrievals => &mut self.retrieval_count,
            BudgetCategory::ExternalCalls => &mut self.external_call_count,
            BudgetCategory::StorageBytes => &mut self.storage_bytes,
        }
    }
}

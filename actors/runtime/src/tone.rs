//! The tone-policy hook around calls (INV-008): text that was made for customers and creators is judged before anybody can
//! read it, aside from the threads that run the actors.

use std::collections::BTreeMap;
use std::sync::Arc;

use signalbox_domain::identity::Role;
use signalbox_domain::ids::{TenantId, ToolId};
use signalbox_domain::invocation::{
    InvocationPolicies, PhraseTone, TONE_DEFAULT, TonePolicy, ToneVerdict, judge_output, watches_tone,
};
use signalbox_domain::run::envelope::RunEnvelope;
use signalbox_domain::run::settle::output_of;
use signalbox_domain::run::step::CallResult;

/// The policy of each tenant.
pub(crate) struct ToneHook {
    /// Asked instead of what tenants have configured.
    instead: Option<Arc<dyn TonePolicy>>,
    tenants: BTreeMap<TenantId, Arc<dyn TonePolicy>>,
}

impl ToneHook {
    pub(crate) fn new(policies: &InvocationPolicies, instead: Option<Arc<dyn TonePolicy>>) -> Self {
        let phrases = policies.tenants.iter().filter_map(|(tenant, rules)| {
            let policy = PhraseTone::new(&rules.tone_block, &rules.tone_warn);
            (!policy.is_idle()).then(|| (tenant.clone(), Arc::new(policy) as Arc<dyn TonePolicy>))
        });
        Self { instead, tenants: phrases.collect() }
    }

    /// What watches the text of a run; `None` if nothing has anything to say of it.
    pub(crate) fn of(&self, run: &RunEnvelope) -> Option<Watched> {
        let policy = self.instead.as_ref().or_else(|| self.tenants.get(&run.tenant_id))?;
        let tone = run.invocation.as_ref().map_or(TONE_DEFAULT, |invocation| &invocation.tone).to_owned();
        Some(Watched { policy: policy.clone(), role: run.submitted_by.role, tone })
    }
}

/// The policy over one run.
#[derive(Clone)]
pub(crate) struct Watched {
    policy: Arc<dyn TonePolicy>,
    role: Role,
    tone: String,
}

impl Watched {
    /// What the policy says of what a call gave. A policy that fails says nothing good: what was not judged is not let out.
    pub(crate) async fn judge(&self, tool: &ToolId, result: &CallResult) -> ToneVerdict {
        let Some(output) = output_of(result).filter(|_| watches_tone(self.role, tool)) else {
            return ToneVerdict::Pass;
        };
        let (policy, tone, output) = (self.policy.clone(), self.tone.clone(), output.clone());
        let judged = tokio::task::spawn_blocking(move || judge_output(policy.as_ref(), &tone, &output)).await;
        judged.unwrap_or_else(|_| ToneVerdict::Block("the tone policy failed to judge the text".to_owned()))
    }
}

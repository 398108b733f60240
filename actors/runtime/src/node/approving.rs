//! Questions to people, and their answers.

use signalbox_domain::identity::{self, Action, Reach};
use signalbox_domain::ids::{ApprovalId, CommandId, RunId};
use signalbox_domain::run::append::{CommandAnswer, OpenApproval};
use signalbox_domain::run::approval::{Answering, may_answer};
use signalbox_domain::run::decide::RunCommand;
use signalbox_domain::run::event::ApprovalDecision;
use signalbox_ports::directory::OpenQuestion;

use super::NodeHandle;
use crate::api::{ApiError, Caller, Question};
use crate::values;

impl NodeHandle {
    /// Open questions of the caller's tenant, oldest first: all of them for an operator, and for everybody else those of
    /// their own runs and those they may answer.
    pub async fn approvals(&self, caller: &Caller) -> Result<Vec<(RunId, OpenApproval)>, ApiError> {
        let all = self.inner.ports.directory.open_approvals(&caller.tenant_id).await?;
        let sees_all = identity::reach(caller.actor.role, Action::ReadRuns) >= Reach::Tenant;
        let is_shown = |asked: &OpenQuestion| {
            let own = asked.submitted_by == caller.actor.actor_id;
            let may =
                may_answer(asked.open.requirement, asked.open.approvers.as_ref(), &caller.actor, &caller.scopes, own);
            sees_all || own || may == Answering::May
        };
        Ok(all.into_iter().filter(is_shown).map(|asked| (asked.run_id, asked.open)).collect())
    }

    /// One question of the caller's tenant, be it open or not, with all that it shows.
    pub async fn approval(&self, caller: &Caller, approval_id: ApprovalId) -> Result<Question, ApiError> {
        let run_id = self.run_of_approval(caller, approval_id).await?;
        let run = self.get(caller, run_id).await.map_err(|error| unseen(error, approval_id))?;
        let asked = run.approvals.iter().find(|asked| asked.approval_id == approval_id).cloned();
        let asked = asked.ok_or_else(|| ApiError::NoSuchApproval(approval_id.to_string()))?;
        let shown = values::load(self.inner.shared.blobs.as_ref(), &run.tenant_id, &asked.subject).await?;
        let may_decide = asked.may_be_decided_by(&caller.actor, &caller.scopes, &run).is_ok();
        Ok(Question { run_id, asked, shown, may_decide })
    }

    // A question of another tenant is as absent as one that was never asked (I11).
    async fn run_of_approval(&self, caller: &Caller, approval_id: ApprovalId) -> Result<RunId, ApiError> {
        let run = self.inner.ports.directory.run_of_approval(&caller.tenant_id, approval_id).await?;
        run.ok_or_else(|| ApiError::NoSuchApproval(approval_id.to_string()))
    }

    /// Answers a question. Saying it twice under one command id is harmless and gives the same answer.
    pub async fn decide_approval(
        &self,
        caller: &Caller,
        approval_id: ApprovalId,
        decision: ApprovalDecision,
        reason: String,
        subject_digest: Option<String>,
        command_id: CommandId,
    ) -> Result<(RunId, CommandAnswer), ApiError> {
        let run_id = self.run_of_approval(caller, approval_id).await?;
        let command = RunCommand::DecideApproval { approval_id, decision, reason, subject_digest };
        let answer = self.command(caller, run_id, command_id, command).await;
        Ok((run_id, answer.map_err(|error| unseen(error, approval_id))?))
    }
}

// The question of a run that the caller may not see is as absent as the run.
fn unseen(error: ApiError, approval_id: ApprovalId) -> ApiError {
    if matches!(error, ApiError::NoSuchRun(_)) { ApiError::NoSuchApproval(approval_id.to_string()) } else { error }
}

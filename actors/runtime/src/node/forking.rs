//! Forks: another run made of one (CTL-009, CTL-010).

use signalbox_domain::ids::{CommandId, RunId, RunKey};
use signalbox_domain::run::append::RunHead;
use signalbox_domain::run::chain::StoredEvent;
use signalbox_domain::run::decide::{Context, Denial};
use signalbox_domain::run::event::RunEvent;
use signalbox_domain::run::{control, submission};
use signalbox_ports::journal::Created;

use super::NodeHandle;
use crate::api::{ApiError, Caller, Submitted};

impl NodeHandle {
    /// Makes another run of one, in any status: with what it has done, and nothing it has spent or was granted (CTL-010).
    /// The new run is granted by the same policy as any submission of whoever forks. Saying it twice under one command id
    /// answers the same run.
    pub async fn fork(
        &self,
        caller: &Caller,
        source: RunId,
        command_id: CommandId,
        expected_seq: Option<u64>,
        fresh: Option<RunId>,
        reason: &str,
    ) -> Result<Submitted, ApiError> {
        self.check_room()?;
        let (_, run) = self.find_whole(caller, source).await?;
        let now = self.inner.shared.clock.now();
        let taken = match fresh {
            Some(id) => self.inner.shared.store.find(&caller.tenant_id, id).await?,
            None => None,
        };
        if let (Some(id), Some(head)) = (fresh, &taken)
            && let Some(again) = self.forked_before(head, source, id, command_id).await?
        {
            return Ok(again);
        }
        let order = control::Fork {
            run_key: RunKey::new(self.inner.ports.ids.fresh()),
            fresh: fresh.map(|id| (id, taken.is_some())),
            command_id,
            scopes: &caller.scopes,
            reason,
        };
        let context = Context { now, actor: caller.actor.clone(), scopes: Vec::new(), expected_seq };
        let mut events = control::fork(&run, &order, &context)?.into_iter();
        let Some(RunEvent::RunSubmitted(mut submitted)) = events.next().map(|new| new.event) else {
            return Err(ApiError::Internal("a fork began with something else than its submission".to_owned()));
        };
        submitted.agents_now(&self.registry());
        self.check_tools(&submitted)?;
        self.check_preflight(&submitted, None, now)?;
        let minted = submission::mint_grants(&submitted, now);
        submitted.grants.extend(minted);
        let run_id = submitted.run_id;
        match self.create(caller, *submitted, events.collect(), now).await? {
            (Created::New { .. }, status) => Ok(Submitted { run_id, replayed: false, status, warnings: Vec::new() }),
            (Created::Exists(head), _) => {
                let again = self.forked_before(&head, source, run_id, command_id).await?;
                again.ok_or_else(|| Denial::ForkWithoutFreshId.into())
            }
        }
    }

    /// The answer to a fork that is asked for once more, if the run that has the id is that fork.
    async fn forked_before(
        &self,
        head: &RunHead,
        source: RunId,
        run_id: RunId,
        command_id: CommandId,
    ) -> Result<Option<Submitted>, ApiError> {
        let second = self.inner.shared.store.read(head.run_key, 1, 1).await?;
        let second = second.first().and_then(StoredEvent::event);
        if !second.is_some_and(|event| control::is_fork_by(&event, source, run_id, command_id)) {
            return Ok(None);
        }
        let there = self.envelope(head).await?;
        Ok(Some(Submitted {
            run_id,
            replayed: true,
            status: there.status_at(self.inner.shared.clock.now()),
            warnings: Vec::new(),
        }))
    }
}

//! How the last runs of an agent stand to their mode (MOD-008, MOD-009).

use signalbox_domain::dashboard::DashboardFilter;
use signalbox_domain::ids::AgentId;
use signalbox_domain::mode::{Mode, P95_RUNS, SeriesCompliance, compliance_of_series};
use signalbox_domain::run::status::RunStatus;

use super::NodeHandle;
use super::dashboard::{only_operators, scope};
use crate::api::{ApiError, Caller, Whose};
use crate::load::load;

/// Most runs of an agent that are looked at for those of one mode: each is read back from its journal.
const LOOKED_AT_MAX: usize = 1_000;

impl NodeHandle {
    /// Holds the last hundred runs that an agent led in a mode, and that are over, against that mode. For operators.
    pub async fn mode_compliance(
        &self,
        caller: &Caller,
        whose: Whose,
        agent_id: AgentId,
        mode: Mode,
    ) -> Result<SeriesCompliance, ApiError> {
        only_operators(caller)?;
        let scope = scope(caller, whose)?;
        let status = RunStatus::ALL.into_iter().filter(|status| status.is_terminal()).collect();
        let mut filter = DashboardFilter { agent_id: Some(agent_id), status, ..DashboardFilter::default() };
        let (mut runs, mut looked_at) = (Vec::new(), 0);
        loop {
            let now = self.inner.shared.clock.now_micros();
            let page = self.inner.ports.directory.runs(&scope, &filter, now).await?;
            for row in &page.rows {
                looked_at += 1;
                let run = load(self.inner.shared.store.as_ref(), row.run_key).await?;
                runs.extend(run.and_then(|run| run.compliance).filter(|compliance| compliance.mode == mode));
                if runs.len() == P95_RUNS || looked_at == LOOKED_AT_MAX {
                    break;
                }
            }
            match page.next {
                Some(next) if runs.len() < P95_RUNS && looked_at < LOOKED_AT_MAX => filter.cursor = Some(next),
                Some(_) | None => break,
            }
        }
        // They were read newest first.
        runs.reverse();
        Ok(compliance_of_series(mode, &runs))
    }
}

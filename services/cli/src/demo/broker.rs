//! The broker of the demonstration (EXE-015): it approves, for one run, exactly the files and hosts that were named on
//! the command line, and the files that the plan itself writes. It approves nothing else, whatever the plan asks for.

use signalbox_domain::governance::grant::{Constraints, Grant, GrantScope};
use signalbox_domain::ids::{ActorId, GrantId, RunId, TenantId, ToolId};
use signalbox_domain::run::plan::{Plan, StepKind};
use signalbox_domain::time::UnixMs;

use super::sources::Sources;
use crate::failure::Failure;

/// What the grants are issued for.
pub(crate) struct Approval<'a> {
    /// The run.
    pub(crate) run_id: RunId,
    /// Its tenant.
    pub(crate) tenant_id: &'a TenantId,
    /// Who named the sources.
    pub(crate) issued_by: &'a ActorId,
    /// Now.
    pub(crate) now: UnixMs,
}

/// The grants for a briefing over these sources.
pub(crate) fn approve(plan: &Plan, sources: &Sources, approval: &Approval<'_>) -> Result<Vec<Grant>, Failure> {
    let fetch = Constraints {
        hosts: Some(sources.hosts.clone()),
        paths: Some(sources.roots.clone()),
        methods: Some(vec!["GET".to_owned(), "HEAD".to_owned()]),
        schemes: Some(sources.schemes.clone()),
        secret_ids: Some(Vec::new()),
        ..Constraints::default()
    };
    let write = Constraints {
        hosts: Some(Vec::new()),
        paths: Some(written(plan)),
        secret_ids: Some(Vec::new()),
        ..Constraints::default()
    };
    Ok(vec![
        grant("source.fetch", fetch, "named as sources on the command line", approval)?,
        grant("file.write", write, "the files of the pack, in the folder of this run", approval)?,
    ])
}

fn grant(tool: &str, constraints: Constraints, why: &str, approval: &Approval<'_>) -> Result<Grant, Failure> {
    let Approval { run_id, tenant_id, issued_by, now } = approval;
    let id = |error: signalbox_domain::ids::IdError| Failure::new("grant-invalid", error.to_string());
    let grant = Grant {
        grant_id: GrantId::new(format!("broker.{run_id}.{tool}")).map_err(id)?,
        scope: GrantScope::PerRun,
        scope_key: run_id.to_string(),
        tenant_id: (*tenant_id).clone(),
        tool_id: ToolId::new(tool).map_err(id)?,
        tool_range: "^1".to_owned(),
        constraints,
        delegable: None,
        issued_by: (*issued_by).clone(),
        issued_at_unix_ms: *now,
        expires_at_unix_ms: None,
        revoked_at_unix_ms: None,
        rationale: why.to_owned(),
        audit_event_id: format!("{run_id}/1"),
        renewed_from_grant_id: None,
    };
    grant.validate().map_err(|error| Failure::new("grant-invalid", error.to_string()))?;
    Ok(grant)
}

// The paths that the plan's own `file.write` steps name; a path that is bound only at run time is not approved.
fn written(plan: &Plan) -> Vec<String> {
    let path = |kind: &StepKind| match kind {
        StepKind::Tool { tool_id, args, .. } if tool_id.as_str() == "file.write" => {
            args.get("path").and_then(|path| path.as_str()).map(ToOwned::to_owned)
        }
        StepKind::Tool { .. }
        | StepKind::Agent { .. }
        | StepKind::Model { .. }
        | StepKind::Turn { .. }
        | StepKind::Approval { .. }
        | StepKind::Branch { .. }
        | StepKind::Wait { .. } => None,
    };
    plan.steps.iter().filter_map(|step| path(&step.kind)).collect()
}

#[cfg(test)]
mod tests {
    use signalbox_domain::pipeline::briefing;
    use uuid::Uuid;

    use super::*;

    fn grants(sources: &Sources) -> Vec<Grant> {
        let approval = Approval {
            run_id: RunId::new(Uuid::from_u128(7)),
            tenant_id: &TenantId::new("default").unwrap(),
            issued_by: &ActorId::new("dev:operator").unwrap(),
            now: UnixMs(1),
        };
        approve(&briefing(&sources.list, None), sources, &approval).unwrap()
    }

    #[test]
    fn the_broker_approves_exactly_the_files_and_hosts_that_were_named() {
        let sources = Sources {
            list: vec!["/news/a.md".to_owned(), "https://example.org/feed".to_owned()],
            roots: vec!["/news".to_owned()],
            hosts: vec!["example.org".to_owned()],
            schemes: vec!["https".to_owned()],
            passed_over: 0,
        };
        let grants = grants(&sources);
        let fetch = &grants[0];
        assert_eq!((fetch.tool_id.as_str(), fetch.scope), ("source.fetch", GrantScope::PerRun));
        assert_eq!(fetch.constraints.paths.as_deref(), Some(["/news".to_owned()].as_slice()));
        assert_eq!(fetch.constraints.hosts.as_deref(), Some(["example.org".to_owned()].as_slice()));
        assert_eq!(fetch.constraints.schemes.as_deref(), Some(["https".to_owned()].as_slice()));
        assert_eq!(fetch.constraints.methods.as_ref().map(Vec::len), Some(2));
        assert!(grants.iter().all(|grant| grant.scope_key == Uuid::from_u128(7).to_string()));
    }

    #[test]
    fn without_urls_no_host_may_be_reached_and_without_files_no_file_opened() {
        let files = Sources { list: vec!["/a.md".to_owned()], roots: vec!["/a.md".to_owned()], ..Sources::default() };
        assert_eq!(grants(&files)[0].constraints.hosts, Some(Vec::new()));
        let urls = Sources { list: vec!["https://e.org/".to_owned()], ..Sources::default() };
        assert_eq!(grants(&urls)[0].constraints.paths, Some(Vec::new()));
    }

    #[test]
    fn writing_is_approved_for_the_files_of_the_pack_alone() {
        let grants = grants(&Sources { list: vec!["/a.md".to_owned()], ..Sources::default() });
        let paths = grants[1].constraints.paths.clone().unwrap();
        assert_eq!(paths, ["briefing.md", "briefing.html", "briefing.json"]);
        assert_eq!(grants.len(), 2);
    }
}

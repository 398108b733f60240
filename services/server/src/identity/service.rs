//! `IdentityService`: API keys, and who the caller is.

use std::sync::Arc;

use signalbox_domain::identity::{Action, ApiKey, KEY_TTL_SECONDS_DEFAULT, NewKey, Reach, Role, reach};
use signalbox_proto::v1::{self, identity_service_server::IdentityService};
use tonic::{Request, Response, Status};

use super::{ApiKeys, caller_of};
use crate::api::Caller;
use crate::errors::{self, Refusal};
use crate::validate::{self, bad};

/// The service over one node's keys.
pub(crate) struct Identities {
    pub(crate) keys: Arc<ApiKeys>,
}

impl Identities {
    async fn create(&self, request: Request<v1::CreateApiKeyRequest>) -> Result<v1::CreateApiKeyResponse, Refusal> {
        let caller = caller_of(&request)?;
        let asked = request.into_inner();
        let role = Role::parse(&asked.role).ok_or_else(|| {
            let known = Role::ALL.map(Role::as_str).join(", ");
            bad("role-unknown", "role", format!("`role` must be one of {known}"))
        })?;
        let ttl_seconds = if asked.ttl_seconds == 0 { KEY_TTL_SECONDS_DEFAULT } else { asked.ttl_seconds };
        let new = NewKey { name: asked.name, role, scopes: asked.scopes, ttl_seconds };
        let (key, text) = self.keys.make(&caller, new).await?;
        Ok(v1::CreateApiKeyResponse { api_key: Some(self.shown(key)), secret: text.reveal() })
    }

    async fn list(&self, request: Request<v1::ListApiKeysRequest>) -> Result<v1::ListApiKeysResponse, Refusal> {
        let caller = caller_of(&request)?;
        let keys = self.keys.list(&caller, request.get_ref().include_ended).await?;
        Ok(v1::ListApiKeysResponse { api_keys: keys.into_iter().map(|key| self.shown(key)).collect() })
    }

    async fn revoke(&self, request: Request<v1::RevokeApiKeyRequest>) -> Result<v1::RevokeApiKeyResponse, Refusal> {
        let caller = caller_of(&request)?;
        let key_id = validate::id("key_id", &request.get_ref().key_id)?;
        let key = self.keys.revoke(&caller, key_id).await?;
        Ok(v1::RevokeApiKeyResponse { api_key: Some(self.shown(key)) })
    }

    fn me(request: &Request<v1::WhoAmIRequest>) -> Result<v1::WhoAmIResponse, Refusal> {
        let Caller { tenant_id, actor, scopes, surface: _ } = caller_of(request)?;
        let may = Action::ALL.into_iter().map(|action| (action, reach(actor.role, action)));
        let permissions = may
            .filter(|(_, reach)| *reach > Reach::Nothing)
            .map(|(action, reach)| v1::Permission {
                action: action.as_str().to_owned(),
                reach: reach.as_str().to_owned(),
            })
            .collect();
        Ok(v1::WhoAmIResponse {
            tenant_id: tenant_id.to_string(),
            actor_id: actor.actor_id.to_string(),
            role: actor.role.as_str().to_owned(),
            scopes,
            permissions,
        })
    }

    fn shown(&self, key: ApiKey) -> v1::ApiKey {
        let state = self.keys.state(&key).as_str().to_owned();
        let (revoked_at, revoked_by) =
            key.revoked.map_or((0, String::new()), |revoked| (revoked.at.0, revoked.by.actor_id.to_string()));
        v1::ApiKey {
            key_id: key.key_id.to_string(),
            name: key.name,
            role: key.role.as_str().to_owned(),
            scopes: key.scopes,
            state,
            created_at_unix_ms: key.created_at.0,
            created_by: key.created_by.actor_id.to_string(),
            expires_at_unix_ms: key.expires_at.0,
            revoked_at_unix_ms: revoked_at,
            revoked_by,
            last_used_hour_unix_ms: key.last_used_at.map(|at| at.0).unwrap_or_default(),
        }
    }
}

fn answer<T>(result: Result<T, Refusal>) -> Result<Response<T>, Status> {
    result.map(Response::new).map_err(|error| errors::to_status(&error))
}

#[tonic::async_trait]
impl IdentityService for Identities {
    async fn create_api_key(
        &self,
        request: Request<v1::CreateApiKeyRequest>,
    ) -> Result<Response<v1::CreateApiKeyResponse>, Status> {
        answer(self.create(request).await)
    }
    async fn list_api_keys(
        &self,
        request: Request<v1::ListApiKeysRequest>,
    ) -> Result<Response<v1::ListApiKeysResponse>, Status> {
        answer(self.list(request).await)
    }
    async fn revoke_api_key(
        &self,
        request: Request<v1::RevokeApiKeyRequest>,
    ) -> Result<Response<v1::RevokeApiKeyResponse>, Status> {
        answer(self.revoke(request).await)
    }
    async fn who_am_i(&self, request: Request<v1::WhoAmIRequest>) -> Result<Response<v1::WhoAmIResponse>, Status> {
        answer(Self::me(&request))
    }
}

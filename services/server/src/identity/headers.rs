//! The headers that identity is read from: one `authorization`, and for the platform's operators a tenant.

use http::HeaderMap;
use http::header::AUTHORIZATION;
use signalbox_domain::identity::{Action, Reach, reach, tenant_of};
use signalbox_domain::ids::TenantId;

use crate::api::{Caller, ErrorKind};
use crate::errors::Refusal;
use crate::validate::bad;

/// Names the tenant that a platform-operator acts in, if it is not its own.
pub const TENANT_HEADER: &str = "signalbox-tenant";
/// Longest credential that is looked at, in bytes.
pub(super) const CREDENTIAL_BYTES_MAX: usize = 8 * 1024;

/// Why there is no credential to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum HeaderProblem {
    #[error("no `authorization` header")]
    Missing,
    #[error("more than one `authorization` header")]
    Twice,
    #[error("the `authorization` header is longer than {CREDENTIAL_BYTES_MAX} bytes")]
    TooLong,
    #[error("the `authorization` header is not `Bearer` and a token")]
    NotBearer,
}

/// The credential of a request: the token behind `Bearer` in the only `authorization` header.
pub(super) fn credential(headers: &HeaderMap) -> Result<&str, HeaderProblem> {
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = given.next() else { return Err(HeaderProblem::Missing) };
    // With two of them, a proxy in front and this server could each believe another.
    if given.next().is_some() {
        return Err(HeaderProblem::Twice);
    }
    let (scheme, token) = value.as_bytes().split_at_checked(7).ok_or(HeaderProblem::NotBearer)?;
    if token.len() > CREDENTIAL_BYTES_MAX {
        return Err(HeaderProblem::TooLong);
    }
    let is_token = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~' | b'+' | b'/' | b'=');
    if !scheme.eq_ignore_ascii_case(b"Bearer ") || token.is_empty() || !token.iter().all(is_token) {
        return Err(HeaderProblem::NotBearer);
    }
    std::str::from_utf8(token).map_err(|_| HeaderProblem::NotBearer)
}

/// The caller in the tenant it asks for. Whoever may not choose hears the same whatever it asks for, be the tenant there or
/// not.
pub(super) fn in_tenant(caller: Caller, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let mut wanted = headers.get_all(TENANT_HEADER).iter();
    let (first, second) = (wanted.next(), wanted.next());
    let Some(first) = first else { return Ok(caller) };
    let tenant = first.to_str().ok().filter(|_| second.is_none()).and_then(|text| TenantId::new(text).ok());
    let denied = || {
        let message = "only a platform-operator may act in another tenant than its own";
        Refusal::new(ErrorKind::PermissionDenied, "not-authorized", message)
    };
    match tenant {
        Some(tenant) => {
            let tenant_id = tenant_of(&caller, tenant).map_err(|_| denied())?;
            Ok(Caller { tenant_id, ..caller })
        }
        None if reach(caller.actor.role, Action::ActInAnotherTenant) < Reach::Platform => Err(denied()),
        None => {
            Err(bad("id-invalid", TENANT_HEADER, format!("`{TENANT_HEADER}` must be given once and be a tenant's id")))
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use signalbox_domain::identity::{Actor, Role};
    use signalbox_domain::ids::ActorId;

    use super::*;

    fn with(values: &[&[u8]]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn the_one_token_behind_bearer_is_the_credential() {
        for scheme in ["Bearer", "bearer", "BEARER"] {
            assert_eq!(credential(&with(&[format!("{scheme} a.b.c").as_bytes()])), Ok("a.b.c"));
        }
        let longest = "x".repeat(CREDENTIAL_BYTES_MAX);
        assert_eq!(credential(&with(&[format!("Bearer {longest}").as_bytes()])), Ok(longest.as_str()));
    }

    #[test]
    fn anything_else_in_the_header_is_no_credential() {
        assert_eq!(credential(&with(&[])), Err(HeaderProblem::Missing));
        assert_eq!(credential(&with(&[b"Bearer a", b"Bearer a"])), Err(HeaderProblem::Twice));
        let huge = format!("Bearer {}", "x".repeat(CREDENTIAL_BYTES_MAX + 1));
        assert_eq!(credential(&with(&[huge.as_bytes()])), Err(HeaderProblem::TooLong));
        let odd: [&[u8]; 12] = [
            b"",
            b"Bearer",
            b"Bearer ",
            b"Bearer  a",
            b"Bearer a b",
            b"Bearer a,Bearer b",
            b"Basic YTpi",
            b"a.b.c",
            b"Bearer\ta",
            "Bearer t\u{f6}ken".as_bytes(),
            b"Bearer a\xff",
            b"Bearer \"a\"",
        ];
        for odd in odd {
            assert_eq!(credential(&with(&[odd])), Err(HeaderProblem::NotBearer), "{}", String::from_utf8_lossy(odd));
        }
        assert!(HeaderValue::from_bytes(b"Bearer a\0b").is_err(), "a NUL comes not even this far");
    }

    fn asking(role: Role, tenants: &[&[u8]]) -> Result<String, String> {
        let actor = Actor { actor_id: ActorId::new("ann").unwrap(), role };
        let caller = Caller {
            tenant_id: TenantId::new("acme").unwrap(),
            actor,
            scopes: Vec::new(),
            surface: super::super::SURFACE,
        };
        let mut headers = HeaderMap::new();
        for tenant in tenants {
            headers.append(TENANT_HEADER, HeaderValue::from_bytes(tenant).unwrap());
        }
        let inside = in_tenant(caller, &headers);
        inside.map(|caller| caller.tenant_id.to_string()).map_err(|refusal| refusal.code().to_owned())
    }

    #[test]
    fn only_a_platform_operator_chooses_a_tenant() {
        for role in Role::ALL {
            assert_eq!(asking(role, &[]), Ok("acme".to_owned()));
            let chosen: [&[&[u8]]; 4] = [&[b"globex"], &[b"acme", b"globex"], &[b"../x"], &["\u{e9}".as_bytes()]];
            for (i, tenants) in chosen.into_iter().enumerate() {
                let told = match (role, i) {
                    (Role::PlatformOperator, 0) => Ok("globex".to_owned()),
                    (Role::PlatformOperator, _) => Err("id-invalid".to_owned()),
                    _ => Err("not-authorized".to_owned()),
                };
                assert_eq!(asking(role, tenants), told, "{role:?} {i}");
            }
        }
    }
}

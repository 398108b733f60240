//! Page tokens: opaque to clients, and good only for the tenant and the filter they were made for.
//!
//! A token is the last row's key and a checksum over it, the tenant and the filter. It grants nothing: a forged one
//! could only name another place in the caller's own list. The checksum is there so that a token that was cut, mixed up
//! or used with another filter is refused instead of silently skipping rows.

use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::ids::{PipelineId, RunKey, TenantId};
use signalbox_domain::run::status::RunStatus;
use uuid::Uuid;

use crate::errors::Refusal;
use crate::validate::bad;

const KEY_DIGITS: usize = 32;
const CHECK_DIGITS: usize = 16;

/// What a list is filtered by, as far as a token depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Listing<'a> {
    pub(crate) tenant: &'a TenantId,
    pub(crate) status: &'a [RunStatus],
    pub(crate) pipeline: Option<&'a PipelineId>,
}

/// The token for the page after `last`.
pub(crate) fn token(last: RunKey, listing: Listing<'_>) -> String {
    let key = last.uuid().simple().to_string();
    let check = checksum(&key, listing);
    format!("{key}{check}")
}

/// The key a token holds; `None` for the first page.
pub(crate) fn read(text: &str, listing: Listing<'_>) -> Result<Option<RunKey>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused =
        || bad("page-token-invalid", "page_token", "`page_token` is none of this list; start at the first page");
    if text.len() != KEY_DIGITS + CHECK_DIGITS || !text.is_ascii() {
        return Err(refused());
    }
    let (key, check) = text.split_at(KEY_DIGITS);
    if checksum(key, listing) != check {
        return Err(refused());
    }
    Uuid::try_parse(key).map(|uuid| Some(RunKey::new(uuid))).map_err(|_| refused())
}

fn checksum(key: &str, listing: Listing<'_>) -> String {
    let mut status: Vec<_> = listing.status.iter().map(|s| s.as_str()).collect();
    status.sort_unstable();
    let pipeline = listing.pipeline.map_or("", PipelineId::as_str);
    // No part can hold a line feed, so the join is unambiguous.
    let text = ["signalbox.page.v1", listing.tenant.as_str(), &status.join(","), pipeline, key].join("\n");
    sha256_hex(text.as_bytes()).chars().take(CHECK_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn a_token_reads_back_as_its_key_and_only_in_its_own_list() {
        let (acme, other) = (tenant("acme"), tenant("other"));
        let listing = Listing { tenant: &acme, status: &[RunStatus::Running], pipeline: None };
        let key = RunKey::new(Uuid::from_u128(7));
        let made = token(key, listing);
        assert_eq!(read(&made, listing), Ok(Some(key)));
        assert_eq!(read("", listing), Ok(None));
        for stranger in [
            Listing { tenant: &other, ..listing },
            Listing { status: &[], ..listing },
            Listing { status: &[RunStatus::Failed], ..listing },
        ] {
            assert_eq!(read(&made, stranger).unwrap_err().code(), "page-token-invalid");
        }
    }

    #[test]
    fn a_token_that_was_cut_or_changed_is_refused() {
        let acme = tenant("acme");
        let listing = Listing { tenant: &acme, status: &[], pipeline: None };
        let made = token(RunKey::new(Uuid::from_u128(7)), listing);
        let flipped = made.replacen('7', "8", 1);
        for text in [&made[1..], &flipped, "x", &"é".repeat(24), &"0".repeat(48)] {
            assert_eq!(read(text, listing).unwrap_err().code(), "page-token-invalid", "{text}");
        }
    }
}

//! Page tokens: opaque to clients, and good only for the list they were made for.
//!
//! A token is a place in the list and a checksum over it, the tenant and the filter. It grants nothing: a forged one could
//! only name another place in the caller's own list. The checksum is there so that a token that was cut, mixed up or used
//! with another filter is refused instead of silently skipping rows.

use signalbox_domain::canonical::sha256_hex;
use signalbox_domain::dashboard::{DashboardCursor, DashboardFilter};
use signalbox_domain::ids::{RunKey, TenantId};
use signalbox_domain::time::UnixMicros;
use uuid::Uuid;

use crate::api::Whose;
use crate::errors::Refusal;
use crate::validate::bad;

const INSTANT_DIGITS: usize = 16;
const KEY_DIGITS: usize = 32;
const CHECK_DIGITS: usize = 16;

/// What a token depends on, in one text: who asks, whose runs, and which. Page size and place are no part of it.
pub(crate) fn context(tenant: &TenantId, whose: &Whose, filter: &DashboardFilter) -> String {
    let mut filter = DashboardFilter { cursor: None, limit: 0, ..filter.clone() };
    filter.status.sort_unstable();
    filter.bucket.sort_unstable();
    filter.cost_band.sort_unstable();
    filter.latency_band.sort_unstable();
    // The debug form quotes every text, so no two filters have the same.
    format!("signalbox.page.v2\n{tenant}\n{whose:?}\n{filter:?}")
}

/// The token for the page behind a place.
pub(crate) fn token(place: DashboardCursor, context: &str) -> String {
    // As a number without sign, so that every instant has its sixteen digits.
    let place = format!("{:016x}{}", place.started_at.0.cast_unsigned(), place.run_key.uuid().simple());
    let check = checksum(&place, context);
    format!("{place}{check}")
}

/// The place a token holds; `None` for the first page.
pub(crate) fn read(text: &str, context: &str) -> Result<Option<DashboardCursor>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let refused =
        || bad("page-token-invalid", "page_token", "`page_token` is none of this list; start at the first page");
    // Looked at before anything is done with it: it may be a megabyte.
    if text.len() != INSTANT_DIGITS + KEY_DIGITS + CHECK_DIGITS || !text.is_ascii() {
        return Err(refused());
    }
    let (place, check) = text.split_at(INSTANT_DIGITS + KEY_DIGITS);
    if checksum(place, context) != check {
        return Err(refused());
    }
    let (instant, key) = place.split_at(INSTANT_DIGITS);
    let started_at = u64::from_str_radix(instant, 16).map_err(|_| refused())?;
    let run_key = RunKey::new(Uuid::try_parse(key).map_err(|_| refused())?);
    let place = DashboardCursor { started_at: UnixMicros(started_at.cast_signed()), run_key };
    // One place has one token: what reads as it and is written otherwise was not made here.
    if token(place, context) == text { Ok(Some(place)) } else { Err(refused()) }
}

fn checksum(place: &str, context: &str) -> String {
    sha256_hex(format!("{context}\n{place}").as_bytes()).chars().take(CHECK_DIGITS).collect()
}

#[cfg(test)]
mod tests {
    use signalbox_domain::run::status::RunStatus;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    fn place() -> DashboardCursor {
        DashboardCursor { started_at: UnixMicros(7), run_key: RunKey::new(Uuid::from_u128(7)) }
    }

    #[test]
    fn a_token_reads_back_as_its_place_and_only_in_its_own_list() {
        let running = DashboardFilter { status: vec![RunStatus::Running], ..DashboardFilter::default() };
        let (acme, own) = (tenant("acme"), Whose::Own);
        let here = context(&acme, &own, &running);
        for place in [place(), DashboardCursor { started_at: UnixMicros(i64::MIN), ..place() }] {
            assert_eq!(read(&token(place, &here), &here), Ok(Some(place)));
        }
        assert_eq!(read("", &here), Ok(None));
        let made = token(place(), &here);
        let with = |filter: &DashboardFilter| context(&acme, &own, filter);
        for elsewhere in [
            context(&tenant("other"), &own, &running),
            context(&acme, &Whose::All, &running),
            context(&acme, &Whose::Of(acme.clone()), &running),
            with(&DashboardFilter::default()),
            with(&DashboardFilter { status: vec![RunStatus::Failed], ..running.clone() }),
            with(&DashboardFilter { text: Some("x".into()), ..running.clone() }),
            with(&DashboardFilter { has_warnings: Some(false), ..running.clone() }),
        ] {
            assert_eq!(read(&made, &elsewhere).unwrap_err().code(), "page-token-invalid");
        }
        let another_size = DashboardFilter { limit: 9, cursor: Some(place()), ..running };
        assert_eq!(read(&made, &with(&another_size)), Ok(Some(place())), "the page size may change on the way");
    }

    #[test]
    fn a_token_that_was_cut_or_changed_is_refused() {
        let here = context(&tenant("acme"), &Whose::Own, &DashboardFilter::default());
        let made = token(place(), &here);
        let flipped = made.replacen('7', "8", 1);
        let huge = "0".repeat(1 << 20);
        for text in [&made[1..], &flipped, "x", &"é".repeat(32), &"0".repeat(64), &huge, "+", &made.to_uppercase()] {
            assert_eq!(read(text, &here).unwrap_err().code(), "page-token-invalid", "{:.80}", text);
        }
    }
}

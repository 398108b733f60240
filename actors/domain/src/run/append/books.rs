//! The shared meters that an entry moves: what it holds, and what it gives back.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ask, AskRefusal, NewEvent, Release};
use crate::governance::budget::{self, BudgetVerdict, MeterReading, MeteredBudget};
use crate::ids::BudgetId;
use crate::quantity::Micros;
use crate::run::event::{Reservation, RunEvent};

/// The shared meters of one entry.
pub(super) struct Books<'a> {
    pub(super) meters: &'a mut BTreeMap<BudgetId, MeteredBudget>,
    pub(super) retired: &'a BTreeSet<BudgetId>,
    pub(super) now_seconds: i64,
}

impl Books<'_> {
    /// Turns what a call has held into what it is charged; answers how its meters stand then.
    pub(super) fn settle(&mut self, release: &Release) -> Vec<MeterReading> {
        let mut readings = Vec::with_capacity(release.reservations.len());
        for reservation in in_order(&release.reservations) {
            if let Some(metered) = self.meters.get_mut(&reservation.budget_id) {
                budget::settle(
                    metered,
                    reservation.amount,
                    release.charged.get(reservation.category),
                    self.now_seconds,
                );
                readings.push(metered.reading(Micros::ZERO));
            }
        }
        readings
    }

    /// Holds what the ask's pending records reserve, and stamps them. All or nothing: one meter that says no leaves every
    /// other one as it was.
    pub(super) fn reserve(&mut self, ask: &Ask, epoch: u64) -> Result<Vec<NewEvent>, AskRefusal> {
        let mut events = ask.events.clone();
        let mut held: BTreeMap<BudgetId, MeteredBudget> = BTreeMap::new();
        for new in &mut events {
            let RunEvent::CallPending(pending) = &mut new.event else { continue };
            pending.epoch = epoch;
            pending.meters = Vec::with_capacity(pending.reservations.len());
            // What is recorded as held is what will be released: nothing is held on a budget that has been retired.
            pending.reservations.retain(|r| !self.retired.contains(&r.budget_id));
            let shared: Vec<_> = in_order(&pending.reservations).filter(|r| self.reservable(ask, r)).collect();
            for reservation in &shared {
                let id = &reservation.budget_id;
                let Some(metered) = held.get(id).or_else(|| self.meters.get(id)) else { continue };
                let mut metered = metered.clone();
                if budget::reserve(&mut metered, reservation.amount, self.now_seconds) == BudgetVerdict::Exceeded {
                    let readings = shared.iter().filter_map(|r| self.reading(r)).collect();
                    return Err(AskRefusal::Exceeded { budget_id: id.clone(), readings });
                }
                pending.meters.push(metered.reading(reservation.amount));
                held.insert(id.clone(), metered);
            }
        }
        self.meters.extend(held);
        Ok(events)
    }

    /// Whether a reservation stands on a shared meter that is in force and meant for this call. A run-scope budget has no
    /// meter; one that borrows the id of a foreign meter does not apply to the call, and so cannot touch it (I11).
    fn reservable(&self, ask: &Ask, reservation: &Reservation) -> bool {
        let id = &reservation.budget_id;
        !self.retired.contains(id)
            && self.meters.get(id).is_some_and(|metered| {
                metered.budget.category == reservation.category && budget::applies(&metered.budget, &ask.target)
            })
    }

    /// What the meter shows now, with nothing of the ask on it.
    fn reading(&self, reservation: &Reservation) -> Option<MeterReading> {
        let mut metered = self.meters.get(&reservation.budget_id)?.clone();
        budget::roll(&metered.budget, &mut metered.meter, self.now_seconds);
        Some(metered.reading(reservation.amount))
    }
}

/// Reservations by budget: the order in which every store locks meters.
fn in_order(reservations: &[Reservation]) -> impl Iterator<Item = &Reservation> {
    let mut sorted: Vec<_> = reservations.iter().collect();
    sorted.sort_by(|a, b| a.budget_id.cmp(&b.budget_id));
    sorted.into_iter()
}

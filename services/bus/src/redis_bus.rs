//! The bus by Redis: publish and subscribe on one channel for each store. It keeps nothing there, so nothing that happens
//! to a Redis can take anything away.
//!
//! A node that begins to hear says [`Notice::Missed`] to itself: first it subscribes, then everything is read. The way back
//! to a Redis that is gone is looked for without end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use signalbox_domain::ids::StoreIncarnation;
use signalbox_ports::bus::{Bus, BusStanding, Notice};
use signalbox_tls::ClientTls;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use uuid::Uuid;

use crate::heard::Heard;
use crate::message::{self, Sender};
use crate::redis_address::RedisAddress;
use crate::redis_link::{BusError, Ear, Link};

/// How often a silent connection is asked whether it lives.
const PING_EVERY: Duration = Duration::from_secs(1);
/// Notices that may wait to be said; more are lost.
const OUTBOX_MAX: usize = 1_024;
/// Notices said in one go.
const BATCH_MAX: usize = 256;
/// First pause before the connection is tried again; doubles up to [`AGAIN_MAX`].
const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(5);

/// One node's end of a bus by Redis.
#[derive(Debug)]
pub struct RedisBus {
    heard: Arc<Heard>,
    outbox: mpsc::Sender<Notice>,
    standing: watch::Receiver<BusStanding>,
    task: JoinHandle<()>,
}

/// What a look at a Redis found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// How long it took to connect, to subscribe and to be heard.
    pub took: Duration,
}

impl RedisBus {
    /// Begins to listen, among the nodes of one store. Does not wait for Redis, which may come later, go, and come back.
    pub fn start(address: RedisAddress, tls: Option<ClientTls>, store: StoreIncarnation) -> Self {
        let heard = Arc::new(Heard::default());
        let (outbox, waiting) = mpsc::channel(OUTBOX_MAX);
        let (told, standing) = watch::channel(BusStanding::Cut("not yet connected".to_owned()));
        let ear = Ear { channel: channel(store), sender: Sender(Uuid::new_v4()), heard: Arc::clone(&heard) };
        let task = tokio::spawn(Listening { address, tls, ear, waiting, told }.run());
        Self { heard, outbox, standing, task }
    }

    /// Connects once, subscribes and says something, to find out whether a node could.
    pub async fn probe(address: &RedisAddress, tls: Option<&ClientTls>) -> Result<Probe, BusError> {
        let begun = Instant::now();
        let sender = Sender(Uuid::new_v4());
        let ear = Ear { channel: format!("signalbox:probe:{}", sender.0.simple()), sender, heard: Arc::default() };
        let mut link = Link::open(address, tls, &ear).await?;
        link.publish(&ear.channel, &["probe".to_owned()]).await?;
        Ok(Probe { took: begun.elapsed() })
    }
}

impl Drop for RedisBus {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[async_trait]
impl Bus for RedisBus {
    fn announce(&self, notice: Notice) {
        // Full while Redis is gone: whoever comes back reads everything anyway.
        let _ = self.outbox.try_send(notice);
    }

    async fn next(&self) -> Notice {
        self.heard.next().await
    }

    fn standing(&self) -> BusStanding {
        self.standing.borrow().clone()
    }
}

/// Two clusters on one Redis have two channels.
fn channel(store: StoreIncarnation) -> String {
    format!("signalbox:v1:{}", store.uuid().simple())
}

struct Listening {
    address: RedisAddress,
    tls: Option<ClientTls>,
    ear: Ear,
    waiting: mpsc::Receiver<Notice>,
    told: watch::Sender<BusStanding>,
}

impl Listening {
    async fn run(mut self) {
        let place = self.address.place();
        let (mut times, mut since) = (0_u32, Instant::now());
        loop {
            let error = match Link::open(&self.address, self.tls.as_ref(), &self.ear).await {
                Ok(link) => {
                    tracing::info!(place, after_ms = since.elapsed().as_millis(), "the bus is heard");
                    times = 0;
                    // Subscribed first; what was said before is read now.
                    self.ear.heard.hear(Notice::Missed);
                    self.told.send_replace(BusStanding::Connected);
                    match self.serve(link).await {
                        Some(error) => error,
                        None => return,
                    }
                }
                Err(error) => error,
            };
            if times == 0 {
                since = Instant::now();
                tracing::warn!(
                    place, %error, code = error.code(),
                    "the bus is not heard; nodes find each other's changes in the store, which takes up to a second"
                );
            }
            self.told.send_replace(BusStanding::Cut(error.to_string()));
            times = times.saturating_add(1);
            sleep(pause(times, Uuid::new_v4().as_u128())).await;
        }
    }

    /// Until the connection is dead; `None` once nobody has anything to say any more.
    async fn serve(&mut self, mut link: Link) -> Option<BusError> {
        let mut ping = interval(PING_EVERY);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let done = tokio::select! {
                () = link.until_cut() => Err(BusError::Cut),
                notice = self.waiting.recv() => {
                    let mut messages: Vec<String> = message::written(self.ear.sender, notice?).into_iter().collect();
                    while messages.len() < BATCH_MAX && let Ok(next) = self.waiting.try_recv() {
                        messages.extend(message::written(self.ear.sender, next));
                    }
                    if messages.is_empty() { Ok(()) } else { link.publish(&self.ear.channel, &messages).await }
                }
                _ = ping.tick() => link.ping().await,
            };
            if let Err(error) = done {
                return Some(error);
            }
        }
    }
}

/// Between half and all of a doubling pause, so that nodes that lost one Redis do not all come back at once.
fn pause(times: u32, dice: u128) -> Duration {
    let longest = AGAIN.saturating_mul(1 << times.saturating_sub(1).min(10)).min(AGAIN_MAX);
    let share = u32::try_from(dice % 512).unwrap_or_default();
    longest * (512 + share) / 1_024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound_and_are_spread() {
        for (times, longest) in [(1, 100), (2, 200), (6, 3_200), (7, 5_000), (u32::MAX, 5_000)] {
            let longest = Duration::from_millis(longest);
            assert_eq!(pause(times, 0), longest / 2);
            assert!(pause(times, 511) < longest && pause(times, 511) > longest * 9 / 10);
        }
    }
}

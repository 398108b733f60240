//! A bad link to PostgreSQL: commits are cut off before they arrive, or after they were made and before anybody hears of
//! it. The node stays, and must find out each time what became of its transaction.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use signalbox_store::testing::TemporaryDatabase;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use uuid::Uuid;

use crate::books::{compare, settled_once};
use crate::crowd::{Dice, come_to_rest, seed, submit, verify_all};
use crate::receipts::{AT_MOST_ONCE, DEDUPLICATING, IDEMPOTENT, Receipts, Way};
use crate::station::{Place, Station};

const RUNS: usize = 60;
/// Most commits from one that is cut to the next. However the dice fall, some are cut of each kind.
const GAP_MAX: u64 = 15;
/// How long the link stays bad at most.
const BAD_FOR_MAX: Duration = Duration::from_secs(15);

/// Relays to the server, and cuts commits while it is bad.
struct BadLink {
    bad: AtomicBool,
    before: AtomicUsize,
    after: AtomicUsize,
    /// How many commits pass before the next is cut, and what says so anew.
    next: Mutex<(u64, Dice)>,
}

#[derive(PartialEq)]
enum Cut {
    BeforeCommit,
    AfterCommit,
}

impl BadLink {
    /// The link and the port it listens on.
    async fn to(server: (String, u16), mut dice: Dice) -> (Arc<Self>, u16) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (before, after) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let next = Mutex::new((dice.roll(GAP_MAX), dice));
        let link = Arc::new(Self { bad: AtomicBool::new(false), before, after, next });
        let accepting = link.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(accepting.clone().relay(client, server.clone()));
            }
        });
        (link, port)
    }

    fn cut(&self) -> Option<Cut> {
        if !self.bad.load(Ordering::SeqCst) {
            return None;
        }
        let mut next = self.next.lock().unwrap();
        let (gap, dice) = &mut *next;
        if *gap > 0 {
            *gap -= 1;
            return None;
        }
        *gap = dice.roll(GAP_MAX);
        // By turns, so that there are both.
        if self.before.load(Ordering::SeqCst) <= self.after.load(Ordering::SeqCst) {
            self.before.fetch_add(1, Ordering::SeqCst);
            Some(Cut::BeforeCommit)
        } else {
            self.after.fetch_add(1, Ordering::SeqCst);
            Some(Cut::AfterCommit)
        }
    }

    /// Carries bytes both ways until one side ends or a commit is cut. Both sockets close with it.
    async fn relay(self: Arc<Self>, mut client: TcpStream, server: (String, u16)) {
        let Ok(mut server) = TcpStream::connect(server).await else { return };
        let (mut up, mut down) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            tokio::select! {
                read = client.read(&mut up) => {
                    let Ok(length @ 1..) = read else { return };
                    let is_commit = up[..length].windows(7).any(|bytes| bytes == b"COMMIT\0");
                    let cut = if is_commit { self.cut() } else { None };
                    if cut == Some(Cut::BeforeCommit) || server.write_all(&up[..length]).await.is_err() {
                        return;
                    }
                    if cut == Some(Cut::AfterCommit) {
                        // Only once the server has answered is it sure to have committed.
                        let _ = server.read(&mut down).await;
                        return;
                    }
                }
                read = server.read(&mut down) => {
                    let Ok(length @ 1..) = read else { return };
                    if client.write_all(&down[..length]).await.is_err() {
                        return;
                    }
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commits_that_are_cut_off_on_the_way_to_postgres_lose_and_repeat_nothing() {
    let seed = seed();
    println!("SIGNALBOX_TEST_SEED={seed}");
    let receipts = Receipts::start();
    for tool in [IDEMPOTENT, DEDUPLICATING, AT_MOST_ONCE] {
        receipts.on(tool, Way { works_ms: 20, ..Way::default() });
    }
    let database = TemporaryDatabase::create().await;
    let (link, port) = BadLink::to(database.address(), Dice(seed)).await;
    let mut station = Station::build(Place::PostgresAt(database, port), &receipts);
    link.bad.store(true, Ordering::SeqCst);
    let (moved, addr) = watch::channel(station.addr());
    let runs: Vec<Uuid> = (0..RUNS).map(|_| Uuid::now_v7()).collect();
    let submissions: Vec<_> = runs.iter().map(|run| tokio::spawn(submit(*run, addr.clone()))).collect();
    let begun = Instant::now();
    while receipts.all_executions() < RUNS * 3 && begun.elapsed() < BAD_FOR_MAX {
        tokio::time::sleep(Duration::from_millis(50)).await;
        if station.has_ended() {
            // A node that cannot know what is its own ends, and whatever watches over processes starts another.
            link.bad.store(false, Ordering::SeqCst);
            station.start();
            moved.send_replace(station.addr());
            link.bad.store(true, Ordering::SeqCst);
        }
    }
    link.bad.store(false, Ordering::SeqCst);
    if station.has_ended() {
        station.start();
        moved.send_replace(station.addr());
    }
    for submission in submissions {
        submission.await.unwrap();
    }
    let cuts = (link.before.load(Ordering::SeqCst), link.after.load(Ordering::SeqCst));
    assert!(cuts.0 > 0 && cuts.1 > 0, "the link was bad: {cuts:?}");

    let decided = come_to_rest(&station).await;
    let mut client = station.client().await;
    let mut envelopes = Vec::with_capacity(RUNS);
    for run in &runs {
        envelopes.push(client.get(*run).await);
    }
    verify_all(&station.addr(), &runs).await;
    let (meters, journals) = station.books(&runs).await;
    settled_once(&journals);
    let compared = compare(&envelopes, &receipts.read(), &meters);
    println!("cut before and after: {cuts:?}; {compared:?}; decided: {decided:?}");
    assert_eq!(compared.unknown.len(), decided.values().sum::<usize>());
}

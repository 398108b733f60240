//! What happens to a Redis, or is said on it, does a node no harm, and the way back is found.

use std::time::Duration;

use signalbox_bus::{RedisAddress, RedisBus};
use signalbox_domain::ids::{RunKey, StoreIncarnation};
use signalbox_ports::bus::{Bus as _, BusStanding, Notice};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::proxy::Proxy;
use crate::server::{Redis, free_port};

const PATIENCE: Duration = Duration::from_secs(20);

fn store(number: u128) -> StoreIncarnation {
    StoreIncarnation::new(Uuid::from_u128(number))
}

fn end(url: &str) -> RedisBus {
    RedisBus::start(url.parse().unwrap(), None, store(1))
}

fn through(port: u16) -> RedisBus {
    end(&format!("redis://127.0.0.1:{port}"))
}

async fn heard(end: &RedisBus) -> Notice {
    timeout(PATIENCE, end.next()).await.expect("nothing was heard")
}

async fn hears(end: &RedisBus) {
    assert_eq!(heard(end).await, Notice::Missed);
    assert_eq!(end.standing(), BusStanding::Connected);
}

async fn until(end: &RedisBus, connected: bool) -> Duration {
    let begun = Instant::now();
    while (end.standing() == BusStanding::Connected) != connected {
        assert!(begun.elapsed() < PATIENCE, "{:?}", end.standing());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    begun.elapsed()
}

/// Says an epoch again and again until it is heard: what was said on a dead wire is lost, as it may be.
async fn told(from: &RedisBus, to: &RedisBus, epoch: u64) {
    let begun = Instant::now();
    loop {
        from.announce(Notice::Governance(epoch));
        match timeout(Duration::from_millis(200), to.next()).await {
            Ok(Notice::Governance(heard)) if heard == epoch => return,
            _ => assert!(begun.elapsed() < PATIENCE, "epoch {epoch} is not heard"),
        }
    }
}

#[tokio::test]
async fn a_node_that_comes_back_to_a_redis_that_was_stopped_reads_everything_anew() {
    let mut redis = Redis::start().await;
    let (one, two) = (end(&redis.url()), end(&redis.url()));
    hears(&one).await;
    hears(&two).await;
    redis.stop();
    until(&one, false).await;
    until(&two, false).await;
    // Said to nobody; nothing waits and nothing fails.
    for epoch in 0..5_000 {
        one.announce(Notice::Governance(epoch));
    }
    redis.start_again().await;
    hears(&one).await;
    hears(&two).await;
    told(&one, &two, 9_000).await;
}

#[tokio::test]
async fn a_wire_that_goes_dead_without_a_word_is_noticed_within_three_seconds() {
    let redis = Redis::start().await;
    let (proxy, direct) = (Proxy::to(redis.port).await, end(&redis.url()));
    let behind = through(proxy.port);
    hears(&behind).await;
    hears(&direct).await;
    proxy.goes_dead(true);
    let noticed = until(&behind, false).await;
    assert!(noticed < Duration::from_secs(3), "{noticed:?}");
    println!("a dead wire is noticed after {noticed:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    proxy.goes_dead(false);
    hears(&behind).await;
    told(&direct, &behind, 2).await;
    told(&behind, &direct, 3).await;
}

#[tokio::test]
async fn a_connection_that_an_operator_kills_comes_back_at_once() {
    let redis = Redis::start().await;
    let (one, two) = (end(&redis.url()), end(&redis.url()));
    hears(&one).await;
    hears(&two).await;
    let begun = Instant::now();
    assert!(redis.say(&[b"CLIENT", b"KILL", b"TYPE", b"pubsub"]).await.starts_with(':'));
    hears(&one).await;
    hears(&two).await;
    println!("both hear again after {:?}", begun.elapsed());
    assert!(begun.elapsed() < Duration::from_secs(3));
    told(&one, &two, 2).await;
}

#[tokio::test]
async fn a_redis_that_is_emptied_takes_nothing_away() {
    let redis = Redis::start().await;
    let (one, two) = (end(&redis.url()), end(&redis.url()));
    hears(&one).await;
    hears(&two).await;
    assert_eq!(redis.say(&[b"FLUSHALL"]).await, "+OK\r\n");
    one.announce(Notice::Governance(2));
    assert_eq!(heard(&two).await, Notice::Governance(2));
    assert_eq!(redis.say(&[b"DBSIZE"]).await, ":0\r\n", "nothing is kept there");
}

#[tokio::test]
async fn two_clusters_on_one_redis_do_not_hear_each_other() {
    let redis = Redis::start().await;
    let ours = end(&redis.url());
    let theirs = RedisBus::start(redis.url().parse().unwrap(), None, store(2));
    let also_ours = end(&redis.url());
    for end in [&ours, &theirs, &also_ours] {
        hears(end).await;
    }
    ours.announce(Notice::Governance(5));
    assert_eq!(heard(&also_ours).await, Notice::Governance(5));
    assert!(timeout(Duration::from_millis(300), theirs.next()).await.is_err());
}

#[tokio::test]
async fn whatever_somebody_else_says_on_our_channel_does_no_harm() {
    let redis = Redis::start().await;
    let (one, two) = (end(&redis.url()), end(&redis.url()));
    hears(&one).await;
    hears(&two).await;
    let channel = format!("signalbox:v1:{}", store(1).uuid().simple());
    let huge = vec![b'x'; 10 << 20];
    let texts: [&[u8]; 7] = [
        b"",
        b"\0\xff\xfe",
        b"governance 99",
        b"{\"epoch\":99}",
        b"00000000000000000000000000000000 governance 99999999999999999999999",
        b"00000000000000000000000000000000 shutdown now",
        &huge,
    ];
    for text in texts {
        assert_eq!(redis.say(&[b"PUBLISH", channel.as_bytes(), text]).await, ":2\r\n");
    }
    // Keys that are called as we are called.
    redis.say(&[b"SET", channel.as_bytes(), b"somebody else's"]).await;
    one.announce(Notice::Governance(2));
    assert_eq!(heard(&two).await, Notice::Governance(2), "none of it was taken for a notice");
    assert_eq!((one.standing(), two.standing()), (BusStanding::Connected, BusStanding::Connected));
}

#[tokio::test]
async fn a_wrong_password_is_named_and_the_right_one_lets_in() {
    let redis = Redis::with(free_port().await, Some("FAKE-right")).await;
    let wrong = end(&redis.url().replace("FAKE-right", "FAKE-wrong"));
    let none = through(redis.port);
    for refused in [&wrong, &none] {
        let begun = Instant::now();
        loop {
            match refused.standing() {
                BusStanding::Cut(why) if why.starts_with("refused") => {
                    assert!(!why.contains("FAKE"), "{why}");
                    break;
                }
                other @ (BusStanding::Local | BusStanding::Connected | BusStanding::Cut(_)) => {
                    assert!(begun.elapsed() < PATIENCE, "{other:?}")
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    hears(&end(&redis.url())).await;
    let address: RedisAddress = redis.url().replace("FAKE-right", "FAKE-wrong").parse().unwrap();
    assert_eq!(RedisBus::probe(&address, None).await.unwrap_err().code(), "bus-refused");
    assert!(RedisBus::probe(&redis.url().parse().unwrap(), None).await.is_ok());
}

#[tokio::test]
async fn whatever_is_no_redis_is_named_and_left_when_a_redis_is_there() {
    let port = free_port().await;
    let said: [&'static [u8]; 4] = [
        b"",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"\xff\xfe\x00garbage\r\n",
        b"$99999999999\r\n",
    ];
    for says in said {
        let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let other = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(says).await;
                kept.push(stream);
            }
        });
        let address: RedisAddress = format!("redis://127.0.0.1:{port}").parse().unwrap();
        let begun = Instant::now();
        let error = RedisBus::probe(&address, None).await.unwrap_err();
        assert!(begun.elapsed() < Duration::from_secs(5), "{error}");
        other.abort();
        let _ = other.await;
    }
    let bus = through(port);
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(matches!(bus.standing(), BusStanding::Cut(_)));
    let _redis = Redis::with(port, None).await;
    hears(&bus).await;
}

#[tokio::test]
async fn a_node_whose_channel_is_taken_from_it_notices() {
    let redis = Redis::start().await;
    let (one, two) = (end(&redis.url()), end(&redis.url()));
    hears(&one).await;
    hears(&two).await;
    // Redis cuts whoever may no longer hear what it hears.
    assert_eq!(redis.say(&[b"ACL", b"SETUSER", b"default", b"resetchannels"]).await, "+OK\r\n");
    until(&one, false).await;
    assert_eq!(redis.say(&[b"ACL", b"SETUSER", b"default", b"allchannels"]).await, "+OK\r\n");
    until(&one, true).await;
    until(&two, true).await;
    told(&one, &two, 2).await;
}

#[tokio::test]
async fn saying_something_never_waits() {
    let bus = through(free_port().await);
    let begun = Instant::now();
    for number in 0..100_000_u128 {
        bus.announce(Notice::Moved(RunKey::new(Uuid::from_u128(number))));
    }
    assert!(begun.elapsed() < Duration::from_secs(2));
}

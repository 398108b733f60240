//! The bus by Redis keeps the promises every bus keeps.

use std::sync::Arc;

use signalbox_bus::RedisBus;
use signalbox_domain::ids::StoreIncarnation;
use signalbox_ports::conformance::BusFixture;
use uuid::Uuid;

use crate::server::Redis;

async fn open() -> BusFixture {
    let redis = Redis::start().await;
    let store = StoreIncarnation::new(Uuid::new_v4());
    let end = || Arc::new(RedisBus::start(redis.url().parse().unwrap(), None, store));
    BusFixture::over([end(), end(), end()], redis)
}

signalbox_ports::bus_conformance!(crate::redis_conformance::open);

//! The bus between nodes: in the process, or by Redis.
//!
//! A notice says only where to look, and nobody believes it: whoever hears it reads the store. So a bus may lose and merge
//! notices, and these do. Knows Redis, and nothing of what a notice is about.

mod heard;
mod local;
mod message;
mod redis_address;
mod redis_bus;
mod redis_link;

pub use local::LocalBus;
pub use redis_address::{AddressError, RedisAddress};
pub use redis_bus::{Probe, RedisBus};
pub use redis_link::BusError;

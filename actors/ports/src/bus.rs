//! Announcements of governance changes: a courtesy that makes them fast. A message is never believed, only followed up.

use async_trait::async_trait;

/// The bus.
#[async_trait]
pub trait Bus: Send + Sync + 'static {
    /// Says that the store has reached this epoch. Failing to say so loses nothing.
    async fn announce(&self, epoch: u64);
    /// Waits for the next announcement. Messages may be lost or merged.
    async fn next(&self) -> u64;
}

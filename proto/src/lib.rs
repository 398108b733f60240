//! The wire contract of signalbox: the .proto files and the code generated from them. With the feature `client` there is a
//! thin client beside it, for backend services that submit, follow and steer runs.

#[cfg(feature = "client")]
pub mod client;

/// Package `signalbox.v1`.
#[allow(
    missing_docs,
    unreachable_pub,
    clippy::all,
    clippy::allow_attributes_without_reason,
    reason = "generated; the documentation stands in the .proto files"
)]
pub mod v1 {
    tonic::include_proto!("signalbox.v1");

    impl std::fmt::Debug for ExecuteRequest {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("ExecuteRequest")
                .field("call_id", &self.call_id)
                .field("attempt", &self.attempt)
                .field("tool_id", &self.tool_id)
                .finish_non_exhaustive()
        }
    }

    impl std::fmt::Debug for CreateApiKeyResponse {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("CreateApiKeyResponse").field("api_key", &self.api_key).finish_non_exhaustive()
        }
    }

    /// The encoded file descriptors, for reflection.
    pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/signalbox_v1.bin"));
}

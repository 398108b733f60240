//! The edges: gRPC, health and reflection.

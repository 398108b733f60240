//! The journal on SQLite, and blobs in an object store.

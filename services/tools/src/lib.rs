//! The executor client, the executor server, and the bundled tools.

//! Isolation: secrets, paths, hosts and methods of a call against the bounds of its grant (CAP).

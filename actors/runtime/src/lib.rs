//! The ractor actors: they apply the rules through the ports.

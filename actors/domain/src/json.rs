//! Reading JSON from outside: size, depth, duplicate keys and numbers are checked before anything is believed.

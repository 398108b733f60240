//! Pipelines as data (PIP).

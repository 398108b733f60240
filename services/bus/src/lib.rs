//! The bus that announces governance changes: in-process here, Redis later.

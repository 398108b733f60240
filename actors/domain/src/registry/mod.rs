//! Agent families and their tool ceilings (REG).

//! What every reader makes of a source: a list of blocks of readable text.

use super::mapped::Mapped;

/// Most blocks that are read from one document.
pub(crate) const BLOCKS_MAX: usize = 20_000;

/// What a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockKind {
    /// A heading and its level, from 1.
    Heading(u8),
    /// Running text.
    Paragraph,
    /// An entry of a list, or a cell of a table: rarely whole sentences.
    Entry,
}

/// A block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) kind: BlockKind,
    pub(crate) text: Mapped,
}

/// What a reader found out about a text that is no advisory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Reading {
    /// The title, if one is marked as such.
    pub(crate) title: Option<Mapped>,
    /// `YYYY-MM-DD`, if one is marked as such.
    pub(crate) date: Option<String>,
    /// Where it says it lives.
    pub(crate) link: Option<String>,
    /// The text.
    pub(crate) blocks: Vec<Block>,
}
